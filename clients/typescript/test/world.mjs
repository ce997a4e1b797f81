// What the tests run against: a real `skein dev`, an agent over HTTP, and a TCP proxy that cuts connections.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { connect, createServer as createTcpServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = fileURLToPath(new URL('.', import.meta.url));
const bin = join(process.env.SKEIN_TEST_BIN ?? join(here, '../../../bin'), 'skein');

/** Starts `skein dev` on free ports and a folder of its own. Its restart keeps both. */
export async function startSkein({ agents = {}, args = [], listen = '127.0.0.1' } = {}) {
  if (!existsSync(bin)) throw new Error(`${bin} is missing: run make build, or name its folder in SKEIN_TEST_BIN`);
  const folder = mkdtempSync(join(tmpdir(), 'skein-client-'));
  const port = await freePort();
  const self = { url: `http://127.0.0.1:${port}`, port, folder };
  self.start = async () => {
    const flags = ['dev', '--data', folder, '--listen', `${listen}:${port}`, '--kafka-listen', '127.0.0.1:0', ...args];
    for (const [name, url] of Object.entries(agents)) flags.push('--agent', `${name}=${url}`);
    self.process = spawn(bin, flags, { stdio: ['ignore', 'pipe', 'pipe'] });
    self.output = '';
    for (const stream of [self.process.stdout, self.process.stderr]) stream.on('data', (text) => (self.output += text));
    await until(async () => {
      if (self.process.exitCode !== null) throw new Error(`skein dev ended: ${self.output}`);
      const response = await fetch(`${self.url}/v1/threads`).catch(() => undefined);
      return response && response.status !== 503;
    }, 'skein dev answers');
  };
  self.kill = async (signal = 'SIGKILL') => {
    if (self.process.exitCode !== null || self.process.signalCode !== null) return;
    const exit = once(self.process, 'exit');
    self.process.kill(signal);
    await exit;
  };
  self.stop = async () => {
    await self.kill();
    rmSync(folder, { recursive: true, force: true });
  };
  await self.start();
  return self;
}

/** The events of a run: `words` text deltas, a tool call and a state that counts the words. */
export function* runEvents({ threadId, runId }, words = 5) {
  yield { type: 'RUN_STARTED', threadId, runId };
  yield { type: 'STATE_SNAPSHOT', snapshot: { words: 0 } };
  yield { type: 'TEXT_MESSAGE_START', messageId: `${runId}-text`, role: 'assistant' };
  for (let i = 0; i < words; i++) {
    yield { type: 'TEXT_MESSAGE_CONTENT', messageId: `${runId}-text`, delta: `wörd\u2028${i} ` };
    yield { type: 'STATE_DELTA', delta: [{ op: 'replace', path: '/words', value: i + 1 }] };
  }
  yield { type: 'TEXT_MESSAGE_END', messageId: `${runId}-text` };
  yield { type: 'TOOL_CALL_START', toolCallId: `${runId}-call`, toolCallName: 'look', parentMessageId: `${runId}-text` };
  yield { type: 'TOOL_CALL_ARGS', toolCallId: `${runId}-call`, delta: '{"at":1}' };
  yield { type: 'TOOL_CALL_END', toolCallId: `${runId}-call` };
  yield { type: 'TOOL_CALL_RESULT', messageId: `${runId}-result`, toolCallId: `${runId}-call`, content: 'seen' };
  yield { type: 'RUN_FINISHED', threadId, runId };
}

/** An agent over HTTP. `forwardedProps` say how many `words` it answers, and how long it waits between events (`pause`, ms). */
export async function startAgent() {
  const calls = [];
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const part of request) body += part;
    const input = JSON.parse(body);
    const { words = 5, pause = 0 } = input.forwardedProps ?? {};
    const call = { input, headers: request.headers, closed: false };
    calls.push(call);
    response.on('close', () => (call.closed = true));
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    for (const event of runEvents(input, words)) {
      if (call.closed) return;
      response.write(`data: ${JSON.stringify(event)}\n\n`);
      if (pause) await wait(pause);
    }
    response.end();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { url: `http://127.0.0.1:${server.address().port}/`, calls, stop: () => (server.closeAllConnections(), server.close()) };
}

/** An HTTP server for answers that a real one does not give on demand: `answer(request, response, n)`, n from 0. */
export async function startFake(answer) {
  let n = 0;
  const server = createServer((request, response) => answer(request, response, n++)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    calls: () => n,
    stop: () => (server.closeAllConnections(), server.close()),
  };
}

/** A TCP proxy that cuts each stream of events `ms` milliseconds after it began, if not 0, and all connections at `cut()`, by a reset. */
export async function startCutter(port, ms) {
  const open = new Set();
  const self = { ms, cuts: 0, cut: () => open.forEach((cut) => cut()) };
  const server = createTcpServer((near) => {
    const far = connect(port, '127.0.0.1');
    near.pipe(far);
    far.pipe(near);
    const cut = () => {
      self.cuts++;
      near.resetAndDestroy();
      far.destroy();
    };
    open.add(cut);
    let timer;
    near.on('data', () => clearTimeout(timer)); // the connection's next request
    far.on('data', (chunk) => {
      if (self.ms && chunk.includes('text/event-stream')) timer = setTimeout(cut, self.ms);
    });
    const end = () => {
      clearTimeout(timer);
      open.delete(cut);
      near.destroy();
      far.destroy();
    };
    for (const socket of [near, far]) socket.on('error', end).on('close', end);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  self.url = `http://127.0.0.1:${server.address().port}`;
  self.stop = () => server.close();
  return self;
}

export async function until(condition, what, ms = 20_000) {
  for (const end = Date.now() + ms; Date.now() < end; await wait(20)) {
    const value = await condition();
    if (value) return value;
  }
  throw new Error(`not within ${ms} ms: ${what}`);
}

export const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export const user = (id, content) => ({ id, role: 'user', content });

/** A RunAgentInput. */
export const inputOf = (threadId, runId, messages = [], more = {}) => ({
  threadId,
  runId,
  state: {},
  messages,
  tools: [],
  context: [],
  forwardedProps: {},
  ...more,
});

export async function freePort() {
  const server = createTcpServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}
