"""
A node of a registry: makes ids in this process, under leases that a thread takes and renews.

Why no id is issued twice.  All state is below one lock.  An id is issued only by _Node._take(), of a tick that begins
at or after the lease's starts_at, ends at or before its leased_until, and comes after the last one.  Only the result of a
call opens a lease or moves its end (_Node._granted, _renewed), never past what was asked for.  A lease whose end may
have been said (ids_end_at is set: it is sealed) is never opened or renewed again.  So a process may stop anywhere, for any
time: what it hands out late is still of the lease's time, which no other lease of the number has.

Times are microseconds: of clocks since 1970-01-01 UTC; monotonic ones since any time.
"""
import asyncio
import enum
import logging
import operator
import os
import random
import re
import socket
import threading
import time
import weakref
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, Optional

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from .call import CALL_TIMEOUT, LONGEST_REFUSAL, PATIENCE, PROTOCOL, CallFailed, GivenUp, call, new_uuid, printable
from .layout import UNIX_EPOCH, Layout

SECOND = 1_000_000
MAX_BATCH = 1_000_000
# a first lease is short, so that crashes in a row use up few numbers
FIRST_WINDOW = 10 * SECOND
# what a lease lasts beyond what can be used at once
RESERVE = SECOND
# it is renewed when about this part of the window is used
RENEW_DIVISOR = 4
# after a failure the next call follows after about RETRY; while the registry is overloaded, twice as long each time
RETRY, LONGEST_RETRY = SECOND, 12 * SECOND
LEAST_REFUSAL = SECOND // 10
# while ids can go on, no call waits longer than this part of what is left of the lease
LEFT_DIVISOR = 3
# a thread that waits asks again at least so often; who has not asked for twice as long has gone
ASK_AGAIN = SECOND // 2
WANTED = 2 * SECOND
# the thread that keeps the lease looks at the clock at least so often
LONGEST_SLEEP = SECOND
# if the clock is behind by more than a call may wait, and than this, another number is taken; so often at most
LEAST_MOVE = MOVE_AGAIN = SECOND
# no registry lets a lease start later than this after the first id that the clock does not allow yet
LATEST_START = 10 * SECOND
# errors that do not go away by waiting for max_wait
LASTING = {'22023', '3D000', '3F000', '42501', '42883', '55000'}
# what lasts is logged so often
LOG_AGAIN = 60 * SECOND
# tasks of asyncio look so often, in seconds
POLL = 0.02
# as snowflake.printable() of the registry has it: control and format characters, line ends, other spaces, ...
NOT_PRINTABLE = re.compile(
    '[\\x00-\\x1f\\x7f-\\xa0\\xad\\u034f\\u0600-\\u0605\\u061c\\u06dd\\u070f\\u0890\\u0891\\u08e2\\u115f\\u1160\\u1680\\u17b4\\u17b5'
    '\\u180b-\\u180f\\u2000-\\u200f\\u2028-\\u202f\\u205f-\\u206f\\u3000\\u3164\\ud800-\\udfff\\ue000-\\uf8ff\\ufdd0-\\ufdef'
    '\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb\\ufffe\\uffff\\U000110bd\\U000110cd\\U00013430-\\U0001343f'
    '\\U0001bca0-\\U0001bca3\\U0001d173-\\U0001d17a\\U000e0000-\\U0010ffff]')

logger = logging.getLogger('snowflake_ids')
# each node draws its own waits, whatever seed the program has set
_random = random.SystemRandom()
_nodes = weakref.WeakSet()
_new_process = threading.Lock()


class Reason(enum.Enum):
    """Why there is no id."""

    GAVE_UP = 'max_wait is over, and no lease was granted or extended'
    TOO_FAR_AHEAD = 'the clock was set back, or more ids are needed than the layout has'
    REFUSED = 'the registry refuses: somebody must act, or time pass'
    NO_NUMBER_FREE = 'the registry refuses: all node numbers are leased'
    FIELD_FULL = 'the timestamp field of the layout is full, or the clock is wrong'
    CLOSED = 'close() was called'


class SnowflakeError(Exception):
    """There is no id.  The message says what to do.  It is always right to try again later, but after CLOSED."""

    def __init__(self, reason, message):
        super().__init__(message)
        self.reason = reason


class State(NamedTuple):
    """What a node has and does at one moment, for metrics and logs."""

    phase: str                              # starting, ready, retrying or refused
    node_number: int                        # of the newest lease; -1 before the first
    leased_until: Optional[datetime]
    problem: Optional[str]                  # what the last call failed with, or was refused with


class _Problem(NamedTuple):
    message: str
    sqlstate: str
    refused: bool = False                   # the registry has answered so: somebody must act, or time pass
    lasting: bool = False                   # waiting is of no use, or nobody knows


@dataclass
class _Lease:
    """A node number for a span of id time: ids are of ticks from starts_at to leased_until."""

    granted_by: int
    token: str
    incarnation: str
    generation: int
    node_number: int
    starts_at: int
    leased_until: int
    asked: int = 0                          # how long the last call has asked for
    window: int = 0                         # what it has got
    renew_after: int = 0                    # it is renewed when so much of the window is used
    ids_end_at: Optional[int] = None        # once it is sealed


def monotonic():
    return time.monotonic_ns() // 1000


def wall_clock():
    return time.time_ns() // 1000


def _spread(mean):
    """A random time that is a quarter shorter to a quarter longer."""
    return mean - mean // 4 + _random.randrange(mean // 2 + 1)


def _later(*times):
    return max((time for time in times if time is not None), default=None)


def _show(micros):
    """A time; some that a layout has are later than all dates."""
    try:
        return (UNIX_EPOCH + timedelta(microseconds=micros)).isoformat().replace('+00:00', 'Z')
    except OverflowError:
        return f'{micros} microseconds after 1970-01-01 UTC'


class _Node:
    """The state of one start, and the thread that keeps its lease."""

    def __init__(self, registry, layout, name, host_name, lease_duration, max_ahead, max_wait, clock):
        self.registry = registry
        self.layout = layout
        self.name = name
        self.host_name = host_name
        self.max_ahead = max_ahead
        self.max_wait = max_wait
        self.clock = clock
        self.full_window = max(lease_duration, max_ahead + layout.tick + RESERVE)
        self.uses = None                    # the registry of the last lease
        self.closing = False
        self.begin_process()
        _nodes.add(self)

    def begin_process(self):
        """In the child of a process that forks, too: there are no other threads, which may have held the lock."""
        # A signal handler or a __del__ can interrupt a thread that has the lock, and would wait for ever.  It is taken
        # by itself: a Condition does it in a function of Python's, which an exception of a handler could leave with it.
        self.lock = lock = threading.RLock()
        self.busy = False                           # ids or the end of the lease change: not to be interrupted
        self.event = threading.Condition(lock)      # the keeper waits for it
        self.changed = threading.Condition(lock)    # who wants an id waits for it
        self.thread = None
        self.begin()
        self.pid = os.getpid()

    def look_at_process(self):
        """Before the lock is taken: a fork by native code, such as uWSGI's, does not call _forked()."""
        if self.pid != os.getpid():
            with _new_process:
                if self.pid != os.getpid():
                    self.begin_process()

    def begin(self):
        """A new start, which knows of no lease."""
        self.start = new_uuid()
        self.launched_at = self.clock()
        self.call_number = 0
        self.lease = None                   # the newest that was opened
        self.released = self.ended = False
        # the last id, or what stands for the one before the first
        self.node_bits = self.tick = self.sequence = 0
        self.issued = False                 # under this lease
        self.known_until = None             # where ids of leases that are over end: all of them,
        self.floor = None                   # those of which the lease's registry may have no row,
        self.number_ends = {}               # and by number
        self.problem = None
        self.refused_until = self.retry_at = 0
        self.overloads = 0
        self.wanted_at = self.moved_at = -MOVE_AGAIN * 1000
        self.answered_by, self.newest_generation = None, 0
        self.logged = {}                    # when, by what
        self.lines = []                     # to be logged, without the lock

    # Ids.  All this is called below the lock.

    def is_open(self):
        return self.lease is not None and self.lease.ids_end_at is None

    def _next(self):
        """Tick and sequence of the next id, if the clock stands still."""
        if self.sequence < self.layout.max_sequence:
            return self.tick, self.sequence + 1
        return self.tick + 1, 0

    def _take(self, count, ids):
        """Appends up to count ids of one tick.  Or says why there is none, and how long until the clock allows it."""
        layout = self.layout
        if not self.is_open():
            return 'sealed', 0
        tick, sequence = self._next()
        now = self.clock()
        tick_now = (now - layout.epoch) // layout.tick
        if tick_now > self.tick:
            # the low bits go on, so that ids of a slow program differ in them; with 0, a double would hold the id by chance
            tick, sequence = tick_now, max(self.sequence + 1 & 15, 1) if layout.max_sequence >= 15 else 0
        ahead = layout.begin(tick) - now
        if ahead > self.max_ahead:
            return 'ahead', ahead - self.max_ahead
        if tick > layout.max_tick:
            return 'full', 0
        if layout.begin(tick + 1) > self.lease.leased_until:
            return 'over', 0
        count = min(count, layout.max_sequence - sequence + 1)
        self.tick, self.sequence, self.issued = tick, sequence + count - 1, True
        shift = layout.shift['sequence']
        first = tick << layout.shift['timestamp'] | self.node_bits | sequence << shift
        ids.extend(range(first, first + (count << shift), 1 << shift))
        return None, 0

    def attempt(self, lock, ids, count, remaining):
        """
        Appends ids until there are count, below a lock.  Returns 0, or how long to wait at most; raises if that is of no
        use.
        """
        if self.busy:
            raise SnowflakeError(Reason.GAVE_UP, 'an id is wanted by what has interrupted the making of another one\n'
                                 'Hint: Do not call next() in a signal handler or in __del__.')
        try:
            self.busy = True
            return self._attempt(ids, count, remaining)
        finally:
            self.busy = False
            # a signal handler can have forked: then two processes are here, with the same ids; each has its own lock
            if self.lock is not lock or self.pid != os.getpid():
                raise SnowflakeError(Reason.GAVE_UP, 'the process was forked while an id was made\nHint: Do not fork in a signal'
                                     ' handler.')

    def _attempt(self, ids, count, remaining):
        if self.closing:
            raise SnowflakeError(Reason.CLOSED, 'this Snowflake is closed\nHint: Close it after the last id.')
        outcome = need = None
        while len(ids) < count:
            outcome, need = self._take(count - len(ids), ids)
            if outcome:
                break
        else:
            return 0
        phase = self.phase()
        if outcome == 'ahead' and need <= remaining:
            return need
        self.ask()
        if outcome == 'full':
            raise self._field_full()
        if outcome == 'ahead':
            # then the keeper takes another number
            if remaining <= 0 or need <= max(self.max_wait, LEAST_MOVE) or phase != 'ready':
                raise self._too_far_ahead(need)
            return remaining
        if phase == 'refused' and self.refused_until - monotonic() > remaining:
            raise self._refusal()
        if remaining <= 0:
            raise self._gave_up(outcome, phase)
        return remaining

    def ask(self):
        """An id is wanted: the keeper looks again."""
        self.wanted_at = monotonic()
        if self.thread is None or not self.thread.is_alive():
            thread = threading.Thread(target=_keep, args=(self,), name=f'snowflake {self.name}', daemon=True)
            # before it starts, which a signal handler can interrupt: of two keepers the later one goes on
            self.thread = thread
            thread.start()
        self.event.notify()

    def phase(self):
        over = self.lease is None or self.lease.leased_until <= self.clock()
        problem = self.problem
        if self.is_open() and not (over and problem and problem.refused):
            return 'retrying' if problem else 'ready'
        if problem is None:
            return 'starting'
        return 'refused' if problem.refused or problem.lasting else 'retrying'

    def _refusal(self):
        reason = Reason.GAVE_UP
        if self.problem.refused or self.problem.lasting:
            # what it is called: nothing depends on it
            reason = Reason.NO_NUMBER_FREE if self.problem.sqlstate == '53400' else Reason.REFUSED
        what = (f'could not extend the lease of node number {self.lease.node_number}' if self.is_open()
                else 'could not get a node number from the registry')
        return SnowflakeError(reason, f'{what}: {self.problem.message}')

    def _gave_up(self, outcome, phase):
        if self.problem and phase in ('retrying', 'refused'):
            return self._refusal()
        what = 'a node number' if outcome == 'sealed' else 'the lease to be extended'
        return SnowflakeError(Reason.GAVE_UP, f'gave up waiting for {what}\nDetail: max_wait is {self.max_wait / SECOND:.3f} s.\n'
                              "Hint: Try again, or raise max_wait.  See whether the registry's database answers.")

    def _field_full(self):
        end = self.layout.begin(self.layout.max_tick + 1)
        return SnowflakeError(Reason.FIELD_FULL, f'the timestamp field of layout "{self.layout}" is full\nDetail: Its last tick ends'
                              f' at {_show(end)}.\nHint: Correct the clock if it is ahead; else choose a layout with a later end.')

    def _too_far_ahead(self, need):
        return SnowflakeError(
            Reason.TOO_FAR_AHEAD, f'the next id would be {(need + self.max_ahead) / SECOND:.3f} s ahead of the clock\n'
            f'Detail: max_ahead allows {self.max_ahead / SECOND:.3f} s; the clock is there in {need / SECOND:.3f} s,'
            f' max_wait is {self.max_wait / SECOND:.3f} s.\nHint: If the clock was set back, ids go on when it has caught up.'
            '  If too many ids are needed, choose a layout with more sequence bits.')

    # The lease.  All this is called below the lock, by the keeper and, for the end, by who closes.

    def _open(self, lease):
        """The first id is of the first tick that begins at or after starts_at."""
        layout = self.layout
        self.node_bits = layout.node_bits(lease.node_number)
        self.tick = max(-(-(lease.starts_at - layout.epoch) // layout.tick), 0) - 1
        self.sequence = layout.max_sequence
        self.issued = False
        # at last, since it opens it
        self.lease = lease

    def seal(self):
        """From then on no id is issued, and the end of the lease's ids is known."""
        lease = self.lease
        if not self.is_open():
            return
        try:
            self.busy = True
            end = lease.starts_at
            if self.issued:
                end = self.layout.begin(self.tick + 1)
                self.known_until = _later(self.known_until, end)
                self.number_ends[lease.node_number] = end
                if len(self.number_ends) > 16:
                    del self.number_ends[min(self.number_ends, key=self.number_ends.get)]
            # at last, since an exception of a signal handler can come anywhere: then it is not sealed
            lease.ids_end_at = end
        finally:
            self.busy = False

    def decide(self):
        """What is due: a call, as its name and what it says; or how long to wait; None: it is over."""
        now, at = self.clock(), monotonic()
        if self.closing:
            self.seal()
            if self.lease is None or self.released:
                return None
            self.released = True
            return self._request('release', now, 0)
        if self.is_open() and self._must_move(now, at):
            self.moved_at = at
            self.seal()
        if not self.is_open():
            if self.retry_at > at:
                return self.retry_at - at
            if now < self.layout.epoch:
                self._failed(_Problem(f'the first tick of the layout begins at {_show(self.layout.epoch)}, which is to come.'
                                      '  Hint: Correct the clock if it is behind; else choose an earlier epoch.',
                                      '55000', lasting=True), _spread(RETRY), at)
                return RETRY
            return self._request('acquire', now, self._first_window())
        if not self._renewal_is_due(now, at):
            # the clock was set back: what has failed is not due any more
            self.problem = None
            return max(self.lease.leased_until - now - self._renew_left(), SECOND // 10)
        if self.retry_at > at:
            return self.retry_at - at
        return self._request('renew', now, self._next_window())

    def _must_move(self, now, at):
        """Whether the clock is so far behind the last id that nobody gets one, and another number helps."""
        behind = self.layout.begin(self._next()[0]) - self.max_ahead - now
        return (at - self.wanted_at < WANTED and at - self.moved_at >= MOVE_AGAIN
                and behind > max(self.max_wait, LEAST_MOVE) and (self.issued or behind > LATEST_START + SECOND))

    def gives_up(self, name):
        """Whether the call that is out is of no use any more.  A renewal that hangs keeps nobody from another number."""
        if self.closing or name != 'renew':
            return self.closing and name != 'release'
        with self.lock:
            return self.is_open() and self._must_move(self.clock(), monotonic())

    def _first_window(self):
        return self.full_window if self.overloads else min(self.full_window, FIRST_WINDOW)

    def _next_window(self):
        return max(min(2 * self.lease.window, self.full_window), self._first_window())

    def _renew_left(self):
        return self.lease.window - self.lease.renew_after

    def _renewal_is_due(self, now, at):
        lease, tick = self.lease, self.layout.tick
        left = lease.leased_until - now
        # the registry counts the window as this does
        if max(now, lease.starts_at) + self._next_window() <= lease.leased_until + tick:
            return False
        wanted = at - self.wanted_at < WANTED
        return wanted and left <= self.max_ahead + 2 * tick or left <= self._renew_left()

    def _request(self, name, now, window):
        # used up before it is sent, whatever becomes of the call
        self.call_number += 1
        lease = self.lease
        request = {'protocol': PROTOCOL, 'start': self.start, 'call': self.call_number, 'layout': self.layout.definition,
                   'lease': None}
        if lease is not None:
            request['lease'] = {'token': lease.token, 'node_number': lease.node_number, 'granted_by': lease.granted_by,
                                'incarnation': lease.incarnation, 'generation': lease.generation,
                                'leased_until': lease.leased_until}
            if name != 'renew':
                request['lease']['ids_end_at'] = lease.ids_end_at
        if name != 'release':
            request.update(clock=now, max_ahead=self.max_ahead + self.layout.tick, window=window)
        if name == 'acquire':
            request.update(kind='program', name=self.name, host_name=self.host_name, launched_at=self.launched_at,
                           first_number=0, last_number=self.layout.last_number, fixed=False, uses=self.uses,
                           ids_end_at=self.known_until, starts_at=self.floor)
        return name, request

    def take(self, name, request, answer):
        """The result of the call: an answer, or why there is none."""
        if request is not None and (request['start'], request['call']) != (self.start, self.call_number):
            return                          # only the last call counts
        at = monotonic()
        if isinstance(answer, CallFailed):
            self._call_failed(answer, at)
        else:
            self._look_at(request, answer)
            if answer['answer'] == 'refused':
                self._refused(answer, at)
            elif name == 'acquire':
                self._granted(request, answer, at)
            elif name == 'renew' and answer['answer'] == 'no':
                # what it refused before is not so now
                self._succeeded()
                self.seal()
            elif name == 'renew' and self.is_open():
                self._renewed(request, answer, at)
        if self.closing:
            # nobody gets an id of what came just now
            self.seal()
        self._log('call', self.problem and self.problem.message, 'ready again')
        self.changed.notify_all()

    def _succeeded(self):
        self.problem, self.overloads, self.retry_at = None, 0, 0

    def _failed(self, problem, wait, at):
        self.problem = problem
        left = self.lease.leased_until - self.clock() if self.is_open() else 0
        # while ids can go on, unless so little is left that this would be no wait
        if left > 0:
            wait = min(wait, max(left // LEFT_DIVISOR, _spread(RETRY)))
        self.retry_at = at + wait
        self.refused_until = float('inf') if problem.lasting else at

    def _call_failed(self, failure, at):
        self.overloads = self.overloads + 1 if failure.overloaded else 0
        self._failed(_Problem(str(failure), failure.sqlstate, lasting=failure.sqlstate in LASTING),
                     _spread(min(RETRY << min(self.overloads, 16), LONGEST_RETRY)), at)

    def patience(self, name):
        """How long an answer is waited for, in seconds."""
        if not self.overloads or name == 'release':
            return CALL_TIMEOUT
        left = self.lease.leased_until - self.clock() if self.is_open() else 0
        # a third of what is left, while ids can go on; else half of the window: a lease that comes later is soon over
        most = left / LEFT_DIVISOR if left > 0 else self.full_window / 2
        return min(max(most / SECOND, CALL_TIMEOUT), PATIENCE)

    def _refused(self, answer, at):
        message = printable(answer['message'])
        for label, key in ('.  Detail: ', 'detail'), ('  Hint: ', 'hint'):
            message += label + printable(answer[key]) if answer.get(key) else ''
        wait = answer['wait']
        self.overloads = 0
        self._failed(_Problem(message, answer['sqlstate'], True, wait >= LONGEST_REFUSAL),
                     min(max(_spread(wait), LEAST_REFUSAL), LONGEST_REFUSAL), at)
        self.refused_until = max(self.refused_until, at + wait)

    def _not_asked_for(self, request, answer):
        """Why no registry grants such a lease to this call; None: one can."""
        number, starts_at, until = answer['node_number'], answer['starts_at'], answer['leased_until']
        lease = self.lease
        is_akin = lease and (lease.incarnation, lease.generation) == (answer['incarnation'], answer['generation'])
        least = _later(self.floor, self.number_ends.get(number), None if is_akin else self.known_until)
        latest = request['clock'] + request['max_ahead'] + LATEST_START
        if number > self.layout.last_number:
            return f'node number {number}, asked for was one from 0 to {self.layout.last_number}'
        if starts_at > until:
            return f'it starts at {_show(starts_at)} and ends at {_show(until)}'
        if until <= request['clock']:
            # each of them would be the reason for a next call, at once
            return f'it starts at {_show(starts_at)} and had ended at {_show(until)}, before it was asked for'
        if least is not None and starts_at < least:
            return f'it starts at {_show(starts_at)}, ids of this start end at {_show(least)}'
        if starts_at > latest:
            return f'it starts at {_show(starts_at)}, asked for was one that starts at or before {_show(latest)}'
        return None

    def _granted(self, request, answer, at):
        why = self._not_asked_for(request, answer)
        if why:
            self._call_failed(CallFailed(
                f'the registry granted a lease that was not asked for: {why}.  See which server answers there, and whether'
                ' somebody has changed the functions in its schema snowflake.', '55000'), at)
            return
        self._succeeded()
        # the registry has heard of the ids before, and counts them for this lease only
        if self.lease and (self.lease.incarnation, self.lease.generation) != (answer['incarnation'], answer['generation']):
            self.floor = _later(self.floor, self.known_until)
        self.uses = answer['incarnation']
        lease = _Lease(request['call'], answer['token'], answer['incarnation'], answer['generation'], answer['node_number'],
                       answer['starts_at'], min(answer['leased_until'], self._asked_until(request, answer['starts_at'])))
        self._note_window(lease, request)
        self._open(lease)

    def _renewed(self, request, answer, at):
        self._succeeded()
        lease = self.lease
        asked = self._asked_until(request, lease.starts_at)
        # it gave less than was asked for: not again at once
        if answer['leased_until'] < asked:
            self.retry_at = at + _spread(RETRY)
        # more is no failure: the answer to another renewal was lost
        lease.leased_until = max(lease.leased_until, min(answer['leased_until'], asked))
        self._note_window(lease, request)

    @staticmethod
    def _asked_until(request, starts_at):
        return max(request['clock'], starts_at) + request['window']

    def _note_window(self, lease, request):
        """The lease is renewed by what it has got, which the registry's limit for ends may have cut."""
        lease.asked = request['window']
        got = lease.leased_until - max(request['clock'], lease.starts_at)
        lease.window = max(min(got, lease.asked), 0)
        lease.renew_after = _spread(lease.window // RENEW_DIVISOR)
        if lease.window < lease.asked and 'cut' not in self.logged:
            self._log('cut', f'a lease of {lease.asked / SECOND:.3f} s was asked for, and the registry has cut it to'
                      f' {lease.window / SECOND:.3f} s, by its limit for ends.  Hint: Set lease_duration to less than that limit, or'
                      ' raise it: see snowflake.limit_leases() in doc/reference.md.  If the clock of this program is ahead,'
                      ' correct it.')

    # What people are told.  Nothing is decided by it.

    def _look_at(self, request, answer):
        if answer['incarnation'] != self.answered_by:
            self.answered_by, self.newest_generation = answer['incarnation'], 0
        self.newest_generation = max(self.newest_generation, answer['generation'])
        older = answer['generation'] < self.newest_generation
        self._log('generation', older and f'the registry has answered as of generation {answer["generation"]}, though it was in'
                  f' generation {self.newest_generation} before: a former primary of it was started again.  Hint: Stop that'
                  ' server: see "Failover" in doc/operations.md.', 'the registry answers as of its newest generation again')
        differ = max(answer['clock'] - self.clock(), request.get('clock', answer['clock']) - answer['clock'])
        self._log('clock', differ > self.full_window and f'the clocks of this program and of the registry differ by'
                  f' {differ / SECOND:.3f} s.  Hint: Correct the one that is wrong.', 'the clocks agree again')
        lease = self.lease
        if answer['answer'] == 'no' and answer['reason'] == 'rolled back' and lease:
            self._log('rolled back', f'the registry does not know that node number {lease.node_number} is leased to this program from'
                      f' {_show(lease.starts_at)} until {_show(lease.leased_until)}: its storage was rolled back, or another server'
                      ' is a copy of it.  Hint: See "Failover" in doc/operations.md.')

    def _log(self, what, message, over=None):
        """The first time, then at most once a minute, and when it is over."""
        at = monotonic()
        last = self.logged.get(what)
        if message and (last is None or at - last >= LOG_AGAIN):
            self.logged[what] = at
            self.lines.append((logging.WARNING, message))
        elif not message and over and last is not None:
            del self.logged[what]
            self.lines.append((logging.INFO, over))

    # The end

    def close(self, seconds):
        """No id is issued any more.  Waits until the number is given back, at most for so long."""
        self.look_at_process()
        with self.lock:
            self.closing = True
            if self.busy:
                # what this has interrupted goes on first; the keeper looks soon
                return
            self.seal()
            self.event.notify()
            self.changed.notify_all()
            # the keeper itself can close, in the log or the clock of the program: it would wait for its own end
            if self.thread not in (None, threading.current_thread()) and self.thread.is_alive():
                self.changed.wait_for(lambda: self.ended, seconds)

    def forget(self):
        """Nobody has it any more.  Takes no lock, since the garbage collector calls it anywhere; the keeper looks soon."""
        self.closing = True


def _keep(node):
    """The keeper: makes the calls that are due.  In a thread, as long as the node is wanted."""
    while True:
        try:
            if not _step(node):
                return
        except Exception as error:              # nobody has foreseen it: this start ends, as by a crash
            logger.exception('snowflake %s: the lease keeper has failed', node.name)
            time.sleep(1)                       # it can fail again at once
            with node.lock:
                if node.thread is not threading.current_thread():
                    return
                node.begin()
                node.take('acquire', None, CallFailed(f'the lease keeper has failed: {type(error).__name__}: {error}'))


def _step(node):
    """One look, and a call or a wait.  False: it is over."""
    with node.lock:
        if node.thread is not threading.current_thread():
            return False
        due = node.decide()
        patience = None if due is None or isinstance(due, int) else node.patience(due[0])
        lines, node.lines = node.lines, []
        if due is None and not lines:
            node.ended = True
            node.changed.notify_all()
            return False
        if isinstance(due, int) and not lines:
            node.event.wait(min(due, LONGEST_SLEEP) / SECOND)
    # a log can block
    for level, line in lines:
        logger.log(level, 'snowflake %s: %s', node.name, line)
    if due is None or isinstance(due, int):
        return True
    name, request = due
    try:
        conninfo = node.registry() if callable(node.registry) else node.registry
        _check_registry(conninfo)
        # a call that is given up on may still be carried out: its number is used up, and its answer is not read
        answer = call(conninfo, name, request, patience, lambda: node.gives_up(name))
    except GivenUp:
        return True
    except CallFailed as failure:
        answer = failure
    except Exception as error:                  # of registry()
        answer = CallFailed(f'{type(error).__name__}: {error}')
    with node.lock:
        node.take(name, request, answer)
    return True


def _forked():
    """In the child: it is another start, and issues nothing under the lease of its parent."""
    for node in list(_nodes):
        node.begin_process()


if hasattr(os, 'register_at_fork'):
    os.register_at_fork(after_in_child=_forked)


class Snowflake:
    """
    Makes ids in this process, as a node of a registry: 64-bit, time-ordered, and unique among those of all nodes of that
    registry, servers and programs.  One object for a process is enough: any thread and any task may use it.

    registry: a connection string of the registry's database, or a function that returns one.
    layout: that of the registry's nodes.  name, host_name: what the registry shows.
    lease_duration, max_ahead, max_wait: seconds; see doc/programs.md.
    """

    def __init__(self, registry, *, name, layout='twitter', lease_duration=120, max_ahead=1, max_wait=5, host_name=None,
                 clock=wall_clock):
        if not callable(registry):
            _check_registry(registry)
        chosen = Layout(layout)
        if not chosen.is_issuable:
            raise ValueError(f'the layout "{layout}" is for parsing only\nDetail: Ids are issued with a worker field and a tick'
                             " of at most 1s.\nHint: Take the layout of the registry's other nodes.")
        self.layout = chosen
        if host_name is None:
            host_name = socket.gethostname()
            host_name = host_name if _is_text(host_name) else 'unknown'
        for what, text in ('name', name), ('host name', host_name):
            if not _is_text(text):
                raise ValueError(f'invalid {what}: "{printable(str(text))}"\nHint: It has 1 to 255 bytes of printable characters.')
        spans = []
        for what, span, least, greatest in (('lease_duration', lease_duration, 1, 86400), ('max_ahead', max_ahead, 0, 3600),
                                            ('max_wait', max_wait, 0, 86400)):
            if not least <= span <= greatest:
                raise ValueError(f'{what} is {span} s\nHint: It is from {least} to {greatest} s.')
            spans.append(round(span * SECOND))
        self._node = _Node(registry, chosen, name, host_name, *spans, clock)
        weakref.finalize(self, self._node.forget).atexit = False
        with self._node.lock:
            self._node.ask()

    def next(self, count=None):
        """The next id, an int; with a count, a list of so many, 1 to 1,000,000.  Waits for at most max_wait."""
        node, ids, wanted = self._node, [], self._check(count)
        node.look_at_process()
        lock = node.lock
        with lock:
            wait = node.attempt(lock, ids, wanted, node.max_wait)
            if wait:
                deadline = monotonic() + node.max_wait
                while wait:
                    # not below 1 ms: that would be a busy loop
                    node.changed.wait(max(min(wait, ASK_AGAIN), SECOND // 1000) / SECOND)
                    wait = node.attempt(lock, ids, wanted, deadline - monotonic())
        return ids[0] if count is None else ids

    async def anext(self, count=None):
        """As next(), and lets other tasks run while it waits."""
        node, ids, wanted = self._node, [], self._check(count)
        deadline = None
        node.look_at_process()
        lock = node.lock
        while True:
            with lock:
                wait = node.attempt(lock, ids, wanted, node.max_wait if deadline is None else deadline - monotonic())
            if not wait:
                return ids[0] if count is None else ids
            deadline = deadline or monotonic() + node.max_wait
            await asyncio.sleep(min(wait / SECOND, POLL))

    def _check(self, count):
        """Refuses what could not be issued even if nothing else were."""
        if count is None:
            return 1
        count = operator.index(count)
        if not 1 <= count <= MAX_BATCH:
            raise ValueError(f'batch of {count} ids is out of range\nHint: Ask for 1 to {MAX_BATCH} ids at a time.')
        node = self._node
        most = max((node.max_ahead + node.max_wait) // self.layout.tick, 1) * (self.layout.max_sequence + 1)
        if count > most:
            raise ValueError(f'batch of {count} ids is too large for layout "{self.layout}"\nDetail: Within max_ahead and max_wait it'
                             f' holds at most {most} ids.\nHint: Ask for at most {most} ids at a time.')
        return count

    def parse(self, id_):
        """The parts of an id of this layout."""
        return self.layout.parse(id_)

    def time(self, id_):
        """When the tick of an id begins."""
        return self.layout.parse(id_).timestamp

    def state(self):
        """What the node has and does now.  Asks nobody."""
        node = self._node
        node.look_at_process()
        with node.lock:
            lease, problem = node.lease, node.problem
            return State(node.phase(), lease.node_number if lease else -1,
                         UNIX_EPOCH + timedelta(microseconds=lease.leased_until) if lease else None,
                         problem.message if problem else None)

    def close(self):
        """
        Ends the lease where its ids end, so that the number is free at once, and waits for that, and for the log, for some
        seconds.  When it returns, no id is issued any more.  Safe to call twice.
        """
        self._node.close(CALL_TIMEOUT + 1)

    async def aclose(self):
        """As close(), and lets other tasks run meanwhile."""
        node = self._node
        node.close(0)
        # in no thread: all that the event loop has may be busy
        keeper, deadline = node.thread, time.monotonic() + CALL_TIMEOUT + 1
        while keeper is not None and keeper.is_alive() and not node.ended and time.monotonic() < deadline:
            await asyncio.sleep(POLL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.aclose()


def _check_registry(conninfo):
    """libpq would take an empty one for the database that the environment names, and show parts of one that it cannot read."""
    if not isinstance(conninfo, str) or not conninfo.strip():
        raise ValueError("there is no connection string of the registry\nHint: Give one of the registry's database.")
    try:
        conninfo_to_dict(conninfo)
    except ProgrammingError:
        raise ValueError('the connection string of the registry cannot be read\nHint: Write it as libpq reads it, such as'
                         ' "host=registry1 dbname=postgres user=orders_api", or as a URL.') from None


def _is_text(text):
    return isinstance(text, str) and not NOT_PRINTABLE.search(text) and 1 <= len(text.encode()) <= 255
