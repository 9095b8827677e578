import type { ClientConfig } from 'pg';

/** Why there is no id: see doc/programs.md. */
export type Reason = 'GAVE_UP' | 'TOO_FAR_AHEAD' | 'REFUSED' | 'NO_NUMBER_FREE' | 'FIELD_FULL' | 'CLOSED';

/** There is no id.  The message says what to do.  It is always right to try again later, but after CLOSED. */
export class SnowflakeError extends Error {
  private constructor();
  readonly reason: Reason;
}

/** What an id says.  Fields that the layout does not have are 0. */
export interface Parts {
  timestamp: Date;
  /** The timestamp exactly: microseconds since 1970-01-01 UTC. */
  microseconds: bigint;
  datacenterId: number;
  workerId: number;
  clock: number;
  sequence: number;
  nodeNumber: number;
}

/** The bit layout of an id: a preset, a preset with changes, or all parts; see doc/layouts.md. */
export class Layout {
  /** @throws {RangeError} if it is not valid; the message says what to do */
  constructor(definition: string);
  /** All parts, as the server writes them: equal layouts have equal ones. */
  get definition(): string;
  /** @throws {RangeError} if it is no id of this layout, or its time is too late for a Date or its number too large */
  parse(id: bigint | string): Parts;
}

export interface Options {
  /** What the registry's view shows; several programs can have the same. */
  name: string;
  /** That of the registry's nodes; default twitter. */
  layout?: string;
  /** Milliseconds: how long ids go on while the registry cannot be asked, at most; default 120,000. */
  leaseDuration?: number;
  /** Milliseconds: how far the time of an id may be ahead of the clock; default 1000. */
  maxAhead?: number;
  /** Milliseconds: how long one call waits, at most; default 5000. */
  maxWait?: number;
  /** Where the program runs; default what the machine says. */
  hostName?: string;
  /** Microseconds since 1970-01-01 UTC, for tests. */
  clock?: () => number;
  /** Called with each line of the log; default a warning of the process. */
  log?: (line: string) => void;
}

/** What a node has and does at one moment, for metrics and logs. */
export interface State {
  phase: 'starting' | 'ready' | 'retrying' | 'refused';
  /** Of the newest lease; -1 before the first. */
  nodeNumber: number;
  leasedUntil: Date | null;
  /** What the last call to the registry failed with, or was refused with. */
  problem: string | null;
}

/**
 * Makes ids in this process, as a node of a registry: 64-bit, time-ordered, and unique among those of all nodes of that
 * registry, servers and programs.  One object for a process is enough.
 */
export class Snowflake {
  /**
   * The first lease is taken in the background: next() waits for it.
   *
   * @param registry a connection string of the registry's database, or a configuration of pg's Client
   * @throws {RangeError} if the registry is missing or an option cannot be
   */
  constructor(registry: string | ClientConfig, options: Options);
  readonly layout: Layout;
  /**
   * The next id.  Waits for at most maxWait.
   *
   * @throws {SnowflakeError} if there is none; the message says why, and what to do
   */
  next(): Promise<bigint>;
  /** So many ids, 1 to 1,000,000, in order. */
  next(count: number): Promise<bigint[]>;
  /** The parts of an id of this layout. */
  parse(id: bigint | string): Parts;
  /** When the tick of an id begins. */
  time(id: bigint | string): Date;
  /** What the node has and does now.  Asks nobody. */
  state(): State;
  /**
   * Ends the lease where its ids end, so that the number is free at once, and waits for that for some seconds if the
   * registry is away.  No id is issued any more.  Safe to call twice.
   */
  close(): Promise<void>;
}
