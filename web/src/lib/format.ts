import { masked, size } from "./base64";
import { bytesOf } from "./raw";
import type { JSONValue } from "./types";

export function duration(ms: number | undefined | null): string {
  if (ms === undefined || ms === null) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  const s = Math.round(ms / 1000);
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${(ms / 3_600_000).toFixed(1)} h`;
}

/** What stands for a text in one line: of a Python traceback its last line, which says what went wrong; where that is a place in code, the first. */
export function lastLine(text: string): string {
  const lines = text.trim().split(/[\r\n]+/), last = lines.at(-1) ?? "";
  return (/^\s*(at |File |\S+\.go:|\.{3} \d+ |exit status )/.test(last) ? lines[0] : last) ?? "";
}

/** An argument of a shell's command, whatever is in it: ids may have quotes. */
export function shell(argument: string): string {
  return `'${argument.replaceAll("'", "'\\''")}'`;
}

export function ago(time: string, now: number): string {
  const s = Math.max(0, (now - Date.parse(time)) / 1000);
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return `${Math.round(s / 60)} min`;
  if (s < 86_400) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86_400)} d`;
}

/** The sum of what was reported; undefined if nothing was. */
export const reported = (counts: (number | null | undefined)[]): number | undefined => counts.reduce<number | undefined>((sum, n) => (n === null || n === undefined ? sum : (sum ?? 0) + n), undefined);

export const many = (n: number | undefined): string => (n === undefined ? "–" : n.toLocaleString("en").replaceAll(",", "\u202f"));
export const plural = (n: number, one: string, more = `${one}s`): string => `${many(n)} ${n === 1 ? one : more}`;
/** Time since a run's start: seconds, or minutes and hours as a clock has them. */
export function offset(ms: number): string {
  if (ms < 60_000) return `+${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  const s = Math.round(ms / 1000), parts = [...(s < 3600 ? [] : [Math.floor(s / 3600)]), Math.floor(s / 60) % 60, s % 60];
  return `+${parts.map((p, i) => (i ? String(p).padStart(2, "0") : p)).join(":")}`;
}

export function absolute(time: string, local: boolean): string {
  const d = new Date(time);
  if (local) return d.toLocaleString("sv").replace("T", " ");
  return d.toISOString().replace("T", " ").replace(/(\.\d+)?Z$/, (m) => (m === ".000Z" ? " UTC" : `${m.slice(0, -1)} UTC`));
}

export const LIMIT = 32 * 1024;
/** Text of at most 32 KB, without base64; cut says how much there is where it is not whole. What is shown is laid out by form. */
export function bounded(text: string, whole: boolean, limit = LIMIT, form = (text: string): string => text): { text: string; cut?: string } {
  text = masked(text);
  if (whole || text.length <= limit) return { text: form(text) };
  return { text: form(text.slice(0, limit)), cut: size(bytesOf(text)) };
}

/** What an answer to an interrupt says, as the lineage's "resolution" does. */
export function answered(status: string, payload?: JSONValue): string {
  if (status !== "resolved") return status;
  const approved = payload !== null && typeof payload === "object" && !Array.isArray(payload) ? payload.approved : undefined;
  return approved === true ? "approved" : approved === false ? "declined" : "answered";
}
