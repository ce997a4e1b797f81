import { get } from "./api";
import type { FoundRun, Thread } from "./types";

/**
 * The latest runs of each thread, oldest first: what the list of threads says beyond counts. One search gives the tenant's
 * latest runs, which are those of the threads on top; a thread that it does not cover is searched for when its row comes into view.
 */
export class Recent {
  static readonly EACH = 24;
  private static readonly AT_ONCE = 4;
  private byThread: Map<string, FoundRun[]> = $state.raw(new Map());
  private whole = new Set<string>(); // threads of which nothing more needs to be read, until the list changes
  private wanted = new Set<string>();
  /** Why the latest runs are not here, where they are not. */
  fault = $state("");
  private timer: ReturnType<typeof setTimeout> | undefined;
  private stamp = "";
  private reading = 0;
  private closed = new AbortController();

  of(thread: string): FoundRun[] {
    return this.byThread.get(thread) ?? [];
  }

  /** Whether any of the runs says who produced it. */
  get named(): boolean {
    return [...this.byThread.values()].some((list) => list.some((r) => r.agent || r.labels));
  }

  get agents(): string[] {
    return [...new Set([...this.byThread.values()].flat().map((r) => r.agent ?? ""))].filter(Boolean).sort();
  }

  /** Reads the latest runs again where the list says that there are other ones. */
  async follow(threads: Thread[]): Promise<void> {
    const stamp = threads.map((t) => `${t.threadId} ${t.runs} ${t.openRuns} ${t.updatedAt}`).join("\n");
    if (stamp === this.stamp) return;
    this.fault = "";
    let page: { runs: FoundRun[]; complete: boolean };
    try {
      page = await get("/v1/runs", { limit: 1000 }, this.closed.signal);
    } catch (e) {
      if (!this.closed.signal.aborted) this.fault = e instanceof Error ? e.message : String(e);
      return; // it is tried again with the next list
    }
    this.stamp = stamp;
    const next = new Map<string, FoundRun[]>();
    for (const r of page.runs) {
      const list = next.get(r.threadId);
      if (!list) next.set(r.threadId, [r]);
      else if (list.length < Recent.EACH) list.push(r);
    }
    this.whole.clear();
    for (const t of threads) {
      const found = next.get(t.threadId);
      if (page.complete || (found?.length ?? 0) >= Math.min(Recent.EACH, t.runs)) this.whole.add(t.threadId);
      else if (!found) next.set(t.threadId, this.of(t.threadId).toReversed()); // better the last known than none
    }
    for (const list of next.values()) list.reverse();
    this.byThread = next;
    this.later();
  }

  /** Says that the row of a thread is in view; the function that it returns says that it no longer is. */
  want(thread: string): () => void {
    this.wanted.add(thread);
    this.later();
    return () => this.wanted.delete(thread);
  }

  close(): void {
    this.closed.abort();
    clearTimeout(this.timer);
  }

  private later(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.fill(), 150);
  }

  private async fill(): Promise<void> {
    if (this.stamp === "") return; // the first search says what is missing
    while (this.reading < Recent.AT_ONCE && !this.closed.signal.aborted) {
      const thread = [...this.wanted].find((t) => !this.whole.has(t));
      if (thread === undefined) return;
      this.whole.add(thread);
      this.reading++;
      void this.read(thread).finally(() => { this.reading--; this.later(); });
    }
  }

  private async read(thread: string): Promise<void> {
    try {
      const { runs } = await get<{ runs: FoundRun[] }>("/v1/runs", { prefix: thread, limit: 100 }, this.closed.signal);
      const own = runs.filter((r) => r.threadId === thread).slice(0, Recent.EACH).reverse();
      if (own.length) this.byThread = new Map(this.byThread).set(thread, own);
    } catch {
      // The row keeps its id and counts, which is what the list itself said.
    }
  }
}
