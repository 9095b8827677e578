/** Makes ids in its own process, for programs.pl: the commands of Programs.java, for one thread, and `what` there is. */
import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';
import readline from 'node:readline';
import { Snowflake } from '../client/node/index.js';

const PART = 64;
const BATCH = 1000;
const [layout, registry] = process.argv.slice(2);
const ids = new Snowflake(registry, { name: 'bench', layout });
const packages = createRequire(new URL('../client/node/', import.meta.url));

// a loop of its own for each call, so that each is compiled for its call; only ours are waited for, and increase
const loop = (ours) => Function('call', 'until', 'part', `return (${ours ? 'async' : ''} () => {
  let count = 0, last = 0n, got;
  for (; performance.now() < until; count += part) {
    for (let i = 0; i < part; i++) got = ${ours ? 'await' : ''} call();
    if (${ours} && got <= last) throw new Error(got + ' follows ' + last);
    last = got;
  }
  return count;
})()`);

const what = {
  ids: [loop(true), () => ids.next()],
  batch: [loop(true), async () => (await ids.next(BATCH))[BATCH - 1]],
  clock: [loop(false), Date.now],
  uuid: [loop(false), randomUUID],
};
try {
  const other = new (packages('@sapphire/snowflake').Snowflake)(1704067200000n);
  what['@sapphire/snowflake'] = [loop(false), () => other.generate()];
} catch {
  // it is not installed
}
try {
  what.ulid = [loop(false), packages('ulid').ulid];
} catch {
  // it is not installed
}

async function speed(name, milliseconds) {
  const [run, call] = what[name];
  const begin = performance.now();
  const count = await run(call, begin + milliseconds, name === 'batch' ? 1 : PART);
  return Math.round(count * (name === 'batch' ? BATCH : 1) * 1000 / (performance.now() - begin));
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const [command, name, , milliseconds] = line.split('\t');
  console.log(command === 'what' ? Object.keys(what).join(' ') : await speed(name, Number(milliseconds)));
}
await ids.close();
