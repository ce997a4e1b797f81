import * as agui from '@ag-ui/client';
import { HttpAgent, type AgentConfig, type BaseEvent, type Message, type RunAgentInput } from '@ag-ui/client';
import { path, SkeinClient, type Branch, type Fork, type History, type Lineage, type SkeinOptions } from './client.js';

export interface SkeinAgentConfig extends AgentConfig, Omit<SkeinOptions, 'headers' | 'fetch'> {
  /** The agent's name at Skein's proxy: runs go to `/v1/agents/{agent}`. */
  agent: string;
  headers?: Record<string, string>;
  fetch?: (url: string, init: RequestInit) => Promise<Response>;
}

type Events = ReturnType<HttpAgent['run']>;
type Reading = { threadId: string; runId?: string; stop?: boolean; abort: AbortController; timer?: ReturnType<typeof setTimeout> };
type Blocks = AsyncGenerator<{ data: string }>;

/**
 * An agent behind Skein's proxy. Its streams go on after a cut connection, `connectAgent` restores the thread and follows an open run, and
 * `abortRun` stops the run on the server.
 */
export class SkeinAgent extends HttpAgent {
  // CopilotKit sets threadId, headers and messages from outside, and clones without calling the constructor: so there are no private
  // fields, and each call makes its client anew.
  protected config: SkeinAgentConfig;
  /** The run that this agent reads, and what ends the reading. */
  protected reading: Reading | undefined;
  /** The run that was checked out, its messages, and the parent of the next run: it, or its own at an event of it. */
  protected base: { threadId: string; runId: string; messages: string[]; parent: string | undefined } | undefined;

  constructor(config: SkeinAgentConfig) {
    if (!config.agent) throw new TypeError('agent is missing: pass the name that --agent NAME=URL of Skein gives the agent');
    const url = new SkeinClient(config).url;
    super({ ...config, url: `${url}/v1/agents/${encodeURIComponent(config.agent)}` });
    this.config = config;
  }

  /** A client with this agent's addresses, key and headers. */
  get skein(): SkeinClient {
    return new SkeinClient({ ...this.config, headers: this.headers, fetch: this.fetch });
  }

  override run(input: RunAgentInput): Events {
    const base = this.base;
    this.base = undefined;
    // An edit cuts what was checked out: then Skein finds the parent by the messages.
    const goesOn = base?.threadId === input.threadId && base.messages.every((id, i) => input.messages[i]?.id === id);
    const sent = goesOn && base.parent !== undefined ? { ...input, parentRunId: base.parent } : input;
    return this.read(sent, (body, signal) => {
      const skein = this.skein;
      const run = path(input.threadId, input.runId);
      let begun = false; // sent once, then joined: a second request would be a second run
      return skein.blocks(
        (lastId) => {
          if (begun) return skein.follow(run, lastId, signal);
          begun = true;
          return skein.request('POST', `/v1/agents/${encodeURIComponent(this.config.agent)}`, {
            body,
            accept: 'text/event-stream',
            signal,
            once: true,
            write: true,
          });
        },
        { signal },
      );
    });
  }

  protected override connect(input: RunAgentInput): Events {
    if (this.abortController.signal.aborted) this.abortController = new AbortController(); // by an earlier abortRun
    return this.read(input, (body, signal, reading) => {
      delete reading.runId; // the input's is nobody's: the thread's own is yet to come
      const started = (run: string) => {
        reading.runId = run;
        if (reading.stop) this.stop(reading);
      };
      return restore(this.skein, input.threadId, { body, signal, started });
    });
  }

  /** Stops the run on the server. Its stream then ends by itself, with what the server closes; if the server cannot stop it, here. */
  override abortRun(): void {
    if (this.reading) this.stop(this.reading);
    else super.abortRun();
  }

  protected stop(reading: Reading): void {
    reading.stop = true;
    if (reading.runId === undefined) return; // connectAgent stops it when it knows it
    this.skein.cancel(reading.threadId, reading.runId, undefined, AbortSignal.timeout(10_000)).then(
      () => {
        // its last events are under way
        if (this.reading === reading) reading.timer = setTimeout(() => reading.abort.abort(), 2_000);
      },
      (error) => {
        if (error?.status !== 409)
          console.error(`skein: run ${reading.runId} goes on, as it could not be stopped: ${error.message}`);
        reading.abort.abort();
      },
    );
  }

  override async detachActiveRun(): Promise<void> {
    const { reading } = this;
    await super.detachActiveRun();
    reading?.abort.abort(); // the run goes on, and connectAgent joins it
  }

  /** Sets messages and state to those of a run, or of its event `at`. The next run continues there: a branch, if others did. */
  async checkout(run: string, at?: number | string): Promise<void> {
    const { threadId } = this;
    let parent: string | undefined = run;
    if (at === undefined) {
      const { messages, state, interrupts = [] } = await this.skein.history(threadId, run);
      this.setMessages(messages);
      this.setState(state);
      this.pendingInterrupts = interrupts;
    } else {
      const { messages, state, parentRunId } = await this.skein.checkout(threadId, run, { at: String(at) });
      this.setMessages(messages);
      this.setState(state ?? {});
      this.pendingInterrupts = [];
      parent = parentRunId;
    }
    // AG-UI's client leaves activity messages out of inputs.
    const messages = this.messages.filter(({ role }) => role !== 'activity').map(({ id }) => id);
    this.base = { threadId, runId: run, messages, parent };
  }

  history(run?: string): Promise<History> {
    return this.skein.history(this.threadId, run);
  }

  lineage(): Promise<Lineage> {
    return this.skein.lineage(this.threadId);
  }

  branches(): Promise<Branch[]> {
    return this.skein.branches(this.threadId);
  }

  /** The versions of one of this agent's messages: undefined if there is one only. The default run is the one that was checked out. */
  siblings(message: Message | string, run = this.base?.runId): Promise<Fork | undefined> {
    return this.skein.siblings(this.threadId, typeof message === 'string' ? message : message.id, run);
  }

  override clone(): SkeinAgent {
    const cloned = super.clone() as SkeinAgent;
    cloned.config = this.config;
    cloned.base = this.base;
    return cloned;
  }

  /** Runs HttpAgent's own reading over a response whose body goes on where a connection broke. */
  private read(input: RunAgentInput, blocks: (body: string, signal: AbortSignal, reading: Reading) => Blocks): Events {
    const abort = new AbortController();
    const reading: Reading = { threadId: input.threadId, runId: input.runId, abort };
    const fetch = async (_: string, init: RequestInit): Promise<Response> => {
      this.reading = reading;
      const signal = AbortSignal.any([abort.signal, init.signal!]);
      const source = blocks(init.body as string, signal, reading);
      const done = () => {
        clearTimeout(reading.timer);
        if (this.reading === reading) this.reading = undefined;
      };
      const first = await source.next().catch((error) => {
        // a refusal is an error of the request
        done();
        throw error;
      });
      let ahead: typeof first | undefined = first;
      // As much of a Response as HttpAgent reads. The reader of a real one that fails rejects twice, and nobody catches the second.
      const reader = {
        async read() {
          try {
            const next = ahead ?? (await source.next());
            ahead = undefined;
            if (next.done) done();
            return next.done
              ? { done: true }
              : { done: false, value: encoder.encode(`data: ${supported(next.value.data).replaceAll('\n', '\ndata: ')}\n\n`) };
          } catch (error) {
            done();
            throw error;
          }
        },
        async cancel() {
          done();
          abort.abort();
        },
      };
      return {
        ok: true,
        status: 200,
        headers: new Headers({ 'Content-Type': 'text/event-stream' }),
        body: { getReader: () => reader },
      } as unknown as Response;
    };
    // super.run reads `this.fetch`: this agent, but for that.
    return super.run.call(Object.create(this, { fetch: { value: fetch } }), input);
  }
}

const encoder = new TextEncoder();

// Clients before AG-UI 1.0 refuse the outcome `cancelled`. To them, such a run has finished.
const older = !('PROTOCOL_VERSION' in agui);

function supported(data: string): string {
  return older && data.includes('"cancelled"') && data.includes('RUN_FINISHED')
    ? JSON.stringify(uncancelled(JSON.parse(data)))
    : data;
}

/** An event without the outcome that clients before AG-UI 1.0 refuse. */
export function uncancelled(event: BaseEvent): BaseEvent {
  const { outcome, ...rest } = event as BaseEvent & { outcome?: { type?: string } };
  return event.type === 'RUN_FINISHED' && outcome?.type === 'cancelled' ? rest : event;
}

/** Restores a thread by snapshots and follows its open run, by POST /v1/connect and, after a cut, the run's stream. */
export function restore(
  skein: SkeinClient,
  threadId: string,
  { body, signal, started, run }: { body?: string; signal?: AbortSignal; started?: (run: string) => void; run?: string },
): AsyncGenerator<{ data: string }> {
  const input =
    body ??
    JSON.stringify({
      threadId,
      runId: crypto.randomUUID(),
      state: {},
      messages: [],
      tools: [],
      context: [],
      forwardedProps: run === undefined ? {} : { skein: { runId: run } },
    });
  return (async function* () {
    let current: string | undefined;
    const next = (lastId?: string) =>
      lastId !== undefined && lastId !== 'join' && current !== undefined
        ? skein.follow(path(threadId, current), lastId, signal)
        : skein.request('POST', '/v1/connect', { body: input, accept: 'text/event-stream', signal });
    for await (const block of skein.blocks(next, { signal })) {
      if (current === undefined && block.data.includes('RUN_STARTED')) {
        const { type, runId } = JSON.parse(block.data) as BaseEvent & { runId?: string };
        if (type === 'RUN_STARTED' && runId) started?.((current = runId));
      }
      yield block;
    }
  })();
}
