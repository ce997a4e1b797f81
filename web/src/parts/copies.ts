import { address, keyed, type Query } from "../lib/api";
import { held, masked } from "../lib/base64";
import { shell } from "../lib/format";
import type { JSONValue, Message } from "../lib/types";
import { copy } from "./ui.svelte";

export interface Entry {
  text: string;
  act: () => void;
}

/** A command of skein: its name, the ids that it takes, and flags, of which one may be there several times. */
export type Command = [command: string, ids?: string[], flags?: [name: string, value: string | number][]];

/**
 * A command line for this server, whatever its words have in them. Agents choose ids: one that looks like a flag stands behind "--", as
 * a flag could name another server.
 */
function line([command, ids = [], flags = []]: Command): string {
  // A word of letters needs no quotes.
  const word = (w: string | number): string => (/^[\w,.:/-]+$/.test(String(w)) ? String(w) : shell(String(w)));
  const given = flags.map(([name, value]) => (String(value).startsWith("-") ? `--${name}=${word(value)}` : `--${name} ${word(value)}`));
  const named = ids.map(word);
  given.push(`--url ${word(location.origin)}`);
  return ["skein", command, ...(ids.some((id) => id.startsWith("-")) ? [...given, "--", ...named] : [...named, ...given])].join(" ");
}

/** A request to this server as a command line; posts names the file with what is posted. */
export function curl(to: string, posts = ""): string {
  const key = keyed() ? `-H "Authorization: Bearer $SKEIN_API_KEY" ` : "";
  return `curl ${posts ? "-sSN" : "-s"} ${key}${posts && `-H 'Content-Type: application/json' -d @${posts} `}${shell(location.origin + to)}`;
}

/** What is copied of an object: text in a function is made when it is chosen. */
export interface Copies {
  what: string;
  markdown?: () => string;
  json?: () => string;
  csv?: () => string;
  /** The address of the request that answers with it, and its parameters. */
  request?: [string, Query];
  skein?: Command;
  url?: boolean;
}

export function copies(o: Copies): Entry[] {
  const out: Entry[] = [];
  const add = (text: string, make: (() => string) | undefined, what?: string) => { if (make) out.push({ text, act: () => void copy(make(), what) }); };
  add("URL", o.url ? () => location.href : undefined);
  add("Markdown", o.markdown, `${o.what} as Markdown`);
  add("JSON", o.json, `${o.what} as JSON`);
  add("CSV", o.csv, `${o.what} as CSV`);
  const { request, skein } = o;
  add("curl", request && (() => curl(address(...request))));
  add("skein command", skein && (() => line(skein)));
  return out;
}

export interface Part {
  type?: string;
  text?: string;
  mimeType?: string;
  url?: string;
  id?: string;
  data?: string;
  filename?: string;
  source?: { mimeType?: string; value?: string; type?: string };
}
export const partsOf = (c: JSONValue | undefined): Part[] =>
  Array.isArray(c) ? (c as Part[]) : [{ type: "text", text: typeof c === "string" ? c : c === undefined || c === null ? "" : JSON.stringify(c) }];

/** Where an attachment lies: its address, or how much of it the message itself holds. */
export function where(p: Part): { type: string; at: string } {
  const type = p.mimeType ?? p.source?.mimeType ?? p.type ?? "attachment";
  const inline = p.data ?? (p.source?.type === "data" ? p.source.value : undefined);
  if (inline !== undefined) return { type, at: `${held(inline.length)} inline, not drawn` };
  return { type, at: masked(p.url ?? p.source?.value ?? p.id ?? p.filename ?? "") };
}

/** What a message says as one text, attachments by type and place, calls with their arguments. */
export function textOf(m: Message): string {
  const said = partsOf(m.content).map((p) => { if (p.text !== undefined) return p.text; const w = where(p); return `[${w.type}: ${w.at}]`; });
  return [...said, ...(m.toolCalls ?? []).map((c) => `${c.function.name} ${c.function.arguments}`)].filter(Boolean).join("\n");
}
// Contents are a stranger's: no line of theirs may look like what stands over another message, or end the quote or the fence around them.
const tame = (text: string): string => text.replaceAll("<", "&lt;");
const oneLine = (text: string): string => tame(text.replace(/\s+/g, " "));
/** What stands over something: one line, whatever an agent has named it. */
export const headed = (text: string): string => `**${oneLine(text)}**`;
/** What stands over all of it, which no turn looks like. */
export const titled = (text: string): string => `# ${oneLine(text)}`;
export const quoted = (text: string): string => tame(text).split(/\r\n?|\n/).map((l) => `> ${l}`).join("\n");
export const markdownOf = (m: Message): string => `${headed(m.role)}\n\n${quoted(textOf(m))}`;
export function fenced(text: string, as = "json"): string {
  let fence = "```";
  for (const [ticks] of text.matchAll(/`{3,}/g)) if (ticks.length >= fence.length) fence = `${ticks}\``;
  return `${fence}${as}\n${text}\n${fence}`;
}
/** A table in Markdown: cells are one line each. */
export const tableOf = (rows: (string | number)[][]): string =>
  rows.flatMap((r, i) => [`| ${r.map((c) => oneLine(String(c)).replaceAll("|", "\\|")).join(" | ")} |`, ...(i === 0 ? [`|${r.map(() => "---|").join("")}`] : [])]).join("\n");
