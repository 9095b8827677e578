/**
 * One call to the registry, as doc/protocol.md has it: the request as JSON, the answer checked.
 *
 * A call is one connection and one statement that commits itself.  It has failed if anything but an answer comes: an
 * error, the warning that the commit is perhaps not on a synchronous standby, or nothing in time.  What comes from there is
 * not trusted: an answer counts only if each value of it is there and possible, and texts that reach a log or an
 * error are short and printable.
 */
import net from 'node:net';
import pg from 'pg';

/** Of getting a connection, and of the call then, in milliseconds. */
export const LOGIN_TIMEOUT = 15_000;
export const CALL_TIMEOUT = 5_000;
const CANCEL_TIMEOUT = 1_000;

export const PROTOCOL = 1;
const LONGEST_ANSWER = 65_536;
/** Of all that comes in a connection, in bytes. */
const LONGEST_INPUT = 1 << 20;
const LONGEST_TEXT = 1_000;
/**
 * Of a call, if the one before has found the registry overloaded, in milliseconds: if all give up on calls that it is busy
 * with, it works for nobody.
 */
export const PATIENCE = 60_000;
/** No answer keeps a node away for longer, in microseconds. */
export const LONGEST_REFUSAL = 10_000_000;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
/** What raises the warning that a commit is perhaps not on a synchronous standby: it has no SQLSTATE of its own. */
const SYNC_REP_ROUTINE = 'SyncRepWaitForLSN';
/** Nobody listens, or the network is away: to ask again costs the registry nothing. */
const AWAY = ['ECONNREFUSED', 'EHOSTUNREACH', 'ENETUNREACH', 'ENOTFOUND', 'EAI_AGAIN', 'ENOENT'];

/** As snowflake.printable() of the registry has it: control and format characters, line ends, other spaces, ... */
export const NOT_PRINTABLE = new RegExp('[\\x00-\\x1f\\x7f-\\xa0\\xad\\u034f\\u0600-\\u0605\\u061c\\u06dd\\u070f\\u0890\\u0891\\u08e2'
  + '\\u115f\\u1160\\u1680\\u17b4\\u17b5\\u180b-\\u180f\\u2000-\\u200f\\u2028-\\u202f\\u205f-\\u206f\\u3000\\u3164\\ud800-\\udfff'
  + '\\ue000-\\uf8ff\\ufdd0-\\ufdef\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb\\ufffe\\uffff\\u{110bd}\\u{110cd}'
  + '\\u{13430}-\\u{1343f}\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{10ffff}]', 'u');

/** One line of at most LONGEST_TEXT characters, without those that control a terminal. */
export function printable(text) {
  const line = text.replace(/[\p{C}\p{Z}]+/gu, ' ').trim();
  return line.length <= LONGEST_TEXT ? line : `${line.slice(0, LONGEST_TEXT)} ...`;
}

/** There is no answer.  overloaded: the registry has no time, no connection or no server for a call yet. */
export class CallFailed extends Error {
  constructor(message, sqlState = 'XX000', overloaded = /^(08|40|53|57|55P03)/.test(sqlState), options = undefined) {
    super(printable(message), options);
    this.sqlState = sqlState;
    this.overloaded = overloaded;
  }

  /** What the driver has thrown. */
  static of(error) {
    if (error instanceof CallFailed) return error;
    // several addresses were tried
    const inner = error.errors?.[0] ?? error;
    const message = error.message || inner.message || String(error);
    if (AWAY.includes(inner.code)) return new CallFailed(message, '08001', false, { cause: error });
    // errors of the server have an SQLSTATE; all others are of the connection
    const sqlState = /^[0-9A-Z]{5}$/.test(inner.code) && inner.severity ? inner.code : '08006';
    return new CallFailed(message, sqlState, undefined, { cause: error });
  }
}

/** A call that can be given up. */
export class Call {
  #registry;
  #patience;
  #client;
  #givenUp = false;

  /**
   * @param registry a connection string, or a configuration of pg's Client
   * @param patience how long its answer is waited for, once there is a connection, in milliseconds
   */
  constructor(registry, name, request, patience) {
    this.#registry = typeof registry === 'string' ? { connectionString: registry } : registry;
    this.name = name;
    this.request = request;
    this.#patience = patience;
  }

  /** Its answer; rejects with a CallFailed. */
  async make() {
    // who stops does not wait for a login
    const login = this.name === 'release' ? CALL_TIMEOUT : LOGIN_TIMEOUT;
    let timer;
    let connected = false;
    try {
      const client = this.#client = new pg.Client({ ...this.#registry, connectionTimeoutMillis: 0 });
      const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new CallFailed(`there was no connection to the registry within ${login / 1000} s`,
          '08006')), login);
        // the connection can break at any time, also after the answer
        client.on('error', reject);
      });
      late.catch(() => {});
      bound(client);
      await Promise.race([client.connect(), late]);
      connected = true;
      // a program that ends without close() does not wait for an answer
      if (this.name !== 'release') client.connection.stream.unref();
      clearTimeout(timer);
      const answer = await this.#ask(client);
      return read(this.name, answer);
    } catch (error) {
      throw CallFailed.of(error);
    } finally {
      clearTimeout(timer);
      this.#end(connected);
    }
  }

  async #ask(client) {
    const warnings = [];
    let timer;
    client.on('notice', (notice) => {
      // 00000 is a notice; if it does not say which routine it is of, each warning counts
      if (!notice.code?.startsWith('00') && [undefined, SYNC_REP_ROUTINE].includes(notice.routine)) warnings.push(notice.message);
    });
    const broken = new Promise((_, reject) => {
      client.on('error', reject);
      client.on('end', () => reject(new CallFailed('the connection was closed', '08006')));
      timer = setTimeout(() => {
        this.#cancel();
        reject(new CallFailed(`the registry did not answer within ${Math.floor(this.#patience / 1000)} s`, '08006'));
      }, this.#patience);
      if (this.name !== 'release') timer.unref();
    });
    broken.catch(() => {});
    try {
      // it is settled when the server is ready again, and so after the commit
      const asked = client.query(`SELECT snowflake.${this.name}_lease($1::pg_catalog.jsonb)::pg_catalog.text AS answer`,
        [JSON.stringify(this.request)]);
      asked.catch(() => {});
      const { rows } = await Promise.race([asked, broken]);
      if (warnings.length > 0) throw new CallFailed(`the call was committed with a warning: ${warnings[0]}`, '08007');
      if (rows.length !== 1 || typeof rows[0].answer !== 'string') throw new CallFailed('the registry gave no answer', '08P01');
      return rows[0].answer;
    } finally {
      clearTimeout(timer);
    }
  }

  /** It may have been carried out, or still be: its number is used up, and its answer is not read. */
  giveUp() {
    this.#givenUp = true;
    this.#cancel();
    this.#end(false);
  }

  #end(politely) {
    const client = this.#client;
    // what was given up on is ended already
    if (!client || (politely && this.#givenUp)) return;
    client.on('error', () => {});
    if (politely) client.end().catch(() => {});
    // a server that hangs would keep it open
    const timer = setTimeout(() => client.connection.stream.destroy(), politely ? CANCEL_TIMEOUT : 0);
    client.once('end', () => clearTimeout(timer));
  }

  /** Tells the server, which would go on with a call whose connection is closed, and others would wait for it. */
  #cancel() {
    const { host, port, processID, secretKey } = this.#client ?? {};
    if (!processID) return;
    const request = Buffer.alloc(16);
    [16, 80877102, processID, secretKey].forEach((value, n) => request.writeInt32BE(value, 4 * n));
    const socket = host.startsWith('/') ? net.connect(`${host}/.s.PGSQL.${port}`) : net.connect(port, host);
    socket.on('error', () => {});
    socket.setTimeout(CANCEL_TIMEOUT, () => socket.destroy());
    socket.end(request);
  }
}

/** The driver would keep an answer without end until there is no memory. */
function bound({ connection, ssl }) {
  connection.once(ssl ? 'sslconnect' : 'connect', () => {
    const { stream } = connection;
    let received = 0;
    stream.on('data', (data) => {
      received += data.length;
      if (received > LONGEST_INPUT) stream.destroy(new CallFailed(`the registry has sent more than ${LONGEST_INPUT} bytes`, '08P01'));
    });
  });
}

/** What an answer says; CallFailed if it is none. */
function read(name, text) {
  const wrong = (what) => new CallFailed(`the registry gave an answer that cannot be read: ${what}`, '08P01');
  if (text.length > LONGEST_ANSWER) throw wrong(`it has ${text.length} characters, more than ${LONGEST_ANSWER}`);
  let answer;
  try {
    answer = JSON.parse(text);
  } catch (error) {
    throw wrong(error.message);
  }
  if (answer === null || typeof answer !== 'object' || Array.isArray(answer)) throw wrong('it is not an object');

  // integers that a number cannot have exactly are none of a lease: times end in 2255
  const number = (key, least, greatest) => {
    const value = answer[key];
    if (!Number.isSafeInteger(value) || value < least || value > greatest) {
      throw wrong(`${key} is not an integer from ${least} to ${greatest}`);
    }
  };
  const time = (key) => number(key, Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER);
  const matches = (key, pattern, what) => {
    if (typeof answer[key] !== 'string' || !pattern.test(answer[key])) throw wrong(`${key} is not ${what}`);
  };

  number('protocol', PROTOCOL, PROTOCOL);
  matches('answer', name === 'acquire' ? /^(yes|refused)$/ : /^(yes|no|refused)$/, 'one that there is');
  matches('incarnation', UUID, 'a UUID');
  number('generation', 1, 2 ** 31 - 1);
  time('clock');
  if (answer.answer === 'refused') {
    number('wait', 0, LONGEST_REFUSAL);
    matches('sqlstate', /^(?!0[0-2])[0-9A-Z]{5}$/, 'that of an error');
    matches('message', /^/, 'a text');
    for (const key of ['detail', 'hint']) {
      answer[key] ??= '';
      matches(key, /^/, 'a text');
    }
  } else if (answer.answer === 'no') {
    matches('reason', /^/, 'a text');
  } else if (name !== 'release') {
    time('leased_until');
    if (name === 'acquire') {
      matches('token', UUID, 'a UUID');
      number('node_number', 0, Number.MAX_SAFE_INTEGER);
      time('starts_at');
    }
  }
  return answer;
}
