// An unchanged CopilotRuntime, one process of several: node runtime.mjs SKEIN AGENT. It prints its address.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { SkeinRunner } from '../../dist/copilotkit.js';
import { SkeinAgent } from '../../dist/index.js';

process.env.COPILOTKIT_TELEMETRY_DISABLED = 'true';
const require = createRequire(new URL('../../../../test/agents/copilotkit/package.json', import.meta.url));
const { CopilotRuntime } = require('@copilotkit/runtime/v2');
const { createCopilotNodeListener } = require('@copilotkit/runtime/v2/node');
const { HttpAgent } = createRequire(require.resolve('@copilotkit/runtime'))('@ag-ui/client');

const [url, agent] = process.argv.slice(2);
const runtime = new CopilotRuntime({
  agents: { direct: new HttpAgent({ url: agent }), proxied: new SkeinAgent({ url, agent: 'assistant' }) },
  runner: new SkeinRunner({
    url,
    credentials: ({ authorization }) => ({ 'X-Of-The-Caller': authorization }),
    fetch: (url, init) => {
      if (/events|connect/.test(url)) console.log('to Skein', new URL(url).pathname, init.headers['X-Of-The-Caller']);
      return fetch(url, init);
    },
  }),
});
const server = createServer(createCopilotNodeListener({ runtime, basePath: '/api/copilotkit' }));
server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}/api/copilotkit`));
