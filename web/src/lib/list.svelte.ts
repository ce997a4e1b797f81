import { get, say, type Query } from "./api";
import type { FoundRun, Thread } from "./types";

/** A thread of the list: those of its runs that the filter selects, the latest first, and what was read of it when its row came into view. */
export interface Row {
  threadId: string;
  found: FoundRun[];
  /** Counts of all its runs. */
  summary?: Thread;
  /** Its last runs, the latest first. */
  last?: FoundRun[];
  /** When the latest run that was found began. */
  at: number;
}

const PAGE = 200;
/** A page of runs may be of few threads: more pages are read until there are as many rows as a screen has. */
const SCREEN = 40;
const PAGES = 10;
const POLL = 100;
/** With more rows, and twice as many as the reader has seen, the list begins anew with the latest. */
const MOST = 2000;
/** How many agents and labels are remembered to choose from. */
const CHOICES = 1000;
const AT_ONCE = 4;
/** How many of a thread's last runs a row draws. */
export const EACH = 24;

const startOf = (r: FoundRun): number => Date.parse(r.startedAt);

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
  /** The last row that was in view. */
  reach = 0;
  /** How often what it knows of runs has changed, and how far the index was when it was read. */
  changes = 0;
  indexed = "";
  /** The link that the reader followed, and how far the rows were scrolled. */
  opened = { key: "", top: 0 };
  private after: string | undefined;
  /** When the latest run began that was read. */
  private newest = -Infinity;
  private readonly agentsSeen = new Set<string>();
  private readonly labelsSeen = new Set<string>();
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

  /** Goes on after close. */
  again(): this {
    this.closed = new AbortController();
    const { opened } = this;
    setTimeout(() => (opened.key = ""), 3000); // a row that comes later takes the keyboard from nobody
    return this;
  }

  follows(key: string, e: MouseEvent): void {
    if (e.ctrlKey || e.metaKey || e.shiftKey) return; // it opens elsewhere
    this.opened = { key, top: document.querySelector(".threads > .scroll")?.scrollTop ?? 0 };
  }

  /** Gives the keyboard back to the link that was followed. */
  back = (link: HTMLElement, key: string): void => {
    if (this.opened.key !== key) return;
    this.opened.key = "";
    if (!document.activeElement?.matches("input, select")) link.focus({ preventScroll: innerWidth > 640 }); // on a phone the page scrolls, not only the rows
  };

  of(thread: string): Row | undefined {
    return this.byThread.get(thread);
  }

  get agents(): string[] {
    return [...this.agentsSeen].sort();
  }

  get labels(): string[] {
    return [...this.labelsSeen].sort().slice(0, 100);
  }

  private async page(limit: number, after?: string): Promise<{ runs: FoundRun[]; next?: string }> {
    const page = await get<{ runs: FoundRun[]; next?: string; indexedTo: string[] }>("/v1/runs", { archived: "no", ...this.query, limit, after }, this.closed.signal);
    this.indexed = page.indexedTo.join();
    return page;
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
    const runs: FoundRun[] = [];
    let after: string | undefined;
    let joined = false;
    for (let n = 0; n < PAGES && !joined; n++) {
      const page = await this.page(n ? PAGE : POLL, after);
      runs.push(...page.runs);
      after = page.next;
      const last = page.runs.at(-1);
      joined = after === undefined || last === undefined || startOf(last) <= this.newest;
    }
    await this.paging; // what it brings is behind what is here
    if (!joined || this.rows.length > Math.max(MOST, 2 * this.reach)) {
      // There may be runs between these and those of before, or there are too many: the list goes on from here.
      for (const row of this.byThread.values()) row.found = [];
      this.after = after;
      this.more = after !== undefined;
    }
    this.leave(runs, after === undefined);
    this.take(runs);
    for (const thread of this.wanted.keys()) if (this.byThread.get(thread)?.last?.some((r) => r.status === "running")) this.stale.add(thread);
    this.fill();
  }

  /** Takes those out that the filter selected once and does not any more: they began when these did, and are not among them. */
  private leave(runs: FoundRun[], all: boolean): void {
    const last = runs.at(-1);
    const from = all || last === undefined ? -Infinity : startOf(last);
    const selected = new Set(runs.map((r) => JSON.stringify([r.threadId, r.runId])));
    for (const row of this.byThread.values())
      if (row.at > from || all) this.keep(row, (r) => (!all && startOf(r) <= from) || selected.has(JSON.stringify([r.threadId, r.runId])));
  }

  /** Keeps those runs of a row that still belong to it; a row without any is none. */
  private keep(row: Row, belongs: (r: FoundRun) => boolean): void {
    const found = row.found.filter(belongs);
    if (found.length === row.found.length) return;
    this.changes++;
    this.byThread.set(row.threadId, { ...row, found, at: found[0] ? startOf(found[0]) : -Infinity });
  }

  private take(runs: FoundRun[]): void {
    const changed = new Set<Row>();
    for (const r of runs) {
      let row = this.byThread.get(r.threadId);
      if (!row) this.byThread.set(r.threadId, (row = { threadId: r.threadId, found: [], at: 0 }));
      this.newest = Math.max(this.newest, startOf(r));
      if (r.agent && this.agentsSeen.size < CHOICES) this.agentsSeen.add(r.agent);
      for (const [k, v] of Object.entries(r.labels ?? {})) if (this.labelsSeen.size < CHOICES) this.labelsSeen.add(`${k}=${v}`);
      const i = row.found.findIndex((f) => f.runId === r.runId);
      const known = row.found[i];
      if (known && known.status === r.status && known.durationMs === r.durationMs) continue;
      if (!known && row.found.length >= EACH && startOf(r) <= Math.min(...row.found.map(startOf))) continue; // a row has no room for it
      if (known) row.found[i] = r;
      else row.found.push(r);
      changed.add(row);
    }
    if (changed.size) this.changes++;
    for (const row of changed) {
      const found = row.found.sort((a, b) => startOf(b) - startOf(a)).slice(0, EACH);
      this.byThread.set(row.threadId, { ...row, found, at: found[0] ? startOf(found[0]) : -Infinity });
      this.stale.add(row.threadId);
    }
    this.show();
    this.fill();
  }

  private show(): void {
    // One without a run that was found is asked for from elsewhere.
    for (const row of this.byThread.values()) if (!row.found.length && !this.wanted.has(row.threadId)) this.byThread.delete(row.threadId);
    this.rows = [...this.byThread.values()].filter((r) => r.found.length).sort((a, b) => b.at - a.at);
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
        if (!this.closed.signal.aborted) this.fault = say(e);
      }).finally(() => { this.inFlight.delete(thread); this.fill(); });
    }
  }

  private async read(thread: string): Promise<void> {
    // Ids come in order: the first that begins with an id is that id.
    const { threads } = await get<{ threads: Thread[] }>("/v1/threads", { prefix: thread, archived: "all", limit: 1 }, this.closed.signal);
    const summary = threads[0]?.threadId === thread ? threads[0] : undefined;
    let last = this.filtered ? [] : (this.byThread.get(thread)?.found ?? []);
    if (!summary || last.length < Math.min(EACH, summary.runs))
      last = (await get<{ runs: FoundRun[] }>("/v1/runs", { prefix: thread, limit: 100 }, this.closed.signal)).runs.filter((r) => r.threadId === thread).slice(0, EACH);
    this.fault = "";
    if (!summary && !last.length) {
      this.byThread.delete(thread); // it was erased
      return this.show();
    }
    const row: Row = { ...(this.byThread.get(thread) ?? { threadId: thread, found: [], at: -Infinity }), last };
    if (summary) row.summary = summary;
    // Of what a filter asks for, a run can lose its status only: one that is known as running by the list may have ended.
    const { status } = this.query;
    const now = new Map(last.map((r) => [r.runId, r]));
    if (row.found.some((r) => (now.get(r.runId) ?? r).status !== r.status)) this.changes++;
    row.found = row.found.map((r) => now.get(r.runId) ?? r);
    this.byThread.set(thread, row);
    if (typeof status === "string") this.keep(row, (r) => status.split(",").includes(r.status));
    this.show();
  }
}
