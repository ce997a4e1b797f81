import { get } from "./api";
import type { FoundRun, Thread } from "./types";

/** A thread of the list: those of its runs that the filter selects, the latest first, and what was read of it when its row came into view. */
export interface Row {
  threadId: string;
  found: FoundRun[];
  /** Counts of all its runs. */
  summary?: Thread;
  /** Its last runs, the latest first. */
  last?: FoundRun[];
}

export type Query = Record<string, string | undefined>;

const PAGE = 200;
/** A page of runs may be of few threads: more pages are read until there are as many rows as a screen has. */
const SCREEN = 40;
const PAGES = 10;
const POLL = 100;
const AT_ONCE = 4;
/** How many of a thread's last runs a row draws. */
export const EACH = 24;

/**
 * The threads with the latest runs that a filter selects, the latest first. The server answers the filter: the list is made of pages of
 * GET /v1/runs, of which the next is read where one scrolls to the end. What a row says of the whole thread is read when it is in view.
 */
export class List {
  rows: Row[] = $state.raw([]);
  /** Whether the first page was read. */
  ready = $state(false);
  more = $state(false);
  fault = $state("");
  private byThread = new Map<string, Row>();
  private after: string | undefined;
  private wanted = new Map<string, number>();
  private stale = new Set<string>();
  private inFlight = new Set<string>();
  private paging: Promise<void> | undefined;
  private closed = new AbortController();

  constructor(
    private readonly query: Query,
    private readonly filtered: boolean,
  ) {}

  close(): void {
    this.closed.abort();
  }

  of(thread: string): Row | undefined {
    return this.byThread.get(thread);
  }

  get agents(): string[] {
    return [...new Set(this.runs.map((r) => r.agent ?? ""))].filter(Boolean).sort();
  }

  get labels(): string[] {
    return [...new Set(this.runs.flatMap((r) => Object.entries(r.labels ?? {}).map(([k, v]) => `${k}=${v}`)))].sort().slice(0, 100);
  }

  private get runs(): FoundRun[] {
    return this.rows.flatMap((r) => r.found);
  }

  private page(limit: number, after?: string): Promise<{ runs: FoundRun[]; next?: string }> {
    return get("/v1/runs", { ...this.query, limit, after }, this.closed.signal);
  }

  /** Reads on until there is a screen of threads more. */
  next(): Promise<void> {
    return (this.paging ??= this.readNext().finally(() => (this.paging = undefined)));
  }

  private async readNext(): Promise<void> {
    const enough = this.rows.length + SCREEN;
    for (let n = 0; n < PAGES && this.rows.length < enough && (!this.ready || this.after); n++) {
      const page = await this.page(PAGE, this.after);
      this.after = page.next;
      this.more = page.next !== undefined;
      this.take(page.runs);
      this.ready = true;
    }
  }

  /** Reads the latest runs again, and once more the threads that have open runs and are in view. */
  async poll(): Promise<void> {
    const page = await this.page(POLL);
    this.take(page.runs);
    for (const thread of this.wanted.keys()) if (this.byThread.get(thread)?.last?.some((r) => r.status === "running")) this.stale.add(thread);
    this.fill();
  }

  private take(runs: FoundRun[]): void {
    const changed = new Set<Row>();
    for (const r of runs) {
      let row = this.byThread.get(r.threadId);
      if (!row) this.byThread.set(r.threadId, (row = { threadId: r.threadId, found: [] }));
      const i = row.found.findIndex((f) => f.runId === r.runId);
      const known = row.found[i];
      if (known && known.status === r.status && known.durationMs === r.durationMs) continue;
      if (known) row.found[i] = r;
      else row.found.push(r);
      changed.add(row);
    }
    if (!changed.size) return;
    for (const row of changed) {
      row.found = row.found.sort((a, b) => Date.parse(b.startedAt) - Date.parse(a.startedAt)).slice(0, EACH);
      this.byThread.set(row.threadId, { ...row });
      this.stale.add(row.threadId);
    }
    this.show();
    this.fill();
  }

  private show(): void {
    const at = (r: Row): number => Date.parse(r.found[0]?.startedAt ?? "");
    this.rows = [...this.byThread.values()].filter((r) => r.found.length).sort((a, b) => at(b) - at(a));
  }

  /** Says that the row of a thread is in view; the function that it returns says that it no longer is. */
  want(thread: string): () => void {
    this.wanted.set(thread, (this.wanted.get(thread) ?? 0) + 1);
    if (!this.byThread.get(thread)?.summary && !this.inFlight.has(thread)) this.stale.add(thread); // one with open runs waits for the next poll
    this.fill();
    return () => {
      const left = (this.wanted.get(thread) ?? 1) - 1;
      if (left) this.wanted.set(thread, left);
      else this.wanted.delete(thread);
    };
  }

  private fill(): void {
    while (this.inFlight.size < AT_ONCE && !this.closed.signal.aborted) {
      const thread = [...this.wanted.keys()].find((t) => this.stale.has(t) && !this.inFlight.has(t));
      if (thread === undefined) return;
      this.stale.delete(thread);
      this.inFlight.add(thread);
      void this.read(thread).catch((e: unknown) => {
        if (!this.closed.signal.aborted) this.fault = e instanceof Error ? e.message : String(e);
      }).finally(() => { this.inFlight.delete(thread); this.fill(); });
    }
  }

  private async read(thread: string): Promise<void> {
    // Ids come in order: the first that begins with an id is that id.
    const { threads } = await get<{ threads: Thread[] }>("/v1/threads", { prefix: thread, limit: 1 }, this.closed.signal);
    const summary = threads[0]?.threadId === thread ? threads[0] : undefined;
    let last = this.filtered ? [] : (this.byThread.get(thread)?.found ?? []);
    if (!summary || last.length < Math.min(EACH, summary.runs))
      last = (await get<{ runs: FoundRun[] }>("/v1/runs", { prefix: thread, limit: 100 }, this.closed.signal)).runs.filter((r) => r.threadId === thread).slice(0, EACH);
    this.fault = "";
    if (!summary && !last.length) {
      this.byThread.delete(thread); // it was erased
      return this.show();
    }
    const row: Row = { ...(this.byThread.get(thread) ?? { threadId: thread, found: [] }), last };
    if (summary) row.summary = summary;
    this.byThread.set(thread, row);
    this.show();
  }
}
