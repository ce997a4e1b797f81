import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { startAgent, startSkein } from './world.mjs';

const run = promisify(execFile); // in the background, as the agent is in this process
const here = fileURLToPath(new URL('../', import.meta.url));

test('packed and installed into an empty project: README runs there, and its types hold', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'skein-package-'));
  const real = await startAgent();
  const skein = await startSkein({ agents: { assistant: real.url } });
  t.after(async () => {
    real.stop();
    await skein.stop();
    rmSync(folder, { recursive: true, force: true });
  });
  const [{ filename, files }] = JSON.parse(
    (await run('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', folder], { cwd: here })).stdout,
  );
  assert.ok(
    files.every(({ path }) => /^(dist\/|README\.md|LICENSE|package\.json)/.test(path)),
    'only what a user needs is packed',
  );
  const project = { cwd: folder, timeout: 300_000 }; // a registry takes what it takes
  writeFileSync(join(folder, 'package.json'), '{"name":"empty","private":true,"type":"module"}');
  await run(
    'npm',
    ['install', '--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error', `./${filename}`, '@ag-ui/client@1.0.0'],
    project,
  );

  const blocks = [...readFileSync(join(here, 'README.md'), 'utf8').matchAll(/```js\n([^]*?)```/g)].map(([, code]) => code);
  const script = blocks
    .filter((code) => !code.includes('CopilotRuntime'))
    .join('')
    .replaceAll('http://127.0.0.1:8420', skein.url);
  assert.ok(blocks.length >= 7);
  writeFileSync(join(folder, 'readme.mjs'), script + 'console.log(agent.messages.map(({ role }) => role).join(), fork);\n');
  const { stdout } = await run(process.execPath, ['readme.mjs'], project);
  assert.match(stdout, /^chat-1 [^]* RUN_STARTED\n[^]* RUN_FINISHED\nuser,assistant,tool undefined\n$/);

  writeFileSync(
    join(folder, 'types.ts'),
    `
    import { HttpAgent, type Message } from '@ag-ui/client';
    import { SkeinAgent, SkeinClient, SkeinError, type Fork } from '@skeinhq/client';
    import { SkeinClient as Alone } from '@skeinhq/client/client';
    import { SkeinRunner } from '@skeinhq/client/copilotkit';
    export const agent: HttpAgent = new SkeinAgent({ url: 'http://a', agent: 'b', threadId: 'c', headers: {} });
    export const other: SkeinAgent = new SkeinAgent({ url: 'http://a', agent: 'b' }).clone();
    export const client: Alone = new SkeinClient({ url: 'http://a' });
    export const messages: Promise<Message[]> = client.history('t').then((history) => history.messages);
    export const fork: Promise<Fork | undefined> = other.siblings('m');
    export const found = client.threads({ status: 'running', limit: 1 }).catch((e: unknown) => e instanceof SkeinError && e.retryAfter);
    export const runner = new SkeinRunner({ url: 'http://a', credentials: (headers) => headers });
    // @ts-expect-error: there is no such status
    void client.threads({ status: 'flying' });
    // @ts-expect-error: the proxy needs the agent's name
    void new SkeinAgent({ url: 'http://a' });
  `,
  );
  writeFileSync(
    join(folder, 'tsconfig.json'),
    JSON.stringify({
      compilerOptions: { strict: true, noEmit: true, target: 'es2022', module: 'nodenext', types: [] },
      files: ['types.ts'],
    }),
  );
  await run(process.execPath, [join(here, 'node_modules/typescript/bin/tsc')], project).catch(({ stdout }) => assert.fail(stdout));
});
