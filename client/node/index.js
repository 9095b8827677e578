/**
 * A node of a registry: makes ids in this process, under leases that are taken and renewed in the background.
 *
 * Why no id is issued twice.  All state belongs to one thread, and changes between two awaits only.  An id is issued only
 * by Node.#take(), of a tick that begins at or after the lease's startsAt, ends at or before its leasedUntil, and comes
 * after the last one.  Only the result of a call, if it is the last one that was made, opens a lease or moves its end, never
 * past what was asked for.  A lease whose end may have been said (idsEndAt is set: it is sealed) is never opened or
 * renewed again.  So a process may stop anywhere, for any time: what it hands out late is still of the lease's time, which
 * no other lease of the number has.
 *
 * Times are microseconds: of clocks since 1970-01-01 UTC; monotonic ones since any time.
 */
import { randomInt, randomUUID } from 'node:crypto';
import os from 'node:os';
import process from 'node:process';
import { CALL_TIMEOUT, Call, CallFailed, LONGEST_REFUSAL, NOT_PRINTABLE, PATIENCE, PROTOCOL, printable } from './call.js';
import { Layout } from './layout.js';

export { Layout };

const SECOND = 1_000_000;
const MAX_BATCH = 1_000_000;
/** A first lease is short, so that crashes in a row use up few numbers. */
const FIRST_WINDOW = 10 * SECOND;
/** What a lease lasts beyond what can be used at once. */
const RESERVE = SECOND;
/** It is renewed when about this part of the window is used. */
const RENEW_DIVISOR = 4;
/** After a failure the next call follows after about RETRY; while the registry is overloaded, twice as long each time. */
const RETRY = SECOND;
const LONGEST_RETRY = 12 * SECOND;
const LEAST_REFUSAL = SECOND / 10;
/** While ids can go on, no call waits longer than this part of what is left of the lease. */
const LEFT_DIVISOR = 3;
/** Who waits asks again at least so often; who has not asked for longer than WANTED has gone. */
const ASK_AGAIN = SECOND / 2;
const WANTED = 2 * SECOND;
/** The clock is looked at so often. */
const LONGEST_SLEEP = SECOND;
/** If the clock is behind by more than a call may wait, and than this, another number is taken; so often at most. */
const LEAST_MOVE = SECOND;
const MOVE_AGAIN = SECOND;
/** No registry lets a lease start later than this after the first id that the clock does not allow yet. */
const LATEST_START = 10 * SECOND;
/** Errors that do not go away by waiting for maxWait. */
const LASTING = ['22023', '3D000', '3F000', '42501', '42883', '55000'];
/** What lasts is logged so often. */
const LOG_AGAIN = 60 * SECOND;
const ENDED_NUMBERS = 16;
/** So that a number has each time exactly. */
const FIRST_EPOCH = BigInt(Date.UTC(1900)) * 1000n;

/** There is no id.  The message says what to do.  It is always right to try again later, but after 'CLOSED'. */
export class SnowflakeError extends Error {
  constructor(reason, message, options) {
    super(message, options);
    this.name = 'SnowflakeError';
    this.reason = reason;
  }
}

const monotonic = () => Math.round(performance.now() * 1000);
const wallClock = () => Date.now() * 1000;
/** A random time that is a quarter shorter to a quarter longer. */
const spread = (mean) => mean - Math.floor(mean / 4) + randomInt(Math.floor(mean / 2) + 1);
/** The latest of some times, of which each can be null. */
const later = (...times) => times.reduce((a, b) => (a === null || (b !== null && b > a) ? b : a), null);
/** A time; some that a layout has are later than all dates. */
const show = (micros) => {
  const date = new Date(Math.floor(micros / 1000));
  return Number.isNaN(date.getTime()) ? `${micros} microseconds after 1970-01-01 UTC` : date.toISOString();
};
const seconds = (micros) => (micros / SECOND).toFixed(3);

/** The state of one start, and what keeps its lease. */
class Node {
  constructor(registry, layout, name, hostName, leaseDuration, maxAhead, maxWait, clock, log) {
    Object.assign(this, { registry, layout, name, hostName, maxAhead, maxWait, clock, log });
    this.tickLength = layout.tick;
    this.epoch = Number(layout.epoch);
    this.maxTick = Number(layout.maxTick);
    this.timestampShift = layout.shift('timestamp');
    this.sequenceShift = layout.shift('sequence');
    this.fullWindow = Math.max(leaseDuration, maxAhead + layout.tick + RESERVE);

    this.start = randomUUID();
    this.launchedAt = clock();
    this.callNumber = 0;
    this.call = null; // that is out
    this.uses = null; // the registry of the last lease
    this.lease = null; // the newest that was opened
    this.closing = false;
    this.released = false;
    this.ended = new Promise((resolve) => { this.end = resolve; });
    // the last id, or what stands for the one before the first
    this.tick = 0;
    this.sequence = 0;
    this.issued = false; // under this lease
    this.prefix = { tick: -1, bits: 0n };
    this.knownUntil = null; // where ids of leases that are over end: all of them,
    this.floor = null; // those of which the lease's registry may have no row,
    this.numberEnds = new Map(); // and by number
    this.problem = null;
    this.refusedUntil = 0;
    this.retryAt = 0;
    this.overloads = 0;
    this.wantedAt = -Infinity;
    this.movedAt = -Infinity;
    this.answeredBy = null;
    this.newestGeneration = 0;
    this.logged = new Map(); // when, by what
    this.waiting = new Set(); // who wants an id
    this.timer = null;
    this.asked = null;
  }

  //
  // Ids
  //

  get isOpen() {
    return this.lease !== null && this.lease.idsEndAt === null;
  }

  #begin(tick) {
    return this.epoch + tick * this.tickLength;
  }

  /** Appends up to count ids of one tick.  Or says why there is none, and how long until the clock allows it. */
  #take(count, ids) {
    const now = this.clock(); // first: it is a program's, and may call us
    if (!this.isOpen) return ['sealed', 0];
    const { maxSequence } = this.layout;
    let tick = this.tick;
    let sequence = this.sequence + 1;
    const tickNow = Math.floor((now - this.epoch) / this.tickLength);
    if (tickNow > tick) {
      // the low bits go on, so that ids of a slow program differ in them; with 0, a double would hold the id by chance
      tick = tickNow;
      sequence = maxSequence >= 15 ? Math.max(sequence & 15, 1) : 0;
    } else if (sequence > maxSequence) {
      tick += 1;
      sequence = 0;
    }
    const ahead = this.#begin(tick) - now;
    if (ahead > this.maxAhead) return ['ahead', ahead - this.maxAhead];
    if (tick > this.maxTick) return ['full', 0];
    if (this.#begin(tick + 1) > this.lease.leasedUntil) return ['over', 0];
    const last = Math.min(sequence + count - 1, maxSequence);
    this.tick = tick;
    this.sequence = last;
    this.issued = true;
    if (this.prefix.tick !== tick) {
      this.prefix = { tick, bits: BigInt(tick) << this.timestampShift | this.lease.nodeBits };
    }
    for (let n = sequence; n <= last; n++) ids.push(this.prefix.bits | BigInt(n) << this.sequenceShift);
    return [null, 0];
  }

  /** Appends ids until there are count.  Returns 0, or how long to wait at most; throws if that is of no use. */
  attempt(ids, count, remaining) {
    let outcome = null;
    let need = 0;
    while (ids.length < count && outcome === null) [outcome, need] = this.#take(count - ids.length, ids);
    if (outcome === null) return 0;
    if (this.closing) throw new SnowflakeError('CLOSED', 'this Snowflake is closed\nHint: Close it after the last id.');
    const phase = this.phase();
    if (outcome === 'ahead' && need <= remaining) return need;
    this.ask();
    if (outcome === 'full') throw this.#fieldFull();
    if (outcome === 'ahead') {
      // then another number is taken
      if (remaining <= 0 || need <= Math.max(this.maxWait, LEAST_MOVE) || phase !== 'ready') throw this.#tooFarAhead(need);
      return remaining;
    }
    if (phase === 'refused' && this.refusedUntil - monotonic() > remaining) throw this.#refusal();
    if (remaining <= 0) throw this.#gaveUp(outcome, phase);
    return remaining;
  }

  /** An id is wanted: what is due is looked at again, once who asks waits. */
  ask() {
    this.wantedAt = monotonic();
    this.asked ??= setImmediate(() => {
      this.asked = null;
      this.keep();
    });
  }

  /** Until something has changed, at most for some microseconds. */
  change(micros) {
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        this.waiting.delete(wake);
        resolve();
      };
      // not below 1 ms; it keeps the process running, as no other timer here does
      const timer = setTimeout(wake, Math.max(Math.ceil(Math.min(micros, ASK_AGAIN) / 1000), 1));
      this.waiting.add(wake);
    });
  }

  phase() {
    const { problem } = this;
    const over = this.lease === null || this.lease.leasedUntil <= this.clock();
    if (this.isOpen && !(over && problem?.refused)) return problem ? 'retrying' : 'ready';
    if (!problem) return 'starting';
    return problem.refused || problem.lasting ? 'refused' : 'retrying';
  }

  #refusal() {
    const { refused, lasting, sqlState, message, cause } = this.problem;
    let reason = 'GAVE_UP';
    // what it is called: nothing depends on it
    if (refused || lasting) reason = sqlState === '53400' ? 'NO_NUMBER_FREE' : 'REFUSED';
    const what = this.isOpen ? `could not extend the lease of node number ${this.lease.nodeNumber}`
      : 'could not get a node number from the registry';
    return new SnowflakeError(reason, `${what}: ${message}`, { cause });
  }

  #gaveUp(outcome, phase) {
    if (this.problem && (phase === 'retrying' || phase === 'refused')) return this.#refusal();
    const what = outcome === 'sealed' ? 'a node number' : 'the lease to be extended';
    return new SnowflakeError('GAVE_UP', `gave up waiting for ${what}\nDetail: maxWait is ${seconds(this.maxWait)} s.\n`
      + "Hint: Try again, or raise maxWait.  See whether the registry's database answers.");
  }

  #fieldFull() {
    return new SnowflakeError('FIELD_FULL', `the timestamp field of layout "${this.layout}" is full\nDetail: Its last tick ends at`
      + ` ${show(this.#begin(this.maxTick + 1))}.\n`
      + 'Hint: Correct the clock if it is ahead; else choose a layout with a later end.');
  }

  #tooFarAhead(need) {
    return new SnowflakeError('TOO_FAR_AHEAD', `the next id would be ${seconds(need + this.maxAhead)} s ahead of the clock\n`
      + `Detail: maxAhead allows ${seconds(this.maxAhead)} s; the clock is there in ${seconds(need)} s, maxWait is`
      + ` ${seconds(this.maxWait)} s.\nHint: If the clock was set back, ids go on when it has caught up.  If too many ids`
      + ' are needed, choose a layout with more sequence bits.');
  }

  //
  // The lease
  //

  /** The first id is of the first tick that begins at or after startsAt. */
  #open(lease) {
    this.lease = lease;
    this.prefix = { tick: -1, bits: 0n };
    this.tick = Math.max(Math.ceil((lease.startsAt - this.epoch) / this.tickLength), 0) - 1;
    this.sequence = this.layout.maxSequence;
    this.issued = false;
  }

  /** From then on no id is issued, and the end of the lease's ids is known. */
  #seal() {
    const { lease } = this;
    if (!this.isOpen) return;
    lease.idsEndAt = lease.startsAt;
    if (!this.issued) return;
    lease.idsEndAt = this.#begin(this.tick + 1);
    this.knownUntil = later(this.knownUntil, lease.idsEndAt);
    this.numberEnds.set(lease.nodeNumber, lease.idsEndAt);
    if (this.numberEnds.size > ENDED_NUMBERS) {
      const [first] = [...this.numberEnds].sort(([, a], [, b]) => a - b);
      this.numberEnds.delete(first[0]);
    }
  }

  /** Does what is due: a call, or a wait. */
  keep() {
    clearTimeout(this.timer);
    this.timer = null;
    try {
      if (this.call !== null && !this.#givesUpRenewal()) return;
      const due = this.#decide();
      // the clock has closed it, and the release is out
      if (this.call !== null) return;
      if (due === null) this.end();
      else if (typeof due === 'number') this.#sleep(due);
      else this.#make(due);
    } catch (error) {
      this.#broken(error);
      this.#sleep(RETRY);
    }
  }

  /** A renewal that hangs keeps nobody from another number. */
  #givesUpRenewal() {
    if (this.call.name !== 'renew') return false;
    const now = this.clock(); // it can close, and the renewal is over
    const { call } = this;
    if (call?.name !== 'renew' || !this.isOpen || !this.#mustMove(now, monotonic())) return false;
    this.call = null;
    call.giveUp();
    return true;
  }

  /** At most for some microseconds. */
  #sleep(micros) {
    if (this.call !== null) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.keep(), Math.ceil(Math.min(micros, LONGEST_SLEEP) / 1000));
    this.timer.unref();
  }

  /** A call to make; or how long to wait; null: it is over. */
  #decide() {
    const now = this.clock();
    const at = monotonic();
    if (this.closing) {
      this.#seal();
      if (this.lease === null || this.released) return null;
      this.released = true;
      return this.#request('release', now, 0);
    }
    if (this.isOpen && this.#mustMove(now, at)) {
      this.movedAt = at;
      this.#seal();
    }
    if (!this.isOpen) {
      if (this.retryAt > at) return this.retryAt - at;
      if (now < this.epoch) {
        this.#failed({
          message: `the first tick of the layout begins at ${show(this.epoch)}, which is to come.`
            + '  Hint: Correct the clock if it is behind; else choose an earlier epoch.',
          sqlState: '55000', refused: false, lasting: true,
        }, spread(RETRY), at);
        this.#changed();
        return RETRY;
      }
      return this.#request('acquire', now, this.#firstWindow());
    }
    if (!this.#renewalIsDue(now, at)) {
      // the clock was set back: what has failed is not due any more
      this.problem = null;
      return Math.max(this.lease.leasedUntil - now - this.#renewLeft(), SECOND / 10);
    }
    if (this.retryAt > at) return this.retryAt - at;
    return this.#request('renew', now, this.#nextWindow());
  }

  /** Whether the clock is so far behind the last id that nobody gets one, and another number helps. */
  #mustMove(now, at) {
    const next = this.sequence < this.layout.maxSequence ? this.tick : this.tick + 1;
    const behind = this.#begin(next) - this.maxAhead - now;
    return at - this.wantedAt < WANTED && at - this.movedAt >= MOVE_AGAIN
      && behind > Math.max(this.maxWait, LEAST_MOVE) && (this.issued || behind > LATEST_START + SECOND);
  }

  #firstWindow() {
    return this.overloads > 0 ? this.fullWindow : Math.min(this.fullWindow, FIRST_WINDOW);
  }

  #nextWindow() {
    return Math.max(Math.min(2 * this.lease.window, this.fullWindow), this.#firstWindow());
  }

  #renewLeft() {
    return this.lease.window - this.lease.renewAfter;
  }

  #renewalIsDue(now, at) {
    const left = this.lease.leasedUntil - now;
    // the registry counts the window as this does
    if (Math.max(now, this.lease.startsAt) + this.#nextWindow() <= this.lease.leasedUntil + this.tickLength) return false;
    const wanted = at - this.wantedAt < WANTED;
    return (wanted && left <= this.maxAhead + 2 * this.tickLength) || left <= this.#renewLeft();
  }

  #request(name, now, window) {
    // used up before it is sent, whatever becomes of the call
    this.callNumber += 1;
    const { lease } = this;
    const request = {
      protocol: PROTOCOL, start: this.start, call: this.callNumber, layout: this.layout.definition, lease: null,
    };
    if (lease !== null) {
      request.lease = {
        token: lease.token, node_number: lease.nodeNumber, granted_by: lease.grantedBy, incarnation: lease.incarnation,
        generation: lease.generation, leased_until: lease.leasedUntil,
      };
      if (name !== 'renew') request.lease.ids_end_at = lease.idsEndAt;
    }
    if (name !== 'release') Object.assign(request, { clock: now, max_ahead: this.maxAhead + this.tickLength, window });
    if (name === 'acquire') {
      Object.assign(request, {
        kind: 'program', name: this.name, host_name: this.hostName, launched_at: this.launchedAt, first_number: 0,
        last_number: this.layout.lastNumber, fixed: false, uses: this.uses, ids_end_at: this.knownUntil, starts_at: this.floor,
      });
    }
    return new Call(this.registry, name, request, name === 'release' ? CALL_TIMEOUT : this.#patience(now));
  }

  /** How long an answer is waited for, in milliseconds. */
  #patience(now) {
    const left = this.isOpen ? this.lease.leasedUntil - now : 0;
    // a third of what is left, while ids can go on; else half of the window: a lease that comes later is soon over
    const most = left > 0 ? left / LEFT_DIVISOR : this.fullWindow / 2;
    return this.overloads === 0 ? CALL_TIMEOUT : Math.min(Math.max(most / 1000, CALL_TIMEOUT), PATIENCE);
  }

  async #make(call) {
    this.call = call;
    let answer;
    try {
      answer = await call.make();
    } catch (failure) {
      answer = failure;
    }
    // the result of a call that was given up on is not read
    if (this.call !== call) return;
    this.call = null;
    try {
      this.#result(call, answer);
    } catch (error) {
      this.#broken(error);
    }
    this.#changed();
    this.keep();
  }

  /** Nobody has foreseen it, such as a clock that throws.  A lease that was not opened is never opened. */
  #broken(error) {
    this.problem = { message: printable(String(error)), sqlState: 'XX000', refused: false, lasting: false, cause: error };
    this.retryAt = monotonic() + RETRY;
  }

  /** The result of the call that is out: an answer, or why there is none. */
  #result({ name, request }, answer) {
    const at = monotonic();
    if (answer instanceof Error) {
      this.#callFailed(CallFailed.of(answer));
    } else {
      this.#lookAt(request, answer);
      // the clock has closed it: the release that is out names no lease that comes now
      if (this.closing && name !== 'release') return;
      if (answer.answer === 'refused') {
        this.#refused(answer, at);
      } else if (name === 'acquire') {
        this.#granted(request, answer);
      } else if (name === 'renew' && answer.answer === 'no') {
        // what it refused before is not so now
        this.#succeeded();
        this.#seal();
      } else if (name === 'renew') {
        this.#renewed(request, answer, at);
      }
    }
    this.#tell('call', this.problem?.message, 'ready again');
  }

  #changed() {
    for (const wake of [...this.waiting]) wake();
  }

  #succeeded() {
    this.problem = null;
    this.overloads = 0;
    this.retryAt = 0;
  }

  #failed(problem, wait, at) {
    const left = this.isOpen ? this.lease.leasedUntil - this.clock() : 0;
    this.problem = problem;
    // while ids can go on, unless so little is left that this would be no wait
    this.retryAt = at + (left > 0 ? Math.min(wait, Math.max(Math.floor(left / LEFT_DIVISOR), spread(RETRY))) : wait);
    this.refusedUntil = problem.lasting ? Infinity : at;
  }

  #callFailed(failure) {
    this.overloads = failure.overloaded ? this.overloads + 1 : 0;
    this.#failed({
      message: failure.message, sqlState: failure.sqlState, refused: false, lasting: LASTING.includes(failure.sqlState),
      cause: failure.cause,
    }, spread(Math.min(RETRY * 2 ** this.overloads, LONGEST_RETRY)), monotonic());
  }

  #refused({ message, detail, hint, sqlstate: sqlState, wait }, at) {
    const text = printable(message) + (detail && `.  Detail: ${printable(detail)}`) + (hint && `  Hint: ${printable(hint)}`);
    this.overloads = 0;
    this.#failed({ message: text, sqlState, refused: true, lasting: wait >= LONGEST_REFUSAL },
      Math.min(Math.max(spread(wait), LEAST_REFUSAL), LONGEST_REFUSAL), at);
    this.refusedUntil = Math.max(this.refusedUntil, at + wait);
  }

  #isAkin(answer) {
    return this.lease !== null && this.lease.incarnation === answer.incarnation && this.lease.generation === answer.generation;
  }

  /** Why no registry grants such a lease to this call; null: one can. */
  #notAskedFor(request, { node_number: number, starts_at: startsAt, leased_until: until, ...answer }) {
    const least = later(this.floor, this.numberEnds.get(number) ?? null, this.#isAkin(answer) ? null : this.knownUntil);
    const latest = request.clock + request.max_ahead + LATEST_START;
    if (number > this.layout.lastNumber) return `node number ${number}, asked for was one from 0 to ${this.layout.lastNumber}`;
    if (startsAt > until) return `it starts at ${show(startsAt)} and ends at ${show(until)}`;
    // each of them would be the reason for a next call, at once
    if (until <= request.clock) return `it starts at ${show(startsAt)} and had ended at ${show(until)}, before it was asked for`;
    if (least !== null && startsAt < least) return `it starts at ${show(startsAt)}, ids of this start end at ${show(least)}`;
    if (startsAt > latest) return `it starts at ${show(startsAt)}, asked for was one that starts at or before ${show(latest)}`;
    return null;
  }

  #granted(request, answer) {
    const why = this.#notAskedFor(request, answer);
    if (why !== null) {
      this.#callFailed(new CallFailed(`the registry granted a lease that was not asked for: ${why}.  See which server answers`
        + ' there, and whether somebody has changed the functions in its schema snowflake.', '55000'));
      return;
    }
    this.#succeeded();
    // the registry has heard of the ids before, and counts them for this lease only
    if (this.lease !== null && !this.#isAkin(answer)) this.floor = later(this.floor, this.knownUntil);
    this.uses = answer.incarnation;
    const lease = {
      grantedBy: request.call, token: answer.token, incarnation: answer.incarnation, generation: answer.generation,
      nodeNumber: answer.node_number, nodeBits: this.layout.nodeBits(answer.node_number), startsAt: answer.starts_at,
      leasedUntil: Math.min(answer.leased_until, askedUntil(request, answer.starts_at)),
      idsEndAt: null, // once it is sealed
    };
    this.#noteWindow(lease, request);
    this.#open(lease);
  }

  #renewed(request, answer, at) {
    const { lease } = this;
    const asked = askedUntil(request, lease.startsAt);
    this.#succeeded();
    // it gave less than was asked for: not again at once
    if (answer.leased_until < asked) this.retryAt = at + spread(RETRY);
    // more is no failure: the answer to another renewal was lost
    lease.leasedUntil = Math.max(lease.leasedUntil, Math.min(answer.leased_until, asked));
    this.#noteWindow(lease, request);
  }

  /** The lease is renewed by what it has got, which the registry's limit for ends may have cut. */
  #noteWindow(lease, request) {
    const got = lease.leasedUntil - Math.max(request.clock, lease.startsAt);
    lease.window = Math.max(Math.min(got, request.window), 0);
    lease.renewAfter = spread(Math.floor(lease.window / RENEW_DIVISOR));
    if (lease.window < request.window && !this.logged.has('cut')) {
      this.#tell('cut', `a lease of ${seconds(request.window)} s was asked for, and the registry has cut it to`
        + ` ${seconds(lease.window)} s, by its limit for ends.  Hint: Set leaseDuration to less than that limit, or raise it:`
        + ' see snowflake.limit_leases() in doc/reference.md.  If the clock of this program is ahead, correct it.');
    }
  }

  //
  // What people are told.  Nothing is decided by it.
  //

  #lookAt(request, answer) {
    if (answer.incarnation !== this.answeredBy) {
      this.answeredBy = answer.incarnation;
      this.newestGeneration = 0;
    }
    this.newestGeneration = Math.max(this.newestGeneration, answer.generation);
    this.#tell('generation', answer.generation < this.newestGeneration && `the registry has answered as of generation`
      + ` ${answer.generation}, though it was in generation ${this.newestGeneration} before: a former primary of it was started`
      + ' again.  Hint: Stop that server: see "Failover" in doc/operations.md.',
    'the registry answers as of its newest generation again');
    const differ = Math.max(answer.clock - this.clock(), (request.clock ?? answer.clock) - answer.clock);
    this.#tell('clock', differ > this.fullWindow && `the clocks of this program and of the registry differ by ${seconds(differ)} s.`
      + '  Hint: Correct the one that is wrong.', 'the clocks agree again');
    if (answer.answer === 'no' && answer.reason === 'rolled back' && this.lease !== null) {
      const { nodeNumber, startsAt, leasedUntil } = this.lease;
      this.#tell('rolled back', `the registry does not know that node number ${nodeNumber} is leased to this program from`
        + ` ${show(startsAt)} until ${show(leasedUntil)}: its storage was rolled back, or another server is a copy of it.`
        + '  Hint: See "Failover" in doc/operations.md.');
    }
  }

  /** The first time, then at most once a minute, and when it is over. */
  #tell(what, message, over) {
    const at = monotonic();
    const last = this.logged.get(what);
    if (message && (last === undefined || at - last >= LOG_AGAIN)) {
      this.logged.set(what, at);
      this.#write(message);
    } else if (!message && over && last !== undefined) {
      this.logged.delete(what);
      this.#write(over);
    }
  }

  /** Not now, in the middle of a change: the log is a program's, and may call us or throw. */
  #write(line) {
    queueMicrotask(() => {
      try {
        this.log(`snowflake ${this.name}: ${line}`);
      } catch (error) {
        process.emitWarning(`the log of snowflake ${this.name} has failed: ${printable(String(error))}`, 'SnowflakeWarning');
      }
    });
  }

  //
  // The end
  //

  /** No id is issued any more.  A call that is out is given up. */
  close() {
    if (!this.closing) {
      this.closing = true;
      this.#seal();
      const { call } = this;
      this.call = null;
      call?.giveUp();
      this.#changed();
      this.keep();
    }
    return this.ended;
  }
}

function askedUntil(request, startsAt) {
  return Math.max(request.clock, startsAt) + request.window;
}

function checkText(what, text) {
  const length = typeof text === 'string' ? Buffer.byteLength(text) : 0;
  if (length < 1 || length > 255 || NOT_PRINTABLE.test(text)) {
    throw new RangeError(`invalid ${what}: "${printable(String(text))}"\nHint: It has 1 to 255 bytes of printable characters.`);
  }
  return text;
}

/** Milliseconds, as microseconds. */
function checkSpan(what, span, least, greatest) {
  if (!(span >= least && span <= greatest)) {
    throw new RangeError(`${what} is ${span} ms\nHint: It is from ${least} to ${greatest} ms.`);
  }
  return Math.round(span * 1000);
}

const forgotten = new FinalizationRegistry((node) => node.close());

/** See index.d.ts. */
export class Snowflake {
  #node;

  constructor(registry, {
    name, layout = 'twitter', leaseDuration = 120_000, maxAhead = 1000, maxWait = 5000, hostName = undefined,
    clock = wallClock, log = (line) => process.emitWarning(line, 'SnowflakeWarning'),
  }) {
    // pg would take an empty one for the database that the environment names
    if (!(typeof registry === 'string' ? registry.trim() : Object.keys(registry ?? {}).length)) {
      throw new RangeError("there is no connection string of the registry\nHint: Give one of the registry's database.");
    }
    const chosen = new Layout(layout);
    if (!chosen.isIssuable || chosen.epoch < FIRST_EPOCH) {
      throw new RangeError(`the layout "${layout}" is for parsing only\nDetail: Ids are issued with a worker field and a tick of at`
        + " most 1s, and an epoch of 1900 or later.\nHint: Take the layout of the registry's other nodes.");
    }
    const host = hostName ?? (NOT_PRINTABLE.test(os.hostname()) ? 'unknown' : os.hostname() || 'unknown');
    this.layout = chosen;
    this.#node = new Node(registry, chosen, checkText('name', name), checkText('host name', host),
      checkSpan('leaseDuration', leaseDuration, 1000, 86_400_000), checkSpan('maxAhead', maxAhead, 0, 3_600_000),
      checkSpan('maxWait', maxWait, 0, 86_400_000), clock, log);
    forgotten.register(this, this.#node);
    this.#node.keep();
  }

  async next(count = undefined) {
    const node = this.#node;
    const wanted = count === undefined ? 1 : this.#check(count);
    const ids = [];
    let wait = node.attempt(ids, wanted, node.maxWait);
    if (wait > 0) {
      const deadline = monotonic() + node.maxWait;
      while (wait > 0) {
        await node.change(wait);
        wait = node.attempt(ids, wanted, deadline - monotonic());
      }
    }
    return count === undefined ? ids[0] : ids;
  }

  /** Refuses what could not be issued even if nothing else were. */
  #check(count) {
    if (!Number.isInteger(count) || count < 1 || count > MAX_BATCH) {
      throw new RangeError(`batch of ${count} ids is out of range\nHint: Ask for 1 to ${MAX_BATCH} ids at a time.`);
    }
    const { maxAhead, maxWait } = this.#node;
    const most = Math.max(Math.floor((maxAhead + maxWait) / this.layout.tick), 1) * (this.layout.maxSequence + 1);
    if (count > most) {
      throw new RangeError(`batch of ${count} ids is too large for layout "${this.layout}"\nDetail: Within maxAhead and maxWait it`
        + ` holds at most ${most} ids.\nHint: Ask for at most ${most} ids at a time.`);
    }
    return count;
  }

  parse(id) {
    return this.layout.parse(id);
  }

  time(id) {
    return this.layout.parse(id).timestamp;
  }

  state() {
    const { lease, problem } = this.#node;
    return {
      phase: this.#node.phase(),
      nodeNumber: lease?.nodeNumber ?? -1,
      leasedUntil: lease && new Date(Math.floor(lease.leasedUntil / 1000)),
      problem: problem?.message ?? null,
    };
  }

  async close() {
    let timer;
    const late = new Promise((resolve) => { timer = setTimeout(resolve, CALL_TIMEOUT + 1000); });
    await Promise.race([this.#node.close(), late]);
    clearTimeout(timer);
    // the usual log writes in another turn, and the program may exit at once
    await new Promise((resolve) => { setImmediate(resolve); });
  }
}
