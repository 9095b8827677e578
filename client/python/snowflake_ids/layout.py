"""The bit layout of an id: the grammar of definitions, the presets, and what the bits say.

It is the server's (src/layout), and so are the texts of its errors.  Ticks count from the layout's
epoch; times are microseconds since 1970-01-01 UTC.  The fields datacenter, worker and clock, from high
to low and wherever they stand in the id, make up one number, the node number.
"""
import re
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

FIELDS = 'timestamp', 'datacenter', 'worker', 'clock', 'sequence'
NODE_FIELDS = FIELDS[1:4]

PRESETS = {
    'twitter': 'timestamp 41, datacenter 5, worker 5, sequence 12, tick 1ms, epoch 2010-11-04T01:42:54.657Z',
    'leaf': 'timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2010-11-04T01:42:54.657Z',
    'discord': 'timestamp 41, datacenter 5, worker 5, sequence 12, tick 1ms, epoch 2015-01-01T00:00:00Z',
    'instagram': 'timestamp 40, worker 13, sequence 10, tick 1ms, epoch 2011-08-24T21:07:01.721Z',
    'mastodon': 'timestamp 47, sequence 16, tick 1ms, epoch 1970-01-01T00:00:00Z',
    'sonyflake': 'timestamp 39, sequence 8, worker 16, tick 10ms, epoch 2014-09-01T00:00:00Z',
    'sonyflake2': 'timestamp 39, sequence 8, worker 16, tick 10ms, epoch 2025-01-01T00:00:00Z',
    'uidgenerator': 'timestamp 29, worker 21, sequence 13, tick 1s, epoch 2016-09-20T00:00:00+08:00',
    'uidgenerator28': 'timestamp 28, worker 22, sequence 13, tick 1s, epoch 2016-05-20T00:00:00+08:00',
    'uidstarter': 'timestamp 30, worker 16, sequence 7, tick 1s, epoch 2019-02-20T00:00:00+08:00',
    'liaoxuefeng': 'timestamp 32, sequence 16, worker 5, tick 1s, epoch 2000-01-01T00:00:00Z',
    'cosid': 'timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2019-12-25T00:00:00+08:00',
    'shardingsphere': 'timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2016-11-01T00:00:00+08:00',
    'pgedge': 'timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2023-01-01T00:00:00Z',
    'pgedge1': 'timestamp 41, sequence 12, worker 10, tick 1ms, epoch 2023-01-01T00:00:00Z',
    'js53': 'timestamp 38, worker 7, sequence 8, tick 10ms, epoch 2024-01-01T00:00:00Z',
}

SECOND = 1_000_000
MAX_BITS = 63
MAX_TICK = 86_400 * SECOND
UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# the end of timestamptz, where the last tick of a wide timestamp ends at the latest
TIMESTAMPTZ_END = 9_224_318_016_000_000_000

EPOCH = re.compile(r'(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?(?:Z|([+-])(\d\d)(?::?(\d\d))?)',
                   re.ASCII | re.IGNORECASE)
TICK = re.compile(r'(\d{1,9}) *(us|ms|s)', re.ASCII | re.IGNORECASE)
UNITS = {'us': 1, 'ms': 1000, 's': SECOND}


class Parts(NamedTuple):
    """What an id says.  Fields that the layout does not have are 0."""

    timestamp: datetime
    datacenter_id: int
    worker_id: int
    clock: int
    sequence: int
    node_number: int


class _Refusal(Exception):
    """Why a definition is not accepted: what is wrong, and what to do."""


class _Reader:
    """Reads one definition."""

    def __init__(self):
        self.bits = {}                  # by field, from high to low
        self.tick = 1000
        self.epoch = 0
        self.seen = set()
        self.from_preset = False

    def read(self, definition):
        for n, part in enumerate(definition.split(',')):
            part = re.sub('[^ -~]', '?', re.sub(r'[\t-\r]', ' ', part).strip(' '))
            if len(part) > 127:
                raise _Refusal(f'"{part[:127]}..." is longer than 127 characters.',
                               'Separate the parts by commas, and leave out needless blanks.')
            self.read_part(part, n == 0)

    def read_part(self, part, is_first):
        word, value = (re.split(' +', part, maxsplit=1) + [''])[:2]
        name = word.lower()
        if name in FIELDS or name in ('tick', 'epoch'):
            if name in self.seen:
                kind = f'field {name}' if name in FIELDS else name
                raise _Refusal(f'"{part}" repeats the {kind}.', f'Give {"each field" if name in FIELDS else "the " + name} once.')
            self.seen.add(name)
            {'tick': self.read_tick, 'epoch': self.read_epoch}.get(name, self.read_width)(part, name, value)
        elif part.lower() in PRESETS:
            if not is_first:
                raise _Refusal(f'The preset "{part}" must be the first part.', 'Name the preset first, then what is different.')
            self.read(PRESETS[part.lower()])
            self.seen.clear()
            self.from_preset = True
        else:
            raise _Refusal(f'"{part}" is neither a preset nor one of timestamp, datacenter, worker, clock, sequence, tick and epoch.',
                           'A layout is the name of a preset (see snowflake_layouts()), or parts such as "timestamp 41,'
                           ' worker 10, sequence 12, tick 1ms, epoch 2024-01-01T00:00:00Z".')

    def read_width(self, part, name, value):
        most = 62 if name == 'timestamp' else 31
        width = int(value) if re.fullmatch('[0-9]{1,9}', value) else 0
        if not 1 <= width <= most:
            raise _Refusal(f'"{part}" must give the {name} field 1 to {most} bits.',
                           'Give a field\'s width as a number of bits, as in "sequence 12".')
        if self.from_preset and name not in self.bits:
            raise _Refusal(f'"{part}" changes a field that the preset does not have.',
                           'Spell out the whole layout, with its fields in order.')
        self.bits[name] = width
        if next(iter(self.bits)) != 'timestamp':
            raise _Refusal(f'"{part}" stands before the timestamp, which must be the first field.',
                           'Ids sort by time only if the timestamp has the highest bits.')

    def read_tick(self, part, _name, value):
        match = TICK.fullmatch(value)
        self.tick = int(match[1]) * UNITS[match[2].lower()] if match else 0
        if not 1 <= self.tick <= MAX_TICK:
            raise _Refusal(f'"{part}" must give a tick from 1us to 86400s.',
                           'Give the length of a tick as a number with the unit us, ms or s, as in "tick 1ms".')

    def read_epoch(self, part, _name, value):
        try:
            match = EPOCH.fullmatch(value)
            day, time, fraction, sign, hours, minutes = match.groups(default='0')
            zone = timedelta(hours=int(hours), minutes=int(minutes))
            # later versions of Python read 24:00:00 as the next day
            if int(hours) > 15 or int(minutes) > 59 or time.startswith('24'):
                raise ValueError
            epoch = datetime.fromisoformat(f'{day}T{time}+00:00') - (-zone if sign == '-' else zone)
        except (AttributeError, ValueError, OverflowError):
            raise _Refusal(f'"{part}" must give an ISO 8601 time with a zone, in the years 0001 to 9999.', 'Write the epoch as in'
                           ' "epoch 2024-01-01T00:00:00Z" or "epoch 2016-09-20T00:00:00+08:00".') from None
        self.epoch = (epoch - UNIX_EPOCH) // timedelta(microseconds=1) + int(fraction.ljust(6, '0'))

    def check_whole(self, definition):
        for name in 'timestamp', 'sequence':
            if name not in self.bits:
                raise _Refusal(f'A layout needs at least 1 bit of {name}.',
                               'Add the field, as in "timestamp 41, worker 10, sequence 12".')
        if sum(self.bits.values()) > MAX_BITS:
            raise _Refusal(f'The widths add up to {sum(self.bits.values())} bits, more than {MAX_BITS} (last part'
                           f' "{definition.split(",")[-1].strip()}").',
                           'Make a field narrower; ids are never negative, so the top bit of a bigint is not used.')


class Layout:
    """A layout never changes.  Two are equal if they make the same ids."""

    def __init__(self, definition):
        reader = _Reader()
        try:
            text = definition.encode().decode('latin-1')
            reader.read(text)
            reader.check_whole(text)
        except _Refusal as refusal:
            detail, hint = refusal.args
            raise ValueError(f'invalid layout: "{definition}"\nDetail: {detail}\nHint: {hint}') from None
        self.bits = reader.bits
        self.tick = reader.tick
        self.epoch = reader.epoch
        self.shift, low = {}, 0
        for name, width in reversed(self.bits.items()):
            self.shift[name] = low
            low += width
        self.max_tick = min((1 << self.bits['timestamp']) - 1, (TIMESTAMPTZ_END - 1 - self.epoch) // self.tick - 1)
        self.max_sequence = (1 << self.bits['sequence']) - 1
        # the greatest number is reserved; a registry has no more than 2^32 to choose from
        self.last_number = min((1 << sum(self.bits.get(name, 0) for name in NODE_FIELDS)) - 2, (1 << 32) - 1)
        self.max_id = self.max_tick << self.shift['timestamp'] | (1 << self.shift['timestamp']) - 1

    @property
    def definition(self):
        """All parts, as the server writes them: equal layouts have equal ones."""
        unit = max((unit for unit in UNITS if self.tick % UNITS[unit] == 0), key=UNITS.get)
        fields = ', '.join(f'{name} {width}' for name, width in self.bits.items())
        return f'{fields}, tick {self.tick // UNITS[unit]}{unit}, epoch {self._write_epoch()}'

    def __str__(self):
        return self.definition

    def __eq__(self, other):
        return isinstance(other, Layout) and self.definition == other.definition

    def __hash__(self):
        return hash(self.definition)

    def _write_epoch(self):
        epoch = UNIX_EPOCH + timedelta(microseconds=self.epoch)
        text = epoch.replace(tzinfo=None).isoformat(timespec='microseconds')
        return text.removesuffix('000').removesuffix('.000') + 'Z'

    @property
    def is_issuable(self):
        """Whether ids can be issued with it, not only parsed."""
        return 'worker' in self.bits and self.tick <= SECOND

    def begin(self, tick):
        """When a tick begins."""
        return self.epoch + tick * self.tick

    def node_bits(self, number):
        """The bits of a node number at their places in an id."""
        placed = 0
        for name in reversed(NODE_FIELDS):
            width = self.bits.get(name, 0)
            placed |= (number & (1 << width) - 1) << self.shift.get(name, 0)
            number >>= width
        return placed

    def field(self, id_, name):
        return id_ >> self.shift.get(name, 0) & (1 << self.bits.get(name, 0)) - 1

    def parse(self, id_):
        """The parts of an id."""
        if not 0 <= id_ <= self.max_id:
            raise ValueError(f'id {id_} is outside layout "{self}"\nDetail: Its ids are from 0 to {self.max_id}.')
        number = 0
        for name in NODE_FIELDS:
            number = number << self.bits.get(name, 0) | self.field(id_, name)
        try:
            time = UNIX_EPOCH + timedelta(microseconds=self.begin(self.field(id_, 'timestamp')))
        except OverflowError:
            raise ValueError(f'the time of id {id_} is after the year 9999') from None
        return Parts(time, *(self.field(id_, name) for name in FIELDS[1:]), number)
