import type { Badge, Lineage, LineageRun } from "./types";

export interface BadgeText {
  text: string;
  look: "" | "dash" | "warn" | "bad";
  why: string;
}

const BADGES: Record<string, BadgeText> = {
  "~content": { text: "~ content", look: "dash", why: "Inferred parent. The agent named none; the messages that this run was called with equal the history of exactly this parent." },
  "~latest": { text: "~ latest", look: "dash", why: "Guessed parent. There was no input to compare, so the run of the thread that ended last was taken. The conversation before this run rests on that guess." },
  "synthetic end": { text: "synthetic end", look: "warn", why: "No event of the agent ended the run: it fell silent, or its proxy lost it. Skein wrote the end itself." },
  truncated: { text: "truncated", look: "warn", why: "The record was above the size limit. Its largest contents are references here; the raw log has them whole." },
  "raw lost": { text: "raw lost", look: "bad", why: "Events of this run were gone from the log before they were folded. What is shown can lack them." },
  incomplete: { text: "incomplete", look: "bad", why: "Kafka took no events for too long, or one was too large: Skein's proxy left some out. Who called the agent saw more than is here." },
  "index behind": { text: "index behind", look: "warn", why: "The live stream has events that the index lacks. Branches and figures are those of before; they follow by themselves." },
  "late parent": { text: "late parent", look: "dash", why: "It named a run that arrived only later. The edge is drawn, the history does not use it." },
  "spawned by": { text: "spawned", look: "", why: "A run of another thread started this one. Its messages are no part of this history." },
  "parent not here": { text: "parent not here", look: "warn", why: "The run names a parent that this thread does not have." },
  open: { text: "running", look: "", why: "The run has not ended." },
};

/** The badges of a run, wherever it is drawn: in a row of its own, a fold or a bundle. */
export function badgesOf(run: LineageRun, all: Map<string, LineageRun>, spawns: Lineage["spawns"]): Badge[] {
  const out: Badge[] = [];
  if (run.parentBy === "content" || run.parentBy === "latest") out.push({ name: `~${run.parentBy}` });
  if (run.parentRunId && !all.has(run.parentRunId)) out.push({ name: "parent not here", runId: run.parentRunId });
  const spawn = spawns.find((s) => s.runId === run.runId);
  if (spawn) out.push({ name: spawn.late ? "late parent" : "spawned by", runId: spawn.spawnedBy });
  for (const kind of run.rewrote ?? []) out.push({ name: `history ${kind}` });
  if (run.synthetic) out.push({ name: "synthetic end" });
  if (run.truncated) out.push({ name: "truncated" });
  if (run.rawLost) out.push({ name: "raw lost" });
  return out;
}

export function badgeOf(name: string): BadgeText {
  const known = BADGES[name];
  if (known) return known;
  if (name.startsWith("history ")) return { text: name, look: "dash", why: `The run's input does not go on from its parent's history: ${name.slice(8)}.` };
  return { text: name, look: "", why: name };
}
