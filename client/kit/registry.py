"""A scripted registry: as much of a PostgreSQL server as a driver needs for one call.

It speaks the wire protocol (startup without a password, simple and extended queries, cancel
requests), and answers the calls of doc/protocol.md as an honest registry does, unless a check says
otherwise: `answer` is a function of the call, and `at` says what happens at a step of a connection.
"""
import json
import re
import socket
import struct
import threading
import time
import uuid

MICROS = 1_000_000
LIMIT = 180 * MICROS

# where a connection can hang or be closed, in this order
STEPS = ('connect', 'startup', 'login', 'query', 'answer', 'end')

SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102
CALL = re.compile(r'snowflake\.(acquire|renew|release)_lease')
LITERAL = re.compile(r"\(\s*(?:CAST\(\s*)?(E?)'((?:[^']|'')*)'", re.I)


def now():
    return time.time_ns() // 1000


class Call:
    """One call as it came: its name, its JSON, when, and over which connection."""

    def __init__(self, name, request, connection):
        self.name = name
        self.request = request
        self.connection = connection
        self.at = time.monotonic()

    def __repr__(self):
        return f'{self.name} {json.dumps(self.request)}'


class Reply:
    """An answer, or rows with the same one, with messages of the server, each a dict of fields; or an error in its place."""

    def __init__(self, answer=None, notices=(), error=None, rows=1):
        self.answer = answer
        self.rows = rows
        self.notices = notices
        self.error = error


def error(sqlstate, message, severity='ERROR'):
    return {'S': severity, 'V': severity, 'C': sqlstate, 'M': message, 'R': 'exec_stmt_raise'}


def warning(message, routine):
    return {'S': 'WARNING', 'V': 'WARNING', 'C': '01000', 'M': message, 'R': routine}


def refused(message, wait=0.2, sqlstate='55000', detail='', hint=''):
    return {'protocol': 1, 'answer': 'refused', 'sqlstate': sqlstate, 'message': message,
            'detail': detail, 'hint': hint, 'wait': int(wait * MICROS)}


class _Over(Exception):
    """The connection ends."""


class _Connection:
    def __init__(self, registry, sock, number):
        self.registry = registry
        self.sock = sock
        self.number = number
        self.ended = threading.Event()      # by the node
        self.ended_at = None
        self.flooded = 0                    # bytes

    # messages

    def read(self, size):
        data = b''
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            if not more:
                self.note_end()
                raise _Over
            data += more
        return data

    def send(self, *messages):
        try:
            self.sock.sendall(b''.join(messages))
        except OSError:
            self.note_end()
            raise _Over from None

    def note_end(self):
        if not self.ended.is_set():
            self.ended_at = time.monotonic()
            self.ended.set()
        with self.registry.changed:
            self.registry.changed.notify_all()

    def step(self, name):
        """What the script has for this step."""
        what = self.registry.at.get(name)
        if what is None:
            return
        if what == 'close':
            raise _Over
        if what == 'hang':
            self.hang(3600)
            raise _Over
        if what == 'flood':
            self.flood()
        self.send(fields(b'E', what))
        raise _Over

    def flood(self):
        """A row of a gigabyte, until the node ends the connection."""
        size = 1 << 30
        self.send(struct.pack('!cihi', b'D', size, 1, size - 10))
        while self.flooded < size:
            self.send(bytes(1 << 16))
            self.flooded += 1 << 16

    def hang(self, seconds):
        """Says nothing, until the node ends the connection or for so long."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.sock.settimeout(left)
            try:
                if not self.sock.recv(65536):
                    break
            except socket.timeout:
                return
            except OSError:
                break
            finally:
                self.sock.settimeout(None)
        self.note_end()

    # one connection

    def serve(self):
        try:
            self.step('connect')
            if self.start():
                self.loop()
        except (_Over, ConnectionError, OSError):
            pass
        finally:
            self.note_end()
            self.sock.close()

    def start(self):
        while True:
            size, code = struct.unpack('!ii', self.read(8))
            rest = self.read(size - 8)
            if code in (SSL_REQUEST, GSS_REQUEST):
                self.send(b'N')
            elif code == CANCEL_REQUEST:
                self.registry.note_cancel(struct.unpack('!ii', rest)[0])
                return False
            else:
                break
        self.step('startup')
        status = {'server_version': '15.0', 'server_encoding': 'UTF8', 'client_encoding': 'UTF8', 'DateStyle': 'ISO, MDY',
                  'TimeZone': 'UTC', 'integer_datetimes': 'on', 'standard_conforming_strings': 'on', 'is_superuser': 'off',
                  'default_transaction_read_only': 'off', 'in_hot_standby': 'off'}
        self.send(message(b'R', struct.pack('!i', 0)),
                  *(message(b'S', text(k) + text(v)) for k, v in status.items()),
                  message(b'K', struct.pack('!ii', self.number, 1)))
        self.step('login')
        self.send(ready())
        return True

    def loop(self):
        statements, portals, waiting = {}, {}, []
        failed = False
        while True:
            kind, size = struct.unpack('!ci', self.read(5))
            body = self.read(size - 4)
            if kind == b'X':
                raise _Over
            if kind == b'Q':
                self.simple(body[:-1].decode())
                continue
            if kind == b'S':
                self.send(*waiting, ready())
                waiting, failed = [], False
                continue
            if failed or kind == b'H':
                continue
            if kind == b'P':
                name, rest = cut(body)
                statements[name] = cut(rest)[0]
                self.send(message(b'1', b''))
            elif kind == b'B':
                name, statement, values, formats = read_bind(body)
                portals[name] = statements[statement], values, formats
                self.send(message(b'2', b''))
            elif kind == b'D':
                name = body[1:-1].decode()
                sql = statements[name] if body[:1] == b'S' else portals[name][0]
                if body[:1] == b'S':
                    count = len(set(re.findall(r'\$\d+', sql)))
                    self.send(message(b't', struct.pack(f'!h{count}i', count, *[25] * count)))
                self.send(describe(sql))
            elif kind == b'E':
                sql, values, formats = portals[cut(body)[0]]
                out, waiting, failed = self.execute(sql, values, formats)
                self.send(*out)
            elif kind == b'C':
                self.send(message(b'3', b''))

    def simple(self, sql):
        if not sql.strip():
            self.send(message(b'I', b''), ready())
            return
        out, late, failed = self.execute(sql, None, [])
        # a simple query commits before its last word
        self.send(*([] if failed else [describe(sql)] if returns_row(sql) else []), *out[:-1], *late, out[-1], ready())

    def execute(self, sql, values, formats):
        """The messages of a statement, and those that come with its commit; whether it has failed."""
        found = CALL.search(sql)
        if not found:
            if re.match(r'\s*SHOW', sql, re.I):
                return [row(b'read committed'), complete('SHOW')], [], False
            if returns_row(sql):
                return [row(b'1'), complete('SELECT 1')], [], False
            return [complete(sql.split()[0].upper())], [], False
        given = values[0].lstrip(b'\x01').decode() if values else literal(sql)
        call = Call(found.group(1), json.loads(given), self)
        self.registry.note_call(call)
        self.step('query')
        reply = self.registry.answer(call)
        if not isinstance(reply, Reply):
            reply = Reply(reply)
        if reply.error:
            if reply.error['S'] == 'FATAL':
                self.send(fields(b'E', reply.error))
                raise _Over
            return [fields(b'E', reply.error)], [], True
        answer = reply.answer
        if isinstance(answer, dict):
            answer = json.dumps({'protocol': 1, 'incarnation': self.registry.incarnation,
                                 'generation': self.registry.generation, 'clock': now(), **answer})
        binary = formats and formats[0] == 1 and not is_text(sql)
        data = row(None if answer is None else b'\x01' * bool(binary) + answer.encode())
        if 'answer' in self.registry.at:
            self.send(*([describe(sql)] if values is None else []), data[:len(data) // 2])
            self.step('answer')
        if 'end' in self.registry.at:
            self.send(*([describe(sql)] if values is None else []), data)
            self.step('end')
        return [data] * reply.rows + [complete(f'SELECT {reply.rows}')], [fields(b'N', notice) for notice in reply.notices], False


class Registry:
    """A registry with leases in memory.  Checks replace `answer`, and set `at` and `limit`."""

    def __init__(self):
        self.incarnation = str(uuid.uuid4())
        self.generation = 1
        self.limit = LIMIT
        self.at = {}
        self.answer = self.honest
        self.calls = []
        self.cancels = []
        self.connections = []
        self.changed = threading.Condition()
        self.next_number = 100
        self.ends = {}                      # by number
        self.listener = None
        self.port = 0
        self.listen()

    def listen(self):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(('127.0.0.1', self.port))
        listener.listen(64)
        self.port = listener.getsockname()[1]
        self.listener = listener
        threading.Thread(target=self.accept, args=(listener,), daemon=True).start()

    def go_away(self):
        """Nobody listens any more."""
        listener, self.listener = self.listener, None
        if listener:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def accept(self, listener):
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = _Connection(self, sock, len(self.connections) + 1)
            self.connections.append(connection)
            connection.at = time.monotonic()
            with self.changed:
                self.changed.notify_all()
            threading.Thread(target=connection.serve, daemon=True).start()

    def note_call(self, call):
        with self.changed:
            self.calls.append(call)
            self.changed.notify_all()

    def note_cancel(self, number):
        with self.changed:
            self.cancels.append((number, time.monotonic()))
            self.changed.notify_all()

    def wait_for(self, condition, timeout=30, what='what the check waits for'):
        with self.changed:
            deadline = time.monotonic() + timeout
            while not condition():
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(f'{what} has not come within {timeout} s; calls: {self.calls[-4:]}')
                self.changed.wait(min(left, 0.1))

    def named(self, name):
        return [call for call in list(self.calls) if call.name == name]

    # answers

    def honest(self, call):
        return getattr(self, call.name)(call.request)

    def acquire(self, request):
        with self.changed:
            number = self.next_number
            self.next_number += 1
        lease = request.get('lease')
        is_own = lease and (lease['incarnation'], lease['generation']) == (self.incarnation, self.generation)
        least = [request['clock'] - 60 * MICROS, self.ends.get(number), request.get('starts_at'),
                 None if is_own else request.get('ids_end_at')]
        starts = max(time for time in least if time is not None)
        until = min(max(request['clock'], starts) + request['window'], max(request['clock'], now()) + self.limit)
        self.ends[number] = until
        return {'answer': 'yes', 'token': str(uuid.uuid4()), 'node_number': number, 'starts_at': starts,
                'leased_until': until}

    def renew(self, request):
        lease = request['lease']
        until = min(request['clock'] + request['window'], max(request['clock'], now()) + self.limit)
        until = max(until, lease['leased_until'])
        self.ends[lease['node_number']] = until
        return {'answer': 'yes', 'leased_until': until}

    def release(self, request):
        return {'answer': 'yes'}


# parts of messages

def text(value):
    return value.encode() + b'\0'


def message(kind, body):
    return kind + struct.pack('!i', len(body) + 4) + body


def fields(kind, values):
    return message(kind, b''.join(key.encode() + text(value) for key, value in values.items()) + b'\0')


def ready():
    return message(b'Z', b'I')


def complete(tag):
    return message(b'C', text(tag))


def row(value):
    size = -1 if value is None else len(value)
    return message(b'D', struct.pack('!hi', 1, size) + (value or b''))


def returns_row(sql):
    return re.match(r'\s*(SELECT|SHOW|WITH)', sql, re.I) is not None


def is_text(sql):
    return not CALL.search(sql) or re.search(r'(::\s*|\bas\s+)(pg_catalog\.)?text\b', sql, re.I) is not None


def describe(sql):
    if not returns_row(sql):
        return message(b'n', b'')
    oid, size = (25, -1) if is_text(sql) else (3802, -1)
    return message(b'T', struct.pack('!h', 1) + text('answer') + struct.pack('!ihihih', 0, 0, oid, size, -1, 0))


def literal(sql):
    escapes, value = LITERAL.search(sql).groups()
    value = value.replace("''", "'")
    return value.replace('\\\\', '\\') if escapes else value


def cut(body):
    """A text that ends with a zero byte, and what follows it."""
    value, rest = body.split(b'\0', 1)
    return value.decode(), rest


def read_bind(body):
    portal, rest = cut(body)
    statement, rest = cut(rest)

    def numbers(rest):
        count, = struct.unpack_from('!h', rest)
        return struct.unpack_from(f'!{count}h', rest, 2), rest[2 + 2 * count:]

    _, rest = numbers(rest)
    count, = struct.unpack_from('!h', rest)
    rest = rest[2:]
    values = []
    for _ in range(count):
        size, = struct.unpack_from('!i', rest)
        values.append(rest[4:4 + size] if size >= 0 else None)
        rest = rest[4 + max(size, 0):]
    return portal, statement, values, list(numbers(rest)[0])
