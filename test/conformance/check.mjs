// Holds a fold to the official AG-UI client: runs a command, sends it every stream of the kit, and
// compares what it answers with what the client itself makes of the stream, here and now.
//
//   node check.mjs [--jobs FILE]… -- COMMAND [ARGUMENT]…
//
// The command reads jobs, one JSON object a line, and answers each, in order, with one line:
//
//   {"id": …, "start": {"messages": […], "state": …}, "events": […]}
//   {"id": …, "messages": […], "state": …}
//
// Streams: testdata/cases, the recordings, and the files of jobs that --jobs names (README.md tells how
// generated ones are made), each up to its first terminal event. Events that the client's schema rejects, or on which it throws, count as not
// sent. Exit code 0: no difference; 1: differences, the first ones told; 2: it could not be compared.
import { spawn } from 'node:child_process';
import { createReadStream, readFileSync, readdirSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { once } from 'node:events';
import { cut, reduce } from './reducer.mjs';

const here = (path) => new URL(path, import.meta.url);
const lines = (text) => text.split('\n').filter((line) => line.trim() !== '').map((line) => JSON.parse(line));

/** The files of a txtar archive by name. */
function txtar(text) {
  const files = {};
  let name;
  for (const line of text.split('\n')) {
    const head = /^-- (.+) --$/.exec(line);
    if (head) files[(name = head[1])] = '';
    else if (name) files[name] += line + '\n';
  }
  return files;
}

function* cases() {
  for (const file of readdirSync(here('testdata/cases/')).sort()) {
    const archive = txtar(readFileSync(here(`testdata/cases/${file}`), 'utf8'));
    yield { name: `case ${file}`, start: JSON.parse(archive['start.json'] ?? '{}'), events: lines(archive['in.jsonl']) };
  }
}

function* recordings() {
  const root = here('../../internal/recordings/');
  for (const folder of readdirSync(root, { withFileTypes: true }).filter((entry) => entry.isDirectory())) {
    for (const file of readdirSync(new URL(`${folder.name}/`, root)).filter((name) => name.endsWith('.jsonl')).sort()) {
      const read = (name) => readFileSync(new URL(`${folder.name}/${name}`, root), 'utf8');
      const { messages, state } = JSON.parse(read(file.replace(/\.jsonl$/, '.input.json')));
      yield { name: `recording ${folder.name}/${file}`, start: { messages, state }, events: lines(read(file)) };
    }
  }
}

async function* jobsOf(file) {
  let number = 0;
  for await (const line of createInterface({ input: createReadStream(file), crlfDelay: Infinity })) {
    number++;
    if (line.trim() !== '') yield { name: `${file}:${number}`, ...JSON.parse(line) };
  }
}

/** The first place at which two JSON values differ, or nothing. Members have no order; 0 is -0. */
function difference(want, got, path) {
  if (want === got) return;
  const kind = (v) => (v === null ? 'null' : Array.isArray(v) ? 'array' : typeof v);
  if (kind(want) !== kind(got) || (kind(want) !== 'object' && kind(want) !== 'array')) {
    return `${path}: the client has ${show(want)}, the command ${show(got)}`;
  }
  for (const key of new Set([...Object.keys(want), ...Object.keys(got)])) {
    if (!Object.hasOwn(want, key)) return `${path}/${key}: the client has nothing there, the command ${show(got[key])}`;
    if (!Object.hasOwn(got, key)) return `${path}/${key}: the client has ${show(want[key])}, the command nothing`;
    const found = difference(want[key], got[key], `${path}/${key}`);
    if (found) return found;
  }
}

const show = (v) => (JSON.stringify(v) ?? 'nothing').slice(0, 200);

/** Hides the ids that the client makes up at random: those of messages from THINKING_* events. */
const mask = (messages, job) =>
  Array.isArray(messages) && job.events.some((event) => event?.type === 'THINKING_TEXT_MESSAGE_START')
    ? messages.map((m, i) => (m?.role === 'reasoning' ? { ...m, id: `reasoning ${i}` } : m))
    : messages;

function usage(problem) {
  console.error(`${problem}\nusage: node check.mjs [--jobs FILE]… -- COMMAND [ARGUMENT]…`);
  process.exit(2);
}

const args = process.argv.slice(2);
const end = args.indexOf('--');
if (end < 0 || end === args.length - 1) usage('there is no command to check');
const sources = [cases(), recordings()];
for (let i = 0; i < end; i += 2) {
  if (args[i] !== '--jobs' || i + 1 >= end) usage(`there is no use for ${args[i]}`);
  sources.push(jobsOf(args[i + 1]));
}

const child = spawn(args[end + 1], args.slice(end + 2), { stdio: ['pipe', 'pipe', 'inherit'] });
let stopped = '';
child.on('error', (error) => (stopped = `it could not be started: ${error.message}`));
child.stdin.on('error', () => {}); // what ended it is told below
const answers = createInterface({ input: child.stdout, crlfDelay: Infinity })[Symbol.asyncIterator]();

let compared = 0;
let events = 0;
let differences = 0;
try {
  for (const source of sources) {
    for await (const { name, start = {}, events: whole } of source) {
      const sent = cut(whole ?? []); // a stream may be empty
      const job = { start: { messages: start.messages ?? [], state: start.state === undefined ? {} : start.state }, events: sent };
      child.stdin.write(JSON.stringify({ id: compared, ...job }) + '\n');
      const want = JSON.parse(JSON.stringify(await reduce({ ...job, upgrade: true, schema: true, skip: true }))); // as the command's
      const { value: line } = await answers.next();
      if (line === undefined) throw new Error(`${name}: no answer; the command ended${stopped && `: ${stopped}`}`);
      const got = JSON.parse(line);
      if (got.id !== compared) throw new Error(`${name}: job ${compared} was answered with id ${show(got.id)}`);
      const found =
        difference(mask(want.messages, job), mask(got.messages, job), 'messages') ?? difference(want.state, got.state, 'state');
      if (found && ++differences <= 20) console.log(`${name}\n  ${found}`);
      compared++;
      events += sent.length;
    }
  }
} catch (error) {
  console.error(`stopped after ${compared} streams: ${error.message}`);
  process.exitCode = 2;
}
child.stdin.end();
if (process.exitCode === 2) {
  child.kill();
} else {
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  console.log(`${compared} streams, ${events} events: ${differences === 0 ? 'no difference' : `${differences} differ`}`);
  process.exitCode = differences === 0 ? 0 : 1;
}
