// Answers jobs, one JSON object a line, with results, one JSON object a line, in the same order:
//
//   {"id": …, "start": {"messages": […], "state": …}, "events": […], "upgrade"?, "schema"?, "skip"?, "verify"?}
//   {"id": …, "messages": […], "state": …, "error"?: {"index", "message"}, "skipped"?: […], "violation"?: {…}}
//
// One process serves any number of streams; loading the client takes longer than folding a thousand.
// A job that is not JSON, or leaves the client with what no JSON can hold, is answered with {"failure": …}.
// reducer.mjs says what the switches do.
import { createInterface } from 'node:readline';
import { once } from 'node:events';
import { reduce } from './reducer.mjs';

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  if (line.trim() === '') continue;
  let id;
  let answer;
  try {
    const job = JSON.parse(line);
    id = job.id;
    answer = JSON.stringify({ id, ...(await reduce(job)) });
  } catch (error) {
    answer = JSON.stringify({ id, failure: String(error?.stack ?? error) });
  }
  if (!process.stdout.write(answer + '\n')) await once(process.stdout, 'drain');
}
