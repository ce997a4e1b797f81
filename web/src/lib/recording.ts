import { get, path } from "./api";
import { messagesAfter, patched } from "./patch";
import type { JSONValue, Message, StatePage, Status, Step } from "./types";

/** Messages and state behind one step. */
export interface Moment {
  n: number;
  messages: Message[];
  state: JSONValue;
}

const PAGE = 1000;
const APART = 128;

/**
 * A run as the API tells it: the moment before its first step, and what each step changed. The page folds nothing itself; it
 * carries out the changes that GET …/state gives, and keeps a moment every few steps so that a scrubber can jump.
 */
export class Recording {
  readonly steps: Step[] = [];
  total = 0;
  status: Status = "running";
  /** The moment at the end, which comes before the steps do. */
  end: Moment | undefined;
  private kept: Moment[] = [];
  private last: Moment | undefined;

  constructor(
    readonly thread: string,
    readonly run: string,
  ) {}

  get whole(): boolean {
    return this.steps.length > this.total;
  }

  /** Reads the end first, then all steps; says after each page that there is more. */
  async load(more: () => void, signal: AbortSignal): Promise<void> {
    const page = await get<StatePage>(`${path(this.thread, this.run)}/state`, { from: 0, limit: PAGE }, signal);
    if (page.next !== undefined) {
      const end = await get<StatePage>(`${path(this.thread, this.run)}/state`, { at: "end" }, signal);
      this.end = { n: end.n, messages: end.messages, state: end.state };
    }
    this.take(page);
    more();
    await this.extend(more, signal);
  }

  /** Reads the steps that have come since. */
  async extend(more: () => void, signal: AbortSignal): Promise<void> {
    for (;;) {
      const from = this.steps.length;
      if (from > this.total && this.status !== "running") return;
      if (from > this.total) {
        const head = await get<StatePage>(`${path(this.thread, this.run)}/state`, { at: "end" }, signal);
        this.status = head.status;
        this.total = head.total;
        this.end = { n: head.n, messages: head.messages, state: head.state };
        if (from > this.total) return more();
      }
      this.take(await get<StatePage>(`${path(this.thread, this.run)}/state`, { from, limit: PAGE }, signal));
      more();
      if (this.whole) return;
    }
  }

  private take(page: StatePage): void {
    this.total = page.total;
    this.status = page.status;
    if (this.kept.length === 0) this.kept.push({ n: page.n, messages: page.messages, state: page.state });
    this.steps.push(...(page.steps ?? []));
  }

  /** The moment behind step n, or the latest that is known. */
  at(n: number): Moment {
    if (n > this.steps.length - 1 && this.end && this.end.n <= n) return this.end;
    n = Math.min(n, this.steps.length - 1);
    let from = this.kept[Math.min(this.kept.length - 1, Math.max(0, Math.floor((n + 1) / APART)))] as Moment;
    if (this.last && this.last.n <= n && this.last.n > from.n) from = this.last;
    let { messages, state } = from;
    for (let i = from.n + 1; i <= n; i++) {
      const { change } = this.steps[i] as Step;
      messages = messagesAfter(messages, change.messages);
      if (change.state.length) state = patched(state, change.state);
      if ((i + 1) % APART === 0 && this.kept.length === (i + 1) / APART) this.kept.push({ n: i, messages, state });
    }
    return (this.last = { n, messages, state });
  }

  /** The moment before the run's first step: what it goes on from. */
  get base(): Moment {
    return this.kept[0] as Moment;
  }
}
