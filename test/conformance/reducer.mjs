// The official AG-UI client 1.0.0 as a function: events in, messages and state out. Nothing of the
// client is copied or changed here; this file only feeds its published parts one after the other:
//
//   CompatibilityBoundary (older wire forms, on request) -> enforceEvents (its schema, on request)
//   -> transformChunks -> defaultApplyEvents
//
// verifyEvents is left out of that on purpose: it would end the stream at the first violation of the
// protocol's order, and Skein folds such events as the reducer does and counts them. What it would say
// is told apart, on request.

process.env.SUPPRESS_TRANSFORMATION_WARNINGS = '1';
process.env.NODE_ENV = 'production'; // else the client freezes and clones everything before every event
console.warn = () => {}; // a dropped patch, a stripped field: the reducer warns and goes on, and so do we

const client = await import('@ag-ui/client');
const { Subject, from } = await import('rxjs');

class Conversation extends client.AbstractAgent {
  constructor(messages, state, threadId) {
    super({ agentId: 'conformance', threadId, initialMessages: messages, initialState: state });
  }
  run() {
    throw new Error('the events are pushed, not pulled');
  }
}

const text = (error) => String(error?.message ?? error);

/** A synchronous rxjs stage as a function from one event to a list. It throws what the stage throws. */
function stage(operator) {
  const source = new Subject();
  let out = [];
  let failure;
  operator(source).subscribe({ next: (event) => out.push(event), error: (error) => (failure = error) });
  return (event) => {
    source.next(event);
    const batch = out;
    out = [];
    if (failure !== undefined) throw failure;
    return batch;
  };
}

/** What the schema leaves of one event, as a list of one or none: throws where the client would end the run. */
function enforce(event) {
  enforcing ??= stage(client.enforceEvents());
  try {
    return enforcing(event);
  } catch (thrown) {
    enforcing = undefined; // what has failed has ended
    throw thrown;
  }
}
let enforcing;

/** The event with the patch that the schema leaves of it: whatever else is kept, operations that RFC 6902 does not have go. */
function patched(event, left) {
  if (left?.type === 'STATE_DELTA') return { ...event, delta: left.delta };
  if (left?.type === 'ACTIVITY_DELTA') return { ...event, patch: left.patch };
  return event;
}

/** The events up to and with the first terminal one that the schema accepts: what comes after it is none of the run. */
export function cut(events) {
  const boundary = new client.CompatibilityBoundary();
  const input = { threadId: 'thread', runId: 'run', tools: [], context: [], messages: [] };
  const translate = stage((source) => boundary.run(input, { run: () => source }));
  const last = events.findIndex((event) => {
    if (event?.type !== 'RUN_FINISHED' && event?.type !== 'RUN_ERROR') return false;
    try {
      translate(structuredClone(event)).forEach(enforce);
      return true;
    } catch {
      return false; // malformed: it ends nothing
    }
  });
  return last < 0 ? events : events.slice(0, last + 1);
}

/**
 * Folds events as far as the client goes: {messages, state}, and error: {index, message} where an
 * event made it throw. messages and state are then those after the event before it.
 */
async function fold(events, start, { upgrade, schema, strip, skip }) {
  const input = {
    threadId: 'thread', runId: 'run', tools: [], context: [], forwardedProps: {},
    messages: structuredClone(start.messages), state: structuredClone(start.state),
  };
  const boundary = upgrade && new client.CompatibilityBoundary();
  const translate = boundary ? stage((source) => boundary.run(input, { run: () => source })) : (event) => [event];
  const expand = stage(client.transformChunks());

  // The stages before the reducer are synchronous and keep no hold on messages, so all events go
  // through them first. Feeding the reducer from the finished list, and not from a source that may
  // fail, matters: rxjs throws queued events away when their source fails, which no network stream
  // would show.
  const expanded = [];
  const origin = [];
  const enforced = []; // what the schema leaves of each event
  let error;
  for (let index = 0; index < events.length && !error; index++) {
    enforced.push([]);
    try {
      // A stream that may be folded again keeps its events from being changed by the client.
      const own = skip ? structuredClone(events[index]) : events[index];
      for (const event of translate(own)) {
        const left = schema || strip ? enforce(event) : [];
        enforced[index].push(...left);
        for (const e of (strip ? left : [patched(event, left[0])]).flatMap(expand)) {
          expanded.push(e);
          origin.push(index);
        }
      }
    } catch (thrown) {
      error = { index, message: text(thrown) };
    }
  }

  const agent = new Conversation(input.messages, input.state, input.threadId);
  let { messages, state } = input;
  let seen = -1;
  let held; // the reducer's own state, which it does not tell where it is undefined
  const counter = { onEvent: (now) => void (seen++, (held = now.state)) };
  expanded.push({ type: 'RAW' }); // changes nothing, and is told what the events before it left
  origin.push(events.length - 1);
  await new Promise((resolve) => {
    client.defaultApplyEvents(input, from(expanded), agent, [counter]).subscribe({
      next: (update) => {
        if (update.messages !== undefined) messages = update.messages;
        if (update.state !== undefined) state = update.state;
      },
      error: (thrown) => {
        error = { index: origin[seen], message: text(thrown) };
        resolve();
      },
      complete: resolve,
    });
  });
  if (held === undefined) state = undefined;
  return { result: error ? { messages, state, error } : { messages, state }, enforced };
}

/** The first event that the client's verification rejects, as {index, message}, or undefined. */
function firstViolation(enforced) {
  const [expand, verify] = [client.transformChunks(), client.verifyEvents()].map(stage);
  for (let index = 0; index < enforced.length; index++) {
    try {
      enforced[index].flatMap(expand).forEach(verify);
    } catch (thrown) {
      return { index, message: text(thrown) };
    }
  }
}

/**
 * reduce({start: {messages, state}, events, upgrade, schema, strip, skip, verify})
 *   -> {messages, state, error?, skipped?, violation?}
 *
 * upgrade: translate older wire forms as the client does (ids of THINKING_* messages become random).
 * schema: an event that the client's schema rejects is an error. Unknown types and fields are not, and stay; operations of
 *   a patch that RFC 6902 does not have go, as always before the reducer.
 * strip: fold what the client's schema leaves of an event: no unknown types, fields, content parts and messages.
 * skip: leave out an event that is an error, note it in skipped and go on; else stop there.
 * verify: say in violation where the client's verification would have ended the stream that was folded; schema is on then.
 */
export async function reduce({ start = {}, events, upgrade = false, schema = false, strip = false, skip = false, verify = false }) {
  const from = { messages: start.messages ?? [], state: start.state === undefined ? {} : start.state };
  const skipped = [];
  const kept = events.map((event, index) => ({ event, index }));
  for (;;) {
    const { result, enforced } = await fold(kept.map((k) => k.event), from, { upgrade, schema: schema || verify, strip, skip });
    if (!result.error) {
      if (skipped.length > 0) result.skipped = skipped;
      const violation = verify && firstViolation(enforced);
      if (violation) result.violation = { ...violation, index: kept[violation.index].index };
      return result;
    }
    const at = kept[result.error.index];
    const error = { index: at.index, message: result.error.message };
    if (!skip) return { messages: result.messages, state: result.state, error };
    skipped.push(error);
    kept.splice(result.error.index, 1);
  }
}

/**
 * judge({start, events}) -> {ends?: {index, message}, warned: [{index, message}]}
 *
 * What the client as a whole says of a stream that it plays as one: where it gives up, and each warning up to there. The
 * stages are those of its own pipeline, in their order.
 */
export async function judge({ start = {}, events }) {
  const input = {
    threadId: 'thread', runId: 'run', tools: [], context: [], forwardedProps: {},
    messages: structuredClone(start.messages ?? []), state: start.state === undefined ? {} : structuredClone(start.state),
  };
  const boundary = new client.CompatibilityBoundary();
  const translate = stage((source) => boundary.run(input, { run: () => source }));
  const [enforce, expand, verify] = [client.enforceEvents(), client.transformChunks(), client.verifyEvents()].map(stage);
  const judged = { warned: [] };
  const passed = [];
  const origin = [];
  const { warn } = console;
  const { SUPPRESS_TRANSFORMATION_WARNINGS: suppressed } = process.env;
  let at = 0;
  console.warn = (message) => void judged.warned.push({ index: at, message: String(message) });
  delete process.env.SUPPRESS_TRANSFORMATION_WARNINGS;
  try {
    for (; at < events.length && !judged.ends; at++) {
      try {
        for (const event of translate(structuredClone(events[at])).flatMap(enforce).flatMap(expand).flatMap(verify)) {
          passed.push(event);
          origin.push(at);
        }
      } catch (thrown) {
        judged.ends = { index: at, message: text(thrown) };
      }
    }
    let seen = -1;
    const counter = { onEvent: () => void (at = origin[++seen] ?? -1) };
    passed.push({ type: 'RAW' }); // changes nothing, and shows that the events before it are done
    const agent = new Conversation(input.messages, input.state, input.threadId);
    await new Promise((resolve) => {
      client.defaultApplyEvents(input, from(passed), agent, [counter]).subscribe({
        error: (thrown) => {
          judged.ends = { index: origin[seen], message: text(thrown) };
          resolve();
        },
        complete: resolve,
      });
    });
  } finally {
    console.warn = warn;
    process.env.SUPPRESS_TRANSFORMATION_WARNINGS = suppressed;
  }
  return judged;
}

/**
 * answer({body, status, contentType, url, threadId}) -> {rejected?, delivered, messages, state}
 *
 * What a whole HttpAgent makes of an agent's answer, of which body is the bytes in Base64, or which it gets from url: why its run fails, where it
 * does, the types of the events that came through, and what it holds then.
 */
export async function answer({ body, status = 200, contentType = 'text/event-stream', url, threadId }) {
  const delivered = [];
  const bytes = Buffer.from(body ?? '', 'base64');
  const pieces = new ReadableStream({ // as a network brings them: the client's limits count what has come so far
    start: (controller) => {
      for (let at = 0; at < bytes.length; at += 65536) controller.enqueue(new Uint8Array(bytes.subarray(at, at + 65536)));
      controller.close();
    },
  });
  const response = () => new Response(pieces, { status, headers: { 'content-type': contentType } });
  const agent = new client.HttpAgent(url ? { url, threadId } : { url: 'http://agent.example/', fetch: async () => response() });
  const { error } = console;
  console.error = () => {}; // it logs what it throws
  try {
    await agent.runAgent({}, { onEvent: ({ event }) => void delivered.push(event.type) });
    return { delivered, messages: agent.messages, state: agent.state };
  } catch (thrown) {
    return { delivered, rejected: text(thrown), messages: agent.messages, state: agent.state };
  } finally {
    console.error = error;
  }
}
