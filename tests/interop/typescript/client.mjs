// The SDK's client over HTTP+SSE or Streamable HTTP, driven by a test.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ListRootsRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { digest, obey } from './lines.mjs';

const client = new Client({ name: 'typescript-client', version: '1' }, { capabilities: { roots: {} } });
const notifications = [];
const errors = [];
let closed = false;
let transport;

client.fallbackNotificationHandler = async ({ method, params }) => void notifications.push({ method, params });
client.setRequestHandler(ListRootsRequestSchema, async () => ({ roots: [{ uri: 'file:///root', name: 'root' }] }));
client.onerror = (error) => void errors.push(String(error.message));
client.onclose = () => void (closed = true);

const echo = async (text) => (await client.callTool({ name: 'echo', arguments: { text } })).content[0].text;

await obey({
  async connect({ url }) {
    const Transport = url.endsWith('/sse') ? SSEClientTransport : StreamableHTTPClientTransport;
    transport = new Transport(new URL(url));
    await client.connect(transport);
    return { server: client.getServerVersion(), capabilities: client.getServerCapabilities() };
  },
  list: async () => (await client.listTools()).tools.map((tool) => tool.name),
  call: ({ name, arguments: args }) => client.callTool({ name, arguments: args }),
  async big({ characters }) {
    const { content } = await client.callTool({ name: 'big', arguments: { characters } });
    return { characters: Array.from(content[0].text).length, digest: digest(content[0].text) };
  },
  echoes: ({ texts }) => Promise.all(texts.map(echo)),
  // The SDK forgets who wants progress as soon as it sees the result, and looks at notifications later: those that
  // come in one piece with the result are lost on it. So the tool answers when it is told that they were seen.
  async progress({ steps }) {
    const seen = [];
    const onprogress = (progress) => {
      if (seen.push(progress) === steps) client.notification({ method: 'notifications/seen' });
    };
    await client.callTool({ name: 'progress', arguments: { steps } }, undefined, { onprogress });
    return seen;
  },
  async cancel() {
    const controller = new AbortController();
    const call = client.callTool({ name: 'wait', arguments: {} }, undefined, { signal: controller.signal });
    setTimeout(() => controller.abort('enough'), 50);
    return call.then(() => 'answered', (error) => String(error.message ?? error));
  },
  ping: () => client.ping(),
  state: () => ({ notifications, errors, closed }),
  async close() {
    await transport.terminateSession?.(); // over HTTP+SSE the connection's end is the session's
    await client.close();
  },
});
