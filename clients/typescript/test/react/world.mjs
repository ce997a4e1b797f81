// A browser's document for React, and an agent that answers each run with messages of their own.
import { once } from 'node:events';
import { createServer } from 'node:http';
import { setTimeout as wait } from 'node:timers/promises';
import { Window } from 'happy-dom';

const window = new Window({ url: 'http://127.0.0.1/' });
const names = ['window', 'document', 'navigator', 'HTMLElement', 'HTMLIFrameElement', 'HTMLTextAreaElement', 'Element', 'Node', 'Text',
  'MutationObserver', 'ResizeObserver', 'IntersectionObserver', 'CustomEvent', 'KeyboardEvent', 'InputEvent', 'localStorage',
  'getComputedStyle', 'requestAnimationFrame', 'cancelAnimationFrame'];
for (const name of names) globalThis[name] ??= name === 'window' ? window : window[name];
globalThis.IS_REACT_ACT_ENVIRONMENT = false;

/** Answers "Answer N to QUESTION", word by word; "twice" gets a tool call and a second message, "slow" 50 ms between words. */
export async function startAgent() {
  const inputs = [];
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const part of request) body += part;
    const input = JSON.parse(body);
    inputs.push(input);
    const { threadId, runId } = input;
    const question = input.messages.findLast(({ role }) => role === 'user').content;
    const id = `${runId}-1`;
    const send = async (event) => {
      response.write(`data: ${JSON.stringify(event)}\n\n`);
      if (question.includes('slow')) await wait(50);
    };
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    await send({ type: 'RUN_STARTED', threadId, runId });
    await send({ type: 'TEXT_MESSAGE_START', messageId: id, role: 'assistant' });
    for (const delta of `Answer ${inputs.length} to ${question}`.split(/(?<= )/)) {
      await send({ type: 'TEXT_MESSAGE_CONTENT', messageId: id, delta });
    }
    await send({ type: 'TEXT_MESSAGE_END', messageId: id });
    if (question.includes('twice')) {
      await send({ type: 'TOOL_CALL_START', toolCallId: `${runId}-c`, toolCallName: 'look', parentMessageId: id });
      await send({ type: 'TOOL_CALL_ARGS', toolCallId: `${runId}-c`, delta: '{"at": 1}' });
      await send({ type: 'TOOL_CALL_END', toolCallId: `${runId}-c` });
      await send({ type: 'TOOL_CALL_RESULT', messageId: `${runId}-r`, toolCallId: `${runId}-c`, content: '{"seen": true}' });
      await send({ type: 'TEXT_MESSAGE_START', messageId: `${runId}-2`, role: 'assistant' });
      await send({ type: 'TEXT_MESSAGE_CONTENT', messageId: `${runId}-2`, delta: 'Done.' });
      await send({ type: 'TEXT_MESSAGE_END', messageId: `${runId}-2` });
    }
    await send({ type: 'STATE_SNAPSHOT', snapshot: { answers: inputs.length } });
    await send({ type: 'RUN_FINISHED', threadId, runId });
    response.end();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { url: `http://127.0.0.1:${server.address().port}/`, inputs, stop: () => (server.closeAllConnections(), server.close()) };
}
