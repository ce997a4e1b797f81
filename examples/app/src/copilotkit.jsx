import { CopilotChat, CopilotChatUserMessage, CopilotKitProvider, useAgent, useCopilotKit } from '@copilotkit/react-core/v2';
import '@copilotkit/react-core/v2/styles.css';
import { SkeinAgent } from '@skeinhq/client';
import { useEffect, useState } from 'react';
import { show, threadId } from './thread.js';

const agents = { assistant: new SkeinAgent({ url: import.meta.env.VITE_SKEIN, agent: 'assistant' }) };
const thread = threadId ?? show(crypto.randomUUID());

export default function Page() {
  return (
    <CopilotKitProvider selfManagedAgents={agents} enableInspector={false}>
      <CopilotChat agentId="assistant" threadId={thread} messageView={{ userMessage: UserMessage }} />
    </CopilotKitProvider>
  );
}

/** CopilotKit's own message, with the buttons that it leaves to the application: edit, and the versions that Skein has. */
function UserMessage(props) {
  const { agent } = useAgent({ agentId: 'assistant' });
  const { copilotkit } = useCopilotKit();
  const [fork, setFork] = useState();
  const { message } = props;

  useEffect(() => {
    if (!agent.isRunning && message !== agent.messages.at(-1)) agent.siblings(message).then(setFork, console.error);
  }, [agent, agent.isRunning, message.id]);

  return (
    <CopilotChatUserMessage
      {...props}
      onEditMessage={() => {
        const content = prompt('Ask instead:', message.content);
        if (!content) return;
        const before = agent.messages.slice(0, agent.messages.findIndex(({ id }) => id === message.id));
        agent.setMessages([...before, { id: crypto.randomUUID(), role: 'user', content }]);
        copilotkit.runAgent({ agent });
      }}
      branchIndex={fork?.index}
      numberOfBranches={fork?.total}
      onSwitchToBranch={({ branchIndex }) => agent.checkout(fork.alternatives[branchIndex - fork.from].tipRunId)}
    />
  );
}
