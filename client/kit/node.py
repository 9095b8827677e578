"""A node under test: a program that reads commands and writes answers, a line each (README.md)."""
import os
import queue
import signal
import socket
import subprocess
import threading


class Ended(AssertionError):
    """The process is gone, and nobody has told it to go."""


class Refusal(Exception):
    """The node's answer was an error: its reason, and its text."""

    def __init__(self, line):
        reason, _, text = line.partition(' ')
        super().__init__(line)
        self.reason = reason
        self.text = text.replace('\\n', '\n')


class Node:
    """A driver: a process, or one of many in a process that listens at a port."""

    def __init__(self, command, address, port=None, **settings):
        self.lines = queue.Queue()
        self.log = []
        self.process = self.socket = None
        if port:
            self.socket = socket.create_connection(('127.0.0.1', port))
            self.input = self.socket.makefile('w', encoding='utf-8')
            self.output = self.socket.makefile('r', encoding='utf-8')
        else:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                            text=True, start_new_session=True)
            self.input, self.output = self.process.stdin, self.process.stdout
            threading.Thread(target=self._read_log, daemon=True).start()
        threading.Thread(target=self._read, daemon=True).start()
        values = {'registry': address, 'user': 'app', 'name': 'kit', 'host_name': 'here', **settings}
        for name, value in values.items():
            if value is not None:
                self.ask(f'set {name} {value}')

    def _read(self):
        for line in self.output:
            # the last one of a node that was killed can be a part of an answer
            if line.endswith('\n'):
                self.lines.put(line[:-1])
        self.lines.put(None)

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line)

    def send(self, command):
        self.input.write(command + '\n')
        self.input.flush()

    def receive(self, timeout=60):
        try:
            line = self.lines.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError(f'the node has not answered within {timeout} s') from None
        if line is None:
            raise Ended(f'the node has ended: {"".join(self.log[-20:])}')
        word, _, rest = line.partition(' ')
        if word == 'error':
            raise Refusal(rest)
        if word != 'ok':
            raise AssertionError(f'the node has answered: {line}')
        return rest

    def ask(self, command, timeout=60):
        self.send(command)
        return self.receive(timeout)

    def open(self):
        self.ask('open')
        return self

    def next(self):
        return int(self.ask('next'))

    def batch(self, count):
        return [int(word) for word in self.ask(f'next {count}').split()]

    def refusal(self, command='next'):
        """The error that the command gives; it must give one."""
        try:
            answer = self.ask(command)
        except Refusal as refusal:
            return refusal
        raise AssertionError(f'"{command}" should be refused, and gave {answer}')

    def state(self):
        """phase, number, end of the lease, and the problem or an empty text"""
        phase, number, until, *problem = self.ask('state').split(' ', 3)
        return phase, int(number), int(until), problem[0] if problem else ''

    def freeze(self):
        """The process stops, as in a paused container."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def thaw(self):
        os.killpg(self.process.pid, signal.SIGCONT)

    def kill(self):
        if self.socket:
            self.socket.shutdown(socket.SHUT_RDWR)
            return
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def memory(self):
        """Resident, in bytes."""
        with open(f'/proc/{self.process.pid}/statm', encoding='ascii') as file:
            return int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE')
