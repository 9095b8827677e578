/**
 * The bit layout of an id: the grammar of definitions, the presets, and what the bits say.
 *
 * It is the server's (src/layout), and so are the texts of its errors.  Ticks count from the layout's epoch; times are
 * microseconds since 1970-01-01 UTC.  The fields datacenter, worker and clock, from high to low and wherever they stand in
 * the id, make up one number, the node number.
 */
const FIELDS = ['timestamp', 'datacenter', 'worker', 'clock', 'sequence'];
const NODE_FIELDS = FIELDS.slice(1, 4);

const PRESETS = {
  twitter: 'timestamp 41, datacenter 5, worker 5, sequence 12, tick 1ms, epoch 2010-11-04T01:42:54.657Z',
  leaf: 'timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2010-11-04T01:42:54.657Z',
  discord: 'timestamp 41, datacenter 5, worker 5, sequence 12, tick 1ms, epoch 2015-01-01T00:00:00Z',
  instagram: 'timestamp 40, worker 13, sequence 10, tick 1ms, epoch 2011-08-24T21:07:01.721Z',
  mastodon: 'timestamp 47, sequence 16, tick 1ms, epoch 1970-01-01T00:00:00Z',
  sonyflake: 'timestamp 39, sequence 8, worker 16, tick 10ms, epoch 2014-09-01T00:00:00Z',
  sonyflake2: 'timestamp 39, sequence 8, worker 16, tick 10ms, epoch 2025-01-01T00:00:00Z',
  uidgenerator: 'timestamp 29, worker 21, sequence 13, tick 1s, epoch 2016-09-20T00:00:00+08:00',
  uidgenerator28: 'timestamp 28, worker 22, sequence 13, tick 1s, epoch 2016-05-20T00:00:00+08:00',
  uidstarter: 'timestamp 30, worker 16, sequence 7, tick 1s, epoch 2019-02-20T00:00:00+08:00',
  liaoxuefeng: 'timestamp 32, sequence 16, worker 5, tick 1s, epoch 2000-01-01T00:00:00Z',
  cosid: 'timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2019-12-25T00:00:00+08:00',
  shardingsphere: 'timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2016-11-01T00:00:00+08:00',
  pgedge: 'timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2023-01-01T00:00:00Z',
  pgedge1: 'timestamp 41, sequence 12, worker 10, tick 1ms, epoch 2023-01-01T00:00:00Z',
  js53: 'timestamp 38, worker 7, sequence 8, tick 10ms, epoch 2024-01-01T00:00:00Z',
};

const SECOND = 1_000_000;
const MAX_BITS = 63;
const MAX_TICK = 86_400 * SECOND;
// the end of timestamptz, where the last tick of a wide timestamp ends at the latest
const TIMESTAMPTZ_END = 9_224_318_016_000_000_000n;
const UNITS = { us: 1, ms: 1000, s: SECOND };
const TICK = /^(\d{1,9}) *(us|ms|s)$/i;
const EPOCH = /^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?(?:Z|([+-])(\d\d)(?::?(\d\d))?)$/i;
const FIRST_EPOCH = Date.parse('0001-01-01T00:00:00Z');
const END_EPOCH = Date.parse('9999-12-31T23:59:59.999Z') + 1;

/** Why a definition is not accepted: what is wrong, and what to do. */
class Refusal extends Error {
  constructor(detail, hint) {
    super(detail);
    this.hint = hint;
  }
}

/** Reads one definition. */
class Reader {
  bits = new Map(); // by field, from high to low
  tick = 1000;
  epoch = 0n;
  seen = new Set();
  fromPreset = false;

  read(definition) {
    definition.split(',').forEach((text, n) => {
      const part = text.replace(/[\t-\r]/g, ' ').replace(/^ +| +$/g, '').replace(/[^ -~]/g, '?');
      if (part.length > 127) {
        throw new Refusal(`"${part.slice(0, 127)}..." is longer than 127 characters.`,
          'Separate the parts by commas, and leave out needless blanks.');
      }
      this.readPart(part, n === 0);
    });
  }

  readPart(part, isFirst) {
    const [, word, value] = /^([^ ]*) *(.*)$/.exec(part);
    const name = word.toLowerCase();
    if (FIELDS.includes(name) || name === 'tick' || name === 'epoch') {
      const isField = FIELDS.includes(name);
      if (this.seen.has(name)) {
        throw new Refusal(`"${part}" repeats the ${isField ? 'field ' : ''}${name}.`,
          `Give ${isField ? 'each field' : `the ${name}`} once.`);
      }
      this.seen.add(name);
      if (name === 'tick') this.readTick(part, value);
      else if (name === 'epoch') this.readEpoch(part, value);
      else this.readWidth(part, name, value);
    } else if (Object.hasOwn(PRESETS, part.toLowerCase())) {
      if (!isFirst) {
        throw new Refusal(`The preset "${part}" must be the first part.`, 'Name the preset first, then what is different.');
      }
      this.read(PRESETS[part.toLowerCase()]);
      this.seen.clear();
      this.fromPreset = true;
    } else {
      throw new Refusal(
        `"${part}" is neither a preset nor one of timestamp, datacenter, worker, clock, sequence, tick and epoch.`,
        'A layout is the name of a preset (see snowflake_layouts()), or parts such as "timestamp 41, worker 10,'
        + ' sequence 12, tick 1ms, epoch 2024-01-01T00:00:00Z".');
    }
  }

  readWidth(part, name, value) {
    const most = name === 'timestamp' ? MAX_BITS - 1 : 31;
    const width = /^\d{1,9}$/.test(value) ? Number(value) : 0;
    if (width < 1 || width > most) {
      throw new Refusal(`"${part}" must give the ${name} field 1 to ${most} bits.`,
        'Give a field\'s width as a number of bits, as in "sequence 12".');
    }
    if (this.fromPreset && !this.bits.has(name)) {
      throw new Refusal(`"${part}" changes a field that the preset does not have.`,
        'Spell out the whole layout, with its fields in order.');
    }
    this.bits.set(name, width);
    if (!this.bits.has('timestamp')) {
      throw new Refusal(`"${part}" stands before the timestamp, which must be the first field.`,
        'Ids sort by time only if the timestamp has the highest bits.');
    }
  }

  readTick(part, value) {
    const match = TICK.exec(value);
    this.tick = match ? Number(match[1]) * UNITS[match[2].toLowerCase()] : 0;
    if (this.tick < 1 || this.tick > MAX_TICK) {
      throw new Refusal(`"${part}" must give a tick from 1us to 86400s.`,
        'Give the length of a tick as a number with the unit us, ms or s, as in "tick 1ms".');
    }
  }

  readEpoch(part, value) {
    const [match, day, time, fraction = '', sign, hours = '0', minutes = '0'] = EPOCH.exec(value) ?? [];
    const local = match ? Date.parse(`${day}T${time}Z`) : NaN;
    const zone = (Number(hours) * 60 + Number(minutes)) * 60_000 * (sign === '-' ? -1 : 1);
    // a day that there is not would be the one after the month's last
    const isReal = !Number.isNaN(local) && new Date(local).toISOString().startsWith(`${day}T${time}`);
    if (!isReal || local < FIRST_EPOCH || Number(hours) > 15 || Number(minutes) > 59
        || local - zone < FIRST_EPOCH || local - zone >= END_EPOCH) {
      throw new Refusal(`"${part}" must give an ISO 8601 time with a zone, in the years 0001 to 9999.`,
        'Write the epoch as in "epoch 2024-01-01T00:00:00Z" or "epoch 2016-09-20T00:00:00+08:00".');
    }
    this.epoch = BigInt(local - zone) * 1000n + BigInt(fraction.padEnd(6, '0'));
  }

  checkWhole(definition) {
    for (const name of ['timestamp', 'sequence']) {
      if (!this.bits.has(name)) {
        throw new Refusal(`A layout needs at least 1 bit of ${name}.`,
          'Add the field, as in "timestamp 41, worker 10, sequence 12".');
      }
    }
    const sum = [...this.bits.values()].reduce((a, b) => a + b, 0);
    if (sum > MAX_BITS) {
      throw new Refusal(
        `The widths add up to ${sum} bits, more than ${MAX_BITS} (last part "${definition.split(',').at(-1).trim()}").`,
        'Make a field narrower; ids are never negative, so the top bit of a bigint is not used.');
    }
  }
}

const lowBits = (width) => (1n << BigInt(width)) - 1n;

/** A layout never changes. */
export class Layout {
  #bits;
  #shift = new Map();

  constructor(definition) {
    const reader = new Reader();
    try {
      const text = Buffer.from(definition).toString('latin1');
      reader.read(text);
      reader.checkWhole(text);
    } catch (refusal) {
      if (!(refusal instanceof Refusal)) throw refusal;
      throw new RangeError(`invalid layout: "${definition}"\nDetail: ${refusal.message}\nHint: ${refusal.hint}`);
    }
    this.#bits = reader.bits;
    this.tick = reader.tick;
    this.epoch = reader.epoch;
    let low = 0;
    for (const [name, width] of [...reader.bits].reverse()) {
      this.#shift.set(name, BigInt(low));
      low += width;
    }
    const last = (TIMESTAMPTZ_END - 1n - this.epoch) / BigInt(this.tick) - 1n;
    const widest = lowBits(this.bits('timestamp'));
    this.maxTick = last < widest ? last : widest;
    this.maxSequence = Number(lowBits(this.bits('sequence')));
    const numbers = 2 ** NODE_FIELDS.reduce((sum, name) => sum + this.bits(name), 0);
    /** The greatest number that can be leased: that of all bits is reserved, and a registry has 2^32 to choose from. */
    this.lastNumber = Math.min(numbers - 2, 2 ** 32 - 1);
    this.maxId = this.maxTick << this.shift('timestamp') | lowBits(Number(this.shift('timestamp')));
    Object.freeze(this);
  }

  bits(name) {
    return this.#bits.get(name) ?? 0;
  }

  /** The lowest bit of a field. */
  shift(name) {
    return this.#shift.get(name) ?? 0n;
  }

  /** All parts, as the server writes them: equal layouts have equal ones. */
  get definition() {
    const unit = ['s', 'ms', 'us'].find((name) => this.tick % UNITS[name] === 0);
    const fields = [...this.#bits].map(([name, width]) => `${name} ${width}, `).join('');
    const micros = (this.epoch % 1000n + 1000n) % 1000n;
    let epoch = new Date(Number((this.epoch - micros) / 1000n)).toISOString();
    if (micros) epoch = epoch.replace('Z', `${String(micros).padStart(3, '0')}Z`);
    return `${fields}tick ${this.tick / UNITS[unit]}${unit}, epoch ${epoch.replace('.000Z', 'Z')}`;
  }

  toString() {
    return this.definition;
  }

  /** Whether ids can be issued with it, not only parsed. */
  get isIssuable() {
    return this.bits('worker') > 0 && this.tick <= SECOND;
  }

  /** The bits of a node number at their places in an id. */
  nodeBits(number) {
    let left = BigInt(number);
    let placed = 0n;
    for (const name of [...NODE_FIELDS].reverse()) {
      placed |= (left & lowBits(this.bits(name))) << this.shift(name);
      left >>= BigInt(this.bits(name));
    }
    return placed;
  }

  #field(id, name) {
    return id >> this.shift(name) & lowBits(this.bits(name));
  }

  /** The parts of an id, a bigint or its text.  Fields that the layout does not have are 0. */
  parse(id) {
    // BigInt() would take '' for 0
    const value = typeof id === 'bigint' ? id : BigInt(/^\d+$/.test(id) ? id : -1);
    if (Number.isInteger(id) && !Number.isSafeInteger(id)) {
      throw new RangeError(`id ${id} was rounded\nHint: Give it as a bigint or a text: a number has no more than 53 bits.`);
    }
    if (value < 0n || value > this.maxId) {
      throw new RangeError(`id ${id} is outside layout "${this}"\nDetail: Its ids are from 0 to ${this.maxId}.`);
    }
    const micros = this.epoch + this.#field(value, 'timestamp') * BigInt(this.tick);
    const node = NODE_FIELDS.reduce((sum, name) => sum << BigInt(this.bits(name)) | this.#field(value, name), 0n);
    const milliseconds = micros / 1000n - (micros % 1000n < 0n ? 1n : 0n);
    const timestamp = new Date(Number(milliseconds));
    if (Number.isNaN(timestamp.getTime())) throw new RangeError(`the time of id ${id} is after the year 275760`);
    if (node > Number.MAX_SAFE_INTEGER) throw new RangeError(`the node number of id ${id} has more than 53 bits`);
    return {
      timestamp,
      microseconds: micros,
      datacenterId: Number(this.#field(value, 'datacenter')),
      workerId: Number(this.#field(value, 'worker')),
      clock: Number(this.#field(value, 'clock')),
      sequence: Number(this.#field(value, 'sequence')),
      nodeNumber: Number(node),
    };
  }
}
