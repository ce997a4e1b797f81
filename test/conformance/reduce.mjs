// Answers jobs, one JSON object a line, with results, one JSON object a line, in the same order:
//
//   {"id": …, "start": {"messages": […], "state": …}, "events": […], "upgrade"?, "schema"?, "skip"?, "verify"?, "judge"?, "answer"?}
//   {"id": …, "messages": […], "state": …, "error"?: {"index", "message"}, "skipped"?: […], "violation"?: {…}}
//
// One process serves any number of streams; loading the client takes longer than folding a thousand.
// A job that leaves the client with what no JSON can hold is answered with {"unwritable": …}, one that is none
// with {"failure": …}. A state that is not there is JavaScript's undefined. reducer.mjs says what the switches do.
//
//   node reduce.mjs FILE.jsonl…
//
// plays files as "skein fold" reads them: the runs of a chain in order, FILE.input.json beside a file what its first
// run starts from.
import { existsSync, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { once } from 'node:events';
import { answer as answered, cut, judge, reduce } from './reducer.mjs';

const files = process.argv.slice(2);
if (files.length > 0) {
  console.log(JSON.stringify(await play(files), null, 2));
} else {
  await serve();
}

async function serve() {
  for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
    if (line.trim() === '') continue;
    if (!process.stdout.write((await answer(line)) + '\n')) await once(process.stdout, 'drain');
  }
}

async function answer(line) {
  let id;
  let result;
  try {
    const job = JSON.parse(line);
    id = job.id;
    result = await (job.judge ? judge(job) : job.answer ? answered(job.answer) : reduce(job));
  } catch (error) {
    return JSON.stringify({ id, failure: String(error?.stack ?? error) });
  }
  try {
    return JSON.stringify({ id, ...result });
  } catch (error) {
    const { skipped, violation } = result;
    return JSON.stringify({ id, skipped, violation, unwritable: String(error?.message ?? error) });
  }
}

/** What one client holds that plays the runs of files in turn, each up to its end. */
async function play(names) {
  let held = {};
  for (const name of names) {
    const input = name.replace(/\.[^./]*$/, '') + '.input.json';
    if (existsSync(input)) {
      const { messages, state } = JSON.parse(readFileSync(input, 'utf8'));
      held = { messages, state: state ?? held.state };
    }
    const runs = [];
    for (const line of readFileSync(name, 'utf8').split('\n')) {
      if (line.trim() === '') continue;
      const event = JSON.parse(line);
      if (runs.length === 0 || event?.type === 'RUN_STARTED') runs.push([]);
      runs.at(-1).push(event);
    }
    held = await reduce({ start: held, events: runs.flatMap(cut), upgrade: true, schema: true, skip: true, verify: true });
  }
  return held;
}
