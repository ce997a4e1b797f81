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
  const left = [];
  let failure;
  from([structuredClone(event)])
    .pipe(client.enforceEvents())
    .subscribe({ next: (event) => left.push(event), error: (error) => (failure = error) });
  if (failure !== undefined) throw failure;
  return left;
}

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
  let error;
  for (let index = 0; index < events.length && !error; index++) {
    try {
      // A stream that may be folded again keeps its events from being changed by the client.
      const own = skip ? structuredClone(events[index]) : events[index];
      for (const event of translate(own)) {
        const left = schema || strip ? enforce(event) : [];
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
  const counter = { onEvent: () => void seen++ };
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
  return error ? { messages, state, error } : { messages, state };
}

/** The first event that the client's verification rejects, as {index, message}, or undefined. */
function firstViolation(events, { upgrade }) {
  const boundary = upgrade && new client.CompatibilityBoundary();
  const input = { threadId: 'thread', runId: 'run', tools: [], context: [], messages: [] };
  const stages = [client.enforceEvents(), client.transformChunks(), client.verifyEvents()].map(stage);
  if (boundary) stages.unshift(stage((source) => boundary.run(input, { run: () => source })));
  for (let index = 0; index < events.length; index++) {
    try {
      stages.reduce((batch, next) => batch.flatMap(next), [structuredClone(events[index])]);
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
 * verify: say in violation where the client's verification would have ended the stream that was folded.
 */
export async function reduce({ start = {}, events, upgrade = false, schema = false, strip = false, skip = false, verify = false }) {
  const from = { messages: start.messages ?? [], state: start.state === undefined ? {} : start.state };
  const skipped = [];
  const kept = events.map((event, index) => ({ event, index }));
  for (;;) {
    const result = await fold(kept.map((k) => k.event), from, { upgrade, schema, strip, skip });
    if (!result.error) {
      if (skipped.length > 0) result.skipped = skipped;
      const violation = verify && firstViolation(kept.map((k) => k.event), { upgrade });
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
