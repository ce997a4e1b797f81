// TanStack AI's contract of a StreamDurability, rule by rule as its guide "Custom Durability Adapter" states them, and its own server and
// client over it, on a real `skein dev`. The package exports no suite of its own for adapters.
import { once } from 'node:events';
import { createServer } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { replayRunStream, resumeServerSentEventsResponse, toServerSentEventsResponse } from '@tanstack/ai';
import { fetchServerSentEvents } from '@tanstack/ai-client';
import { SkeinClient } from '@skeinhq/client';
import { skeinStream } from '@skeinhq/client/tanstack';
import { startCutter, startSkein, until, wait } from '../world.mjs';

let skein, client;
before(async () => {
  skein = await startSkein();
  client = new SkeinClient({ url: skein.url });
});
after(() => skein?.stop());

/** The adapter of a request as the client sends it: a POST that produces, or one that resumes. */
const adapter = (runId, lastEventId) => skeinStream(new Request(`http://app.test/chat?runId=${runId}`, {
  method: 'POST', headers: lastEventId ? { 'Last-Event-ID': lastEventId } : {},
}), { client });
const text = (delta, messageId = 'm') => ({ type: 'TEXT_MESSAGE_CONTENT', messageId, delta });
const finished = (runId, finishReason = 'stop') => ({
  type: 'RUN_FINISHED', threadId: runId, runId, metadata: { tanstack: { finishReason } },
});
const all = async (stream) => {
  const items = [];
  for await (const item of stream) items.push(item);
  return items;
};

test('each chunk gets an offset of its own, and comes back with it as it was', async () => {
  const chunks = [
    { type: 'CUSTOM', name: 'run.accepted', value: {}, timestamp: 1 },
    { type: 'RUN_STARTED', threadId: 'replayed', runId: 'replayed', model: 'm' },
    text('a'), text('b'),
    { type: 'RUN_FINISHED', threadId: 'replayed', runId: 'replayed', finishReason: 'tool_calls', usage: { promptTokens: 1 } },
    { type: 'TEXT_MESSAGE_CONTENT', delta: 'without an id' },
    { type: 'STATE_DELTA', delta: [{ op: 'nonsense' }] },
    { type: 'STATE_SNAPSHOT', snapshot: null, timestamp: 1.5 },
    { type: 'TEXT_MESSAGE_CHUNK', delta: 'x' }, { type: 'a.type.of.tomorrow', at: { deep: [null] } },
    { type: 'CUSTOM', name: 'nothing' }, { type: 'CUSTOM', name: 'tanstack.chunk', value: 'mine' }, text('é\u2028"\n'),
    { type: 'RUN_FINISHED', threadId: 'replayed', runId: 'replayed', finishReason: 'stop' },
  ];
  const producer = adapter('replayed');
  assert.equal(producer.resumeFrom(), null);
  const offsets = [...await producer.append(chunks.slice(0, 4)), ...await producer.append([]), ...await producer.append(chunks.slice(4))];
  assert.equal(new Set(offsets).size, chunks.length);
  assert.ok(offsets.every((offset) => /^seq:\d+$/.test(offset)));
  await producer.close();
  await producer.close();
  const entries = chunks.map((chunk, i) => ({ offset: offsets[i], chunk }));
  assert.deepEqual(await all(adapter('replayed').read('-1')), entries);
  assert.deepEqual(await adapter('replayed').snapshot(), entries);
  assert.deepEqual(await all(replayRunStream(adapter('replayed'))), chunks);
  for (const [i, offset] of offsets.entries()) {
    const resumed = adapter('replayed', offset);
    assert.equal(resumed.resumeFrom(), offset);
    assert.deepEqual(await all(resumed.read(offset)), entries.slice(i + 1), `strictly after ${offset}`);
  }
  assert.equal((await client.run('replayed', 'replayed')).status, 'finished');
});

test('a reader waits for chunks, and ends when the log is closed, not at the end of a turn', async () => {
  const producer = adapter('live');
  await producer.append([text('a')]);
  const received = [];
  const reading = (async () => {
    for await (const { chunk } of adapter('live').read('-1')) received.push(chunk.delta ?? chunk.type);
  })();
  const newer = [];
  const tailing = (async () => {
    for await (const { chunk } of adapter('live').read('now')) newer.push(chunk.delta ?? chunk.type);
  })();
  await until(() => received.length === 1, 'the first chunk');
  await wait(300);
  await producer.append([finished('live', 'tool_calls')]);
  await until(() => received.length === 2 && newer.length === 1, 'the end of the turn');
  await producer.append([text('b'), finished('live')]);
  await producer.close();
  await Promise.all([reading, tailing]);
  assert.deepEqual(received, ['a', 'RUN_FINISHED', 'b', 'RUN_FINISHED']);
  assert.deepEqual(newer, ['RUN_FINISHED', 'b', 'RUN_FINISHED']);
});

test('an abort ends a reader that waits', async () => {
  const producer = adapter('aborted');
  const [offset] = await producer.append([text('a')]);
  const abort = new AbortController();
  const reading = all(adapter('aborted').read(offset, abort.signal));
  await wait(200);
  abort.abort();
  assert.deepEqual(await reading, []);
  await producer.close();
});

test('a snapshot does not wait, and another process goes on behind it', async () => {
  assert.deepEqual(await adapter('unknown').snapshot(), []);
  await assert.rejects(all(adapter('unknown').read('-1')), /no such thread or run/);
  await assert.rejects(all(adapter('unknown').read('seq:3')), /no such thread or run/);
  const dead = adapter('taken');
  const [first] = await dead.append([text('a')]);
  const successor = adapter('taken');
  const before = await successor.snapshot();
  assert.deepEqual(before, [{ offset: first, chunk: text('a') }]);
  before.pop();
  const [second] = await successor.append([text('b')]);
  assert.notEqual(second, first);
  await assert.rejects(adapter('taken').append([text('other')]), /call snapshot\(\) before/);
  await successor.close();
  assert.deepEqual((await all(adapter('taken').read('-1'))).map(({ chunk }) => chunk.delta), ['a', 'b']);
  const late = adapter('taken');
  await late.snapshot();
  await assert.rejects(late.append([text('late')]), /is closed/);
});

test('what is no offset, and a resume without a run, are refused', () => {
  for (const id of ['memory:v1:x:1', 'seq:', 'seq:-1', '2:18']) assert.throws(() => adapter('r', id), /no offset of Skein/);
  assert.throws(() => skeinStream(new Request('http://app.test/chat?offset=-1'), { client }), /names no run/);
});

test('a log that was closed without an end ends as an error', async () => {
  const producer = adapter('unended');
  await producer.append([text('a')]);
  await producer.close();
  assert.deepEqual((await all(adapter('unended').read('-1'))).map(({ chunk }) => chunk.delta), ['a']);
  assert.equal((await client.run('unended', 'unended')).status, 'error');
});

/** TanStack's own response helpers on a server, as an app has them. Its model is called once a run. */
async function startApp(model) {
  const server = createServer(async (message, answer) => {
    const { url, method, headers } = message;
    const request = new Request(`http://app.test${url}`, { method, headers, ...(method === 'POST' && { body: message, duplex: 'half' }) });
    const input = method === 'POST' ? await request.clone().json() : undefined;
    const durability = { adapter: skeinStream(request, { client, input }), batch: 4 };
    const response = input ? toServerSentEventsResponse(model(input), { durability }) : resumeServerSentEventsResponse(durability);
    answer.writeHead(response.status, Object.fromEntries(response.headers));
    await pipeline(Readable.fromWeb(response.body), answer).catch(() => {}); // the caller has left
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  return { port, url: `http://127.0.0.1:${port}`, stop: () => (server.closeAllConnections(), server.close()) };
}

test('the client goes on after cuts, and joins a run through another process, without another call of the model', async () => {
  let calls = 0;
  const words = Array.from({ length: 40 }, (_, i) => `${i} `);
  async function* model({ threadId, runId }) {
    calls++;
    yield { type: 'RUN_STARTED', threadId, runId };
    yield { type: 'TOOL_CALL_START', toolCallId: 'c', toolCallName: 'look', parentMessageId: 'a' };
    yield { type: 'TOOL_CALL_END', toolCallId: 'c' };
    yield finished(runId, 'tool_calls');
    yield { type: 'TEXT_MESSAGE_START', messageId: 'a', role: 'assistant' };
    for (const word of words) {
      yield text(word, 'a');
      await wait(30);
    }
    yield { type: 'TEXT_MESSAGE_END', messageId: 'a' };
    yield finished(runId);
  }
  const apps = [await startApp(model), await startApp(model)];
  const cutter = await startCutter(apps[0].port, 0);
  const message = { id: 'u', role: 'user', parts: [{ type: 'text', content: 'Count' }] };
  const connection = (url) => fetchServerSentEvents(`${url}/chat?threadId=conversation`);
  // Not at the end: TanStack's client gives up on a stream that is cut behind its last chunk.
  const producing = (async () => {
    const chunks = [];
    for await (const chunk of connection(cutter.url).connect([message], {}, undefined, { threadId: 'conversation', runId: 'cut' })) {
      chunks.push(chunk);
      if (['5 ', '15 ', '25 '].includes(chunk.delta)) cutter.cut();
    }
    return chunks;
  })();
  await until(() => client.run('conversation', 'cut').then(() => true, () => false), 'the run begins');
  const joined = await all(connection(apps[1].url).joinRun('cut'));
  const produced = await producing;
  assert.equal(calls, 1);
  assert.equal(cutter.cuts, 3);
  for (const chunks of [produced, joined]) {
    assert.equal(chunks.filter(({ type }) => type === 'TEXT_MESSAGE_CONTENT').map(({ delta }) => delta).join(''), words.join(''));
    assert.equal(chunks.filter(({ type }) => type === 'RUN_FINISHED').length, 2);
  }
  assert.deepEqual(joined, produced);
  const { messages } = await client.history('conversation', 'cut');
  assert.deepEqual(messages.map(({ role, content }) => [role, content]), [['user', 'Count'], ['assistant', words.join('')]]);
  cutter.stop();
  for (const app of apps) app.stop();
});
