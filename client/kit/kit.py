#!/usr/bin/python3
"""Tests a node of any language: see README.md.

    kit.py [--only TEXT] [--jobs N] [--registry HOST:PORT --admin 'PSQL ...'] DRIVER [ARGUMENT...]
"""
import argparse
import concurrent.futures
import os
import subprocess
import sys
import threading
import time
import traceback

import checks
import node as under_test
import real

TRIES = 5


class Kit:
    """What one check uses; all of it ends with the check."""

    def __init__(self, command, options):
        self.command = command
        self.options = options
        self.nodes = []
        self.registries = []

    def registry(self):
        registry = checks.Recording()
        self.registries.append(registry)
        return registry

    def node(self, registry=None, address=None, alone=False, **settings):
        """alone: in a process of its own, which is killed, stopped or looked at."""
        if address is None:
            address = f'127.0.0.1:{registry.port}' if registry else '127.0.0.1:1'
        node = under_test.Node(self.command, address, None if alone else self.options.port, **settings)
        self.nodes.append(node)
        return node

    def wait(self, condition, what, timeout=20):
        end = time.monotonic() + timeout
        while not condition():
            checks.holds(time.monotonic() < end, f'{what} has not come within {timeout} s')
            time.sleep(0.02)

    def wait_for_lease(self, node):
        self.wait(lambda: node.state()[1] >= 0, 'a lease')

    def end(self):
        for node in self.nodes:
            node.kill()
        for registry in self.registries:
            registry.go_away()


class Stalls:
    """When this machine did not run a thread that was ready: checks compare times, and prove nothing then."""
    LEAST = 0.1

    def __init__(self):
        self.last = (0, 0)
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while True:
            begin = time.monotonic()
            time.sleep(0.01)
            end = time.monotonic()
            if end - begin > self.LEAST:
                self.last = (end, end - begin)

    def since(self, begin):
        """The last one that ended after this, in seconds; or None."""
        time.sleep(0.02)    # one that goes on is seen to end
        end, length = self.last
        return length if end > begin else None


def run_once(command, options, title, function):
    """Why the check failed, or None, and the line of it."""
    kit = Kit(command, options)
    options.kits.append(kit)
    try:
        said = function(kit)
        return None, f'ok - {title}' + (f' ({said})' if said else '')
    except Exception as failure:
        log = ''.join(line for node in kit.nodes for line in node.log[-10:])
        line = f'not ok - {title}: {failure or type(failure).__name__}'
        return failure, line + ''.join('\n# ' + more for more in (traceback.format_exc() + log).splitlines())
    finally:
        kit.end()


def run(command, options, title, function, lock, stalls):
    """A check that failed while the machine stood still runs again; one that failed otherwise has failed."""
    start = time.monotonic()
    for tries_left in reversed(range(TRIES)):
        begin = time.monotonic()
        failure, line = run_once(command, options, title, function)
        if failure is None or isinstance(failure, under_test.Ended) or not tries_left:
            break
        stalled = stalls.since(begin)
        if stalled is None:
            break
        with lock:
            print(f'# again, since the machine stood still for {stalled:.1f} s: {line.splitlines()[0]}', flush=True)
    with lock:
        print(f'{line} [{time.monotonic() - start:.1f} s]' if options.times else line, flush=True)
    return failure is None


def main():
    parser = argparse.ArgumentParser(description='Tests a node of a registry of snowflake.')
    parser.add_argument('--only', help='only the checks with this text in their title')
    parser.add_argument('--jobs', type=int, default=24, help='checks at a time (24); most of them wait')
    parser.add_argument('--registry', help='HOST:PORT of a real registry, whose role is app, for more checks')
    parser.add_argument('--admin', help='the command that runs psql there as a superuser')
    parser.add_argument('--listen', action='store_true',
                        help='one process is many drivers, for languages whose programs start slowly (README.md)')
    parser.add_argument('--stop', action='store_true', help='ends when a check has failed')
    parser.add_argument('--times', action='store_true', help='says how long each check took')
    parser.add_argument('driver', nargs=argparse.REMAINDER, help='the program under test')
    options = parser.parse_args()
    if not options.driver:
        parser.error('which program is to be tested?')
    options.port, many, options.kits = None, None, []
    if options.listen:
        many = subprocess.Popen([*options.driver, 'listen'], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        options.port = int(many.stdout.readline().split()[1])
    chosen = sorted(checks.CHECKS + (real.CHECKS if options.registry else []), key=lambda c: -c[0])
    chosen = [one for one in chosen if (options.only or '') in one[1]]
    lock, stalls = threading.Lock(), Stalls()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        futures = [pool.submit(run, options.driver, options, title, function, lock, stalls)
                   for _, title, function in chosen]
        passed = 0
        for future in concurrent.futures.as_completed(futures):
            passed += future.result()
            if options.stop and not future.result():
                for kit in options.kits:
                    kit.end()
                os._exit(1)
    if many:
        many.kill()
    print(f'kit: {passed} passed, {len(chosen) - passed} failed')
    return 0 if chosen and passed == len(chosen) else 1


if __name__ == '__main__':
    sys.exit(main())
