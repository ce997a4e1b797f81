// What a program writes, against the packed types and those of the packages. It is compiled, not run.
import { resumeServerSentEventsResponse, toServerSentEventsResponse, type StreamChunk } from '@tanstack/ai';
import { useRemoteThreadListRuntime, type AssistantRuntime } from '@assistant-ui/react';
import { useAgUiRuntime } from '@assistant-ui/react-ag-ui';
import { SkeinAgent, SkeinClient } from '@skeinhq/client';
import { skeinHistory, skeinThreadList, useSkeinRuntime } from '@skeinhq/client/assistant-ui';
import { skeinStream } from '@skeinhq/client/tanstack';

const skein = new SkeinClient({ url: 'http://a' });
const agent = (threadId: string) => new SkeinAgent({ url: 'http://a', agent: 'assistant', threadId });

export const useAll = (): AssistantRuntime => useSkeinRuntime({ client: skein, agent, showThinking: false, onThreadIdChange: () => {} });

export const useOne = (one: SkeinAgent): AssistantRuntime => useAgUiRuntime({ agent: one, adapters: { history: skeinHistory(one) } });

export const useList = (runtimeHook: () => AssistantRuntime): AssistantRuntime =>
  useRemoteThreadListRuntime({ adapter: skeinThreadList(skein), runtimeHook });

export async function POST(request: Request, stream: AsyncIterable<StreamChunk>) {
  const input = await request.clone().json();
  return toServerSentEventsResponse(stream, { durability: { adapter: skeinStream(request, { client: skein, input }) } });
}
export const GET = (request: Request) => resumeServerSentEventsResponse({ adapter: skeinStream(request, { client: skein }) });
