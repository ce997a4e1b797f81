import type { Badge, Lineage, LineageRun, Run } from "./types";

export interface BadgeText {
  text: string;
  look: "" | "dash" | "warn" | "bad";
  why: string;
}

const BADGES: Record<string, BadgeText> = {
  "~content": { text: "~ content", look: "dash", why: "Inferred parent. The agent named none; the messages in this run's input equal the history of exactly this run." },
  "~latest": { text: "~ latest", look: "dash", why: "Guessed parent. There was no input to compare, so Skein took the run of the thread that ended last. The conversation before this run rests on that guess." },
  "synthetic end": { text: "synthetic end", look: "warn", why: "The agent sent no event that ends the run: it fell silent, or the proxy lost it. Skein wrote the end." },
  "stopped on request": { text: "stopped on request", look: "", why: "Somebody asked to stop this run. Skein's proxy closed the agent's connection and wrote the end." },
  truncated: { text: "truncated", look: "warn", why: "The record was larger than the limit. Its largest contents are shown as references; the raw log has all of them." },
  "raw lost": { text: "raw lost", look: "bad", why: "Events of this run were deleted from the log before they were folded. What they said may be missing here." },
  incomplete: { text: "incomplete", look: "bad", why: "Kafka accepted no events for too long, or an event was too large, so Skein's proxy left some out. The agent's caller saw more than is here." },
  "index behind": { text: "index behind", look: "warn", why: "The live stream has events that the index lacks. Branches and figures are older; they update by themselves." },
  "late parent": { text: "late parent", look: "dash", why: "The run names a parent that arrived later. The edge is drawn, but the history does not use it." },
  "spawned by": { text: "spawned", look: "", why: "Another run started this one. Its messages are not part of this history." },
  "parent not here": { text: "parent not here", look: "warn", why: "The run names a parent that this thread does not have." },
  open: { text: "running", look: "", why: "The run has not ended." },
};

/** Why somebody asked to stop a run. */
export const reasonOf = (facts: Run | undefined): string => (facts?.terminal?.metadata as { "skein.stopped"?: { reason?: string } } | undefined)?.["skein.stopped"]?.reason ?? "";

/** The badges of a run, wherever it is drawn: in a row of its own, a fold or a bundle. */
export function badgesOf(run: LineageRun, all: Map<string, LineageRun>, spawns: Lineage["spawns"]): Badge[] {
  const out: Badge[] = [];
  if (run.parentBy === "content" || run.parentBy === "latest") out.push({ name: `~${run.parentBy}` });
  if (run.parentRunId && !all.has(run.parentRunId)) out.push({ name: "parent not here", runId: run.parentRunId });
  const spawn = spawns.find((s) => s.runId === run.runId);
  if (spawn) out.push({ name: spawn.late ? "late parent" : "spawned by", runId: spawn.spawnedBy });
  for (const kind of run.rewrote ?? []) out.push({ name: `history ${kind}` });
  if (run.stopped) out.push({ name: "stopped on request" });
  else if (run.synthetic) out.push({ name: "synthetic end" });
  if (run.truncated) out.push({ name: "truncated" });
  if (run.rawLost) out.push({ name: "raw lost" });
  return out;
}

export function badgeOf(name: string): BadgeText {
  const known = BADGES[name];
  if (known) return known;
  if (name.startsWith("history ")) return { text: name, look: "dash", why: `The run's input does not continue its parent's history: ${name.slice(8)}.` };
  return { text: name, look: "", why: name };
}
