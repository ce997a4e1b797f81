// What the API answers, as far as the page reads it; /openapi.json has the whole.
export type Status = "running" | "finished" | "error" | "interrupted" | "cancelled" | "abandoned";
export type ParentBy = "explicit" | "content" | "latest" | "none";
export type JSONValue = null | boolean | number | string | JSONValue[] | { [key: string]: JSONValue };

export interface Thread {
  threadId: string;
  runs: number;
  openRuns: number;
  branches: number;
  messages: number;
  startedAt: string;
  updatedAt: string;
  lastRunId: string;
  status: Status;
  title?: string;
  archived?: boolean;
}

export interface Interrupt {
  id: string;
  reason?: string;
  message?: string;
  responseSchema?: JSONValue;
  toolCallId?: string;
}

export interface WaitingRun {
  threadId: string;
  runId: string;
  agent?: string;
  endedAt: string;
  interrupts: { interrupt: Interrupt; expired?: boolean }[];
}

/** A run as GET /v1/runs answers it. */
export interface FoundRun {
  threadId: string;
  runId: string;
  status: Status;
  stopped?: boolean;
  agent?: string;
  labels?: Record<string, string>;
  startedAt: string;
  durationMs?: number;
  inputTokens?: number;
  outputTokens?: number;
  tokens?: number;
  errorCode?: string;
  errorMessage?: string;
  question?: string;
  reply?: string;
}

export interface Badge {
  name: string;
  runId?: string;
  count?: number;
}

export interface Row {
  kind: "run" | "fold" | "fan" | "bundle";
  lane: number;
  branch: number;
  above: number;
  down: boolean;
  through: number[];
  forks: number[];
  runId: string;
  lastRunId?: string;
  runs: number;
  branches?: number;
  running?: number;
  waiting?: number;
  failed?: number;
  tip?: boolean;
}

export interface LineageRun {
  runId: string;
  parentRunId?: string;
  parentBy: ParentBy;
  spawnedBy?: string;
  branchId: string;
  rootRunId: string;
  depth: number;
  status: Status;
  agent?: string;
  messageCount: number;
  startedAt: string;
  endedAt?: string;
  durationMs?: number;
  row: number;
  first: string;
  question?: string;
  answer?: string;
  resumed?: string;
  resolution?: string;
  rewrote?: string[];
  synthetic?: boolean;
  stopped?: boolean;
  truncated?: boolean;
  rawLost?: boolean;
}

export interface Lineage {
  threadId: string;
  runs: LineageRun[];
  branches: { branchId: string; runs: string[] }[];
  spawns: { runId: string; spawnedBy: string; knownRunId?: string; late?: boolean }[];
  tipRunId: string;
  picture: { rows: Row[]; lanes: number };
}

export interface ToolCall {
  id: string;
  function: { name: string; arguments: string };
}

export interface Message {
  id: string;
  role: string;
  content?: JSONValue;
  toolCalls?: ToolCall[];
  toolCallId?: string;
  activityType?: string;
  encryptedValue?: string;
  error?: string;
}

export type PatchOp = { op: "add" | "replace" | "remove"; path: string; value?: JSONValue };

export interface MessageChange {
  op: "add" | "replace" | "remove" | "append";
  index: number;
  messageId: string;
  message?: Message;
  path?: string;
  text?: string;
}

export interface Change {
  messages: MessageChange[];
  state: PatchOp[];
}

export interface AGEvent {
  type: string;
  [field: string]: JSONValue;
}

export interface Step {
  n: number;
  position?: string;
  time?: string;
  kind: string;
  type?: string;
  outcome: string;
  event?: AGEvent;
  /** The event as it came, and what is not JSON as base64. */
  raw?: string;
  bytes?: string;
  change: Change;
}

export interface StatePage {
  n: number;
  total: number;
  status: Status;
  messages: Message[];
  state: JSONValue;
  steps?: Step[];
  next?: number;
}

export interface History {
  status: Status;
  messages: Message[];
  state: JSONValue;
}

export interface TokenUsage {
  provider?: string;
  model?: string;
  inputTokens?: number;
  outputTokens?: number;
  cachedInputTokens?: number;
}

export interface Run {
  runId: string;
  parentRunId?: string;
  terminal?: AGEvent;
  lateError?: { event: AGEvent };
  status: Status;
  agent?: string;
  labels?: Record<string, string>;
  traceId?: string;
  interrupts: Interrupt[];
  resumes: { interruptId: string; status: string; payload?: JSONValue }[];
  stats: {
    events: Record<string, number>;
    eventBytes: Record<string, number>;
    messages: number;
    toolCalls?: Record<string, number>;
    usage?: TokenUsage[];
    anomalies?: Record<string, number>;
    timeToFirstTokenMs?: number;
    durationMs?: number;
  };
  raw: { partition: number; first: number; next: number; sha256: string };
}

export interface Diff {
  same: boolean;
  commonAncestor?: string;
  statePatch: PatchOp[];
}
