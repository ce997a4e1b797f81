import type { BaseEvent, RunAgentInput } from '@ag-ui/client';
import type { StreamChunk, StreamDurability } from '@tanstack/ai';
import { path, type SkeinClient } from './client.js';
import { SkeinError } from './errors.js';

/** The number of a chunk in its run, or where to begin: at the run's first chunk, or behind what it has now. */
export type SkeinOffset = `seq:${number}` | '-1' | 'now';

export interface SkeinStreamOptions {
  client: SkeinClient;
  /** The thread of the run. By default `?threadId=` of the address, which a GET needs, else that of the input, else one of its own. */
  threadId?: string;
  /** What the agent was called with: the thread's history then has the user's messages, and branches are found by them. */
  input?: RunAgentInput;
}

type Stored = { offset: SkeinOffset; chunk: StreamChunk };
type Line = { seq?: number; event: BaseEvent };

/**
 * Keeps the chunks of a TanStack AI stream as a run in Skein, so that any process can resume it: for `toServerSentEventsResponse` and the
 * like.
 *
 * The run begins with the first chunk and ends with `close()`. A TanStack stream has a RUN_FINISHED after each turn of the agent, which
 * would end a run of AG-UI: chunks that begin or end a turn, and those that are no AG-UI events, are kept inside of CUSTOM events.
 */
export function skeinStream(request: Request, options: SkeinStreamOptions): StreamDurability<SkeinOffset> {
  const { client, input } = options;
  const query = new URL(request.url).searchParams;
  const from = parse(request.headers.get('Last-Event-ID') || query.get('offset'));
  const named = request.headers.get('X-Run-Id') || query.get('runId') || input?.runId;
  if (from !== null && !named) throw new TypeError(`a request that resumes at ${from} names no run: send X-Run-Id, or ?runId=`);
  const runId = named ?? crypto.randomUUID();
  const threadId = options.threadId ?? query.get('threadId') ?? input?.threadId ?? runId;
  const run = path(threadId, runId);
  let next = 0; // the number of the next event; the run's first one is RUN_STARTED, and no chunk
  let closed = false;
  let last: StreamChunk | undefined; // the latest end of a turn

  async function publish(events: object[]): Promise<void> {
    let seq = next;
    if (seq === 0 && input) {
      await client.request('PUT', `${run}/input`, { body: JSON.stringify({ ...input, threadId, runId }), write: true });
    }
    const begun = seq ? [] : [{ type: 'RUN_STARTED', threadId, runId }];
    const body = [...begun, ...events].map((event) => `${JSON.stringify({ seq: seq++, event })}\n`).join('');
    const response = await client.request('POST', `${run}/events`, { body, type: 'application/vnd.skein.events+ndjson', write: true });
    const { different, unreadable, warnings } = await response.json();
    if (different) throw new Error(`run ${runId} has other chunks: use another run id, or call snapshot() before you go on with it`);
    if (unreadable) throw new Error(`Skein cannot read a chunk: ${warnings?.[0]?.detail}`);
    next = seq;
  }

  async function stored(): Promise<Stored[]> {
    let text = '';
    try {
      const response = await client.request('GET', `${run}/events`, { accept: 'application/vnd.skein.events+ndjson' });
      text = await response.text();
    } catch (error) {
      if (!(error instanceof SkeinError && error.status === 404)) throw error;
    }
    const chunks: Stored[] = [];
    for (const line of text.split('\n')) {
      if (!line) continue;
      const { seq, event } = JSON.parse(line) as Line;
      if (seq === undefined) continue; // Skein's own end of a run that fell silent
      next = Math.max(next, seq + 1);
      const chunk = unwrap(event);
      if (chunk) chunks.push({ offset: `seq:${seq}`, chunk });
      else if (seq > 0) closed = true;
    }
    return chunks;
  }

  return {
    resumeFrom: () => from,
    async append(chunks) {
      if (chunks.length === 0) return [];
      if (closed) throw new Error(`run ${runId} is closed: use another run id`);
      await publish(chunks.map(wrap));
      for (const chunk of chunks) if (chunk.type === 'RUN_FINISHED' || chunk.type === 'RUN_ERROR') last = chunk;
      return chunks.map((_, i): SkeinOffset => `seq:${next - chunks.length + i}`);
    },
    async *read(offset, signal) {
      try {
        await client.run(threadId, runId, signal); // a stream would wait for a run that does not exist
        let seq = offset === '-1' ? 0 : offset === 'now' ? number((await stored()).at(-1)?.offset ?? 'seq:0') : number(offset);
        for await (const { event } of client.stream(threadId, runId, { lastEventId: `seq:${seq}`, ...(signal && { signal }) })) {
          // An end that close did not write is Skein's, of a run that fell silent.
          const chunk = unwrap(event) ?? (event.metadata?.[mark] ? undefined : (event as unknown as StreamChunk));
          if (chunk) yield { offset: `seq:${++seq}` as SkeinOffset, chunk };
        }
      } catch (error) {
        if (!signal?.aborted) throw error;
      }
    },
    async close() {
      if (closed) return;
      await publish([endOf(last, threadId, runId)]);
      closed = true;
    },
    snapshot: stored,
  };
}

// The name of CUSTOM events that hold a chunk, and the member of metadata that marks the end that close wrote.
const mark = 'tanstack.chunk';

function parse(offset: string | null): SkeinOffset | null {
  if (!offset || offset === '-1' || offset === 'now') return (offset || null) as SkeinOffset | null;
  return `seq:${number(offset)}`;
}

function number(offset: string): number {
  const match = /^seq:(\d{1,15})$/.exec(offset);
  if (!match) throw new TypeError(`${JSON.stringify(offset)} is no offset of Skein: pass one that came with a chunk, such as seq:7`);
  return Number(match[1]);
}

// The events that are kept as they are, and what they need. All others would count for nothing in a run, or end it.
const plain: Record<string, string> = {
  TEXT_MESSAGE_START: 'messageId', TEXT_MESSAGE_CONTENT: 'messageId delta', TEXT_MESSAGE_END: 'messageId',
  TOOL_CALL_START: 'toolCallId toolCallName', TOOL_CALL_ARGS: 'toolCallId delta', TOOL_CALL_END: 'toolCallId',
  TOOL_CALL_RESULT: 'messageId toolCallId content',
  REASONING_START: 'messageId', REASONING_MESSAGE_START: 'messageId role', REASONING_MESSAGE_CONTENT: 'messageId delta',
  REASONING_MESSAGE_END: 'messageId', REASONING_END: 'messageId',
  STEP_STARTED: 'stepName', STEP_FINISHED: 'stepName', STATE_SNAPSHOT: 'snapshot', CUSTOM: 'name value',
};

function wrap(chunk: StreamChunk): object {
  const values = chunk as unknown as Record<string, unknown>;
  const any = (key: string) => key === 'value' || key === 'snapshot';
  const fits = plain[chunk.type]?.split(' ').every((key) => any(key) ? values[key] !== undefined : typeof values[key] === 'string') &&
    Object.entries(values).every(([key, value]) => value !== null || any(key)) &&
    (values.timestamp === undefined || Number.isSafeInteger(values.timestamp)) && values.name !== mark;
  return fits ? chunk : { type: 'CUSTOM', name: mark, value: chunk };
}

/** The chunk that an event holds; none in what begins and ends the run. */
function unwrap(event: BaseEvent): StreamChunk | undefined {
  const { type, name, value } = event as BaseEvent & { name?: string; value?: StreamChunk };
  if (type === 'CUSTOM' && name === mark) return value;
  return plain[type] ? (event as unknown as StreamChunk) : undefined;
}

function endOf(last: StreamChunk | undefined, threadId: string, runId: string): object {
  const { type, outcome, message, code } = (last ?? {}) as { type?: string; outcome?: object; message?: string; code?: string };
  const metadata = { [mark]: 'end' };
  if (type === 'RUN_FINISHED') return { type, threadId, runId, ...(outcome && { outcome }), metadata };
  const reason = type ? String(message ?? 'the run failed') : 'the stream was closed without an end';
  return { type: 'RUN_ERROR', message: reason, ...(typeof code === 'string' && { code }), metadata };
}
