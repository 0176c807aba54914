"""HTTP/1.1 on asyncio, as thin as MCP allows.

=====================  ======================================================================
``interface``          Request, Responder and Headers: all that transports know of HTTP
``limits``             HTTPLimits: what a server takes, and for how long it waits
``deadlines``          coarse timers, one set per event loop
``native_server``      NativeServer: our own listener
``_sockets``           its listening sockets
``_h1_*``              its connections: ``_h1_connection`` is the machine, ``_h1_parser`` and
                       ``_h1_head`` read heads, ``_h1_body`` and ``_h1_chunked`` bodies,
                       ``_h1_responder`` writes answers
``asgi``               ASGIApp: a handler as an ASGI application; one request is an
                       ``_asgi_exchange``, what comes for it an ``_asgi_input``;
                       ``_long_waits`` tells those apart that need a timer
``_backlog``           readers that are too far behind, of both
``_running``           a handler's task, and what to answer when it raises, of both
``client_interface``   the same for clients: Backend, ClientResponse; redirects
``client_request``     addresses and headers of requests, checked and encoded once
``native_client``      NativeClient: our own pool of keep-alive connections
``native_connection``  one of them: HTTP/1.1 answers out of bytes
``httpx_backend``      requests over a client of httpx or httpx2
``backends``           which of these carries a transport's requests
=====================  ======================================================================
"""

from .interface import Request, Responder

__all__ = ["Request", "Responder"]
