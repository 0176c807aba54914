// The SDK's server over HTTP+SSE and Streamable HTTP on Node's own HTTP server, driven by a test.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import {
  CallToolRequestSchema,
  ErrorCode,
  ListRootsResultSchema,
  ListToolsRequestSchema,
  McpError,
} from '@modelcontextprotocol/sdk/types.js';
import { digest, obey, say } from './lines.mjs';

const sessions = new Map();
const cancelled = [];
const gates = [];

const text = (value) => ({ content: [{ type: 'text', text: value }] });

// Of one, two, three and four bytes in UTF-8; the last is two of JavaScript's characters and one of Python's.
const big = (characters) => Array.from('aé€😀'.repeat(Math.ceil(characters / 4))).slice(0, characters).join('');

const tools = {
  echo: ({ text: value }) => text(value),
  big: ({ characters }) => text(big(characters)),
  fail() {
    throw new McpError(ErrorCode.InvalidParams, 'no such luck', { why: 'asked for' });
  },
  async progress({ steps }, { _meta, sendNotification }) {
    for (let step = 1; step <= steps; step++) {
      const params = { progressToken: _meta.progressToken, progress: step, total: steps };
      await sendNotification({ method: 'notifications/progress', params });
    }
    return text('done');
  },
  // Reports progress in three goes of so many steps; a command of the test lets it go on.
  async gated({ steps }, { _meta, sendNotification }) {
    for (let step = 0; step < 3 * steps; step++) {
      if (step && step % steps === 0) await new Promise((resolve) => gates.push(resolve));
      const params = { progressToken: _meta.progressToken, progress: step, message: `step-${step}.` };
      await sendNotification({ method: 'notifications/progress', params });
    }
    return text('done');
  },
  async roots(_, { sendRequest }) {
    const { roots } = await sendRequest({ method: 'roots/list' }, ListRootsResultSchema);
    return text(JSON.stringify(roots));
  },
  async wait(_, { signal, requestId }) {
    await new Promise((resolve) => signal.addEventListener('abort', resolve));
    cancelled.push(requestId);
    return text('too late');
  },
};

function mcp() {
  const server = new Server({ name: 'typescript-server', version: '1' }, { capabilities: { tools: {}, logging: {} } });
  server.setRequestHandler(ListToolsRequestSchema, async () => ({
    tools: Object.keys(tools).map((name) => ({ name, inputSchema: { type: 'object' } })),
  }));
  server.setRequestHandler(CallToolRequestSchema, async ({ params }, extra) => tools[params.name](params.arguments, extra));
  return server;
}

// Keeps all events, as an example would.
class Store {
  events = [];

  async storeEvent(streamId, message) {
    this.events.push({ streamId, message });
    return String(this.events.length);
  }

  async replayEventsAfter(lastEventId, { send }) {
    const { streamId } = this.events[Number(lastEventId) - 1];
    for (const [index, event] of this.events.entries()) {
      if (index >= Number(lastEventId) && event.streamId === streamId) await send(String(index + 1), event.message);
    }
    return streamId;
  }
}

async function streamable(request, response) {
  const known = sessions.get(request.headers['mcp-session-id']);
  if (known) return known.transport.handleRequest(request, response);
  if (request.headers['mcp-session-id']) return response.writeHead(404).end();
  const server = mcp();
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: () => randomUUID(),
    eventStore: new Store(),
    retryInterval: 100,
    onsessioninitialized: (id) => sessions.set(id, { server, transport }),
    onsessionclosed: (id) => sessions.delete(id),
  });
  await server.connect(transport);
  await transport.handleRequest(request, response);
}

const listener = createServer(async (request, response) => {
  const url = new URL(request.url, 'http://localhost');
  if (url.pathname === '/mcp') {
    await streamable(request, response);
  } else if (request.method === 'GET' && url.pathname === '/sse') {
    const transport = new SSEServerTransport('/messages', response);
    const server = mcp();
    sessions.set(transport.sessionId, { server, transport });
    server.onclose = () => sessions.delete(transport.sessionId);
    await server.connect(transport);
  } else if (request.method === 'POST' && sessions.has(url.searchParams.get('sessionId'))) {
    await sessions.get(url.searchParams.get('sessionId')).transport.handlePostMessage(request, response);
  } else {
    response.writeHead(404).end();
  }
});

listener.listen(0, '127.0.0.1', async () => {
  say({ port: listener.address().port });
  await obey({
    state: () => ({ sessions: sessions.size, cancelled }),
    notify: async ({ method, params }) => {
      for (const { server } of sessions.values()) await server.notification({ method, params });
    },
    open_gate: () => (gates.length ? gates.shift()() : null) ?? gates.length,
    forget_sessions: () => sessions.clear(),
    digest: ({ characters }) => digest(big(characters)),
    hang_up: () => Promise.all([...sessions.values()].map(({ server }) => server.close())),
  });
});
