import { masked } from "./base64";
import { isNumber } from "./json";
import type { AGEvent, PatchOp, Step } from "./types";

export type ItemKind = "text" | "reasoning" | "tool" | "activity" | "step" | "state" | "snapshot" | "custom" | "error" | "interrupt" | "subagent";

/** What a reader calls one thing in a run: a message, a call, a step. It spans events and says where it begins and ends. */
export interface Item {
  kind: ItemKind;
  id: string;
  /** The first and the last event that are about it. */
  first: number;
  last: number;
  /** Milliseconds since the run's start. */
  at: number;
  called?: number;
  end?: number;
  name: string;
  text: string;
  result?: string;
  role?: string;
  code?: string;
  /** The event at which a subagent failed. */
  failed?: number;
  /** The subagent that it is part of, and how many there are around it. */
  owner: string;
  depth: number;
}

export const WORD: Record<ItemKind, string> = {
  text: "message", reasoning: "reasoning", tool: "tool call", activity: "activity", step: "step",
  state: "state", snapshot: "messages", custom: "custom", error: "error", interrupt: "interrupt", subagent: "subagent",
};

/** How long it took, in milliseconds; undefined until it has ended. A call takes from its last argument to its result, which may come first. */
export const took = (i: Item): number | undefined => (i.end === undefined ? undefined : Math.max(0, i.end - (i.kind === "tool" ? (i.called ?? i.at) : i.at)));

const PREVIEW = 300;
/** How many members or operations a preview is made of; more would not be in it. */
const SOME = 100;
const str = (v: unknown): string => (typeof v === "string" ? v : v === undefined ? "" : JSON.stringify(v));

/** Of a large value its first members, as many as a preview may have. */
function some(value: unknown): unknown {
  if (Array.isArray(value)) return value.slice(0, SOME);
  if (value === null || typeof value !== "object" || isNumber(value)) return value;
  const out: Record<string, unknown> = {};
  let n = 0;
  for (const k in value) if (n++ < SOME) Object.defineProperty(out, k, { value: (value as Record<string, unknown>)[k], enumerable: true }); else break;
  return out;
}

/** An operation of a patch as a reader would say it: the path and the value. */
function said({ op, path, value }: PatchOp): string {
  const to = path || "the whole state";
  return op === "remove" ? `${to} removed` : `${to} = ${JSON.stringify(some(value))}`;
}

/** Collects the items of a run from its events; steps may be given as they come. */
export class Items {
  readonly list: Item[] = [];
  /** The item that an event is about, by the event's number. */
  readonly of: (Item | undefined)[] = [];
  private byId = new Map<string, Item>();
  private open: Item | undefined;
  private start = NaN;
  private owned = false;
  private latest = 0;
  private from: AGEvent | undefined;
  /** The steps that were missing when it was added to. */
  private missing: number[] = [];
  /** Milliseconds since the start, by step; between steps that were not read, as if they came evenly. */
  readonly times: number[] = [];

  add(steps: (Step | undefined)[]): this {
    for (let i = this.times.length; i < steps.length; i++) {
      const step = steps[i];
      if (!step) {
        this.missing.push(i);
        this.times.push(NaN);
        continue;
      }
      // An event's own time says when the agent wrote it, the record's when it came. A run has either the one or the other.
      const own = step.event?.timestamp;
      if (i < 4) this.owned ||= typeof own === "number" || steps.slice(0, 4).some((s) => typeof s?.event?.timestamp === "number");
      const t = typeof own === "number" ? own : this.owned || step.time === undefined ? NaN : Date.parse(step.time);
      if (Number.isNaN(this.start)) this.start = t;
      this.latest = Number.isNaN(t) ? this.latest : Math.max(this.latest, t - this.start);
      this.times.push(this.latest);
      if (step.event && step.type) this.take(step.event, step, i);
    }
    if (this.missing.length) this.fill();
    return this;
  }

  /** Whether steps have come that were missing: they go before what it knows, so that it has to be made again. */
  outdated(steps: (Step | undefined)[]): boolean {
    return this.missing.some((i) => steps[i]);
  }

  private fill(): void {
    for (let i = 0, before = 0; i < this.times.length; i++) {
      if (!Number.isNaN(this.times[i])) { before = i; continue; }
      const next = this.times.findIndex((t, k) => k > i && !Number.isNaN(t));
      const from = this.times[before] ?? 0, to = next < 0 ? from : (this.times[next] as number), end = next < 0 ? this.times.length : next;
      for (; i < end; i++) this.times[i] = from + ((to - from) * (i - before)) / (end - before);
      i--;
    }
  }

  private put(kind: ItemKind, id: string, n: number, more: Partial<Item> = {}): Item {
    const owner = str(kind === "subagent" ? this.from?.parentSubagentRunId : this.from?.subagentRunId);
    const depth = owner ? (this.byId.get(`subagent:${owner}`)?.depth ?? 0) + 1 : 0;
    const item: Item = { kind, id, first: n, last: n, at: this.times[n] ?? 0, name: "", text: "", owner, depth, ...more };
    this.byId.set(`${kind}:${id}`, item);
    this.list.push(item);
    return item;
  }

  private take(e: AGEvent, step: Step, n: number): void {
    const now = this.times[n] ?? 0;
    const find = (kind: ItemKind, id: unknown) => this.byId.get(`${kind}:${str(id)}`);
    const grow = (item: Item | undefined, text: unknown): Item | undefined => {
      if (item && item.text.length < PREVIEW) item.text += str(text).slice(0, PREVIEW);
      return item;
    };
    const ended = (item: Item | undefined, field: "end" | "called" = "end"): Item | undefined => {
      if (item) item[field] = now;
      return item;
    };
    let touched: Item | undefined;
    this.from = e;
    switch (e.type) {
      case "TEXT_MESSAGE_START":
        touched = find("text", e.messageId) ?? this.put("text", str(e.messageId), n, { role: str(e.role) || "assistant" });
        break;
      case "TEXT_MESSAGE_CHUNK": {
        const id = str(e.messageId) || (this.open?.kind === "text" ? this.open.id : "");
        touched = ended(grow(find("text", id) ?? this.put("text", id, n, { role: str(e.role) || "assistant" }), e.delta));
        break;
      }
      case "TEXT_MESSAGE_CONTENT": touched = grow(find("text", e.messageId), e.delta); break;
      case "TEXT_MESSAGE_END": touched = ended(find("text", e.messageId)); break;
      case "REASONING_MESSAGE_START":
      case "THINKING_TEXT_MESSAGE_START": touched = this.put("reasoning", str(e.messageId) || `${n}`, n); break;
      case "REASONING_MESSAGE_CONTENT":
      case "THINKING_TEXT_MESSAGE_CONTENT": touched = grow(find("reasoning", e.messageId) ?? this.open, e.delta); break;
      case "REASONING_MESSAGE_END":
      case "THINKING_TEXT_MESSAGE_END": touched = ended(find("reasoning", e.messageId) ?? this.open); break;
      case "REASONING_MESSAGE_CHUNK": {
        const id = str(e.messageId) || (this.open?.kind === "reasoning" ? this.open.id : "");
        touched = ended(grow(find("reasoning", id) ?? this.put("reasoning", id, n), e.delta));
        break;
      }
      case "TOOL_CALL_START": touched = this.put("tool", str(e.toolCallId), n, { name: str(e.toolCallName) }); break;
      case "TOOL_CALL_CHUNK": {
        const id = str(e.toolCallId) || (this.open?.kind === "tool" ? this.open.id : "");
        touched = ended(grow(find("tool", id) ?? this.put("tool", id, n, { name: str(e.toolCallName) }), e.delta), "called");
        break;
      }
      case "TOOL_CALL_ARGS": touched = grow(find("tool", e.toolCallId), e.delta); break;
      case "TOOL_CALL_END": touched = ended(find("tool", e.toolCallId), "called"); break;
      case "TOOL_CALL_RESULT":
        touched = ended(find("tool", e.toolCallId) ?? this.put("tool", str(e.toolCallId), n, { name: "result of a call before" }));
        if (touched) touched.result = str(e.content).slice(0, PREVIEW);
        break;
      case "ACTIVITY_SNAPSHOT":
        touched = ended(find("activity", e.messageId) ?? this.put("activity", str(e.messageId), n, { name: str(e.activityType) }));
        if (touched) touched.text = str(e.content).slice(0, PREVIEW);
        break;
      case "ACTIVITY_DELTA": touched = ended(find("activity", e.messageId)); break;
      case "STEP_STARTED": touched = this.put("step", `${str(e.stepName)}:${n}`, n, { name: str(e.stepName) }); break;
      case "STEP_FINISHED":
        touched = ended(this.list.findLast((s) => s.kind === "step" && s.name === str(e.stepName) && s.end === undefined));
        break;
      case "SUBAGENT_STARTED": touched = this.put("subagent", str(e.subagentRunId), n, { name: str(e.name), text: str(e.description) }); break;
      case "SUBAGENT_FINISHED": touched = ended(find("subagent", e.subagentRunId)); break;
      case "SUBAGENT_ERROR":
        touched = ended(find("subagent", e.subagentRunId));
        if (touched) [touched.text, touched.failed] = [`failed: ${str(e.message)}`.slice(0, PREVIEW), n];
        break;
      case "MESSAGES_SNAPSHOT": {
        const count = Array.isArray(e.messages) ? e.messages.length : 0;
        touched = ended(this.put("snapshot", `${n}`, n, { name: "snapshot", text: `${count} ${count === 1 ? "message" : "messages"} in all` }));
        break;
      }
      case "STATE_SNAPSHOT":
      case "STATE_DELTA":
        touched = ended(this.put("state", `${n}`, n, {
          name: e.type === "STATE_SNAPSHOT" ? "snapshot" : "patch",
          text: step.change.state.length ? masked(step.change.state.slice(0, SOME).map(said).join(" · ")).slice(0, PREVIEW) : "changes nothing",
        }));
        break;
      case "CUSTOM": touched = ended(this.put("custom", `${n}`, n, { name: str(e.name), text: str(e.value).slice(0, PREVIEW) })); break;
      case "RUN_ERROR": touched = ended(this.put("error", `${n}`, n, { text: str(e.message), code: str(e.code) })); break;
      case "RUN_FINISHED": {
        const outcome = e.outcome as { type?: string; interrupts?: { id?: string; message?: string }[] } | undefined;
        if (outcome?.type === "interrupt")
          for (const q of outcome.interrupts ?? []) touched = ended(this.put("interrupt", str(q.id), n, { text: str(q.message) }));
        break;
      }
    }
    if (!touched) return;
    touched.last = n;
    this.of[n] = touched;
    this.open = touched;
  }

  /** Those with a duration, each behind the subagent that it is part of. */
  get nested(): Item[] {
    const parts = new Map<string, Item[]>();
    for (const i of this.seen.filter((i) => i.kind !== "state" && i.kind !== "custom" && i.kind !== "snapshot").sort((a, b) => a.first - b.first)) {
      const owner = this.byId.has(`subagent:${i.owner}`) ? i.owner : "";
      const list = parts.get(owner);
      if (list) list.push(i);
      else parts.set(owner, [i]);
    }
    const under = (owner: string): Item[] => {
      const list = parts.get(owner) ?? [];
      parts.delete(owner);
      return list.flatMap((i) => (i.kind === "subagent" ? [i, ...under(i.id)] : [i]));
    };
    return under("");
  }

  get(kind: ItemKind, id: string): Item | undefined {
    return this.byId.get(`${kind}:${id}`);
  }

  /** Those that a reader sees: an assistant message that only carries tool calls is none. */
  get seen(): Item[] {
    return this.list.filter((m) => m.kind !== "text" || m.text !== "");
  }
}
