/** The driver of client/kit for this library; needs --expose-gc. */
import readline from 'node:readline';
import { Layout, Snowflake, SnowflakeError } from './index.js';

const settings = {};
let offset = 0;
let frozen = null;
let ids = null;
let begun = null;

let closingText = null; // a line of the log with it closes the node
let logTime = 0; // how long a line takes, in milliseconds
let atClock = null; // what the next reading of the clock does first

const clock = () => {
  const first = atClock;
  atClock = null;
  first?.();
  return frozen ?? Date.now() * 1000 + offset;
};
const log = (line) => {
  if (logTime > 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, logTime);
  process.stderr.write(`${line}\n`);
  if (closingText !== null && line.includes(closingText)) ids.close();
};
const spans = { lease_duration: 'leaseDuration', max_ahead: 'maxAhead', max_wait: 'maxWait' };

const commands = {
  set(name, ...words) {
    settings[name] = words.join(' ');
  },
  spell(name, ...points) {
    settings[name] = String.fromCodePoint(...points.map((point) => parseInt(point, 16)));
  },
  open() {
    const { registry, user, name, host_name: hostName, layout = 'twitter', ...others } = settings;
    // the usual log, unless it is to do more
    const options = { name, hostName, layout, clock, log: closingText === null && logTime === 0 ? undefined : log };
    for (const [key, value] of Object.entries(others)) options[spans[key]] = Number(value) * 1000;
    ids = new Snowflake(`postgresql://${user}@${registry}/postgres`, options);
  },
  async next(count) {
    return count === undefined ? ids.next() : (await ids.next(Number(count))).join(' ');
  },
  async nested() {
    let inner;
    atClock = () => { inner = ids.next(); };
    const outer = await ids.next();
    return `${await inner} ${outer}`;
  },
  logging(...words) {
    closingText = words.join(' ');
  },
  slow(seconds) {
    logTime = Number(seconds) * 1000;
  },
  bounded() {},
  async closing() {
    let closed;
    atClock = () => { closed = ids.close(); };
    const id = await ids.next().catch(() => '');
    await closed;
    return id;
  },
  async many(tasks, each) {
    const got = await Promise.all(Array.from({ length: Number(tasks) }, async () => {
      const own = [];
      for (let n = 0; n < Number(each); n++) own.push(await ids.next());
      return own;
    }));
    return got.flat().join(' ');
  },
  async burn(count) {
    for (let n = 0; n < Number(count); n++) await ids.next();
  },
  begin(...words) {
    begun = run(words.join(' '));
  },
  end: () => begun,
  parse(id, ...words) {
    const parts = new Layout(words.join(' ')).parse(id);
    const micros = BigInt(parts.timestamp.getTime()) * 1000n + (parts.microseconds % 1000n + 1000n) % 1000n;
    return [micros, parts.datacenterId, parts.workerId, parts.clock, parts.sequence, parts.nodeNumber].join(' ');
  },
  layout: (...words) => new Layout(words.join(' ')).definition,
  clock(seconds) {
    offset = Number(seconds) * 1_000_000;
    frozen = null;
  },
  freeze() {
    frozen = clock();
    return frozen;
  },
  state() {
    const { phase, nodeNumber, leasedUntil, problem } = ids.state();
    return `${phase} ${nodeNumber} ${leasedUntil ? leasedUntil.getTime() * 1000 : 0} ${problem ?? ''}`.trimEnd();
  },
  fork: () => 'none',
  async forget() {
    ids = null;
    // what is awaited is let go of in another turn
    await new Promise((resolve) => { setTimeout(resolve, 10); });
    globalThis.gc();
  },
  close: () => ids.close(),
  async quit() {
    await ids.close();
    process.exit();
  },
  aclose: () => 'none',
};

async function run(line) {
  const [name, ...words] = line.split(' ');
  try {
    const answer = await commands[name](...words);
    return answer === undefined ? 'ok' : `ok ${answer}`;
  } catch (error) {
    if (error instanceof SnowflakeError) return `error ${error.reason} ${error.message}`;
    if (error instanceof RangeError) return `error INVALID ${error.message}`;
    throw error;
  }
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const said = await run(line);
  // what was begun in the background says ok itself
  process.stdout.write(`${said.replace(/^ok (?=ok|error)/, '').replaceAll('\n', '\\n')}\n`);
}
