import type { AbstractAgent, BaseEvent, RunAgentInput } from '@ag-ui/client';
import { Observable, Subject } from 'rxjs';
import { restore, SkeinAgent, uncancelled } from './agent.js';
import { SkeinClient, SkeinError, sleep, type SkeinOptions } from './client.js';
import type { PublishOptions } from './publisher.js';

export interface SkeinRunnerOptions extends SkeinOptions {
  /**
   * Headers for Skein from those of a request, such as its user's credential:
   * `({ authorization }) => ({ 'Skein-Authorization': authorization })`. CopilotRuntime gives run and connect the agent's headers and, of
   * the request, Authorization and X-…; isRunning and stop get none, and use `apiKey`. By default nothing is passed on.
   */
  credentials?: (headers: Record<string, string>) => Record<string, string | undefined>;
  onLost?: PublishOptions['onLost'];
}

/**
 * An AgentRunner for CopilotRuntime that keeps threads in Skein: any process of a runtime restores, joins and stops the runs of all others.
 * An agent that is a SkeinAgent is recorded by Skein's proxy; the runner publishes what any other one answers.
 */
export class SkeinRunner {
  constructor(private readonly options: SkeinRunnerOptions) {
    this.client({}); // checks the options
  }

  /** Runs an agent, to its end even if nobody reads any more. The events do not wait for Skein. */
  run({ threadId, agent, input }: { threadId: string; agent: AbstractAgent; input: RunAgentInput }): Observable<BaseEvent> {
    const out = new Subject<BaseEvent>();
    let begun = false;
    return new Observable((subscriber) => {
      const subscription = out.subscribe(subscriber);
      if (!begun) void this.drive(threadId, agent, input, out);
      begun = true;
      return subscription;
    });
  }

  /** The thread as snapshots, and its open run to the end. A thread never seen is empty. */
  connect({ threadId, headers = {} }: { threadId: string; headers?: Record<string, string> }): Observable<BaseEvent> {
    return new Observable((subscriber) => {
      const leave = new AbortController();
      (async () => {
        for await (const { data } of restore(this.client(headers), threadId, { signal: leave.signal }))
          subscriber.next(uncancelled(JSON.parse(data)));
        subscriber.complete();
      })().catch((error) => subscriber.error(error)); // nobody hears it after leaving
      return () => leave.abort();
    });
  }

  async isRunning({ threadId }: { threadId: string }): Promise<boolean> {
    return (await this.open(threadId)).length > 0;
  }

  /** Stops the thread's open runs, or one of them, wherever they run. A run whose process is gone is ended here. */
  async stop({ threadId, runId }: { threadId: string; runId?: string }): Promise<boolean> {
    const skein = this.client({});
    const runs = (await this.open(threadId)).filter((run) => runId === undefined || run === runId);
    const stopped = await Promise.all(
      runs.map(async (run) => {
        try {
          await skein.cancel(threadId, run);
          return true;
        } catch (error) {
          if (!(error instanceof SkeinError) || error.status !== 409) throw error;
          if (error.reason !== 'not-ended' || (await skein.run(threadId, run)).labels?.runner !== label.runner) return false;
          const end = {
            type: 'RUN_ERROR',
            message: 'stopped, as the process that ran the agent is gone',
            code: 'skein-runner-gone',
          };
          await skein.request('POST', `/v1/threads/${encodeURIComponent(threadId)}/runs/${encodeURIComponent(run)}/events`, {
            body: JSON.stringify([end]),
            write: true,
          });
          return true;
        }
      }),
    );
    return stopped.includes(true);
  }

  private async drive(threadId: string, agent: AbstractAgent, input: RunAgentInput, out: Subject<BaseEvent>): Promise<void> {
    const { runId } = input;
    const skein = this.client((agent as { headers?: Record<string, string> }).headers ?? {});
    const proxied = agent instanceof SkeinAgent;
    const publisher = proxied
      ? undefined
      : skein.publisher(threadId, runId, {
          input,
          labels: label,
          ...(agent.agentId !== undefined && { agent: agent.agentId }),
          ...(this.options.onLost && { onLost: this.options.onLost }),
        });
    const open = new Map<string, BaseEvent>(); // what has begun, with the event that ends it
    let state: 'running' | 'ended' | 'stopped' = 'running';
    const emit = (event: BaseEvent) => {
      if (state === 'stopped') return;
      follow(open, event);
      if (event.type === 'RUN_FINISHED' || event.type === 'RUN_ERROR') state = 'ended';
      publisher?.push(event);
      out.next(uncancelled(event));
    };
    const finished = new AbortController();
    const stopped = new Promise<void>((resolve) => {
      let warned = false;
      const listen = () =>
        void skein.whenStopped(threadId, runId, finished.signal).then(
          (asked) => {
            if (!asked || state !== 'running') return;
            for (const end of [...open.values()].reverse()) emit(end);
            emit({ type: 'RUN_FINISHED', threadId, runId, outcome: { type: 'cancelled' } } as BaseEvent);
            state = 'stopped';
            agent.abortRun();
            resolve();
          },
          (error) => {
            if (finished.signal.aborted) return;
            if (!warned)
              console.warn(`skein: run ${runId} of thread ${threadId} cannot be stopped from elsewhere for now: ${error.message}`);
            warned = true;
            sleep(1_000, finished.signal).then(listen, () => {}); // who comes late is told of the request again
          },
        );
      if (!proxied) listen(); // the proxy stops it itself, and its stream has the end
    });
    const ran = Promise.resolve()
      .then(() => agent.runAgent(input, { onEvent: ({ event }) => emit(event) }))
      .catch((error: Error) => {
        if (state === 'running') emit({ type: 'RUN_ERROR', message: error.message } as BaseEvent);
      });
    await Promise.race([ran, stopped]);
    if (state === 'running')
      emit({ type: 'RUN_ERROR', message: 'the agent ended without RUN_FINISHED', code: 'agent-no-end' } as BaseEvent);
    const published = publisher?.close();
    await Promise.race([published, sleep(250)]); // so that a caller can read the run that it saw end, if Skein is there
    out.complete();
    finished.abort();
    await published;
  }

  private async open(threadId: string): Promise<string[]> {
    try {
      return (await this.client({}).thread(threadId)).running.map((run) => run.runId);
    } catch (error) {
      if (error instanceof SkeinError && (error.status === 404 || error.status === 410)) return [];
      throw error;
    }
  }

  private client(headers: Record<string, string>): SkeinClient {
    const own = Object.entries(this.options.credentials?.(headers) ?? {}).filter(
      (one): one is [string, string] => one[1] !== undefined,
    );
    return new SkeinClient({ ...this.options, headers: { ...this.options.headers, ...Object.fromEntries(own) } });
  }
}

const label = { runner: 'copilotkit' };

// What ends each thing that an event begins, and the member that names it.
const ends: Record<string, [end: string, name: string]> = {
  TEXT_MESSAGE_START: ['TEXT_MESSAGE_END', 'messageId'],
  TOOL_CALL_START: ['TOOL_CALL_END', 'toolCallId'],
  REASONING_START: ['REASONING_END', 'messageId'],
  REASONING_MESSAGE_START: ['REASONING_MESSAGE_END', 'messageId'],
  STEP_STARTED: ['STEP_FINISHED', 'stepName'],
  SUBAGENT_STARTED: ['SUBAGENT_FINISHED', 'subagentRunId'],
};

function follow(open: Map<string, BaseEvent>, event: BaseEvent): void {
  const member = event as unknown as Record<string, string>;
  const began = ends[event.type];
  if (began) {
    const owner = member.subagentRunId === undefined || began[1] === 'subagentRunId' ? {} : { subagentRunId: member.subagentRunId };
    open.set(JSON.stringify([began[0], member[began[1]]]), {
      type: began[0],
      [began[1]]: member[began[1]],
      ...owner,
    } as unknown as BaseEvent);
  }
  for (const [end, name] of Object.values(ends)) if (end === event.type) open.delete(JSON.stringify([end, member[name]]));
}
