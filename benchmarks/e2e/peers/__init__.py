"""The servers under load, each a program: ``python -m benchmarks.e2e.peers.NAME`` with its options.

A peer listens on a free port of 127.0.0.1, says so in a line of JSON, then obeys commands on its stdin
until that closes (`host`). All of them echo: the tool's answer is one text item with the text it got.

* ``ours``: mcpfast, on its own listener or as ASGI application under uvicorn;
* ``sdk``: the official SDK's HTTP+SSE application under uvicorn, lowlevel `Server` or `MCPServer`;
* ``bare``: the least code that does the same exchange on uvloop, httptools and orjson;
* ``bare_asgi``: the same as an ASGI application under uvicorn.
"""
