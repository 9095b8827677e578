"""
The driver of client/kit for this library.  Half of `many` are threads, the others tasks of asyncio, which a signal
handler interrupts that takes ids, too.
"""
import asyncio
import logging
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from snowflake_ids import Layout, Snowflake, SnowflakeError, node


class ClosingLog(logging.Handler):
    def __init__(self, text, close):
        super().__init__()
        self.text, self.close_node = text, close

    def emit(self, record):
        if self.text in record.getMessage():
            self.close_node()


class SlowLog(logging.Handler):
    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def emit(self, record):
        time.sleep(self.seconds)


class Driver:
    def __init__(self):
        self.settings = {}
        self.offset = 0
        self.frozen = None
        self.at_clock = None                # what the next reading of the clock does first, and the thread that reads it
        self.ids = None
        self.begun = None
        self.pool = ThreadPoolExecutor(1)

    def clock(self):
        if self.at_clock and self.at_clock[1] == threading.get_ident():
            (first, _), self.at_clock = self.at_clock, None
            first()
        return self.frozen or time.time_ns() // 1000 + self.offset

    def set(self, name, value):
        self.settings[name] = float(value) if name in ('lease_duration', 'max_ahead', 'max_wait') else value

    def spell(self, name, *points):
        self.settings[name] = ''.join(chr(int(point, 16)) for point in points)

    def open(self):
        settings = dict(self.settings)
        host, port = settings.pop('registry').rsplit(':', 1)
        conninfo = f'host={host} port={port} dbname=postgres user={settings.pop("user")}'
        self.ids = Snowflake(conninfo, clock=self.clock, **settings)

    def next(self, count=None):
        got = self.ids.next(int(count) if count else None)
        return got if count is None else ' '.join(map(str, got))

    def many(self, threads, each):
        threads, each = int(threads), int(each)
        got, handled = [None] * threads, []

        def handle(*_):
            try:
                handled.append(self.ids.next())
            except SnowflakeError:
                pass                        # it has interrupted the making of another
            signal.setitimer(signal.ITIMER_REAL, 0.0005)

        def run(n):
            got[n] = [self.ids.next() for _ in range(each)]

        async def task(n):
            got[n] = []
            for _ in range(each):
                got[n].append(await self.ids.anext())
                await asyncio.sleep(0)

        async def tasks():
            await asyncio.gather(*(task(n) for n in range(0, threads, 2)))

        started = [threading.Thread(target=run, args=(n,)) for n in range(1, threads, 2)]
        for thread in started:
            thread.start()
        signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.0005)
        asyncio.run(tasks())
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        for thread in started:
            thread.join()
        if not {id_ for ids in got for id_ in ids}.isdisjoint(handled):
            raise ValueError('a signal handler has got an id that another has')
        return ' '.join(str(id_) for ids in got for id_ in ids)

    def burn(self, count):
        for _ in range(int(count)):
            self.ids.next()

    def begin(self, *words):
        self.begun = self.pool.submit(self.run, ' '.join(words))

    def end(self):
        return self.begun.result()

    def parse(self, id_, *words):
        parts = Layout(' '.join(words)).parse(int(id_))
        seconds = int(parts.timestamp.replace(microsecond=0).timestamp())
        return (f'{seconds * 1_000_000 + parts.timestamp.microsecond} {parts.datacenter_id} {parts.worker_id} {parts.clock}'
                f' {parts.sequence} {parts.node_number}')

    def layout(self, *words):
        return Layout(' '.join(words))

    def clock_(self, seconds):
        self.offset, self.frozen = int(float(seconds) * 1_000_000), None

    def freeze(self):
        self.frozen = self.clock()
        return self.frozen

    def state(self):
        state = self.ids.state()
        until = int(state.leased_until.timestamp() * 1_000_000 + 0.5) if state.leased_until else 0
        return f'{state.phase} {state.node_number} {until} {state.problem or ""}'.rstrip()

    def nested(self):
        return 'none'

    def logging(self, *words):
        logging.getLogger('snowflake_ids').addHandler(ClosingLog(' '.join(words), self.close))

    def slow(self, seconds):
        logging.getLogger('snowflake_ids').addHandler(SlowLog(float(seconds)))

    def bounded(self):
        return 'none'

    def closing(self):
        self.at_clock = self.ids.close, threading.get_ident()
        try:
            return self.ids.next()
        except SnowflakeError:
            return None

    def fork(self):
        # as native code does it, of which Python knows nothing, in the middle of an id
        node._nodes.clear()
        read, write = os.pipe()
        child = None

        def fork():
            nonlocal child
            child = os.fork()

        self.at_clock = fork, threading.get_ident()
        try:
            mine = self.ids.next()
        except SnowflakeError as error:
            mine = error
        if child == 0:
            try:
                os.write(write, str(self.first_of_child() if isinstance(mine, SnowflakeError) else mine).encode())
                self.ids.close()
            finally:
                os._exit(0)
        os.close(write)
        theirs = os.read(read, 100).decode()
        os.waitpid(child, 0)
        return f'{mine} {theirs}'

    def first_of_child(self):
        # a signal handler's exception comes when the keeper has just started
        start = threading.Thread.start

        def interrupted(thread):
            threading.Thread.start = start
            start(thread)
            raise KeyboardInterrupt

        threading.Thread.start = interrupted
        try:
            self.ids.next()
        except KeyboardInterrupt:
            pass
        return self.ids.next()

    def forget(self):
        self.ids = None

    def close(self):
        self.ids.close()

    def quit(self):
        self.ids.close()
        os._exit(0)

    def aclose(self):
        async def close():
            done, loop = threading.Event(), asyncio.get_running_loop()
            loop.set_default_executor(ThreadPoolExecutor(1))
            loop.run_in_executor(None, done.wait)
            try:
                await asyncio.wait_for(self.ids.aclose(), 10)
            except asyncio.TimeoutError:
                raise ValueError('it waits for a thread') from None
            finally:
                done.set()

        asyncio.run(close())

    def run(self, line):
        name, *words = line.split(' ')
        if name == 'set':
            words = line.split(' ', 2)[1:]
        try:
            answer = getattr(self, 'clock_' if name == 'clock' else name)(*words)
        except SnowflakeError as error:
            return f'error {error.reason.name} {error}'
        except ValueError as error:
            return f'error INVALID {error}'
        return 'ok' if answer is None else f'ok {answer}'


logging.basicConfig(level=logging.INFO)
driver = Driver()
for command in sys.stdin:
    said = driver.run(command.rstrip('\n'))
    # what was begun in the background says ok itself
    print((said[3:] if said.startswith('ok ok') or said.startswith('ok error') else said).replace('\n', '\\n'), flush=True)
