// What the optional entry points use of the packages that they plug into, for the build, as these are not installed here. test/react
// compiles the entry points against the packages' own types.
declare module 'react' {
  export function useEffect(effect: () => (() => void) | void, deps?: readonly unknown[]): void;
  export function useMemo<T>(make: () => T, deps: readonly unknown[]): T;
}

declare module '@assistant-ui/react' {
  export interface ThreadMessage {
    role: string;
    content: readonly { type: string; text?: string }[];
  }
  export interface ExportedMessageRepository {
    headId?: string | null;
    messages: { message: ThreadMessage; parentId: string | null }[];
  }
  export const ExportedMessageRepository: {
    fromBranchableArray(
      items: { message: object; parentId: string | null }[], options?: { headId?: string | null },
    ): ExportedMessageRepository;
  };
  export interface ThreadHistoryAdapter {
    load(): Promise<ExportedMessageRepository & { state?: unknown; unstable_resume?: boolean }>;
    append(item: unknown): Promise<void>;
  }
  interface RemoteThreadMetadata {
    status: 'regular' | 'archived';
    remoteId: string;
    title?: string | undefined;
    lastMessageAt?: Date | undefined;
  }
  export interface RemoteThreadListAdapter {
    list(params?: { after?: string | undefined }): Promise<{ threads: RemoteThreadMetadata[]; nextCursor?: string | undefined }>;
    fetch(threadId: string): Promise<RemoteThreadMetadata>;
    initialize(threadId: string): Promise<{ remoteId: string }>;
    rename(threadId: string, title: string): Promise<void>;
    archive(threadId: string): Promise<void>;
    unarchive(threadId: string): Promise<void>;
    delete(threadId: string): Promise<void>;
    generateTitle(threadId: string, messages: readonly ThreadMessage[]): Promise<ReadableStream>;
  }
  export interface AssistantRuntime {
    threads: object;
  }
  export function useAuiState<T>(select: (state: { threadListItem: { id: string; remoteId?: string | undefined } }) => T): T;
  export function useRemoteThreadListRuntime(options: {
    adapter: RemoteThreadListAdapter;
    runtimeHook: () => AssistantRuntime;
    threadId?: string | undefined;
    onThreadIdChange?: ((threadId: string | undefined) => void) | undefined;
  }): AssistantRuntime;
}

declare module '@assistant-ui/react-ag-ui' {
  import type { AbstractAgent } from '@ag-ui/client';
  import type { AssistantRuntime } from '@assistant-ui/react';
  export interface UseAgUiRuntimeOptions {
    agent: AbstractAgent;
    showThinking?: boolean;
    adapters?: object;
  }
  export function useAgUiRuntime(options: UseAgUiRuntimeOptions): AssistantRuntime;
  export function fromAgUiMessages(
    messages: readonly unknown[], options?: { showThinking?: boolean },
  ): { id?: string; role: string; content: unknown }[];
}

declare module '@tanstack/ai' {
  export type StreamChunk = { type: string };
  export interface StreamDurability<Offset extends string = string> {
    resumeFrom(): Offset | null;
    append(chunks: StreamChunk[]): Promise<Offset[]>;
    read(offset: Offset, signal?: AbortSignal): AsyncIterable<{ offset: Offset; chunk: StreamChunk }>;
    close(): Promise<void>;
    snapshot(): Promise<{ offset: Offset; chunk: StreamChunk }[]>;
  }
}
