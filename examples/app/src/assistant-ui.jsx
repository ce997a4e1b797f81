import {
  ActionBarPrimitive, AssistantRuntimeProvider, BranchPickerPrimitive, ComposerPrimitive, MessagePrimitive, ThreadListItemPrimitive,
  ThreadListPrimitive, ThreadPrimitive,
} from '@assistant-ui/react';
import { SkeinAgent, SkeinClient } from '@skeinhq/client';
import { useSkeinRuntime } from '@skeinhq/client/assistant-ui';
import { show, threadId } from './thread.js';

const url = import.meta.env.VITE_SKEIN;
const client = new SkeinClient({ url });

export default function Page() {
  const runtime = useSkeinRuntime({
    client,
    agent: (threadId) => new SkeinAgent({ url, agent: 'assistant', threadId }),
    threadId,
    onThreadIdChange: show,
  });
  return (
    <AssistantRuntimeProvider runtime={runtime}>
      <ThreadListPrimitive.Root className="threads">
        <ThreadListPrimitive.New>New thread</ThreadListPrimitive.New>
        <ThreadListPrimitive.Items>{() => <Thread />}</ThreadListPrimitive.Items>
      </ThreadListPrimitive.Root>
      <ThreadPrimitive.Root className="thread">
        <ThreadPrimitive.Viewport className="messages">
          <ThreadPrimitive.Messages components={{ UserMessage, AssistantMessage, UserEditComposer }} />
        </ThreadPrimitive.Viewport>
        <ComposerPrimitive.Root className="composer">
          <ComposerPrimitive.Input placeholder="Ask something" autoFocus />
          <ThreadPrimitive.If running={false}><ComposerPrimitive.Send>Send</ComposerPrimitive.Send></ThreadPrimitive.If>
          <ThreadPrimitive.If running><ComposerPrimitive.Cancel>Stop</ComposerPrimitive.Cancel></ThreadPrimitive.If>
        </ComposerPrimitive.Root>
      </ThreadPrimitive.Root>
    </AssistantRuntimeProvider>
  );
}

const Thread = () => (
  <ThreadListItemPrimitive.Root>
    <ThreadListItemPrimitive.Trigger><ThreadListItemPrimitive.Title fallback="New thread" /></ThreadListItemPrimitive.Trigger>
  </ThreadListItemPrimitive.Root>
);

const UserMessage = () => (
  <MessagePrimitive.Root className="user">
    <div className="text"><MessagePrimitive.Parts /></div>
    <ActionBarPrimitive.Root className="bar">
      <ActionBarPrimitive.Edit>Edit</ActionBarPrimitive.Edit>
      <BranchPicker />
    </ActionBarPrimitive.Root>
  </MessagePrimitive.Root>
);

const UserEditComposer = () => (
  <ComposerPrimitive.Root className="composer">
    <ComposerPrimitive.Input />
    <ComposerPrimitive.Cancel>Cancel</ComposerPrimitive.Cancel>
    <ComposerPrimitive.Send>Ask</ComposerPrimitive.Send>
  </ComposerPrimitive.Root>
);

const AssistantMessage = () => (
  <MessagePrimitive.Root className="assistant">
    <div className="text"><MessagePrimitive.Parts /></div>
    <ActionBarPrimitive.Root className="bar" hideWhenRunning>
      <ActionBarPrimitive.Reload>Again</ActionBarPrimitive.Reload>
      <BranchPicker />
    </ActionBarPrimitive.Root>
  </MessagePrimitive.Root>
);

const BranchPicker = () => (
  <BranchPickerPrimitive.Root hideWhenSingleBranch className="picker">
    <BranchPickerPrimitive.Previous>‹</BranchPickerPrimitive.Previous>
    <span><BranchPickerPrimitive.Number />/<BranchPickerPrimitive.Count /></span>
    <BranchPickerPrimitive.Next>›</BranchPickerPrimitive.Next>
  </BranchPickerPrimitive.Root>
);
