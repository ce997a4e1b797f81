import type { Message } from '@ag-ui/client';
import {
  ExportedMessageRepository, useAuiState, useRemoteThreadListRuntime,
  type AssistantRuntime, type RemoteThreadListAdapter, type ThreadHistoryAdapter, type ThreadMessage,
} from '@assistant-ui/react';
import { fromAgUiMessages, useAgUiRuntime, type UseAgUiRuntimeOptions } from '@assistant-ui/react-ag-ui';
import { useEffect, useMemo } from 'react';
import type { SkeinAgent } from './agent.js';
import { path, type Lineage, type LineageRun, type SkeinClient, type Thread, type ThreadFilter } from './client.js';
import { SkeinError } from './errors.js';

export interface SkeinHistoryOptions {
  /** How many ends of branches are read: those of the latest runs. The default is 50. */
  branches?: number;
  /** As of `useAgUiRuntime`: whether reasoning is shown. */
  showThinking?: boolean | undefined;
}

export interface SkeinRuntimeOptions extends Omit<UseAgUiRuntimeOptions, 'agent'>, SkeinHistoryOptions {
  client: SkeinClient;
  /** Makes the agent of a thread, with its threadId. */
  agent: (threadId: string) => SkeinAgent;
  /** The thread that is shown, and what is told when another one is: as of `useRemoteThreadListRuntime`. */
  threadId?: string | undefined;
  onThreadIdChange?: ((threadId: string | undefined) => void) | undefined;
}

/**
 * assistant-ui's AG-UI runtime over the threads that Skein has: with their list, their branches and the runs that go on. Runs outlive the
 * page and the component: only the user's Stop ends them.
 */
export function useSkeinRuntime(options: SkeinRuntimeOptions): AssistantRuntime {
  const { client, threadId, onThreadIdChange } = options;
  const adapter = useMemo(() => skeinThreadList(client), [client]);
  return useRemoteThreadListRuntime({ adapter, threadId, onThreadIdChange, runtimeHook: () => useThread(options, adapter) });
}

function useThread({ agent: agentOf, adapters, ...options }: SkeinRuntimeOptions, list: SkeinThreadList): AssistantRuntime {
  const remoteId = useAuiState((state) => state.threadListItem.remoteId);
  const localId = useAuiState((state) => state.threadListItem.id);
  const threadId = remoteId ?? list.idOf(localId);
  const agent = useMemo(() => agentOf(threadId), [threadId]);
  const history = useMemo(() => (remoteId === undefined ? undefined : skeinHistory(agent, options)), [agent]); // a new thread has none
  // The runtime calls abortRun when it is unmounted, too: this effect stands before its own, and makes that a leave.
  useEffect(() => {
    delete (agent as Partial<SkeinAgent>).abortRun;
    return () => {
      agent.abortRun = () => void agent.detachActiveRun();
    };
  }, [agent]);
  return useAgUiRuntime({ ...options, agent, adapters: { ...adapters, history } } as UseAgUiRuntimeOptions);
}

/**
 * The messages of the agent's thread, with all branches, from Skein: for `useAgUiRuntime({ agent, adapters: { history } })`. The thread is
 * shown at its latest end. A run that goes on is followed from its first event. Nothing is appended: Skein records the runs.
 */
export function skeinHistory(agent: SkeinAgent, { branches = 50, showThinking }: SkeinHistoryOptions = {}): ThreadHistoryAdapter {
  const tree = new MessageTree();
  agent.use((input, next) => next.run({ ...input, messages: tree.original(input.messages) }));
  return {
    async append() {},
    async load() {
      const { skein, threadId } = agent;
      let lineage: Lineage;
      try {
        lineage = await skein.lineage(threadId);
      } catch (error) {
        if (error instanceof SkeinError && error.status === 404) return { messages: [] }; // a new thread
        throw error;
      }
      const ends = endsOf(lineage, branches);
      const tip = ends.find(({ runId }) => runId === lineage.tipRunId);
      const open = tip?.status === 'running' ? tip : undefined;
      const read = (run: LineageRun) => run === open
        ? skein.checkout(threadId, run.runId, { at: 'start' }) // its own messages come again, event by event
        : skein.history(threadId, run.runId);
      const histories: Awaited<ReturnType<typeof read>>[] = [];
      for (let i = 0; i < ends.length; i += 4) histories.push(...(await Promise.all(ends.slice(i, i + 4).map(read))));
      tree.clear();
      const lasts = histories.map((history) => tree.add(fromAgUiMessages(
        waiting(history.messages, 'interrupts' in history ? history.interrupts : undefined), { showThinking: showThinking ?? true })));
      const head = tip ? ends.indexOf(tip) : -1;
      if (open) follow(agent, open.runId);
      return { ...tree.repository(lasts[head] ?? null), state: histories[head]?.state ?? {}, ...(open && { unstable_resume: true }) } as
        Awaited<ReturnType<ThreadHistoryAdapter['load']>>;
    },
  };
}

/**
 * The latest runs whose histories have all messages: the tips, and the runs whose messages their child did not keep. They come in the
 * order of a tree, so that alternatives are met in the order in which they began.
 */
function endsOf({ runs, tips, tipRunId }: Lineage, most: number): LineageRun[] {
  const ends = new Set([...tips, ...runs.flatMap((run) => (run.rewrote && run.parentRunId !== undefined ? [run.parentRunId] : []))]);
  const index = new Map(runs.map((run, i) => [run.runId, i]));
  const trail = (run: LineageRun) => { // the places, by start, of the run's ancestors and itself
    const places: number[] = [];
    for (let at = index.get(run.runId); at !== undefined; at = index.get(runs[at]!.parentRunId ?? '')) places.push(at);
    return places.reverse();
  };
  return runs.filter((run) => run.runId === tipRunId || (ends.has(run.runId) && !run.spawned)).slice(-most)
    .map((run) => ({ run, places: trail(run) }))
    .sort((a, b) => {
      const fork = a.places.findIndex((place, i) => place !== b.places[i]);
      return fork < 0 ? -1 : a.places[fork]! - (b.places[fork] ?? -1);
    })
    .map(({ run }) => run);
}

/** The messages, with the interrupts that a run waits for where the runtime looks for them. */
function waiting(messages: Message[], interrupts: object[] | undefined): unknown[] {
  const last = messages.findLastIndex(({ role }) => role === 'assistant');
  return interrupts?.length && last >= 0
    ? messages.with(last, { ...messages[last]!, metadata: { custom: { agui: { interrupts } } } } as Message)
    : messages;
}

type Shown = ReturnType<typeof fromAgUiMessages>[number];

/** Histories put together: they share the messages, by id and content, that they begin with. */
class MessageTree {
  // By the id in assistant-ui, where an id stands for one message. A message that has the id of another one, or its place, gets a suffix.
  private readonly nodes = new Map<string, { parentId: string | null; message: Shown; text: string; original: string }>();

  clear(): void {
    this.nodes.clear();
  }

  /** Adds a history, and returns the id of its last message. */
  add(messages: Shown[]): string | null {
    let parentId: string | null = null;
    for (const message of messages) {
      const text = JSON.stringify(message);
      const original = message.id!;
      for (let n = 1; ; n++) {
        const id: string = n === 1 ? original : `${original}~${n}`;
        const node = this.nodes.get(id);
        if (node && (node.parentId !== parentId || node.text !== text)) continue;
        if (!node) this.nodes.set(id, { parentId, message: { ...message, id }, text, original });
        parentId = id;
        break;
      }
    }
    return parentId;
  }

  repository(headId: string | null): ExportedMessageRepository {
    return ExportedMessageRepository.fromBranchableArray([...this.nodes.values()], { headId });
  }

  /** Messages of an input, by the ids that Skein and the agent know. */
  original(messages: Message[]): Message[] {
    return messages.map((message) => ({ ...message, id: this.nodes.get(message.id)?.original ?? message.id }));
  }
}

/** Makes the agent's next call follow a run from its first event on, instead of starting one. */
function follow(agent: SkeinAgent, runId: string): void {
  agent.run = (input) => {
    delete (agent as Partial<SkeinAgent>).run;
    const { skein } = agent;
    const at = path(input.threadId, runId);
    return agent['read']({ ...input, runId }, (_, signal) => skein.blocks((lastId) => lastId === undefined
      ? skein.request('GET', `${at}/events`, { accept: 'text/event-stream', signal })
      : skein.follow(at, lastId, signal), { signal }));
  };
}

export interface SkeinThreadList extends RemoteThreadListAdapter {
  /** The id in Skein of a thread that assistant-ui has just begun, under its own id. */
  idOf(localId: string): string;
}

/** The tenant's threads, for `useRemoteThreadListRuntime`: listed by page, renamed, archived and erased. */
export function skeinThreadList(client: SkeinClient): SkeinThreadList {
  const ids = new Map<string, string>();
  const metadata = ({ threadId, title, archived, updatedAt }: Thread & { title?: string; archived?: boolean }) => ({
    remoteId: threadId, status: archived ? 'archived' as const : 'regular' as const, title, lastMessageAt: new Date(updatedAt),
  });
  const idOf = (localId: string) => {
    let id = ids.get(localId);
    if (!id) ids.set(localId, (id = crypto.randomUUID()));
    return id;
  };
  return {
    idOf,
    async list({ after } = {}) {
      const { threads, next } = await client.threads({ archived: 'all', ...(after !== undefined && { after }) } as ThreadFilter);
      return { threads: threads.map(metadata).sort((a, b) => +b.lastMessageAt - +a.lastMessageAt), nextCursor: next };
    },
    fetch: async (threadId) => metadata(await client.thread(threadId)),
    initialize: async (localId) => ({ remoteId: idOf(localId) }), // Skein's thread begins with its first run
    rename: (threadId, title) => client.updateThread(threadId, { title }),
    archive: (threadId) => client.updateThread(threadId, { archived: true }),
    unarchive: (threadId) => client.updateThread(threadId, { archived: false }),
    async delete(threadId) {
      await client.erase(threadId);
    },
    /** The beginning of the first question. */
    async generateTitle(threadId, messages: readonly ThreadMessage[]) {
      const question = (messages.find(({ role }) => role === 'user')?.content ?? [])
        .flatMap((part) => (part.type === 'text' ? [part.text] : [])).join(' ');
      const title = Array.from(question.replace(/[\s\p{Cc}]+/gu, ' ').trim()).slice(0, 60).join('');
      if (title) await client.updateThread(threadId, { title });
      return new ReadableStream({
        start(controller) {
          controller.enqueue({ type: 'part-start', part: { type: 'text' }, path: [] });
          controller.enqueue({ type: 'text-delta', textDelta: title, path: [0] });
          controller.enqueue({ type: 'part-finish', path: [0] });
          controller.close();
        },
      });
    },
  };
}
