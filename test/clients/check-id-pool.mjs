// check-id-pool.mjs
//	  Checks the class of doc/clients/javascript.md.
import assert from 'node:assert';
import { setTimeout } from 'node:timers/promises';
import pg from 'pg';
import { IdPool } from './id-pool.mjs';

const most = 8192;
const client = new pg.Pool({ connectionString: process.env.DATABASE_URL });

let busy = false;
const db = {
  async query(...parameters) {
    assert(!busy, 'the server is asked twice at once');
    busy = true;
    const result = await client.query(...parameters);
    busy = false;
    return result;
  },
};

const next = async (pool) => BigInt(await pool.next());
const newest = async () => BigInt((await client.query('SELECT snowflake_nextval() AS id')).rows[0].id);
const increase = (ids) => ids.every((id, i) => i === 0 || ids[i - 1] < id);

// Empties the pool until it gets n ids at once; returns the ids.
async function grow(pool, n) {
  const ids = [];
  while (pool.n < n) {
    ids.push(await next(pool));
    assert(ids.length < 100_000, `n is ${pool.n} after so many ids`);
  }
  return ids;
}

// Takes ids until the pool was filled again; the first of these is taken.
async function nextPool(pool) {
  const now = await newest();
  while (await next(pool) < now);
}

async function checkGrowth(pool) {
  const ids = await grow(pool, most);
  for (let i = 0; i < 3 * most; i++) {
    ids.push(await next(pool));
    assert(pool.n <= most, `n is ${pool.n}`);
  }
  assert(increase(ids), 'ids do not increase');
  return ids;
}

// So many ids come from one pool: they are less than one that the server issues next.
async function checkSize(pool) {
  let n, count;
  for (let turn = 0; turn < 100; turn++) {
    await nextPool(pool);
    const now = await newest();
    n = pool.n;
    for (count = 1; await next(pool) < now; count++);
    if (count === n) return;
  }
  assert.fail(`n is ${n}, but there were ${count} ids`);
}

// Calls that do not wait for each other get ids in their order.
async function checkConcurrency(pool, ids) {
  const more = await Promise.all(Array.from({ length: 50_000 }, () => next(pool)));
  assert(increase(more), 'ids do not increase in the order of the calls');
  const every = [...ids, ...more];
  assert.strictEqual(new Set(every).size, every.length, 'an id came twice');
}

async function checkAge(pool) {
  await grow(pool, 1000);
  await nextPool(pool);
  const now = await newest();
  const { n } = pool;
  await setTimeout(1100);
  assert(await next(pool) > now, 'an id older than a second was used');
  assert.strictEqual(pool.n, Math.floor(n / 2));
}

const pool = new IdPool(db);
await checkConcurrency(pool, await checkGrowth(pool));
await checkSize(pool);
await checkAge(pool);
await client.end();
