// A stock HttpAgent of @ag-ui/client in a conversation:
//
//   node client.mjs URL THREAD TURNS [leave]
//
// It prints, as JSON, the run ids, the events of each turn as the client saw them, and what it holds at the end. With leave it goes
// away behind the first event of its last turn.
import { createRequire } from 'node:module';

const require = createRequire(new URL('../conformance/package.json', import.meta.url)); // where the client is installed
const { HttpAgent } = require('@ag-ui/client');

const [url, threadId, turns, leave] = process.argv.slice(2);
const agent = new HttpAgent({ url, threadId });
const runs = [];
for (let turn = 1; turn <= Number(turns); turn++) {
  const run = { runId: `${threadId}-run-${turn}`, events: [] };
  runs.push(run);
  agent.addMessage({ id: `${threadId}-user-${turn}`, role: 'user', content: `Turn ${turn}: hello` });
  const last = turn === Number(turns);
  await agent.runAgent(
    { runId: run.runId },
    {
      onEvent: ({ event }) => {
        run.events.push(event);
        if (leave && last) {
          process.stdout.write(JSON.stringify({ runs }) + '\n', () => process.exit(0));
        }
      },
    },
  );
}
console.log(JSON.stringify({ runs, messages: agent.messages, state: agent.state }));
