import { CopilotChat, CopilotKitProvider } from '@copilotkit/react-core/v2';
import '@copilotkit/react-core/v2/styles.css';
import { show, threadId } from './thread.js';

const thread = threadId ?? show(crypto.randomUUID());

// Nothing of Skein is here: it is in runtime.mjs.
export default function Page() {
  return (
    <CopilotKitProvider runtimeUrl={`${import.meta.env.VITE_RUNTIME}/api/copilotkit`} useSingleEndpoint enableInspector={false}>
      <CopilotChat agentId="assistant" threadId={thread} />
    </CopilotKitProvider>
  );
}
