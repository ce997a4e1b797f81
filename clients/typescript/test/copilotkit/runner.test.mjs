// CopilotKit's own runtime and client over SkeinRunner, in two processes: npm run test:copilotkit, after make copilotkit.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, dirname } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { SkeinClient } from '../../dist/client.js';
import { inputOf, startAgent, startCutter, startSkein, until, user } from '../world.mjs';

const require = createRequire(new URL('../../../../test/agents/copilotkit/package.json', import.meta.url));
const { ProxiedCopilotRuntimeAgent } = require('@copilotkit/core');

let real, skein, client, one, two;
before(async () => {
  real = await startAgent();
  skein = await startSkein({ agents: { assistant: real.url } });
  client = new SkeinClient({ url: skein.url });
  [one, two] = await Promise.all([startRuntime(), startRuntime()]);
});
after(async () => {
  for (const runtime of [one, two]) runtime?.process.kill();
  await skein?.stop();
  real?.stop();
});

async function startRuntime() {
  const child = spawn(process.execPath, [fileURLToPath(new URL('runtime.mjs', import.meta.url)), skein.url, real.url], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const self = { process: child, output: '' };
  child.stdout.on('data', (text) => (self.output += text));
  self.url = await until(
    () => {
      assert.equal(child.exitCode, null, 'the runtime ended');
      return /http:\S+/.exec(self.output)?.[0];
    },
    'the runtime listens',
    60_000,
  );
  return self;
}

const frontOf = (runtime, agentId, threadId, more = {}) =>
  new ProxiedCopilotRuntimeAgent({ runtimeUrl: runtime.url, agentId, threadId, transport: 'rest', ...more });
const slow = { words: 1000, pause: 20 };

for (const agent of ['direct', 'proxied']) {
  test(`${agent}: run in one process, joined from the other, stopped there`, async () => {
    const threadId = `stopped-${agent}`;
    const first = frontOf(one, agent, threadId);
    first.setMessages([user('u1', 'Hi')]);
    const events = [];
    const running = first.runAgent(
      { runId: 'run', forwardedProps: slow },
      { onEvent: ({ event }) => void events.push(event.type) },
    );
    await until(() => first.state.words > 3, 'the run is under way');
    const second = frontOf(two, agent, threadId);
    const joined = second.connectAgent();
    await until(() => second.state.words > 3, 'the run is joined');
    const begun = Date.now();
    second.abortRun();
    await Promise.all([running, joined]);
    assert.ok(Date.now() - begun < 2000, `stopped after ${Date.now() - begun} ms`);
    assert.deepEqual(events.slice(-2), ['TEXT_MESSAGE_END', 'RUN_FINISHED']);
    assert.equal((await client.run(threadId, 'run')).status, 'cancelled');
    await until(() => real.calls.find(({ input }) => input.threadId === threadId).closed, 'the agent is left');
    const third = frontOf(two, agent, threadId);
    await third.connectAgent();
    assert.deepEqual([third.messages, third.state], [first.messages, first.state]);
  });

  test(`${agent}: a whole run, and the next one in the other process`, async () => {
    const threadId = `whole-${agent}`;
    const first = frontOf(one, agent, threadId, { headers: { Authorization: 'Bearer of-a-user' } });
    first.setMessages([user('u1', 'Hi')]);
    await first.runAgent({ runId: 'one' });
    const second = frontOf(two, agent, threadId, { headers: { Authorization: 'Bearer of-a-user' } });
    await second.connectAgent();
    assert.deepEqual([second.messages, second.state], [first.messages, first.state]);
    second.addMessage(user('u2', 'And now?'));
    await second.runAgent({ runId: 'two' });
    const { runs } = await client.lineage(threadId);
    assert.deepEqual(
      runs.map(({ runId, parentRunId, status }) => [runId, parentRunId, status]),
      [
        ['one', undefined, 'finished'],
        ['two', 'one', 'finished'],
      ],
    );
    assert.deepEqual((await client.run(threadId, 'two')).stats.anomalies, undefined);
    assert.match(two.output, new RegExp('connect Bearer of-a-user'));
    if (agent === 'direct') assert.match(one.output, new RegExp(`${threadId}/runs/one/events Bearer of-a-user`));
    else assert.doesNotMatch(one.output, new RegExp(`${threadId}/runs/one/events`), 'it is not recorded twice');
  });
}

test('a thread never seen is empty, and nothing of it runs', async () => {
  const front = frontOf(two, 'direct', 'never-seen');
  await front.connectAgent();
  assert.deepEqual([front.messages, front.state], [[], {}]);
  const stopped = await fetch(`${two.url}/agent/direct/stop/never-seen`, { method: 'POST' });
  assert.equal((await stopped.json()).stopped, false);
});

test('the first process is killed in the middle: the other has what came, and ends the run', async () => {
  const doomed = await startRuntime();
  const running = fetch(`${doomed.url}/agent/direct/run`, {
    // CopilotKit's client in Node does not survive the death of its server
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(inputOf('killed', 'run', [user('u1', 'Hi')], { forwardedProps: slow })),
  })
    .then((response) => response.text())
    .catch(() => {});
  await until(
    () =>
      client.thread('killed').then(
        ({ openRuns }) => openRuns === 1,
        () => false,
      ),
    'the run is under way',
  );
  const second = frontOf(two, 'direct', 'killed');
  const joined = second.connectAgent();
  await until(() => second.state.words > 10, 'the run is joined');
  doomed.process.kill('SIGKILL');
  await once(doomed.process, 'exit');
  await running;
  const third = frontOf(one, 'direct', 'killed');
  const again = third.connectAgent();
  await until(() => third.state.words > 10, 'what came is there');
  const stopped = await fetch(`${one.url}/agent/direct/stop/killed`, { method: 'POST' });
  assert.equal((await stopped.json()).stopped, true);
  await Promise.allSettled([joined, again]);
  assert.deepEqual(third.messages, second.messages);
  const { status, error } = await client.history('killed');
  assert.deepEqual([status, error.code], ['error', 'skein-runner-gone']);
});

test('Skein is away while a run is served: its user sees it to the end, and the run is whole afterwards', async () => {
  const front = frontOf(one, 'direct', 'weather');
  front.setMessages([user('u1', 'Hi')]);
  const running = front.runAgent({ runId: 'run', forwardedProps: { words: 60, pause: 10 } });
  await until(() => front.state.words > 5, 'the run is under way');
  await skein.kill();
  await running;
  assert.equal(front.state.words, 60);
  await skein.start();
  const history = await until(
    () =>
      client.history('weather').then(
        (history) => history.status === 'finished' && history,
        () => false,
      ),
    'the run is there',
  );
  assert.deepEqual([history.messages, history.state], [front.messages, front.state]);
});

test('SkeinAgent on the AG-UI client that CopilotKit itself has', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'skein-older-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const package_ = fileURLToPath(new URL('../../', import.meta.url));
  const older = createRequire(require.resolve('@copilotkit/core')).resolve('@ag-ui/client');
  for (const scope of ['@ag-ui', '@skeinhq/client']) mkdirSync(join(folder, 'node_modules', scope), { recursive: true });
  symlinkSync(dirname(dirname(older)), join(folder, 'node_modules/@ag-ui/client'));
  cpSync(join(package_, 'dist'), join(folder, 'node_modules/@skeinhq/client/dist'), { recursive: true });
  cpSync(join(package_, 'package.json'), join(folder, 'node_modules/@skeinhq/client/package.json'));
  const { SkeinAgent } = await import(join(folder, 'node_modules/@skeinhq/client/dist/index.js'));
  // As a page has it: one copy of the client.
  const { CopilotKitCore } = await import(join(dirname(require.resolve('@copilotkit/core')), 'index.mjs'));
  for (const name of ['rxjs', '@copilotkit'])
    symlinkSync(
      fileURLToPath(new URL(`../../../../test/agents/copilotkit/node_modules/${name}`, import.meta.url)),
      join(folder, 'node_modules', name),
    );
  writeFileSync(
    join(folder, 'types.ts'),
    `
    import { CopilotRuntime } from '@copilotkit/runtime/v2';
    import { CopilotKitCore } from '@copilotkit/core';
    import { SkeinAgent } from '@skeinhq/client';
    import { SkeinRunner } from '@skeinhq/client/copilotkit';
    const agent = new SkeinAgent({ url: 'http://a', agent: 'b' });
    export const runtime = new CopilotRuntime({ agents: { agent }, runner: new SkeinRunner({ url: 'http://a' }) });
    export const core = new CopilotKitCore({ agents__unsafe_dev_only: { agent } });
  `,
  );
  writeFileSync(
    join(folder, 'tsconfig.json'),
    JSON.stringify({
      compilerOptions: { strict: true, noEmit: true, skipLibCheck: true, target: 'es2022', module: 'preserve', types: [] },
      files: ['types.ts'],
    }),
  );
  const tsc = spawnSync(process.execPath, [join(package_, 'node_modules/typescript/bin/tsc')], { cwd: folder, encoding: 'utf8' });
  assert.equal(tsc.status, 0, tsc.stdout);
  const cutter = await startCutter(skein.port, 150);
  t.after(() => cutter.stop());
  const agent = new SkeinAgent({ url: cutter.url, agent: 'assistant', threadId: 'older' });
  const core = new CopilotKitCore({ agents__unsafe_dev_only: { a: agent }, headers: { 'X-From-Core': 'yes' } });
  const errors = [];
  core.subscribe({ onError: ({ error }) => void errors.push(error.message) });
  await core.connectAgent({ agent });
  agent.addMessage(user('u1', 'Hi'));
  await core.runAgent({ agent, runId: 'one', forwardedProps: { words: 40, pause: 12 } });
  assert.equal(agent.headers['X-From-Core'], 'yes');
  assert.ok(cutter.cuts >= 3, `${cutter.cuts} cuts`);
  assert.equal(agent.state.words, 40);
  const clone = agent.clone();
  clone.threadId = 'older';
  await core.connectAgent({ agent: clone });
  assert.deepEqual(clone.messages, agent.messages);
  const running = core.runAgent({ agent, runId: 'two', forwardedProps: slow });
  await until(() => agent.messages.at(-1).content?.split(' ').length > 4, 'the second run is under way');
  core.stopAgent({ agent });
  await running;
  assert.equal((await client.run('older', 'two')).status, 'cancelled');
  assert.deepEqual(errors, []);
});
