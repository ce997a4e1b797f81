// assistant-ui's stock primitives over a real `skein dev`: branches show, also after a reload, and runs that go on are followed.
import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { startAgent } from './world.mjs'; // first: React looks for a document when it is loaded
import { open } from './page.mjs';
import { useAgUiRuntime } from '@assistant-ui/react-ag-ui';
import { useMemo } from 'react';
import { SkeinAgent, SkeinClient } from '@skeinhq/client';
import { skeinHistory, useSkeinRuntime } from '@skeinhq/client/assistant-ui';
import { inputOf, startSkein, until, user } from '../world.mjs';

let assistant, skein, client;
before(async () => {
  assistant = await startAgent();
  skein = await startSkein({ agents: { assistant: assistant.url } });
  client = new SkeinClient({ url: skein.url });
});
after(async () => {
  await skein?.stop();
  assistant?.stop();
});

const agentOf = (threadId) => new SkeinAgent({ url: skein.url, agent: 'assistant', threadId });

/** A page of one thread, as after a load of its address, once its history is there: what is sent before, the runtime drops. */
async function visit(threadId, options) {
  const agent = agentOf(threadId);
  const history = skeinHistory(agent, options);
  const { load } = history;
  const loaded = new Promise((resolve, reject) => {
    history.load = async () => {
      const messages = load();
      messages.then(resolve, reject);
      return messages;
    };
  });
  const page = await open(() => useAgUiRuntime({ agent, adapters: useMemo(() => ({ history }), []) }));
  await loaded;
  return page;
}

test('a regeneration and an edit show in the branch picker, and after a reload', async () => {
  const threadId = 'branches';
  const n = assistant.inputs.length;
  let page = await visit(threadId);
  await page.ask('Hello');
  await page.shows('Hello', `Answer ${n + 1} to Hello`);
  await page.click('.reload');
  await page.shows('Hello', `Answer ${n + 2} to Hello 2/2`);
  page.close();

  page = await visit(threadId);
  await page.shows('Hello', `Answer ${n + 2} to Hello 2/2`);
  await page.click('.previous');
  await page.shows('Hello', `Answer ${n + 1} to Hello 1/2`);
  await page.ask('More'); // in the first branch
  await page.shows('Hello', `Answer ${n + 1} to Hello 1/2`, 'More', `Answer ${n + 3} to More`);
  await page.edit('Less');
  await page.shows('Hello', `Answer ${n + 1} to Hello 1/2`, 'Less 2/2', `Answer ${n + 4} to Less`);
  page.close();

  page = await visit(threadId);
  await page.shows('Hello', `Answer ${n + 1} to Hello 1/2`, 'Less 2/2', `Answer ${n + 4} to Less`);
  await page.click('.previous');
  await page.shows('Hello', `Answer ${n + 1} to Hello 1/2`, 'More 1/2', `Answer ${n + 3} to More`);
  page.close();
  const { runs } = await client.lineage(threadId);
  assert.deepEqual(runs.map(({ parentRunId }) => runs.findIndex(({ runId }) => runId === parentRunId)), [-1, -1, 0, 0]);
});

test('a run of several messages is continued, and its last message regenerated', async () => {
  const threadId = 'several';
  const n = assistant.inputs.length;
  let page = await visit(threadId);
  await page.ask('twice');
  const first = [`twice`, `Answer ${n + 1} to twice look {"seen":true}`, 'Done.'];
  await page.shows(...first);
  await page.ask('And');
  await page.shows(...first, 'And', `Answer ${n + 2} to And`);
  page.close();
  page = await visit(threadId);
  await page.shows(...first, 'And', `Answer ${n + 2} to And`);
  await page.click('.reload', 1);
  await until(() => assistant.inputs[n + 2], 'the next run');
  assert.deepEqual(assistant.inputs[n + 2].state, { answers: n + 2 }); // restored, too
  await page.shows(first[0], first[1], `Answer ${n + 3} to twice look {"seen":true} 2/2`, 'Done.');
  page.close();
  page = await visit(threadId);
  await page.shows(first[0], first[1], `Answer ${n + 3} to twice look {"seen":true} 2/2`, 'Done.');
  await page.click('.previous');
  await page.shows(first[0], first[1], 'Done. 1/2', 'And', `Answer ${n + 2} to And`);
  page.close();
  const { runs } = await client.lineage(threadId);
  assert.equal(runs[1].parentRunId, runs[0].runId);
});

test('a tab that opens in mid-answer shows all of it, goes on from it, and stops the next one', async () => {
  const threadId = 'mid';
  const n = assistant.inputs.length;
  const question = 'a slow one with so many words that it takes a while to say them all';
  const first = await visit(threadId);
  await first.ask(question);
  await until(() => first.messages()[1]?.startsWith(`Answer ${n + 1}`), 'the answer begins');
  const second = await visit(threadId);
  await until(() => second.messages()[1]?.startsWith(`Answer ${n + 1}`), 'the answer is followed');
  assert.ok(second.runtime.thread.getState().isRunning);
  for (const page of [first, second]) await page.shows(question, `Answer ${n + 1} to ${question}`);
  await second.ask(question);
  await until(() => second.messages()[3]?.startsWith(`Answer ${n + 2}`), 'the next answer begins');
  const third = await visit(threadId);
  await until(() => third.messages()[3]?.startsWith(`Answer ${n + 2}`), 'the next answer is followed');
  await third.click('.cancel');
  const { runs } = await until(async () => {
    const lineage = await client.lineage(threadId);
    return lineage.runs[1]?.status === 'cancelled' && lineage;
  }, 'the run is stopped on the server');
  assert.equal(runs[1].parentRunId, runs[0].runId);
  await third.ask('More');
  await until(() => third.idle() && third.messages().length === 6, 'the answer after the stop');
  const fourth = await visit(threadId);
  await fourth.shows(...third.messages());
  for (const page of [first, second, third, fourth]) page.close();
});

test('messages with an id that others have keep their branches, and the agent gets their own ids', async () => {
  const threadId = 'reused';
  const question = user('u', 'Hi');
  for (const [run, delta] of [['r1', 'one'], ['r2', 'two']]) {
    await client.publish(threadId, run, [
      { type: 'RUN_STARTED', threadId, runId: run },
      { type: 'TEXT_MESSAGE_START', messageId: 'a', role: 'assistant' },
      { type: 'TEXT_MESSAGE_CONTENT', messageId: 'a', delta },
      { type: 'TEXT_MESSAGE_END', messageId: 'a' },
      { type: 'RUN_FINISHED', threadId, runId: run },
    ], { input: inputOf(threadId, run, [question]) });
  }
  let page = await visit(threadId, { branches: 1 });
  await page.shows('Hi', 'two');
  page.close();
  page = await visit(threadId);
  await page.shows('Hi', 'two 2/2');
  await page.ask('More');
  await until(() => page.idle() && page.messages().length === 4, 'the answer');
  assert.deepEqual(assistant.inputs.at(-1).messages.slice(0, 2), [question, { id: 'a', role: 'assistant', content: 'two' }]);
  page.close();
});

test('a run that waits for an answer waits after a reload, too', async () => {
  const threadId = 'waiting';
  const interrupts = [{ id: 'i', reason: 'confirmation', message: 'Sure?' }];
  await client.publish(threadId, 'r', [
    { type: 'RUN_STARTED', threadId, runId: 'r' },
    { type: 'TEXT_MESSAGE_START', messageId: 'a', role: 'assistant' },
    { type: 'TEXT_MESSAGE_CONTENT', messageId: 'a', delta: 'Shall I?' },
    { type: 'TEXT_MESSAGE_END', messageId: 'a' },
    { type: 'RUN_FINISHED', threadId, runId: 'r', outcome: { type: 'interrupt', interrupts } },
  ], { input: inputOf(threadId, 'r', [user('u', 'Book')]) });
  const page = await visit(threadId);
  await page.shows('Book', 'Shall I?');
  assert.deepEqual(page.runtime.unstable_getPendingInterrupts(), interrupts);
  await page.runtime.unstable_submitInterruptResponses([{ interruptId: 'i', status: 'resolved', payload: true }]);
  assert.deepEqual(assistant.inputs.at(-1).resume, [{ interruptId: 'i', status: 'resolved', payload: true }]);
  assert.equal((await client.lineage(threadId)).runs[1].parentRunId, 'r');
  page.close();
});

test('threads are listed, named, switched, archived and erased, and runs go on when the page is left', async () => {
  let current;
  const agents = [];
  const agent = (threadId) => (agents.push(threadId), agentOf(threadId));
  const visitAll = (threadId) => open(() => useSkeinRuntime({ client, agent, threadId, onThreadIdChange: (id) => (current = id) }));
  const n = assistant.inputs.length;

  let page = await visitAll();
  const question = 'a new and slow thread that gets this question as its title, as far as it fits';
  await page.ask(question);
  await until(() => page.messages()[1]?.startsWith(`Answer ${n + 1}`), 'the answer begins');
  page.close(); // in mid-answer
  const threadId = agents[0];

  page = await visitAll(threadId);
  await page.shows(question, `Answer ${n + 1} to ${question}`);
  assert.equal((await client.run(threadId, assistant.inputs[n].runId)).status, 'finished');
  const item = () => page.all('.item').findIndex(({ textContent }) => textContent.startsWith('a new and slow thread'));
  await until(() => item() >= 0, 'the title');

  await page.click('.reload');
  await until(() => page.messages()[1]?.startsWith(`Answer ${n + 2}`), 'the second answer begins');
  await page.click('.new');
  await until(() => page.messages().length === 0, 'the new thread');
  await page.click('.open', item());
  await page.shows(question, `Answer ${n + 2} to ${question} 2/2`);
  assert.equal((await client.lineage(threadId)).runs[1].status, 'finished');
  assert.equal(current, threadId);

  await page.click('.archive', item());
  await until(async () => (await client.thread(threadId)).archived, 'the archived thread');
  await page.click('.unarchive');
  await until(async () => !(await client.thread(threadId)).archived, 'the thread is no longer archived');
  await page.click('.delete', item());
  await until(() => item() < 0, 'the thread is gone from the list');
  await until(() => client.history(threadId).then(() => false, ({ status }) => status === 410), 'the thread is erased');
  page.close();
});
