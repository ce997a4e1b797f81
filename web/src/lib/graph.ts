import { badgeOf, badgesOf } from "./badges";
import { spelled } from "./names";
import type { Badge, Lineage, LineageRun, ParentBy, Row } from "./types";

// The picture is the server's (pkg/lineage, Picture): rows and lanes come from there, and nothing here moves one. What is
// added is what a row says, and the pieces of line that it draws, so that a virtual list can cut the picture by row.

export interface Edge {
  kind: "above" | "below" | "pass" | "enter" | "fork";
  lane: number;
  branch: number;
  dash: string;
}

export interface Line {
  key: string;
  kind: Row["kind"];
  /** The row of the picture. */
  row: number;
  lane: number;
  branch: number;
  runs: LineageRun[];
  branches: number;
  edges: Edge[];
  title: string;
  quiet: boolean;
  how: "" | "again" | "edited";
  waits: boolean;
  badges: { text: string; look: string; why: string }[];
  /** What a row of several runs names, each with its question. */
  names: string;
  tip: boolean;
  spawn: boolean;
  running: number;
  waiting: number;
  failed: number;
}

const DASH: Record<ParentBy, string> = { content: "5 2", latest: "2 3", explicit: "", none: "" };

/** All folds, as an address names them: no run's name has a colon there. */
export const ALL = ":all";
/** A fold, as an address names it: by its first run, as a row's number would mean another one when rows come in. */
export const foldOf = (run: string): string => encodeURIComponent(run);

/** The lines of a picture, with these folds open; the fold of the selected run always is. all are the thread's runs, also of a part of it. */
export function drawing(lineage: Lineage, open: Set<string>, selected: string, all: Map<string, LineageRun>): { lines: Line[] } {
  const { rows } = lineage.picture;
  const held: LineageRun[][] = rows.map(() => []);
  const children = new Map<string, LineageRun[]>();
  for (const r of lineage.runs) {
    held[r.row]?.push(r);
    if (!r.parentRunId) continue;
    const siblings = children.get(r.parentRunId);
    if (siblings) siblings.push(r);
    else children.set(r.parentRunId, [r]);
  }
  const spawned = new Set(lineage.spawns.map((s) => s.runId));
  const edges = edgesOf(rows, held);
  const lines: Line[] = [];
  rows.forEach((row, n) => {
    const runs = held[n] ?? [];
    const base = { row: n, lane: row.lane, branch: row.branch, branches: row.branches ?? 0, running: row.running ?? 0, waiting: row.waiting ?? 0, failed: row.failed ?? 0 };
    const isOpen = row.kind === "fold" && (open.has(ALL) || open.has(foldOf(row.runId)) || runs.some((r) => r.runId === selected));
    if (row.kind !== "run" && !isOpen) {
      const first = runs[0];
      const named = notable(runs, children);
      const title = named.length ? named.map((r) => r.title).join(", ") : row.kind === "fan" && first ? `“${titleOf(first)}”` : spelled(`${row.runId} to ${row.lastRunId ?? row.runId}`);
      lines.push({
        ...base, key: `row:${row.runId}`, kind: row.kind, runs, edges: edges[n] ?? [], title, quiet: true, how: "", waits: false,
        badges: shown(counted(runs.flatMap((r) => badgesOf(r, all, lineage.spawns)))), names: named.map((r) => `${r.word}: ${r.title}`).join("\n"), tip: false, spawn: false,
      });
      return;
    }
    runs.forEach((run, k) => {
      const pieces = edges[n] ?? [];
      // Runs of an open fold stand in its lane: the first has what comes from above, the last what goes on below.
      const own: Edge[] = runs.length === 1 ? pieces : pieces.flatMap((e): Edge[] => {
        if (e.kind === "enter" && k > 0) return [{ ...e, kind: "pass" }];
        if (e.kind === "above" && k > 0) return [{ ...e, dash: DASH[run.parentBy] }];
        return [e];
      });
      const answered = children.has(run.runId);
      lines.push({
        ...base, key: `run:${run.runId}`, kind: "run", runs: [run], edges: own, ...said(run, children),
        waits: run.status === "interrupted" && !answered,
        badges: shown(badgesOf(run, all, lineage.spawns)), names: "",
        tip: run.runId === lineage.tipRunId, spawn: spawned.has(run.runId),
      });
    });
  });
  return { lines };
}

/** Badges of several runs, each once with how many have it. */
function counted(badges: Badge[]): Badge[] {
  const out = new Map<string, Badge>();
  for (const { name } of badges) out.set(name, { name, count: (out.get(name)?.count ?? 0) + 1 });
  return [...out.values()];
}

/** The badges that a row has room for; the head of the run has all. */
function shown(badges: Badge[]): Line["badges"] {
  return badges.filter((b) => b.name !== "open" && b.name !== "~content" && !b.name.startsWith("history ")).map((b) => {
    const { text, look, why } = badgeOf(b.name);
    return { text: (b.count ?? 1) > 1 ? `${b.count}× ${text}` : text, look, why };
  });
}

/** What of a bundle wants to be seen: the runs that wait, failed or run. */
function notable(runs: LineageRun[], children: Map<string, LineageRun[]>): { word: string; title: string }[] {
  const words = [["waits", (r: LineageRun) => r.status === "interrupted" && !children.has(r.runId)], ["failed", (r: LineageRun) => r.status === "error"], ["runs", (r: LineageRun) => r.status === "running"]] as const;
  return words.flatMap(([word, is]) => runs.filter(is).map((r) => ({ word, title: titleOf(r) })));
}

/** The run that one is compared with: its parent, else a sibling, else the run before or after it; the siblings of a root are the other roots. */
export function besides(run: LineageRun, runs: LineageRun[]): string | undefined {
  const i = runs.indexOf(run), before = runs.slice(0, i).reverse(), after = runs.slice(i + 1);
  const sibling = (r: LineageRun) => !r.parentRunId;
  return run.parentRunId && runs.some((r) => r.runId === run.parentRunId) ? run.parentRunId : (before.find(sibling) ?? after.find(sibling) ?? before[0] ?? after[0])?.runId;
}

/** What a run is called: its question, else how it answers a person, else what it says. */
export function titleOf(run: LineageRun): string {
  if (run.resumed) return `Answer: ${run.resolution ?? run.resumed}`;
  return run.question || (run.answer ? `No input. ${run.answer}` : spelled(run.runId));
}

function said(run: LineageRun, children: Map<string, LineageRun[]>): { title: string; quiet: boolean; how: Line["how"] } {
  if (run.resumed || !run.question) return { title: titleOf(run), quiet: true, how: "" };
  const first = run.parentRunId ? children.get(run.parentRunId)?.[0] : undefined;
  const how = first && first !== run && !first.resumed && first.question ? (first.question === run.question ? "again" : "edited") : "";
  return { title: run.question, quiet: false, how };
}

/** The pieces of line in each row. Walking up, the row below says how a lane that passes is drawn. */
function edgesOf(rows: Row[], held: LineageRun[][]): Edge[][] {
  const out: Edge[][] = rows.map(() => []);
  const look = new Map<number, { branch: number; dash: string }>();
  for (let n = rows.length - 1; n >= 0; n--) {
    const row = rows[n] as Row;
    const begun = n > 0 ? (rows[n - 1]?.forks ?? []) : [];
    const edges = out[n] as Edge[];
    const below = look.get(row.lane);
    if (row.down && below) edges.push({ kind: "below", lane: row.lane, ...below });
    for (const lane of row.forks) {
      const to = look.get(lane);
      if (to) edges.push({ kind: "fork", lane, ...to });
    }
    for (const lane of row.through) {
      const passing = look.get(lane);
      if (passing) edges.push({ kind: begun.includes(lane) ? "enter" : "pass", lane, ...passing });
    }
    const dash = row.branch < 0 ? "" : DASH[held[n]?.[0]?.parentBy ?? "none"];
    if (row.above >= 0 && !begun.includes(row.lane)) edges.push({ kind: "above", lane: row.lane, branch: row.branch, dash });
    look.set(row.lane, { branch: row.branch, dash });
  }
  return out;
}

/** The path of a piece of line in a row whose middle is at y and whose node stands in lane node. */
export function edgeOf(e: Edge, x: (lane: number) => number, y: number, size: number, node: number): string {
  const to = x(e.lane);
  switch (e.kind) {
    case "above": return `M${to} ${y - size / 2}V${y}`;
    case "below": return `M${to} ${y}V${y + size / 2}`;
    case "pass": return `M${to} ${y - size / 2}V${y + size / 2}`;
    case "enter": return `M${to} ${y}V${y + size / 2}`;
    case "fork": return `M${x(node)} ${y}C${x(node)} ${y + size * 0.6} ${to} ${y + size * 0.4} ${to} ${y + size}`;
  }
}
