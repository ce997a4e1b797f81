// compact.mjs FILE: compactEvents of the official client on each run of a file, one pass. The file has an event a line, and an empty line behind
// each run. Prints the events and the seconds of the whole pass, then of what is behind its first quarter, with its processor seconds.
import fs from 'node:fs';
import { createRequire } from 'node:module';

const require = createRequire(new URL('../../test/conformance/package.json', import.meta.url));
const { compactEvents } = require('@ag-ui/client');

const file = fs.openSync(process.argv[2]);
const whole = fs.fstatSync(file).size;
const buffer = Buffer.allocUnsafe(8 << 20);
const began = performance.now();
let events = 0, read = 0, run = [], rest = Buffer.alloc(0), quarter;
for (;;) {
  const n = fs.readSync(file, buffer, 0, buffer.length);
  if (n === 0) break;
  read += n;
  const bytes = Buffer.concat([rest, buffer.subarray(0, n)]);
  const end = bytes.lastIndexOf(10) + 1;
  rest = Buffer.from(bytes.subarray(end));
  for (const line of bytes.toString('utf8', 0, end - 1).split('\n')) {
    if (line !== '') {
      run.push(JSON.parse(line));
    } else {
      compactEvents(run);
      events += run.length;
      run = [];
    }
  }
  if (!quarter && read >= whole / 4) quarter = { events, at: performance.now(), cpu: process.cpuUsage() };
}
const { user, system } = process.cpuUsage(quarter.cpu);
console.log(events, (performance.now() - began) / 1e3, events - quarter.events, (performance.now() - quarter.at) / 1e3, (user + system) / 1e6);
