// SkeinRunner without CopilotKit; test/copilotkit has the rest.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HttpAgent } from '@ag-ui/client';
import { SkeinClient } from '../dist/client.js';
import { SkeinRunner } from '../dist/copilotkit.js';
import { inputOf, startAgent, startSkein, until } from './world.mjs';

test('a run that outlives an outage of Skein can be stopped from elsewhere again', async (t) => {
  const [real, skein] = await Promise.all([startAgent(), startSkein()]);
  t.after(() => Promise.all([real.stop(), skein.stop()]));
  const warned = t.mock.method(console, 'warn', () => {});
  const ran = [];
  const input = inputOf('t', 'r', [], { forwardedProps: { words: 10_000, pause: 20 } });
  const runner = new SkeinRunner({ url: skein.url, patience: 300 });
  const done = new Promise((resolve) =>
    runner
      .run({ threadId: 't', agent: new HttpAgent({ url: real.url }), input })
      .subscribe({ next: ({ type }) => ran.push(type), complete: resolve }),
  );
  const client = new SkeinClient({ url: skein.url });
  const words = () => client.history('t').then(({ state }) => state.words ?? 0, () => 0);
  await until(words, 'the run is under way');
  await skein.kill();
  await until(() => warned.mock.callCount() > 0, 'nobody listens any more');
  await skein.start();
  const before = await words();
  await until(async () => (await words()) > before, 'Skein has the run again');
  assert.equal(await new SkeinRunner({ url: skein.url }).stop({ threadId: 't' }), true);
  assert.equal((await client.history('t')).status, 'cancelled');
  await done;
  assert.equal(ran.at(-1), 'RUN_FINISHED');
  assert.ok(real.calls[0].closed, 'the agent is left');
  assert.match(warned.mock.calls[0].arguments[0], /cannot be stopped from elsewhere for now/);
});
