"""One call to the registry, as doc/protocol.md has it: the request as JSON, the answer checked.

A call is one connection and one statement that commits itself.  It has failed if anything but an
answer comes: an error, the warning that the commit is perhaps not on a synchronous standby, or nothing in
time.  What comes from there is not trusted: an answer counts only if each value of it is there and possible,
and texts that reach a log or an exception are short and printable.

It uses psycopg.pq, the wrapper of libpq, and not psycopg.Connection: there a call cannot be given a time for all
of it, and one that is cancelled waits for a server that may never answer.
"""
import json
import re
import selectors
import threading
import time
import uuid

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

# of getting a connection, and of the call then, in seconds
LOGIN_TIMEOUT = 15
CALL_TIMEOUT = 5
CANCEL_TIMEOUT = 1
TCP_USER_TIMEOUT = 4000                     # milliseconds
# how soon a call ends that is given up on
LOOK = 0.1
# of a call, if the one before has found the registry overloaded: if all give up on calls that it is busy with, it works
# for nobody
PATIENCE = 60

PROTOCOL = 1
LONGEST_ANSWER = 65_536
LONGEST_TEXT = 1_000
# no answer keeps a node away for longer, in microseconds
LONGEST_REFUSAL = 10_000_000
# the years 1 to 9999, in microseconds since 1970
FIRST_TIME, END_TIME = -62_135_596_800_000_000, 253_402_300_800_000_000
UUID = re.compile('[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}')
# what raises the warning that a commit is perhaps not on a synchronous standby: it has no SQLSTATE of its own
SYNC_REP_ROUTINE = b'SyncRepWaitForLSN'


class CallFailed(Exception):
    """There is no answer.  `overloaded`: the registry has no time, no connection or no server for a call yet."""

    def __init__(self, message, sqlstate='XX000', overloaded=None):
        super().__init__(printable(message))
        self.sqlstate = sqlstate
        self.overloaded = (re.match('08|40|53|57|55P03', sqlstate) is not None) if overloaded is None else overloaded


class GivenUp(CallFailed):
    """Nobody waits for the answer any more."""


def printable(text):
    """One line of at most LONGEST_TEXT characters, without those that control a terminal."""
    line = ' '.join(''.join(c if c.isprintable() else ' ' for c in text).split())
    return line if len(line) <= LONGEST_TEXT else line[:LONGEST_TEXT] + ' ...'


def call(conninfo, name, request, patience, given_up):
    """
    Makes the call `name` ('acquire', ...); returns its answer or raises CallFailed.  It waits for it for `patience`
    seconds, once there is a connection.  given_up() ends it early.
    """
    try:
        connection = pq.PGconn.connect_start(_with_timeout(conninfo).encode())
        try:
            # who stops does not wait for a login
            login = LOGIN_TIMEOUT if name != 'release' else CALL_TIMEOUT
            _connect(connection, time.monotonic() + login, login, given_up)
            answer = _ask(connection, name, json.dumps(request), patience, given_up)
        finally:
            connection.finish()
    except psycopg.Error as error:
        raise CallFailed(str(error), '08006') from error
    try:
        return _read(name, answer)
    except (ValueError, KeyError, RecursionError) as error:
        raise CallFailed(f'the registry gave an answer that cannot be read: {error}', '08P01') from error


def _with_timeout(conninfo):
    """A peer that is gone ends a connection before the call is over, also that of a cancel request."""
    settings = conninfo_to_dict(conninfo)
    if pq.version() >= 120000:
        settings.setdefault('tcp_user_timeout', TCP_USER_TIMEOUT)
    return make_conninfo(**settings)


def _wait(connection, events, deadline, given_up):
    """Until the socket is ready.  False: there is no time left."""
    with selectors.DefaultSelector() as selector:
        selector.register(connection.socket, events)
        while (left := deadline - time.monotonic()) > 0:
            if given_up():
                raise GivenUp('the call was given up on', '57014')
            if selector.select(min(left, LOOK)):
                return True
    return False


def _connect(connection, deadline, seconds, given_up):
    events = selectors.EVENT_WRITE
    reached = False
    while connection.status != pq.ConnStatus.BAD:
        reached = reached or connection.status not in (pq.ConnStatus.STARTED, pq.ConnStatus.NEEDED)
        if not _wait(connection, events, deadline, given_up):
            raise CallFailed(f'there was no connection to the registry within {seconds} s', '08006')
        status = connection.connect_poll()
        if status == pq.PollingStatus.OK:
            return
        events = selectors.EVENT_READ if status == pq.PollingStatus.READING else selectors.EVENT_WRITE
    # a server that is not there costs nothing to ask again; one that lets nobody in has perhaps too much to do
    raise CallFailed(connection.error_message.decode(errors='replace'), '08001', overloaded=reached)


def _ask(connection, name, request, patience, given_up):
    """The answer's text, once it is committed."""
    deadline = time.monotonic() + patience
    warnings = []
    connection.notice_handler = lambda notice: warnings.append(notice.error_message) if _fails(notice) else None
    connection.nonblocking = 1
    connection.send_query_params(f'SELECT snowflake.{name}_lease($1::pg_catalog.jsonb)::pg_catalog.text'.encode(),
                                 [request.encode()])
    results = []
    try:
        while connection.flush():
            _wait_or_fail(connection, selectors.EVENT_READ | selectors.EVENT_WRITE, deadline, patience, given_up)
            connection.consume_input()
        while True:
            while connection.is_busy():
                _wait_or_fail(connection, selectors.EVENT_READ, deadline, patience, given_up)
                connection.consume_input()
            result = connection.get_result()
            if result is None:
                break
            results.append(result)
            if result.status != pq.ExecStatus.TUPLES_OK:
                break                       # what is none of a call, such as COPY, would come again and again
    except CallFailed:
        _cancel(connection)
        raise
    # the commit comes after the rows: an error of it has a result of its own
    for result in results:
        if result.status != pq.ExecStatus.TUPLES_OK:
            state = result.error_field(pq.DiagnosticField.SQLSTATE) or b'08006'
            text = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message or b'the connection was closed'
            raise CallFailed(text.decode(errors='replace'), state.decode())
    if warnings:
        raise CallFailed(f'the call was committed with a warning: {warnings[0].decode(errors="replace")}', '08007')
    value = results[0].get_value(0, 0) if len(results) == 1 and results[0].ntuples == 1 else None
    if value is None:
        raise CallFailed('the registry gave no answer', '08P01')
    return value


def _wait_or_fail(connection, events, deadline, patience, given_up):
    if not _wait(connection, events, deadline, given_up):
        raise CallFailed(f'the registry did not answer within {patience:.0f} s', '08006')


def _fails(notice):
    """Whether a call with this message has failed.  If it does not say which routine it is of, each warning counts."""
    routine = notice.error_field(pq.DiagnosticField.SOURCE_FUNCTION)
    return (notice.error_field(pq.DiagnosticField.SEVERITY_NONLOCALIZED) in (None, b'WARNING')
            and routine in (None, SYNC_REP_ROUTINE))


def _cancel(connection):
    """
    Tells the server, which would go on with a call whose connection is closed, and others would wait for it.  That takes
    a connection of its own, which may hang where the call does: so it happens in another thread.  The C implementations
    of psycopg would stop all threads meanwhile: with them the connection is closed, and no more.
    """
    if pq.__impl__ != 'python':
        return
    cancel = connection.get_cancel()

    def run():
        try:
            cancel.cancel()
        except psycopg.Error:
            pass                            # it is given up on

    thread = threading.Thread(target=run, name='snowflake cancels', daemon=True)
    thread.start()
    thread.join(CANCEL_TIMEOUT)


def _read(name, text):
    """What an answer says; ValueError or KeyError if it is none."""
    if len(text) > LONGEST_ANSWER:
        raise ValueError(f'it has {len(text)} bytes, more than {LONGEST_ANSWER}')
    answer = json.loads(text)
    if type(answer) is not dict:
        raise ValueError('it is not an object')

    def number(key, least, greatest):
        value = answer.get(key)
        if type(value) is not int or not least <= value <= greatest:
            raise ValueError(f'{key} is not an integer from {least} to {greatest}')

    def matches(key, pattern, what):
        if type(answer.get(key)) is not str or not pattern.fullmatch(answer[key]):
            raise ValueError(f'{key} is not {what}')

    number('protocol', PROTOCOL, PROTOCOL)
    matches('answer', re.compile('yes|refused' if name == 'acquire' else 'yes|no|refused'), 'one that there is')
    matches('incarnation', UUID, 'a UUID')
    number('generation', 1, (1 << 31) - 1)
    number('clock', FIRST_TIME, END_TIME - 1)
    if answer['answer'] == 'refused':
        number('wait', 0, LONGEST_REFUSAL)
        matches('sqlstate', re.compile('(?!0[0-2])[0-9A-Z]{5}'), 'that of an error')
        for key in 'message', 'detail', 'hint':
            if type(answer.get(key, '' if key != 'message' else None)) is not str and (key == 'message' or answer[key] is not None):
                raise ValueError(f'{key} is not a text')
    elif answer['answer'] == 'no':
        matches('reason', re.compile('.*', re.DOTALL), 'a text')
    elif name != 'release':
        number('leased_until', FIRST_TIME, END_TIME - 1)
        if name == 'acquire':
            matches('token', UUID, 'a UUID')
            number('node_number', 0, (1 << 63) - 1)
            number('starts_at', FIRST_TIME, END_TIME - 1)
    return answer


def new_uuid():
    return str(uuid.uuid4())
