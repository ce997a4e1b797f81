import { bounded, many, offset } from "../lib/format";
import type { Items } from "../lib/items";
import type { AGEvent, JSONValue, Message, ToolCall } from "../lib/types";
import { fenced, headed, quoted, textOf } from "./copies";

/** Where and how a run failed. */
export interface Failure {
  /** The event, and milliseconds since the run's start; undefined where it is none of the run's. */
  n: number | undefined;
  at: number;
  message: string;
  code: string;
  /** The run's last tool call, and its result. */
  call: ToolCall | undefined;
  result: Message | undefined;
  /** Whether the call had its result by then. */
  after: boolean;
  /** The latest question, and the last messages. */
  last: Message[];
}

/** Of the items that were read, and the messages before and behind the run. late is an error that came after its end; without steps nothing says which event it was. */
export function failureOf(items: Items, base: Message[], messages: Message[], late: AGEvent | undefined, steps: boolean): Failure | undefined {
  const error = items.list.findLast((i) => i.kind === "error") ?? (late && { first: 0, at: 0, text: String(late.message), code: String(late.code ?? "") });
  if (!error) return undefined;
  const before = new Set(base.map((m) => m.id));
  const call = messages.filter((m) => !before.has(m.id)).flatMap((m) => m.toolCalls ?? []).at(-1);
  const result = call && messages.findLast((m) => m.role === "tool" && m.toolCallId === call.id);
  const said = messages.filter((m) => m.role !== "tool" && m.content), asked = said.findLast((m) => m.role === "user");
  return {
    n: late || !steps ? undefined : error.first, at: error.at, message: error.text, code: error.code ?? "", call, result,
    after: result !== undefined && result.error === undefined, last: said.filter((m, i) => m === asked || i >= said.length - 3),
  };
}

export function place(f: Failure): string {
  return `failed${f.n === undefined ? "" : ` at event ${many(f.n)}`}${f.call ? ` ${f.after ? "after" : "in"} ${f.call.function.name}` : ""}${f.n === undefined ? "" : `, ${offset(f.at)}`}`;
}

const cut = (text: string, most = 4000): string => { const b = bounded(text, false, most); return b.cut ? `${b.text}\n… ${b.cut} in all` : b.text; };

/**
 * One block to give to somebody: whatever the contents say, they are quoted or fenced, and say nothing in another's name. about has lines
 * that say which run it is, state is the one at its end.
 */
export function markdownOfFailure(f: Failure, about: string[], state: JSONValue): string {
  const said = f.result && (typeof f.result.content === "string" ? f.result.content : JSON.stringify(f.result.content));
  return [
    `${headed("failed run")}\n\n${quoted([place(f), ...about].join("\n"))}`,
    `${headed("error")}\n\n${fenced(cut([f.message, f.code && `code: ${f.code}`].filter(Boolean).join("\n")), "text")}`,
    ...(f.call ? [`${headed("last tool call")}\n\n${fenced(cut(`${f.call.function.name} ${f.call.function.arguments}`), "text")}`,
      f.result ? `${headed("its result")}\n\n${fenced(cut([said, f.result.error && `error: ${f.result.error}`].filter(Boolean).join("\n")), "text")}` : "It has no result."] : []),
    `${headed("state at its end")}\n\n${fenced(cut(JSON.stringify(state, null, 2), 1000))}`,
    headed("last messages"), ...f.last.map((m) => `${headed(m.role)}\n\n${quoted(cut(textOf(m), 600))}`),
  ].join("\n\n");
}
