import { again, get, path, Problem } from "./api";
import type { Item } from "./items";
import type { Step } from "./types";

/** What lists of events may be limited to. */
export const GROUPS = ["messages", "tools", "state", "errors"] as const;
export type Group = (typeof GROUPS)[number];
const TYPES: [Group, RegExp][] = [["errors", /_ERROR$/], ["tools", /^TOOL_/], ["state", /^STATE_/], ["messages", /^(TEXT|REASONING|THINKING|MESSAGES|ACTIVITY)_/]];
const KINDS: Partial<Record<Item["kind"], Group>> = { text: "messages", reasoning: "messages", activity: "messages", snapshot: "messages", tool: "tools", state: "state", error: "errors", interrupt: "errors" };

/** The group of an event; an interrupt and what could not be folded are errors, as they stop a run. */
export function ofStep(s: Step): Group | undefined {
  if (s.bytes !== undefined || s.outcome === "malformed" || (s.event?.outcome as { type?: string } | undefined)?.type === "interrupt") return "errors";
  return TYPES.find(([, types]) => types.test(s.type ?? ""))?.[0];
}

export const ofItem = (i: Item): Group | undefined => (i.kind === "subagent" && i.text.startsWith("failed: ") ? "errors" : KINDS[i.kind]);

/** How many hits are asked for; with more a text says little. */
export const MOST = 1000;

const said = (e: unknown): string => (e instanceof Problem ? e.message : "the server does not answer");

/** The steps of a run that have a text, as the server finds them: the page holds only parts of a long run. */
export class Finding {
  hits: number[] = $state.raw([]);
  busy = $state(false);
  /** Somebody waits for a hit, to go back or on to it. */
  wanted: "back" | "on" | undefined = $state();
  /** Why the server does not find. */
  fault = $state("");
  private what = "";
  private next = 0;
  private total = 0;
  private left = new AbortController();

  /** Looks for a text in a run that has so many steps by now: in those that were not searched. */
  look(thread: string, run: string, text: string, total: number): void {
    const what = JSON.stringify([thread, run, text]);
    if (what !== this.what) {
      this.left.abort();
      this.left = new AbortController();
      this.what = what;
      this.hits = [];
      this.wanted = undefined;
      this.fault = "";
      this.busy = false;
      this.next = 0;
    }
    this.total = total;
    if (text && !this.busy && !this.fault) void this.read(`${path(thread, run)}/state`, text, this.left.signal);
  }

  private async read(to: string, find: string, signal: AbortSignal): Promise<void> {
    this.busy = true;
    try {
      while (this.next <= this.total && this.hits.length < MOST) {
        const page = await again(() => get<{ n: number; found: number[] }>(to, { find, from: this.next, limit: MOST - this.hits.length }, signal), signal, (e) => (this.fault = said(e)));
        if (signal.aborted) return;
        this.fault = "";
        this.next = page.n + 1;
        this.hits = [...this.hits, ...page.found];
      }
    } catch (e) {
      if (signal.aborted) return;
      this.fault = said(e);
    }
    this.busy = false;
  }

  /** The hit after or before a step; behind the last one comes the first. */
  from(n: number, back: boolean): number | undefined {
    return back ? (this.hits.findLast((h) => h < n) ?? this.hits.at(-1)) : (this.hits.find((h) => h > n) ?? this.hits[0]);
  }
}
