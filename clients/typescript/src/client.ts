import type { BaseEvent, Interrupt, Message, RunAgentInput } from '@ag-ui/client';
import type { components, operations } from './api.js';
import { problemOf, SkeinError } from './errors.js';
import { Publisher, type Published, type PublishOptions } from './publisher.js';
import { readBlocks, type Block } from './sse.js';

export { SkeinError };
export { Publisher, type Published, type PublishOptions };

type Schemas = components['schemas'];
type Query<Operation extends keyof operations> = NonNullable<operations[Operation]['parameters']['query']>;

export type Thread = Schemas['Thread'];
export type Threads = Schemas['Threads'];
export type ThreadFilter = Query<'listThreads'>;
export type ThreadSummary = Schemas['ThreadSummary'];
export type Run = Schemas['Run'];
export type Lineage = Schemas['Lineage'];
export type LineageRun = Schemas['LineageRun'];
export type Branch = Schemas['Branch'];
/** Where a thread branches: the run of the chain, and its alternatives, itself included, each with the run to show for it. */
export type Fork = Schemas['Fork'];
export type Interrupts = Schemas['Interrupts'];
export type CancelledRun = Schemas['CancelledRun'];
/** What the official client holds at the end of a run or, of an open one, so far. */
export type History = Omit<Schemas['History'], 'messages' | 'interrupts'> & { messages: Message[]; interrupts?: Interrupt[] };
/** An input to continue from. */
export type Checkout = RunAgentInput & { parentRunId?: string };

/** One event of a live stream. Events without an id belong to the next one with an id, and come together with it. */
export interface Streamed {
  id: string | undefined;
  event: BaseEvent;
}

export interface SkeinOptions {
  /** Address of `skein dev` or of a gateway before all stages; else that of ingest. */
  url: string;
  /** Address of query, if it differs. */
  readUrl?: string;
  /** A key `sk_…`. It is sent as `Skein-Authorization`, so that `headers` may have an `Authorization` for the agent. */
  apiKey?: string;
  /** Sent with each request. */
  headers?: Record<string, string>;
  fetch?: (url: string, init: RequestInit) => Promise<Response>;
  /** For how long, in milliseconds, a call waits for an answer, and tries again while the server is away or busy. The default is 30000. */
  patience?: number;
}

export interface Request {
  query?: object;
  headers?: Record<string, string>;
  body?: string;
  type?: string;
  accept?: string;
  signal?: AbortSignal | undefined;
  /** Not sent again unless the server refused it, as sending it twice would do more. */
  once?: boolean;
  /** Called before the request is sent again. */
  again?: () => void;
  /** Ingest's, not query's. */
  write?: boolean;
}

/** A client of Skein's HTTP API. Methods reject with a SkeinError. */
export class SkeinClient {
  readonly url: string;
  readonly readUrl: string;
  readonly patience: number;

  constructor(private readonly options: SkeinOptions) {
    if (!/^https?:\/\//.test(options?.url ?? ''))
      throw new TypeError(`url is ${options?.url}: pass an address such as http://127.0.0.1:8420`);
    this.url = options.url.replace(/\/+$/, '');
    this.readUrl = (options.readUrl ?? options.url).replace(/\/+$/, '');
    this.patience = options.patience ?? 30_000;
  }

  /** The tenant's threads, by id; `next` goes into `after` for the next page. */
  threads(filter: ThreadFilter = {}, signal?: AbortSignal): Promise<Threads> {
    return this.get('/v1/threads', filter, signal);
  }

  thread(thread: string, signal?: AbortSignal): Promise<ThreadSummary> {
    return this.get(path(thread), {}, signal);
  }

  run(thread: string, run: string, signal?: AbortSignal): Promise<Run> {
    return this.get(path(thread, run), {}, signal);
  }

  /** Messages and state at the end of a run; without one, of the run that began last. */
  history(thread: string, run?: string, query: Query<'getRunHistory'> = {}, signal?: AbortSignal): Promise<History> {
    return this.get(`${path(thread, run)}/history`, query, signal);
  }

  lineage(thread: string, query: Omit<Query<'getLineage'>, 'format'> = {}, signal?: AbortSignal): Promise<Lineage> {
    return this.get(`${path(thread)}/lineage`, query, signal);
  }

  async branches(thread: string, signal?: AbortSignal): Promise<Branch[]> {
    return (await this.lineage(thread, {}, signal)).branches;
  }

  /**
   * The versions of a message: the runs that are alternatives where it stands, an edit or a regeneration each. The message is one of the
   * history of `run`, by default of the run that began last. It resolves to undefined where the thread does not branch, or has no run yet.
   */
  async siblings(thread: string, messageId: string, run?: string, signal?: AbortSignal): Promise<Fork | undefined> {
    const { messages, forks } = await this.history(thread, run, {}, signal).catch((error) => {
      // Skein's 404 of a path that it does not have gives a reason, and that of another server is no problem document.
      const { problem, reason } = error as SkeinError;
      if (run === undefined && problem?.status === 404 && !reason) return { messages: [], forks: [] };
      throw error;
    });
    const index = messages.findIndex((message) => message.id === messageId);
    return index < 0 ? undefined : forks.findLast((fork) => fork.message === index);
  }

  /** The input to continue from at a run's end, or at one of its events (`at`); without a run, at the thread's tip. */
  checkout(thread: string, run?: string, query: Query<'checkOutRun'> = {}, signal?: AbortSignal): Promise<Checkout> {
    return this.get(`${path(thread, run)}/checkout`, query, signal);
  }

  /** The runs that wait for an answer, longest waiting first. */
  interrupts(query: Query<'listInterrupts'> = {}, signal?: AbortSignal): Promise<Interrupts> {
    return this.get('/v1/interrupts', query, signal);
  }

  /**
   * Stops a run (or, if it is undefined, whatever runs of the thread are open), whichever process serves it, and says how it ended. It rejects
   * with 409 if the run had ended, or nobody ends it.
   */
  async cancel(thread: string, run: string | undefined, reason?: string, signal?: AbortSignal): Promise<CancelledRun> {
    const body = JSON.stringify(reason === undefined ? {} : { reason });
    return (await this.request('POST', `${path(thread, run)}/cancel`, { body, signal, write: true })).json();
  }

  /** Sets a thread's title, and whether lists leave it out; null removes the title. */
  async updateThread(thread: string, change: { title?: string | null; archived?: boolean }, signal?: AbortSignal): Promise<void> {
    await (await this.request('PATCH', path(thread), { body: JSON.stringify(change), signal, write: true })).text();
  }

  /**
   * Asks for the erasure of all that a thread has so far. `href` of the answer says how far it is. A request is sent once: a second one
   * would erase what came meanwhile.
   */
  async erase(thread: string, signal?: AbortSignal): Promise<Schemas['ErasureReceipt']> {
    return (await this.request('DELETE', path(thread), { signal, once: true, write: true })).json();
  }

  /**
   * Publishes a run: its events, or their texts, numbered from 0, after its input. It can be called again with the same run: Skein drops what it has.
   * It rejects if anything could not be published.
   */
  async publish(thread: string, run: string, events: Iterable<BaseEvent | string> | AsyncIterable<BaseEvent | string>, options: PublishOptions = {}) {
    const publisher = this.publisher(thread, run, { ...options, onLost: options.onLost ?? (() => {}) });
    publisher.patient = false;
    for await (const event of events) {
      publisher.push(event);
      await publisher.room(); // this source can wait, so nothing need be left out
    }
    const result = await publisher.close();
    if (result.error) throw result.error;
    return result;
  }

  /** Publishes the events of a run that goes on meanwhile: `push` never waits and never throws. */
  publisher(thread: string, run: string, options: PublishOptions = {}): Publisher {
    return new Publisher(this, thread, run, options);
  }

  /**
   * A run's events so far, then each new one, to its end; without a run, the thread's latest and next runs, until `signal` aborts. It goes
   * on after a broken connection without losing or repeating an event.
   */
  async *stream(
    thread: string,
    run?: string,
    options: { lastEventId?: string; signal?: AbortSignal; comment?: (text: string) => void } = {},
  ): AsyncGenerator<Streamed> {
    const next = (lastId?: string) => this.follow(path(thread, run), lastId, options.signal);
    for await (const block of this.blocks(next, { ...options, endless: run === undefined })) {
      yield { id: block.id, event: JSON.parse(block.data) };
    }
  }

  /** Whether somebody asks that a run be stopped before it ends: its publisher then stops the agent, and publishes the end. */
  async whenStopped(thread: string, run: string, signal?: AbortSignal): Promise<boolean> {
    const heard = new AbortController();
    const comment = (text: string) => void (text === 'stop requested' && heard.abort());
    try {
      for await (const _ of this.stream(thread, run, {
        comment,
        signal: signal ? AbortSignal.any([signal, heard.signal]) : heard.signal,
      }));
    } catch (error) {
      if (heard.signal.aborted) return true;
      throw error;
    }
    return false;
  }

  /** Asks for a live stream, from the event behind lastId on. */
  follow(path: string, lastId?: string, signal?: AbortSignal): Promise<Response> {
    return this.request('GET', `${path}/stream`, {
      accept: 'text/event-stream',
      signal,
      headers: lastId === undefined ? {} : { 'Last-Event-ID': lastId },
    });
  }

  /**
   * Reads a run from one connection after another: `next` gives each, and takes the last id that came. Blocks come when their id has come:
   * those of a cut group come again.
   */
  async *blocks(
    next: (lastId?: string) => Promise<Response>,
    options: { lastEventId?: string; signal?: AbortSignal; comment?: (text: string) => void; endless?: boolean } = {},
  ): AsyncGenerator<{ id?: string; data: string }> {
    const { signal, endless } = options;
    let lastId = options.lastEventId;
    let ended = false;
    for (let fruitless = 0; ; fruitless++) {
      const response = await next(lastId);
      if (response.status === 204) return;
      let held: (Block & { data: string })[] = [];
      let failure: unknown;
      try {
        for await (const block of readBlocks(response.body!, options.comment)) {
          if (block.data !== undefined) held.push(block as Block & { data: string });
          if (block.id === undefined) continue;
          lastId = block.id;
          for (const one of held) {
            ended = ends(one.data, ended);
            fruitless = 0;
            yield one;
          }
          held = [];
        }
      } catch (error) {
        failure = error;
      }
      if (failure === undefined && held.some((one) => ends(one.data, false))) {
        yield* held; // an end without an id is whole if its connection was
        ended = true;
      }
      if (ended && !endless) return;
      if (signal?.aborted) throw signal.reason;
      await sleep(Math.min(100 * 2 ** fruitless, 5_000) * (0.5 + Math.random() / 2), signal);
    }
  }

  private async get<T>(path: string, query: object, signal?: AbortSignal): Promise<T> {
    return (await this.request('GET', path, { query, signal })).json();
  }

  /** Sends a request, again if it may help, and returns a successful response: a stream as it comes, any other once it is whole. */
  async request(method: string, path: string, request: Request = {}): Promise<Response> {
    const { query, body, type = 'application/json', accept = 'application/json', signal, once, again, write } = request;
    const parameters = new URLSearchParams(
      Object.entries(query ?? {})
        .filter(([, value]) => value !== undefined)
        .map(([k, v]) => [k, String(v)]),
    );
    const url = `${write ? this.url : this.readUrl}${path}${parameters.size ? `?${parameters}` : ''}`;
    const headers = {
      ...this.options.headers,
      ...(this.options.apiKey !== undefined && { 'Skein-Authorization': `Bearer ${this.options.apiKey}` }),
      Accept: accept,
      ...(body !== undefined && { 'Content-Type': type }),
      ...request.headers,
    };
    const fetching = this.options.fetch ?? ((url, init) => fetch(url, init));
    const deadline = Date.now() + this.patience;
    for (let attempt = 0; ; attempt++) {
      let error: SkeinError;
      const late = new AbortController();
      const timer = setTimeout(() => late.abort(new Error(`no answer within ${this.patience} ms`)), this.patience);
      const either = signal ? AbortSignal.any([signal, late.signal]) : late.signal;
      try {
        signal?.throwIfAborted();
        const response = await fetching(url, { method, headers, signal: either, ...(body !== undefined && { body }) });
        if (response.ok)
          return response.status === 204 || accept === 'text/event-stream'
            ? response
            : new Response(await response.arrayBuffer(), response);
        error = await problemOf(`${method} ${path}`, response);
      } catch (cause) {
        if (signal?.aborted) throw signal.reason;
        error = new SkeinError(
          0,
          `${method} ${path}`,
          `${this.url === this.readUrl || write ? this.url : this.readUrl} does not answer: ${reasonOf(cause)}. ` +
            'Check the address, that the server runs and, in a browser, that its --cors-origin names this page',
          undefined,
          undefined,
          undefined,
          { cause },
        );
      } finally {
        clearTimeout(timer);
      }
      const pause =
        error.retryAfter !== undefined ? error.retryAfter * 1000 : Math.min(100 * 2 ** attempt, 5_000) * (0.5 + Math.random() / 2);
      if (!error.retryable || (once && ![425, 429, 503].includes(error.status)) || Date.now() + pause >= deadline) throw error;
      await sleep(pause, signal);
      again?.();
    }
  }
}

/** Whether a run has ended after an event. The text of most events says no without being parsed. */
function ends(data: string, before: boolean): boolean {
  if (!/RUN_(STARTED|FINISHED|ERROR)/.test(data)) return before;
  try {
    const { type } = JSON.parse(data);
    return type === 'RUN_FINISHED' || type === 'RUN_ERROR' || (type !== 'RUN_STARTED' && before);
  } catch {
    return before; // not JSON: the reader's affair
  }
}

/** The path of a thread, or of a run. */
export function path(thread: string, run?: string): string {
  for (const id of [thread, run]) if (id === '') throw new TypeError('a thread or run id is empty: pass the one of the run input');
  return `/v1/threads/${encodeURIComponent(thread)}${run === undefined ? '' : `/runs/${encodeURIComponent(run)}`}`;
}

function reasonOf(error: unknown): string {
  const { message, cause } = error as Error;
  const inner = cause as { message?: string; code?: string } | undefined;
  return inner?.message || inner?.code || message || String(error);
}

/** Waits, unless the signal aborts. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const stop = () => {
      clearTimeout(timer);
      reject(signal!.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop);
      resolve();
    }, ms);
    signal?.addEventListener('abort', stop, { once: true });
  });
}
