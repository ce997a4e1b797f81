import { apart, get, getText, path, Problem } from "./api";
import { messagesAfter, patched } from "./patch";
import { events } from "./raw";
import type { AGEvent, History, JSONValue, Message, Run, StatePage, Status, Step } from "./types";

/** Messages and state behind one step. */
export interface Moment {
  n: number;
  messages: Message[];
  state: JSONValue;
}

export const PAGE = 1000;
const APART = 128;
/** How many characters of answers a tab holds of a run; with what is parsed of them they take some times as many bytes. */
const HELD = 48 << 20;
/** Of runs with more events, only the pages that the view needs are read. */
const WHOLE = 10_000;

/**
 * A run as the API tells it: pages of steps, each with the moment before it. The page folds nothing itself; it carries out the changes
 * that GET …/state gives, and keeps a moment every few steps so that a scrubber can jump. A run that is long is read where one looks.
 */
export class Recording {
  /** By number; one that was not read is undefined. */
  readonly steps: (Step | undefined)[] = [];
  /** How many steps were read. */
  read = 0;
  total = 0;
  status: Status = "running";
  /** The moment at the end, which comes before the steps do. */
  end: Moment | undefined;
  /** Why there are no steps: the run's events have expired, or are too many. Then its end is all that is known. */
  gone = "";
  /** The event that ended such a run. */
  terminal: AGEvent | undefined;
  /** Moments by the number of the step that they are behind, plus one: those before a page's steps, and some within. */
  private kept = new Map<number, Moment>();
  private last: Moment | undefined;
  /** Characters of the answers that the steps of a page came in. */
  private held = new Map<number, number>();
  private reading = new Map<number, Promise<void>>();

  constructor(
    readonly thread: string,
    readonly run: string,
    private readonly more: () => void,
    /** Reads, again where it fails for now. */
    private readonly patiently: <T>(read: () => Promise<T>) => Promise<T>,
    private readonly signal: AbortSignal,
  ) {}

  get whole(): boolean {
    return this.read > this.total;
  }

  /** Whether more than what is looked at is read. */
  get long(): boolean {
    return this.total > WHOLE;
  }

  private async state(query: Record<string, string | number>): Promise<{ body: StatePage; raw: (string | undefined)[]; size: number }> {
    const { body, text } = await this.patiently(() => getText<StatePage>(`${path(this.thread, this.run)}/state`, query, this.signal));
    const raw = events(text);
    await apart(text);
    return { body, raw, size: text.length };
  }

  /** Reads the beginning, the end and the page with step n, and the rest where the run is not long. */
  async load(n: number | undefined): Promise<void> {
    let first: Awaited<ReturnType<typeof this.state>>;
    try {
      first = await this.state({ from: 0, limit: PAGE });
    } catch (e) {
      // Expired, too many, or more of them than the server reads for one tenant.
      if (!(e instanceof Problem) || ![409, 410, 422].includes(e.status)) throw e;
      return this.readHistory(e.message);
    }
    if (first.body.next !== undefined) await this.readEnd();
    this.take(first);
    this.more();
    if (this.long) await Promise.all([this.need(this.total), ...(n === undefined ? [] : [this.need(Math.min(n, this.total))])]);
    else await this.all();
  }

  /** Reads what the run's record tells, which is kept longer than its events. */
  private async readHistory(why: string): Promise<void> {
    const read = (run: string) => this.patiently(() => get<History>(`${path(this.thread, run)}/history`, {}, this.signal));
    const [end, facts] = await Promise.all([read(this.run), this.patiently(() => get<Run>(path(this.thread, this.run), {}, this.signal))]);
    const before = facts.parentRunId && (await read(facts.parentRunId));
    this.gone = why;
    this.status = end.status;
    this.terminal = facts.terminal;
    this.end = { n: 0, messages: end.messages, state: end.state };
    this.kept.set(0, { n: -1, messages: before ? before.messages : [], state: before ? before.state : {} });
    this.last = undefined;
    this.more();
  }

  private async readEnd(): Promise<void> {
    const end = await this.patiently(() => get<StatePage>(`${path(this.thread, this.run)}/state`, { at: "end" }, this.signal));
    this.status = end.status;
    this.total = end.total;
    this.end = { n: end.n, messages: end.messages, state: end.state };
  }

  /** Reads all steps that were not read, as far as they may be held. */
  async all(): Promise<void> {
    for (let page = 0; page * PAGE <= this.total && this.size <= HELD; page++) await this.need(page * PAGE, false);
  }

  /** Whether no more of it is held. */
  get full(): boolean {
    return this.size > HELD;
  }

  private get size(): number {
    return [...this.held.values()].reduce((a, b) => a + b, 0);
  }

  /** Lets go of the pages that are farthest from one, until half of what may be held is. */
  private makeRoom(near: number): void {
    const far = [...this.held.keys()].filter((p) => p !== near).sort((a, b) => Math.abs(b - near) - Math.abs(a - near));
    for (const page of far) {
      if (2 * this.size <= HELD) break;
      for (let n = page * PAGE; n < (page + 1) * PAGE; n++) {
        if (this.steps[n]) this.read--;
        if (n < this.steps.length) this.steps[n] = undefined;
        if (n > 0) this.kept.delete(n); // the first is what the run goes on from
      }
      this.held.delete(page);
    }
    this.last = undefined;
  }

  /** Reads the page with step n: where somebody looks at it, others make room for it. */
  async need(n: number, looked = true): Promise<void> {
    const page = Math.floor(n / PAGE);
    const before = this.reading.get(page);
    if (before && !looked) return before;
    const reading = (before ?? Promise.resolve()).then(() => this.readPage(page, looked)).finally(() => {
      if (this.reading.get(page) === reading) this.reading.delete(page);
    });
    this.reading.set(page, reading);
    return reading;
  }

  private async readPage(page: number, looked: boolean): Promise<void> {
    const next = (): number => {
      for (let n = page * PAGE; n < (page + 1) * PAGE && n <= this.total; n++) if (!this.steps[n]) return n;
      return -1;
    };
    for (let from = next(); from >= 0 && !this.signal.aborted; from = next()) {
      this.take(await this.state({ from, limit: (page + 1) * PAGE - from }));
      if (looked && this.size > HELD) this.makeRoom(page);
      this.more();
      if (!looked && this.size > HELD) return;
    }
  }

  /** Reads the steps that have come since. */
  async extend(): Promise<void> {
    if (this.gone) return this.readHistory(this.gone);
    // What comes after the last step on its page says how many there are by now; the moment at the end follows from the changes.
    this.take(await this.state({ from: this.total, limit: PAGE - (this.total % PAGE) }));
    await (this.long || this.size > HELD ? this.need(this.total) : this.all());
    this.more();
  }

  private take({ body: page, raw, size }: Awaited<ReturnType<typeof this.state>>): void {
    this.total = page.total;
    this.status = page.status;
    const at = page.n + 1;
    if (at % PAGE === 0) this.kept.set(at, { n: page.n, messages: page.messages, state: page.state });
    const of = Math.floor(at / PAGE);
    if (page.steps) this.held.set(of, (this.held.get(of) ?? 0) + size);
    page.steps?.forEach((step, i) => {
      if (this.steps[step.n]) return;
      this.steps[step.n] = Object.assign(step, { raw: raw[i] });
      this.read++;
    });
  }

  /** The moment behind step n; undefined where its page was not read. */
  at(n: number): Moment | undefined {
    const page = Math.floor(n / PAGE) * PAGE;
    let from: Moment | undefined;
    for (let k = Math.floor((n + 1) / APART) * APART; k > page && !from; k -= APART) from = this.kept.get(k);
    from ??= this.kept.get(page);
    if (this.last && this.last.n <= n && this.last.n >= (from?.n ?? Infinity)) from = this.last;
    const end = this.end?.n === n ? this.end : undefined;
    if (!from) return end;
    let { messages, state } = from;
    for (let i = from.n + 1; i <= n; i++) {
      const step = this.steps[i];
      if (!step) return end;
      messages = messagesAfter(messages, step.change.messages);
      if (step.change.state.length) state = patched(state, step.change.state);
      if ((i + 1) % APART === 0 && !this.kept.has(i + 1)) this.kept.set(i + 1, { n: i, messages, state });
    }
    return (this.last = { n, messages, state });
  }

  /** The moment before the run's first step: what it goes on from. */
  get base(): Moment {
    return this.kept.get(0) as Moment;
  }
}
