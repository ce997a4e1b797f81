import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { SkeinClient, SkeinError } from '../dist/client.js';
import { freePort, inputOf, runEvents, startAgent, startCutter, startFake, startSkein, until, user, wait } from './world.mjs';

const recordings = fileURLToPath(new URL('../../../internal/recordings', import.meta.url));
const read = (file) => readFileSync(join(recordings, file), 'utf8');
let real, skein, client;
before(async () => {
  real = await startAgent();
  skein = await startSkein({ agents: { assistant: real.url } });
  client = new SkeinClient({ url: skein.url });
});
after(async () => {
  await skein?.stop();
  real?.stop();
});

const publish = (thread, run, more = {}) =>
  client.publish(thread, run, runEvents({ threadId: thread, runId: run }), {
    input: inputOf(thread, run, [user('u1', 'Hi')]),
    ...more,
  });
const problem = (response, status, more, headers = {}) => {
  response.writeHead(status, { 'Content-Type': 'application/problem+json', ...headers });
  response.end(JSON.stringify({ status, title: 'no', ...more }));
};

test('a published run is there, whole, and publishing it again changes nothing', async () => {
  const done = await publish('published', 'one', { agent: 'wörds', labels: { user: 'ü' } });
  assert.deepEqual([done.accepted, done.lost, done.repeated], [19, 0, 0]);
  const history = await client.history('published');
  assert.deepEqual(
    history.messages.map(({ role }) => role),
    ['user', 'assistant', 'tool'],
  );
  assert.deepEqual(history.state, { words: 5 });
  const run = await client.run('published', 'one');
  assert.deepEqual([run.agent, run.labels, run.stats.anomalies], ['wörds', { user: 'ü' }, undefined]);
  assert.equal((await publish('published', 'one')).repeated, 19);
  assert.equal((await client.thread('published')).runs, 1);
  assert.deepEqual(
    (await client.threads({ prefix: 'publ' })).threads.map(({ threadId }) => threadId),
    ['published'],
  );
});

test('every recording of a real agent is kept byte for byte, and its history is that of the official client', async () => {
  const files = readdirSync(recordings, { recursive: true }).sort();
  const kept = files.filter((file) => file.endsWith('.client.json')).map(async (file) => {
    const name = file.replace('.client.json', '');
    const runs = files.filter((one) => one.endsWith('.jsonl') && one.replace(/(-t\d+)?\.jsonl$/, '') === name);
    let thread, bytes, position;
    for (const run of runs) {
      const input = JSON.parse(read(run.replace('.jsonl', '.input.json')));
      thread = input.threadId;
      bytes = read(run);
      ({ position } = await client.publish(thread, input.runId, bytes.trimEnd().split('\n'), { input }));
      const path = `/v1/threads/${thread}/runs/${input.runId}/events`;
      const response = await client.request('GET', path, { query: { atLeast: position } });
      assert.equal(await response.text(), bytes, run);
    }
    const { messages, state } = await client.history(thread, undefined, { atLeast: position });
    const want = JSON.parse(read(file));
    // The official client gives messages of the older THINKING events ids by chance.
    if (!bytes.includes('THINKING_')) assert.deepEqual({ messages, state }, { messages: want.messages, state: want.state }, name);
    return runs.length;
  });
  assert.deepEqual([kept.length, (await Promise.all(kept)).reduce((a, b) => a + b)], [46, 69]);
});

test('checkout, interrupts and lineage are typed as the server answers', async () => {
  await client.publish(
    'asked',
    'one',
    [
      { type: 'RUN_STARTED', threadId: 'asked', runId: 'one' },
      {
        type: 'RUN_FINISHED',
        threadId: 'asked',
        runId: 'one',
        outcome: { type: 'interrupt', interrupts: [{ id: 'i1', reason: 'confirm' }] },
      },
    ],
    { input: inputOf('asked', 'one', [user('u1', 'Book it')]) },
  );
  const waiting = await until(
    async () => (await client.interrupts()).runs.find(({ threadId }) => threadId === 'asked'),
    'the run waits',
  );
  assert.equal(waiting.interrupts[0].interrupt.id, 'i1');
  const input = await client.checkout('asked', 'one', { runId: 'two' });
  assert.deepEqual([input.parentRunId, input.runId, input.resume[0].interruptId], ['one', 'two', 'i1']);
  assert.equal((await client.lineage('asked', { words: 'true' })).runs[0].status, 'interrupted');
  assert.equal((await client.branches('asked')).length, 1);
});

test('a stream goes on over cuts and gives each event once, with the id to resume by', async () => {
  const cutter = await startCutter(skein.port, 100);
  const through = new SkeinClient({ url: cutter.url });
  const publisher = client.publisher('streamed', 'one');
  const seen = [];
  const reading = (async () => {
    for await (const one of through.stream('streamed', 'one')) seen.push(one);
  })();
  for (const event of runEvents({ threadId: 'streamed', runId: 'one' }, 30)) {
    publisher.push(event);
    await wait(10);
  }
  await publisher.close();
  await reading;
  cutter.stop();
  assert.ok(cutter.cuts >= 3, `${cutter.cuts} cuts`);
  assert.deepEqual(
    seen.slice(-60).map(({ event }) => event),
    [...runEvents({ threadId: 'streamed', runId: 'one' }, 30)].slice(-60),
  );
  const rest = [];
  for await (const { event } of client.stream('streamed', 'one', { lastEventId: seen.at(-3).id })) rest.push(event.type);
  assert.deepEqual(rest, ['TOOL_CALL_RESULT', 'RUN_FINISHED']);
  for await (const one of client.stream('streamed', 'one', { lastEventId: seen.at(-1).id }))
    assert.fail(`after the end came ${JSON.stringify(one)}`);
});

test("a thread's stream goes on with the next run, until it is aborted", async () => {
  const abort = new AbortController();
  const runs = [];
  const reading = assert.rejects(
    async () => {
      for await (const { event } of client.stream('endless', undefined, { signal: abort.signal })) {
        if (event.type === 'RUN_FINISHED') runs.push(event.runId);
        if (runs.length === 2) abort.abort();
      }
    },
    { name: 'AbortError' },
  );
  await publish('endless', 'one');
  await until(() => runs.length === 1, 'the first run');
  await publish('endless', 'two');
  await reading;
  assert.deepEqual(runs, ['one', 'two']);
});

test('leaving a stream in the middle closes its connection', async (t) => {
  let closed = false;
  const fake = await startFake((request, response) => {
    response.on('close', () => (closed = true));
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    response.write('id: 0:1\ndata: {"type":"RUN_STARTED"}\n\n');
  });
  t.after(fake.stop);
  for await (const _ of new SkeinClient({ url: fake.url }).stream('a', 'b')) break;
  await until(() => closed, 'the connection is closed');
});

test('events that belong together come once their id has come, and a cut one is left out', async (t) => {
  const fake = await startFake((request, response, n) => {
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    const group = 'data: {"type":"RUN_STARTED"}\r\n\r\ndata: {"type":"MESSAGES_SNAPSHOT",\r\ndata: "messages":[]}\r\n\r\n';
    if (n === 0) response.write(`retry: 1\nid: join\n\n${group}id: 0:7\ndata: {"type":"CUS`, () => response.destroy());
    else if (n === 1) response.end(`: hello\n\n${group}id: 0:7\rdata:{"type":"CUSTOM"}\r\r`);
    else assert.equal(request.headers['last-event-id'], '0:7') ?? response.end('id: 0:8\ndata: {"type":"RUN_FINISHED"}\n\n');
  });
  t.after(fake.stop);
  const seen = [];
  for await (const { id, event } of new SkeinClient({ url: fake.url }).stream('a', 'b')) seen.push([id, event.type]);
  assert.deepEqual(seen, [
    [undefined, 'RUN_STARTED'],
    [undefined, 'MESSAGES_SNAPSHOT'],
    ['0:7', 'CUSTOM'],
    ['0:8', 'RUN_FINISHED'],
  ]);
});

test('refusals say what happened and what to do', async (t) => {
  await assert.rejects(client.thread('none'), (error) => error instanceof SkeinError && error.status === 404 && !error.retryable);
  await assert.rejects(client.cancel('none', 'none'), { status: 409, reason: 'not-ended', message: /no proxy holds it/ });
  await assert.rejects(client.cancel('none', undefined), { status: 409, reason: 'run-ended', message: /no run of the thread is open/ });
  await assert.rejects(client.checkout('none', 'none', { at: 'nonsense' }), { status: 400 });
  await publish('gone', 'one');
  await assert.rejects(
    async () => {
      for await (const _ of client.stream('gone', 'one', { lastEventId: 'nonsense' }));
    },
    { status: 400 },
  );
  await fetch(`${skein.url}/v1/threads/gone`, { method: 'DELETE' });
  await until(
    () =>
      client.thread('gone').then(
        () => false,
        (error) => error.status === 410,
      ),
    'the thread is erased',
  );
  await assert.rejects(client.history('gone'), { status: 410, message: /erased/ });
  const { position } = await publish('bytes', 'two');
  assert.equal((await client.history('bytes', 'two', { atLeast: position })).status, 'finished');
  assert.throws(() => new SkeinClient({ url: 'localhost:8420' }), /pass an address such as/);
  assert.throws(() => client.publisher('', 'r'), /empty/);
  const locked = await startSkein({ listen: '0.0.0.0' });
  t.after(() => locked.stop());
  await assert.rejects(new SkeinClient({ url: locked.url }).threads(), { status: 401, message: /pass a valid apiKey/ });
  const apiKey = /sk_[\w-]+/.exec(locked.output)[0];
  assert.deepEqual((await new SkeinClient({ url: locked.url, apiKey }).threads()).threads, []);
});

test('a server that is busy is asked again when it says, and no sooner', async (t) => {
  const times = [];
  const fake = await startFake((request, response, n) => {
    times.push(Date.now());
    if (n === 0) problem(response, 429, { detail: 'too much' }, { 'Retry-After': '1' });
    else if (n === 1) problem(response, 503, {}, { 'Retry-After': '0' });
    else if (n === 2) problem(response, 425, {});
    else response.end('{"threads":[]}');
  });
  t.after(fake.stop);
  assert.deepEqual((await new SkeinClient({ url: fake.url }).threads()).threads, []);
  assert.ok(times[1] - times[0] >= 1000, `asked after ${times[1] - times[0]} ms`);
});

test('a server that asks for more patience than there is, is slow, or away', async (t) => {
  const fake = await startFake((request, response) => {
    if (request.url.includes('slow')) return;
    problem(response, 429, { detail: 'too much', reason: 'memory' }, { 'Retry-After': '3600' });
  });
  t.after(fake.stop);
  const impatient = new SkeinClient({ url: fake.url, patience: 200 });
  await assert.rejects(impatient.threads(), { status: 429, retryAfter: 3600, reason: 'memory', retryable: true });
  await assert.rejects(impatient.thread('slow'), { status: 0, message: /no answer within 200 ms/ });
  await assert.rejects(new SkeinClient({ url: `http://127.0.0.1:${await freePort()}`, patience: 200 }).threads(), {
    status: 0,
    message: /does not answer: .*ECONNREFUSED/,
  });
  await assert.rejects(impatient.thread('slow', AbortSignal.abort()), { name: 'AbortError' });
});

test('an agent is not called twice where nobody knows whether it was called', async (t) => {
  const fake = await startFake((request, response) => response.destroy());
  t.after(fake.stop);
  const { SkeinAgent } = await import('../dist/index.js');
  t.mock.method(console, 'error', () => {});
  await assert.rejects(new SkeinAgent({ url: fake.url, agent: 'a' }).runAgent(), { status: 0 });
  assert.equal(fake.calls(), 1);
});

test('events that are not AG-UI are told, and the others are published', async () => {
  const events = [...runEvents({ threadId: 'bad', runId: 'one' })];
  events.splice(3, 0, null, { text: 'no type' }, { type: 'text_message_content', messageId: 'x' }, { type: 'CUSTOM' });
  const told = [];
  const publisher = client.publisher('bad', 'one', { onLost: (error, n) => told.push([error.message, n]) });
  events.forEach((event) => publisher.push(event));
  const done = await publisher.close();
  assert.deepEqual([done.lost, done.unreadable], [2, 2]);
  assert.deepEqual(
    told.map(([, n]) => n),
    [1, 2],
  );
  assert.match(told[0][0], /event 3 has no type/);
  assert.ok(done.warnings.length > 0);
  assert.equal((await client.history('bad')).state.words, 5);
  await assert.rejects(client.publish('bad', 'two', [undefined]), /no type/);
});

test('two publishers of one run: the second is told', async () => {
  await publish('twice', 'one');
  const other = [...runEvents({ threadId: 'twice', runId: 'one' }, 4)];
  await assert.rejects(client.publish('twice', 'one', other), {
    reason: 'different-events',
    message: /only one may publish a run/,
  });
  assert.equal((await client.history('twice')).state.words, 5);
});

test('a publisher whose server is away, then back, loses nothing and holds nobody up', async (t) => {
  const own = await startSkein();
  t.after(() => own.stop());
  const publisher = new SkeinClient({ url: own.url }).publisher('away', 'one');
  const events = [...runEvents({ threadId: 'away', runId: 'one' }, 50)];
  for (const [i, event] of events.entries()) {
    publisher.push(event);
    if (i === 20) await own.kill();
    await wait(2);
  }
  await own.start();
  const done = await publisher.close();
  assert.equal(done.lost, 0);
  const history = await new SkeinClient({ url: own.url }).history('away');
  assert.deepEqual([history.status, history.state], ['finished', { words: 50 }]);
});

test('what finds no room, or no server, is counted and told; the end finds room', async (t) => {
  const told = [];
  const client = new SkeinClient({ url: `http://127.0.0.1:${await freePort()}`, patience: 100 });
  const publisher = client.publisher('away', 'one', { memory: 500, onLost: (error, n) => told.push([error.message, n]) });
  for (const event of runEvents({ threadId: 'away', runId: 'one' }, 50)) publisher.push(event);
  const done = await publisher.close(300);
  assert.equal(done.accepted + done.lost, 109);
  assert.match(told[0][0], /characters wait/);
  assert.equal(told.at(-1)[1], 109);
  const key = await startFake((request, response) => problem(response, 401, { detail: 'no key' }));
  t.after(key.stop);
  const warned = t.mock.method(console, 'warn', () => {});
  const denied = new SkeinClient({ url: key.url }).publisher('t', 'r', { input: inputOf('t', 'r') });
  denied.push({ type: 'RUN_STARTED', threadId: 't', runId: 'r' });
  assert.deepEqual(await denied.close().then(({ lost, error }) => [lost, error.status]), [1, 401]);
  assert.match(warned.mock.calls[0].arguments[0], /1 events of run r in thread t were not published: .*apiKey/);
  await assert.rejects(client.publish('t', 'r', runEvents({})), { status: 0 });
});

test('an answer that breaks off, stalls or comes from something in between costs nothing', async (t) => {
  let answer;
  const fake = await startFake((request, response, n) => answer(response, n));
  t.after(fake.stop);
  const cut = (response) => response.writeHead(200, { 'Content-Length': '100' }).write('{', () => response.destroy());
  answer = (response, n) => (n === 0 ? cut(response) : response.end('{"threads":[]}'));
  assert.deepEqual((await new SkeinClient({ url: fake.url }).threads()).threads, []);
  answer = (response) => response.writeHead(200).write('{');
  const impatient = new SkeinClient({ url: fake.url, patience: 200 });
  await assert.rejects(impatient.threads(), { status: 0, message: /no answer within 200 ms/ });
  answer = (response, n) => {
    if (n === 3) cut(response);
    else if (n === 4) response.end('<html>hello</html>');
    else response.end('{"accepted":1,"repeated":1,"lastOffset":1}');
  };
  const publisher = new SkeinClient({ url: fake.url }).publisher('t', 'r');
  publisher.push({ type: 'RUN_STARTED', threadId: 't', runId: 'r' });
  await until(() => fake.calls() === 6, 'the event is acknowledged', 5_000);
  publisher.push({ type: 'RUN_FINISHED', threadId: 't', runId: 'r' });
  const { accepted, repeated, lost } = await publisher.close();
  assert.deepEqual([accepted, repeated, lost], [2, 1, 0], 'only the second event was another publisher\'s before');
});

test('a refusal for the moment costs no event and no input, one of an event only that event', async (t) => {
  const asked = [];
  const later = { 'Retry-After': '1' }; // longer than this client is patient
  const answers = [
    (response) => problem(response, 408, {}, later),
    (response) => problem(response, 425, {}, later),
    (response) => response.end('{}'),
    (response) => problem(response, 503, { line: 3, accepted: 2, lastOffset: 7, reason: 'unavailable' }, later),
    (response) => problem(response, 400, { line: 1, reason: 'cut' }),
    (response) => problem(response, 400, { line: 2, accepted: 1, lastOffset: 8, reason: 'event-type' }),
    (response) => response.end('{"accepted":15,"lastOffset":9}'),
  ];
  const fake = await startFake(async (request, response, n) => {
    let body = '';
    for await (const part of request) body += part;
    asked.push(request.method === 'PUT' ? 'input' : JSON.parse(body.split('\n')[0]).seq);
    answers[n](response);
  });
  t.after(fake.stop);
  const publisher = new SkeinClient({ url: fake.url, patience: 200 }).publisher('t', 'r', {
    input: inputOf('t', 'r'),
    onLost: () => {
      throw new Error('the callback is broken');
    },
  });
  const warned = t.mock.method(console, 'warn', () => {});
  for (const event of runEvents({ threadId: 't', runId: 'r' })) publisher.push(event);
  const { accepted, lost, error } = await publisher.close(10_000);
  assert.deepEqual(asked, ['input', 'input', 'input', 0, 2, 2, 4]);
  assert.deepEqual([accepted, lost, error.reason], [18, 1, 'event-type']);
  assert.match(String(warned.mock.calls[0].arguments[1]), /the callback is broken/);
});

test('an erasure is asked for once, and siblings tell a missing thread from a wrong address', async (t) => {
  const fake = await startFake((request, response) => response.destroy());
  t.after(fake.stop);
  await assert.rejects(new SkeinClient({ url: fake.url }).erase('t'), { status: 0 });
  assert.equal(fake.calls(), 1);
  await publish('versions', 'one');
  assert.equal(await client.siblings('none', 'u1'), undefined);
  await assert.rejects(client.siblings('versions', 'u1', 'none'), { status: 404 });
  await assert.rejects(new SkeinClient({ url: `${skein.url}/wrong` }).siblings('versions', 'u1'), { status: 404 });
});
