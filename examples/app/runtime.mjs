// CopilotKit's runtime, unchanged, with Skein as its runner: threads are on no process, so this one may end at any time.
import { createServer } from 'node:http';
import { CopilotRuntime, copilotRuntimeNodeHttpEndpoint, ExperimentalEmptyAdapter } from '@copilotkit/runtime';
import { SkeinAgent } from '@skeinhq/client';
import { SkeinRunner } from '@skeinhq/client/copilotkit';

const { SKEIN: url, RUNTIME, ORIGIN } = process.env;
const runtime = new CopilotRuntime({
  agents: { assistant: new SkeinAgent({ url, agent: 'assistant' }) },
  runner: new SkeinRunner({ url }),
});
const handler = copilotRuntimeNodeHttpEndpoint({
  runtime,
  serviceAdapter: new ExperimentalEmptyAdapter(),
  endpoint: '/api/copilotkit',
  cors: { origin: ORIGIN }, // without it, every web page may call
});
createServer(handler).listen(new URL(RUNTIME).port, '127.0.0.1', () => console.log(`CopilotKit's runtime is process ${process.pid}`));
