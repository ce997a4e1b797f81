import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { HttpAgent } from '@ag-ui/client';
import { SkeinAgent, SkeinError } from '../dist/index.js';
import { freePort, startAgent, startCutter, startFake, startSkein, until, user } from './world.mjs';

let real, skein;
before(async () => {
  real = await startAgent();
  skein = await startSkein({ agents: { assistant: real.url } });
});
after(async () => {
  await skein?.stop();
  real?.stop();
});

const agentOf = (threadId, more = {}) => new SkeinAgent({ url: skein.url, agent: 'assistant', threadId, ...more });
const quiet = (t) => t.mock.method(console, 'error', () => {}); // HttpAgent prints each error that it passes on

/** What an agent's subscriber sees. */
function watch(agent) {
  const events = [];
  agent.subscribe({ onEvent: ({ event }) => void events.push(event.type) });
  return events;
}

/** What an agent behind Skein answers, from the agent directly: messages without the run's id in theirs. */
async function uncut(words) {
  const direct = new HttpAgent({ url: real.url, threadId: 'direct', initialMessages: [user('u1', 'Hi')] });
  await direct.runAgent({ runId: 'r', forwardedProps: { words } });
  return { messages: direct.messages, state: direct.state };
}

const named = (messages, runId) => JSON.parse(JSON.stringify(messages).replaceAll(`${runId}-`, 'r-'));

test('a run through the proxy gives what the agent gives, and is kept', async () => {
  const agent = agentOf('plain', { initialMessages: [user('u1', 'Hi')] });
  await agent.runAgent({ runId: 'run-1' });
  const want = await uncut();
  assert.deepEqual(named(agent.messages, 'run-1'), want.messages);
  assert.deepEqual(agent.state, want.state);
  const history = await agent.history();
  assert.deepEqual(history.messages, agent.messages);
  assert.deepEqual(history.state, agent.state);
  assert.equal((await agent.lineage()).tipRunId, 'run-1');
});

test('a run whose every connection is cut gives the same messages, each event once', async () => {
  const cutter = await startCutter(skein.port, 0);
  const agent = agentOf('cut', { url: cutter.url, initialMessages: [user('u1', 'Hi')] });
  const events = watch(agent);
  const running = agent.runAgent({ runId: 'run-cut', forwardedProps: { words: 40, pause: 12 } });
  await until(() => agent.state.words > 0, 'the run is under way'); // cut before, it would be joined, by snapshots
  cutter.ms = 120;
  cutter.cut();
  await running;
  cutter.stop();
  const want = await uncut(40);
  assert.ok(cutter.cuts >= 3, `${cutter.cuts} cuts`);
  assert.equal(events.filter((type) => type === 'TEXT_MESSAGE_CONTENT').length, 40);
  assert.equal(events.length, 40 * 2 + 10 - 1);
  assert.deepEqual(named(agent.messages, 'run-cut'), want.messages);
  assert.deepEqual(agent.state, want.state);
  assert.equal(real.calls.filter(({ input }) => input.threadId === 'cut').length, 1, 'the agent was called once');
});

test('connectAgent restores a thread, joins its open run and survives cuts', async () => {
  const first = agentOf('joined', { initialMessages: [user('u1', 'Hi')] });
  const running = first.runAgent({ runId: 'run-j', forwardedProps: { words: 40, pause: 12 } });
  await until(() => first.state.words > 3, 'the run is under way');
  const cutter = await startCutter(skein.port, 120);
  const second = agentOf('joined', { url: cutter.url });
  await second.connectAgent();
  cutter.stop();
  await running;
  assert.ok(cutter.cuts >= 2, `${cutter.cuts} cuts`);
  assert.equal(first.state.words, 40);
  assert.deepEqual(second.messages, first.messages);
  assert.deepEqual(second.state, first.state);
});

test('a thread never seen is empty', async () => {
  const agent = agentOf('never-seen');
  await agent.connectAgent();
  assert.deepEqual([agent.messages, agent.state, agent.isRunning], [[], {}, false]);
});

test('abortRun stops the run on the server, and its caller sees a whole stream', async () => {
  const agent = agentOf('stopped', { initialMessages: [user('u1', 'Hi')] });
  const events = watch(agent);
  const running = agent.runAgent({ runId: 'run-s', forwardedProps: { words: 1000, pause: 20 } });
  await until(() => agent.state.words > 3, 'the run is under way');
  agent.abortRun();
  await running;
  assert.deepEqual(events.slice(-2), ['TEXT_MESSAGE_END', 'RUN_FINISHED']);
  assert.equal((await agent.skein.run('stopped', 'run-s')).status, 'cancelled');
  await until(() => real.calls.find(({ input }) => input.threadId === 'stopped').closed, 'the agent is left');
  await agent.runAgent({ runId: 'run-s2' }); // and it runs again
  assert.equal((await agent.history()).status, 'finished');
});

test('abortRun before anything is sent sends nothing', async () => {
  const agent = agentOf('early');
  const running = agent.runAgent();
  agent.abortRun();
  await running;
  assert.equal(agent.isRunning, false);
  await assert.rejects(agent.history(), { status: 404 });
  await agent.connectAgent(); // and the agent is as good as new
  await agent.runAgent();
  assert.equal((await agent.history()).status, 'finished');
});

test('another agent stops a run that it joined', async () => {
  const first = agentOf('stopped-2');
  const running = first.runAgent({ runId: 'run-s', forwardedProps: { words: 1000, pause: 20 } });
  await until(() => first.state.words > 3, 'the run is under way');
  const second = agentOf('stopped-2');
  const joined = second.connectAgent();
  await until(() => second.state.words > 3, 'the run is joined');
  second.abortRun();
  await Promise.all([running, joined]);
  assert.equal((await first.history()).status, 'cancelled');
});

test('abortRun while connectAgent does not know the run yet stops it once it does', async (t) => {
  const cancelled = [];
  let connected;
  const fake = await startFake((request, response) => {
    if (request.url === '/v1/connect') return (connected = response);
    cancelled.push(request.url);
    response.end('{}');
    connected.end('data: {"type":"RUN_FINISHED","threadId":"t","runId":"open"}\nid: 0:2\n\n');
  });
  t.after(fake.stop);
  const agent = agentOf('t', { url: fake.url });
  const joining = agent.connectAgent();
  await until(() => connected, 'the request is there');
  connected.writeHead(200, { 'Content-Type': 'text/event-stream' }).flushHeaders();
  agent.abortRun();
  connected.write('data: {"type":"RUN_STARTED","threadId":"t","runId":"open"}\nid: 0:1\n\n');
  await joining;
  assert.deepEqual(cancelled, ['/v1/threads/t/runs/open/cancel']);
});

test('detachActiveRun leaves the run, which goes on', async () => {
  const agent = agentOf('left');
  const running = agent.runAgent({ runId: 'run-l', forwardedProps: { words: 30, pause: 10 } });
  await until(() => agent.state.words > 3, 'the run is under way');
  await agent.detachActiveRun();
  await running;
  assert.ok(agent.state.words < 30);
  await agent.connectAgent();
  assert.equal(agent.state.words, 30);
});

test('a checked out run is the parent of the next: a branch, and siblings to pick from', async () => {
  const agent = agentOf('branched', { initialMessages: [user('u1', 'Hi')] });
  await agent.runAgent({ runId: 'one' });
  agent.addMessage(user('u2', 'And now?'));
  await agent.runAgent({ runId: 'two' });
  await agent.checkout('one');
  assert.equal(agent.messages.length, 3);
  agent.addMessage(user('u3', 'Or rather?'));
  const clone = agent.clone();
  await clone.runAgent({ runId: 'three' });
  assert.equal((await clone.branches()).length, 2);
  const runs = Object.fromEntries((await clone.lineage()).runs.map((run) => [run.runId, run]));
  assert.deepEqual([runs.three.parentRunId, runs.three.parentBy], ['one', 'explicit']);
  const fork = await clone.siblings('u3');
  assert.deepEqual([fork.index, fork.total, fork.alternatives.map((one) => one.runId)], [1, 2, ['two', 'three']]);
  assert.equal(await clone.siblings('u1'), undefined);
  await clone.checkout(fork.alternatives[0].tipRunId);
  assert.deepEqual(
    clone.messages.filter(({ role }) => role === 'user').map(({ id }) => id),
    ['u1', 'u2'],
  );
  assert.equal((await clone.siblings('u2')).index, 0); // of what is checked out, not of the run that began last
  clone.setMessages([...clone.messages.slice(0, clone.messages.findIndex(({ id }) => id === 'u2')), user('u4', 'And then?')]);
  await clone.runAgent({ runId: 'edited' });
  assert.equal((await clone.lineage()).runs.at(-1).parentRunId, 'one'); // not the run whose question was edited
  assert.equal(await agentOf('never').siblings('u1'), undefined);
  await clone.checkout('one', 6); // in the middle of its text
  assert.match(clone.messages.at(-1).content, /^wörd\u20280 (wörd\u20281 )?$/);
});

test('a clone has all that its original has', async () => {
  const agent = agentOf('cloned', { apiKey: 'sk_x', headers: { 'X-One': '1' } });
  const clone = agent.clone();
  clone.headers['X-Two'] = '2';
  clone.threadId = 'other';
  assert.ok(clone instanceof SkeinAgent && clone instanceof HttpAgent);
  assert.deepEqual([agent.headers, agent.threadId], [{ 'X-One': '1' }, 'cloned']);
  await clone.runAgent({ runId: 'c' });
  assert.equal((await clone.history()).threadId, 'other');
});

test('a run id that was used is refused, and the caller is told', async (t) => {
  quiet(t);
  const agent = agentOf('used');
  await agent.runAgent({ runId: 'same' });
  await assert.rejects(
    agent.runAgent({ runId: 'same' }),
    (error) => error instanceof SkeinError && error.status === 409 && error.reason === 'run-ended',
  );
});

test('an unknown agent, and a server that is away, are told', async (t) => {
  quiet(t);
  await assert.rejects(agentOf('x', { agent: 'nobody' }).runAgent(), { status: 404 });
  await assert.rejects(agentOf('x', { url: `http://127.0.0.1:${await freePort()}`, patience: 300 }).connectAgent(), {
    status: 0,
    message: /127\.0\.0\.1:\d+ does not answer/,
  });
  assert.throws(() => new SkeinAgent({ url: skein.url }), /--agent NAME=URL/);
});

test('a stream that cannot be had any more is an error of the run, told once', async (t) => {
  quiet(t);
  const fake = await startFake((request, response, n) => {
    if (n > 0)
      return response
        .writeHead(410, { 'Content-Type': 'application/problem+json' })
        .end('{"status":410,"title":"Gone","detail":"erased"}');
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    response.write('data: {"type":"RUN_STARTED","threadId":"a","runId":"b"}\nid: seq:0\n\n', () => response.destroy());
  });
  t.after(fake.stop);
  const agent = agentOf('a', { url: fake.url });
  const events = watch(agent);
  await assert.rejects(agent.runAgent(), (error) => error instanceof SkeinError && error.status === 410);
  assert.deepEqual(events, ['RUN_STARTED']);
  assert.equal(agent.isRunning, false);
});

test('a server that is killed in the middle and started again: no event is lost or doubled', async (t) => {
  quiet(t);
  const own = await startSkein({ agents: { assistant: real.url } });
  t.after(() => own.stop());
  const agent = agentOf('restarted', { url: own.url });
  const events = watch(agent);
  const running = agent.runAgent({ runId: 'run-r', forwardedProps: { words: 1000, pause: 20 } });
  await until(() => agent.state.words > 3, 'the run is under way');
  await own.kill('SIGKILL');
  await own.start();
  const seen = events.length;
  // The proxy that served the run is gone. Somebody else ends the run, with numbers beyond those that were on their way.
  await agent.skein.request('POST', '/v1/threads/restarted/runs/run-r/events', {
    write: true,
    type: 'application/vnd.skein.events+ndjson',
    body: '{"seq":10000,"event":{"type":"RUN_ERROR","message":"killed"}}\n',
  });
  await running;
  assert.deepEqual(events.slice(seen), ['RUN_ERROR']);
  assert.equal(events.filter((type) => type === 'STATE_DELTA').length, agent.state.words);
});
