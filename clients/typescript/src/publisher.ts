import type { BaseEvent, RunAgentInput } from '@ag-ui/client';
import type { components } from './api.js';
import { path, sleep, type SkeinClient } from './client.js';
import { SkeinError } from './errors.js';

export interface PublishOptions {
  /** The RunAgentInput that the agent was called with. Skein finds the run's parent in it, and its question. */
  input?: RunAgentInput;
  /** Who produces the run, for searches. */
  agent?: string;
  /** Labels of the run, for searches: up to 16. */
  labels?: Record<string, string>;
  /** Sent with each request, besides those of the client. */
  headers?: Record<string, string>;
  /** Memory for events that Skein has not acknowledged, in characters; events beyond it are left out. The default is 16 million. */
  memory?: number;
  /** Told when events are lost: at the first one, and at the end. By default a warning on the console. */
  onLost?: (error: Error, events: number) => void;
}

/** What became of a run's events. */
export interface Published {
  /** Events that Skein has acknowledged. */
  accepted: number;
  /** Of these, repeats of events that it had. What the publisher itself sent again does not count. */
  repeated: number;
  /** Of these, dropped ones: another publisher had sent other events with their numbers. */
  different: number;
  /** Of these, events that no client can read; `warnings` say why. */
  unreadable: number;
  warnings: components['schemas']['Warning'][];
  /** Events that could not be published. */
  lost: number;
  /** Why the first of them was lost. */
  error?: Error;
  /** Position of the last event: a read with `atLeast` waits until it is indexed. */
  position?: string;
}

const batchLength = 512 << 10;

/** Sends the events of one run in order, in the background, and again until Skein has acknowledged them. */
export class Publisher {
  private readonly result: Published = { accepted: 0, repeated: 0, different: 0, unreadable: 0, warnings: [], lost: 0 };
  private readonly queue: string[] = [];
  private readonly stopping = new AbortController();
  private waiting = 0;
  /** Events at the queue's front that were sent, and may have arrived. */
  private unsure = 0;
  private seq = 0;
  private inputSent: boolean;
  private sending: Promise<void> | undefined;
  private dead: Error | undefined;
  private failure: Error | undefined;
  /** Whether to go on when the client's patience is over. Events from a source that can wait need no more. */
  patient = true;
  private freed: (() => void)[] = [];

  constructor(
    private readonly client: SkeinClient,
    private readonly thread: string,
    private readonly run: string,
    private readonly options: PublishOptions,
  ) {
    this.inputSent = options.input === undefined;
    path(thread, run);
  }

  /** Takes an event, or its text, which is kept byte for byte. It never waits or throws: what cannot be published counts as lost. */
  push(event: BaseEvent | string): void {
    const seq = this.seq++;
    if (this.dead) return this.lose(this.dead);
    let line: string;
    let type: string;
    try {
      type = (typeof event === 'string' ? JSON.parse(event) : event)?.type;
      if (typeof type !== 'string')
        throw new TypeError(`event ${seq} has no type, so it is no AG-UI event: pass events as the agent sends them`);
      const text = typeof event === 'string' ? event : JSON.stringify(event);
      if (/[\r\n]/.test(text)) throw new TypeError(`event ${seq} has line breaks: pass it as an object, or in one line`);
      line = `{"seq":${seq},"event":${text}}\n`;
    } catch (error) {
      return this.lose(error as Error);
    }
    const end = type === 'RUN_FINISHED' || type === 'RUN_ERROR'; // it always finds room, so that the run does not stay open
    if (this.full && !end)
      return this.lose(
        new Error(`Skein takes events too slowly or not at all, and ${this.waiting} characters wait: see whether it answers`),
      );
    this.queue.push(line);
    this.waiting += line.length;
    this.sending ??= this.send();
  }

  /** Resolves when there is room for more: for a source that can wait. */
  async room(): Promise<void> {
    while (this.full && !this.dead) await new Promise<void>((resolve) => this.freed.push(resolve));
  }

  /** Waits until everything is acknowledged, for `timeout` ms at most, by default the client's patience. It does not reject. */
  async close(timeout = this.client.patience): Promise<Published> {
    const timer = setTimeout(
      () => this.stopping.abort(new Error(`Skein has not acknowledged all events ${timeout} ms after the run's end`)),
      timeout,
    );
    if (!this.inputSent) this.sending ??= this.send();
    await this.sending;
    clearTimeout(timer);
    const { result } = this;
    if (result.different && !result.error) {
      result.error = new SkeinError(
        409,
        `run ${this.run} of thread ${this.thread}`,
        `another publisher had sent ${result.different} other events with the same numbers: only one may publish a run`,
        'different-events',
      );
      this.tell(result.error, result.different);
    } else if (result.lost) {
      this.tell(result.error!);
    }
    return result;
  }

  private get full(): boolean {
    return this.waiting > (this.options.memory ?? 16e6);
  }

  private async send(): Promise<void> {
    await null; // events that come in one go share a request
    while (!this.inputSent || this.queue.length) {
      let batch = 0;
      try {
        if (!this.inputSent) {
          await this.call('PUT', 'input', JSON.stringify(this.options.input), 'application/json');
          this.inputSent = true;
          continue;
        }
        let body = '';
        while (batch < this.queue.length && (batch === 0 || body.length + this.queue[batch]!.length < batchLength))
          body += this.queue[batch++];
        const ack = (await this.call(
          'POST',
          'events',
          body,
          'application/vnd.skein.events+ndjson',
          () => (this.unsure = batch),
        )) as components['schemas']['Accepted'];
        this.acknowledge(batch, this.unsure ? { ...ack, repeated: 0 } : ack);
      } catch (error) {
        const { status } = error as SkeinError;
        const problem = (error as SkeinError).problem as components['schemas']['IngestProblem'] | undefined;
        // What is no JSON comes from something in between.
        const retryable = error instanceof SkeinError ? error.retryable : error instanceof SyntaxError;
        this.unsure = batch;
        if (batch && problem?.accepted) this.acknowledge(problem.accepted, problem as components['schemas']['Accepted']);
        if (batch && problem?.line && !retryable && (status === 400 || status === 413)) {
          this.drop(1); // one event was refused: those after it go on
          this.unsure = 0;
          this.lose(error as Error);
        } else if (!batch && !retryable && status >= 400 && status < 500 && status !== 401 && status !== 403) {
          this.inputSent = true; // an input that Skein refuses costs the run its parent, not its events
          this.lose(error as Error, 0);
        } else if (this.stopping.signal.aborted || !retryable || !this.patient) {
          this.dead = this.stopping.signal.aborted && this.failure ? this.failure : (error as Error);
          this.lose(this.dead, this.drop(this.queue.length));
          this.inputSent = true;
        } else {
          this.failure = error as Error;
          await sleep(1000, this.stopping.signal).catch(() => {}); // the next round ends it
        }
      }
    }
    this.sending = undefined;
  }

  private async call(method: string, what: string, body: string, type: string, again?: () => void): Promise<unknown> {
    const { agent, labels = {}, headers } = this.options;
    const response = await this.client.request(method, `${path(this.thread, this.run)}/${what}`, {
      body,
      type,
      write: true,
      ...(again && { again }),
      signal: this.stopping.signal,
      headers: {
        ...headers,
        ...(agent !== undefined && { 'Skein-Agent': utf8(agent) }),
        ...Object.fromEntries(Object.entries(labels).map(([key, value]) => [`Skein-Label-${key}`, utf8(value)])),
      },
    });
    return response.json();
  }

  private acknowledge(events: number, ack: components['schemas']['Accepted']): void {
    const { result } = this;
    result.accepted += ack.accepted;
    result.repeated += ack.repeated ?? 0;
    result.different += ack.different ?? 0;
    result.unreadable += ack.unreadable ?? 0;
    result.warnings.push(...(ack.warnings ?? []).slice(0, 16 - result.warnings.length));
    if (ack.lastOffset >= 0) result.position = `${ack.partition}:${ack.lastOffset}`;
    this.drop(events);
  }

  private drop(events: number): number {
    for (const line of this.queue.splice(0, events)) this.waiting -= line.length;
    this.unsure = Math.max(0, this.unsure - events);
    for (const wake of this.freed.splice(0)) wake();
    return events;
  }

  private lose(error: Error, events = 1): void {
    const first = this.result.error === undefined;
    this.result.lost += events;
    this.result.error ??= error;
    if (first) this.tell(error);
  }

  private tell(error: Error, lost = this.result.lost): void {
    const {
      onLost = (error, events) =>
        console.warn(`skein: ${events} events of run ${this.run} in thread ${this.thread} were not published: ${error.message}`),
    } = this.options;
    try {
      onLost(error, lost);
    } catch (failure) {
      console.warn('skein: onLost failed:', failure);
    }
  }
}

/** A header value's bytes: fetch takes one character a byte. */
function utf8(text: string): string {
  return String.fromCharCode(...new TextEncoder().encode(text));
}
