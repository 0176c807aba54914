// How a test talks to a peer: a line of JSON per command on stdin, a line of JSON per answer on stdout.
// The peer ends with its stdin, so that it never outlives the test.

import { createHash } from 'node:crypto';
import { createInterface } from 'node:readline';

export function say(message) {
  process.stdout.write(JSON.stringify(message) + '\n');
}

export async function obey(commands) {
  for await (const line of createInterface({ input: process.stdin })) {
    const { do: name, ...options } = JSON.parse(line);
    try {
      say({ result: (await commands[name](options)) ?? null });
    } catch (error) {
      say({ error: String(error?.message ?? error), code: error?.code ?? null });
    }
  }
  process.exit(0);
}

export function digest(text) {
  return createHash('sha256').update(text, 'utf8').digest('hex');
}
