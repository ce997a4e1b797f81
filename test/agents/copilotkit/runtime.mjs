// An unchanged CopilotKit runtime with one agent, a stock HttpAgent: node runtime.mjs PORT URL
import { createServer } from 'node:http';

process.env.COPILOTKIT_TELEMETRY_DISABLED = 'true';
const { CopilotRuntime, copilotRuntimeNodeHttpEndpoint, ExperimentalEmptyAdapter } = await import('@copilotkit/runtime');
const { HttpAgent } = await import('@ag-ui/client');

const [port, url] = process.argv.slice(2);
const runtime = new CopilotRuntime({ agents: { assistant: new HttpAgent({ url }) } });
const handler = copilotRuntimeNodeHttpEndpoint({ runtime, serviceAdapter: new ExperimentalEmptyAdapter(), endpoint: '/api/copilotkit' });
createServer((req, res) => handler(req, res)).listen(Number(port), '127.0.0.1');
