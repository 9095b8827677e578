"""The checks against the scripted registry.  Each has a registry of its own, and runs beside others."""
import collections
import csv
import datetime
import itertools
import json
import pathlib
import re
import socket
import time
import unicodedata
import uuid

import registry as scripted
from node import Refusal
from registry import MICROS, Reply, error, now, refused, warning

TOP = pathlib.Path(__file__).resolve().parents[2]
DATA = TOP / 'test' / 'data'
TWITTER = 'timestamp 41, datacenter 5, worker 5, sequence 12, tick 1ms, epoch 2010-11-04T01:42:54.657Z'
SECONDS = 'timestamp 31, worker 10, sequence 12, tick 1s, epoch 2024-01-01T00:00:00Z'
FEW = 'timestamp 45, worker 10, sequence 4, tick 1ms, epoch 2024-01-01T00:00:00Z'
MIXED = 'timestamp 40, clock 2, sequence 6, datacenter 3, worker 4, tick 1ms, epoch 2020-01-01T00:00:00Z'

CHECKS = []


def check(title, seconds=2):
    """seconds: how long it takes, about; the longest begin first."""
    def add(function):
        CHECKS.append((seconds, title, function))
        return function
    return add


def holds(condition, what):
    if not condition:
        raise AssertionError(what)


def same(got, wanted, what):
    holds(got == wanted, f'{what}: {got}, should be {wanted}')


class Layout:
    """What an id says, by a definition that is written in full."""

    def __init__(self, definition):
        parts = dict(part.split(' ', 1) for part in definition.split(', '))
        self.tick = int(re.match(r'\d+', parts['tick'])[0]) * {'us': 1, 'ms': 1000, 's': MICROS}[
            parts['tick'].lstrip('0123456789')]
        epoch = datetime.datetime.fromisoformat(parts['epoch'].replace('Z', '+00:00'))
        self.epoch = (epoch - datetime.datetime.fromtimestamp(0, datetime.timezone.utc)) // datetime.timedelta(microseconds=1)
        self.fields, low = {}, 0
        for part in reversed(definition.split(', ')[:-2]):
            name, bits = part.split(' ')
            self.fields[name] = low, int(bits)
            low += int(bits)

    def field(self, value, name):
        low, bits = self.fields.get(name, (0, 0))
        return value >> low & (1 << bits) - 1

    def number(self, value):
        found = 0
        for name in 'datacenter', 'worker', 'clock':
            found = found << self.fields.get(name, (0, 0))[1] | self.field(value, name)
        return found

    def begin(self, value):
        return self.epoch + self.field(value, 'timestamp') * self.tick

    def end(self, value):
        return self.begin(value) + self.tick


def increasing(ids):
    holds(all(a < b for a, b in zip(ids, ids[1:])), 'ids do not increase')


def inside(registry, layout, ids):
    """Each id is of a lease that was granted, between its start and the last end that was answered."""
    for value in ids:
        spans = registry.spans.get(layout.number(value), ())
        holds(any(start <= layout.begin(value) and layout.end(value) <= until for start, until in spans),
              f'id {value} of number {layout.number(value)} is from {layout.begin(value)} to {layout.end(value)}, '
              f'leases are {spans}')


class Recording(scripted.Registry):
    """An honest registry that remembers what it has answered."""

    def __init__(self):
        super().__init__()
        self.spans = collections.defaultdict(list)

    def acquire(self, request):
        answer = super().acquire(request)
        self.spans[answer['node_number']].append((answer['starts_at'], answer['leased_until']))
        return answer

    def renew(self, request):
        answer = super().renew(request)
        spans = self.spans[request['lease']['node_number']]
        spans[-1] = (spans[-1][0], max(spans[-1][1], answer['leased_until']))
        return answer


# Layouts

def published():
    with open(DATA / 'layouts.csv', encoding='utf-8', newline='') as file:
        for row in csv.DictReader(file):
            fields = []
            for field in row['fields_msb_to_lsb'].split():
                name, bits = re.match(r'([a-z]+)(\d+)', field).groups()
                # the top bit of 64 is not used
                bits = int(bits) - (name == 't' and row['total_bits'] == '64')
                fields.append({'t': 'timestamp', 'dc': 'datacenter', 'w': 'worker', 's': 'sequence'}[name] + f' {bits}')
            milliseconds = int(row['epoch_ms'])
            epoch = datetime.datetime.fromtimestamp(milliseconds // 1000, datetime.timezone.utc)
            fraction = f'.{milliseconds % 1000:03}' if milliseconds % 1000 else ''
            tick = '1s' if row['unit_ms'] == '1000' else row['unit_ms'] + 'ms'
            yield row, ', '.join([*fields, f'tick {tick}', f'epoch {epoch:%Y-%m-%dT%H:%M:%S}{fraction}Z'])


@check('published ids have the published parts')
def vectors(kit):
    node = kit.node()
    layouts = {row['layout']: definition for row, definition in published()}
    with open(DATA / 'vectors.csv', encoding='utf-8', newline='') as file:
        for row in csv.DictReader(file):
            if row['layout'].startswith('seata'):
                continue
            got = node.ask(f'parse {row["id"]} {layouts[row["layout"]]}').split()
            number = Layout(layouts[row['layout']]).number(int(row['id']))
            wanted = [str(int(row['unix_ms']) * 1000), row['datacenter'] or '0', row['worker'] or '0', '0', row['sequence'],
                      str(number)]
            same(got, wanted, f'parts of {row["id"]} by {row["layout"]}')
    value = 5 << 15 | 3 << 13 | 33 << 7 | 6 << 4 | 9
    same(node.ask(f'parse {value} {MIXED.replace("2020", "1970")}'), f'5000 6 9 3 33 {(6 << 4 | 9) << 2 | 3}', 'parts in another order')


@check('presets are the published layouts')
def presets(kit):
    node = kit.node()
    for row, definition in published():
        if row['preset']:
            same(node.ask(f'layout {row["preset"]}'), definition, row['preset'])
    same(node.ask('layout js53'), 'timestamp 38, worker 7, sequence 8, tick 10ms, epoch 2024-01-01T00:00:00Z', 'js53')


@check('layouts are read in any form, and written in full')
def forms(kit):
    node = kit.node()
    for text in 'TWITTER', 'twitter,tick 1 MS', 'Twitter, epoch 2010-11-04 01:42:54.657+00', TWITTER.upper():
        same(node.ask(f'layout {text}'), TWITTER, text)
    for text, end in ((', epoch 2016-09-20T00:00:00.123456+0830', 'tick 1ms, epoch 2016-09-19T15:30:00.123456Z'),
                      (', epoch 1999-12-31T23:59:59.5Z', 'tick 1ms, epoch 1999-12-31T23:59:59.500Z'),
                      (', tick 1000us', 'tick 1ms, epoch 1970-01-01T00:00:00Z'),
                      (', tick 7us', 'tick 7us, epoch 1970-01-01T00:00:00Z'),
                      (', tick 1000ms', 'tick 1s, epoch 1970-01-01T00:00:00Z')):
        text = 'timestamp 41, worker 1, sequence 1' + text
        holds(node.ask(f'layout {text}').endswith(end), f'{text} should end with {end}')
    same(node.ask('layout twitter, epoch 2024-01-01T00:00:00Z').split(', ')[0:2], ['timestamp 41', 'datacenter 5'],
         'a preset with a change')


@check('what is no layout is refused')
def no_layouts(kit):
    node = kit.node()
    for text in ('tweeter', 'twitter, leaf', 'twitter,', 'worker 10, timestamp 41, sequence 12',
                 'timestamp 41, worker 10, sequence 13', 'timestamp 41, worker 10', 'timestamp 41, machine 10, sequence 12',
                 'timestamp 41, worker 10, worker 10, sequence 2', 'leaf, datacenter 5', 'twitter, tick 0ms',
                 'twitter, tick 86401s', 'twitter, epoch 2024-01-01T00:00:00', 'twitter, epoch 2023-02-29T00:00:00Z',
                 'timestamp 30, worker 32, sequence 1', 'twitter, tick 1ms, tick 2ms'):
        refusal = node.refusal(f'layout {text}')
        same(refusal.reason, 'INVALID', text)
        holds('invalid layout' in refusal.text and 'Hint: ' in refusal.text, f'{text}: {refusal.text}')
    for text in 'mastodon', 'leaf, tick 2s':
        node.ask(f'layout {text}')
        node.ask(f'set layout {text}')
        same(node.refusal('open').reason, 'INVALID', f'ids of {text}, which is for parsing only')


def refused_by_the_server():
    """Definitions, and the server's message."""
    with open(TOP / 'expected' / 'layouts.out', encoding='utf-8') as file:
        said = re.findall(r'^ERROR:  (invalid layout: "(.*)")\nDETAIL:  (.*)\nHINT:  (.*)\n', file.read(), re.M)
    for message, definition, detail, hint in said:
        yield definition, f'{message}\nDetail: {detail}\nHint: {hint}'


@check('a layout is refused in the words of the server')
def in_the_words_of_the_server(kit):
    node = kit.node()
    known = dict(refused_by_the_server())
    holds(len(known) > 30, f'the server is expected to refuse {len(known)} layouts')
    for definition, message in known.items():
        same(node.refusal(f'layout {definition}').text, message, 'the refusal')


@check('widths, ticks and epochs: the first and the last that there are')
def layout_bounds(kit):
    node = kit.node()
    fields = 'timestamp 41, worker 1, sequence 1'
    for text in ('timestamp 62, sequence 1', 'timestamp 1, worker 31, sequence 31', 'timestamp 1, clock 1, sequence 1'):
        same(node.ask(f'layout {text}'), f'{text}, tick 1ms, epoch 1970-01-01T00:00:00Z', text)
    for text, written in (('tick 86400s', None), ('tick 86400000ms', 'tick 86400s'), ('tick 1us', None),
                          ('tick 999999us', None), ('tick 000000001s', 'tick 1s')):
        same(node.ask(f'layout {fields}, {text}'), f'{fields}, {written or text}, epoch 1970-01-01T00:00:00Z', text)
    for text, written in (('0001-01-01T00:00:00Z', None), ('9999-12-31T23:59:59.999999Z', None),
                          ('1899-12-31T23:59:59Z', None), ('1959-12-31T23:59:59.250Z', None),
                          ('1959-12-31T23:59:59.000001Z', None),
                          ('0001-01-01T00:01:00+00:01', '0001-01-01T00:00:00Z'),
                          ('0001-01-01T00:00:00-15:59', '0001-01-01T15:59:00Z'),
                          ('9999-12-31T23:59:59+15:59', '9999-12-31T08:00:59Z'),
                          ('2024-02-29t00:00:00.10z', '2024-02-29T00:00:00.100Z'),
                          ('2024-01-01 00:00:00-01', '2024-01-01T01:00:00Z')):
        same(node.ask(f'layout {fields}, epoch {text}'), f'{fields}, tick 1ms, epoch {written or text}', text)
    same(node.ask(f'layout {fields},  {" " * 200}tick 2ms\t '), f'{fields}, tick 2ms, epoch 1970-01-01T00:00:00Z', 'blanks')
    same(node.ask(f'layout {fields}, tick{" " * 120}2ms'), f'{fields}, tick 2ms, epoch 1970-01-01T00:00:00Z', '127 characters')
    epoch = 'must give an ISO 8601 time with a zone, in the years 0001 to 9999.'
    tick = 'must give a tick from 1us to 86400s.'
    for part, said in (('worker 0', 'must give the worker field 1 to 31 bits.'), ('tick 86400001ms', tick),
                       ('tick 1000000000us', tick), ('tick -1s', tick),
                       ('epoch 0000-12-31T23:59:59Z', epoch), ('epoch 0000-12-31T23:59:59-00:01', epoch),
                       ('epoch 0001-01-01T00:00:00+00:01', epoch), ('epoch 9999-12-31T23:59:00-00:01', epoch),
                       ('epoch 2024-01-01T00:00:00+16:00', epoch), ('epoch 2024-01-01T00:00:00+01:60', epoch),
                       ('epoch 2024-01-01T24:00:00Z', epoch),
                       ('epoch 2024-01-01T00:60:00Z', epoch), ('epoch 2024-01-01T00:00:60Z', epoch),
                       ('epoch 2024-04-31T00:00:00Z', epoch), ('epoch 2024-01-01T00:00:00.1234567Z', epoch),
                       ('epoch 2024-13-01T00:00:00Z', epoch)):
        refusal = node.refusal(f'layout timestamp 41, sequence 1, {part}')
        holds(f'\nDetail: "{part}" {said}\n' in refusal.text, f'{part}: {refusal.text}')
    refusal = node.refusal(f'layout {fields}, tick{" " * 121}2ms')
    holds('is longer than 127 characters.' in refusal.text, refusal.text)
    same(node.ask('parse 0 timestamp 41, sequence 1, epoch 1960-01-01T00:00:00.000001Z').split()[0], '-315619199999999',
         'the time of an id before 1970')


@check('an id that the layout does not have is refused')
def outside(kit):
    node = kit.node()
    same(node.refusal('parse -1 twitter').reason, 'INVALID', 'a negative id')
    same(node.ask(f'parse {(1 << 53) - 1} js53').split()[1:], ['0', '127', '0', '255', '127'], 'the last id of js53')
    # the last tick ends before timestamptz does, in the year 294277
    last_tick = 9_223_371_331_200_000_000 // (86_400 * MICROS) - 2
    days = 'timestamp 48, worker 8, sequence 7, tick 86400s, epoch 2000-01-01T00:00:00Z'
    for layout, greatest in ('js53', (1 << 53) - 1), (days, (last_tick + 1 << 15) - 1):
        refusal = node.refusal(f'parse {greatest + 1} {layout}')
        same(refusal.reason, 'INVALID', f'an id after the last one of {layout}')
        holds(str(greatest) in refusal.text, f'the greatest id is missing: {refusal.text}')


@check('the time of the last id is right, or said to be later than all dates', 3)
def last_times(kit):
    node = kit.node()
    end = 9_224_318_016_000_000_000         # of timestamptz
    for fields, tick, epoch, year in (
            ('timestamp 48, worker 8, sequence 7', '86400s', 946_684_800 * MICROS, 2000),
            ('timestamp 62, sequence 1', '1s', -62_135_596_800 * MICROS, 1),
            ('timestamp 62, sequence 1', '1us', -62_135_596_800 * MICROS, 1),
            ('timestamp 62, sequence 1', '7ms', 253_370_764_800 * MICROS, 9999),
            ('timestamp 62, sequence 1', '999999us', 0, 1970)):
        layout = f'{fields}, tick {tick}, epoch {year:04}-01-01T00:00:00Z'
        length, low = Layout(layout).tick, sum(int(bits) for bits in re.findall(r'\d+', fields)[1:])
        last = min((1 << int(fields.split()[1].rstrip(','))) - 1, (end - 1 - epoch) // length - 1)
        id_ = (last + 1 << low) - 1
        try:
            same(node.ask(f'parse {id_} {layout}').split()[0], str(epoch + last * length), f'the time of the last id of {layout}')
        except Refusal as refusal:
            holds(re.fullmatch(rf'the time of id {id_} is after the year \d+', refusal.text), f'{layout}: {refusal.text}')
        if id_ + 1 < 1 << 63:
            same(node.refusal(f'parse {id_ + 1} {layout}').reason, 'INVALID', f'an id after the last one of {layout}')


@check('a node number of more than 53 bits is right, or said to be too large')
def wide_numbers(kit):
    node = kit.node()
    layout = 'timestamp 1, datacenter 31, worker 30, sequence 1'
    for number in (1 << 53) - 2, (1 << 53) - 1, 1 << 53, (1 << 53) + 1, (1 << 61) - 1:
        id_ = number << 1
        try:
            same(node.ask(f'parse {id_} {layout}'), f'0 {number >> 30} {number & (1 << 30) - 1} 0 0 {number}', f'parts of {id_}')
        except Refusal as refusal:
            same((refusal.reason, refusal.text), ('INVALID', f'the node number of id {id_} has more than 53 bits'), f'parts of {id_}')
            holds(number >= 1 << 53, f'node number {number} has 53 bits')


@check('ids of ticks of a microsecond that count from 1970', 3)
def microseconds(kit):
    registry, layout = kit.registry(), 'timestamp 51, worker 6, sequence 6, tick 1us'
    registry.next_number = 5
    node = kit.node(registry, layout=layout).open()
    same(node.ask(f'parse 0 {layout}'), '0 0 0 0 0 0', 'the first id')
    inside(registry, Layout(f'{layout}, epoch 1970-01-01T00:00:00Z'), [node.next()])


# Ids

@check('an id has the number that was granted, and the time of the clock')
def first(kit):
    registry = kit.registry()
    registry.next_number = 437
    node = kit.node(registry, layout=MIXED).open()
    value = node.next()
    layout = Layout(MIXED)
    same(layout.number(value), 437, 'number')
    holds(abs(layout.begin(value) - now()) < 2 * MICROS, 'time')
    inside(registry, layout, [value])
    request = registry.calls[0].request
    same((request['first_number'], request['last_number']), (0, 510), 'numbers asked for')
    # no registry has more numbers than 32 bits
    registry = kit.registry()
    node = kit.node(registry, layout='timestamp 27, datacenter 16, worker 16, clock 1, sequence 2, tick 1s, '
                    'epoch 2024-01-01T00:00:00Z').open()
    kit.wait_for_lease(node)
    same(registry.calls[0].request['last_number'], (1 << 32) - 1, 'the last number asked for')


@check('ids increase, one at a time and in batches')
def order(kit):
    registry = kit.registry()
    node = kit.node(registry).open()
    ids = []
    for size in [1] * 50 + [2, 10, 1000, 5000, 20000, 1, 1, 3]:
        ids += node.batch(size) if size > 1 else [node.next()]
    increasing(ids)
    inside(registry, Layout(TWITTER), ids)


@check('a full tick is followed by the next one, at most max_ahead past the clock')
def full_tick(kit):
    registry = kit.registry()
    node = kit.node(registry, layout=FEW, max_ahead='0.5', max_wait=0)
    clock = int(node.ask('freeze'))
    node.open()
    kit.wait_for_lease(node)
    layout, ids = Layout(FEW), []
    while True:
        try:
            ids += node.batch(100)
        except Refusal as refusal:
            same(refusal.reason, 'TOO_FAR_AHEAD', 'the reason')
            break
        holds(len(ids) < 9000, 'there should be no more ids in half a second')
    holds(len(ids) > 7000, f'{len(ids)} ids, there is room for 8000')
    increasing(ids)
    inside(registry, layout, ids)
    holds(max(layout.begin(value) for value in ids) <= clock + MICROS // 2, 'an id is too far ahead')
    places = [layout.begin(value) // 1000 * 16 + layout.field(value, 'sequence') for value in ids]
    same({b - a for a, b in zip(places, places[1:])}, {1}, 'steps from an id to the next one')
    node.ask('clock 1')
    increasing([ids[-1], *node.batch(10)])


@check('without max_ahead no id is ahead of the clock')
def not_ahead(kit):
    registry = kit.registry()
    node = kit.node(registry, layout=FEW, max_ahead=0, max_wait=5).open()
    ids = []
    for _ in range(20):
        ids += node.batch(100)
        holds(Layout(FEW).begin(ids[-1]) <= now(), 'an id is ahead of the clock')
    increasing(ids)


@check('a batch can be as large as what max_ahead and max_wait hold, and no larger')
def largest_batch(kit):
    registry = kit.registry()
    # what is left over of a tick does not count, one tick does
    for layout, max_ahead, most in (FEW, '0.5009', 500 * 16), (SECONDS, '0.9', 4096):
        node = kit.node(registry, layout=layout, max_ahead=max_ahead, max_wait=0)
        node.open()
        kit.wait_for_lease(node)
        node.ask('freeze')
        refusal = node.refusal(f'next {most + 1}')
        same(refusal.reason, 'INVALID', 'the reason')
        same(refusal.text.split('\n')[0], f'batch of {most + 1} ids is too large for layout "{layout}"', 'the refusal')
        holds(f' it holds at most {most} ids.\nHint: Ask for at most {most} ids at a time.' in refusal.text, refusal.text)
    node = kit.node(registry, layout=FEW, max_ahead=1, max_wait=0).open()
    kit.wait_for_lease(node)
    node.ask('freeze')
    increasing(node.batch(16000))


@check('the first id is of the first tick of its lease, or of the clock if that is later')
def starts(kit):
    for layout, later in (TWITTER, 700_001), (SECONDS, 600_001):
        registry = kit.registry()

        def answer(call, registry=registry, later=later):
            granted = registry.honest(call)
            return {**granted, 'starts_at': call.request['clock'] + later} if call.name == 'acquire' else granted

        registry.answer = answer
        node = kit.node(registry, layout=layout).open()
        begin = Layout(layout).begin(node.next())
        starts_at = registry.calls[0].request['clock'] + later
        holds(starts_at <= begin < max(starts_at + Layout(layout).tick, now() + 1), f'{starts_at}: the first id begins at {begin}')


def ids_until(node, ids, seconds):
    """Ids all the time, until the node has none; or for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            ids += node.batch(3)
        except Refusal:
            return True
        time.sleep(0.005)
    return False


def grant_once(registry, seconds):
    """One lease of so long a time; renewals are refused, further leases too."""
    ends = []

    def answer(call):
        if call.name == 'acquire' and not ends:
            granted = registry.honest(call)
            ends.append(call.request['clock'] + int(seconds * MICROS))
            return {**granted, 'leased_until': ends[0]}
        return refused('closed for the check', 10)

    registry.answer = answer
    return ends


@check('no id ends after its lease, and none is issued later', 6)
def ends(kit):
    for definition in TWITTER, SECONDS:
        registry, ids = kit.registry(), []
        until = grant_once(registry, 2.5)
        node = kit.node(registry, layout=definition, max_wait='0.1', max_ahead='0.1').open()
        kit.wait_for_lease(node)
        holds(ids_until(node, ids, 10), 'ids go on')
        layout = Layout(definition)
        holds(ids and layout.end(max(ids)) <= until[0], f'the last id ends {layout.end(max(ids)) - until[0]} us too late')
        holds(layout.end(max(ids)) > until[0] - max(2 * layout.tick, MICROS // 2), 'ids go on to the end')
        time.sleep(1)
        node.refusal()


@check('a process that was paused issues nothing after the end of its lease', 6)
def paused(kit):
    registry = kit.registry()
    until = grant_once(registry, 5)
    node = kit.node(registry, alone=True, max_wait=0).open()
    kit.wait_for_lease(node)
    value = node.next()
    node.freeze()
    time.sleep(max(until[0] - now(), 0) / MICROS + 0.5)
    # it reads this first when it goes on
    node.send('next')
    node.thaw()
    try:
        late = int(node.receive())
        holds(Layout(TWITTER).end(late) <= until[0], 'an id of after the end')
    except Refusal:
        pass
    holds(Layout(TWITTER).end(value) <= until[0], 'the id before')
    node.refusal()


@check('a clock that is set past the end of the lease gives no id, and then ids of another end')
def past_end(kit):
    registry = kit.registry()
    grant_once(registry, 9)
    node = kit.node(registry, max_wait='0.3').open()
    kit.wait_for_lease(node)
    node.next()
    node.ask('clock 300')
    node.refusal()
    node.ask('clock 0')
    node.next()


@check('a lease that ends later than was asked for counts up to that')
def capped(kit):
    registry = kit.registry()
    registry.answer = lambda call: {**registry.honest(call), 'leased_until': call.request['clock'] + 3600 * MICROS}
    node = kit.node(registry, max_wait='0.3').open()
    kit.wait_for_lease(node)
    node.next()
    request = registry.calls[0].request
    registry.at = {'startup': 'hang'}
    same(node.state()[2], request['clock'] + request['window'], 'the end')
    node.ask('clock 11')
    node.refusal()


@check('a renewal that ends later than was asked for counts up to that', 5)
def renewal_capped(kit):
    registry = kit.registry()
    registry.answer = lambda call: {**registry.honest(call), **({} if call.name != 'renew' else {
        'leased_until': call.request['clock'] + 3600 * MICROS})}
    node = kit.node(registry, max_wait='0.3').open()
    kit.wait_for_lease(node)
    node.next()
    registry.wait_for(lambda: registry.named('renew'), what='a renewal')
    registry.at = {'startup': 'hang'}
    request = registry.named('renew')[0].request
    kit.wait(lambda: node.state()[2] > request['lease']['leased_until'], 'the new end')
    same(node.state()[2], request['clock'] + request['window'], 'the end')
    node.ask(f'clock {request["window"] / MICROS + 1}')
    node.refusal()


@check('an end is never lowered by a renewal', 5)
def not_lowered(kit):
    registry = kit.registry()
    registry.answer = lambda call: {**registry.honest(call), **({} if call.name != 'renew' else {
        'leased_until': call.request['lease']['leased_until'] - 5 * MICROS})}
    node = kit.node(registry).open()
    node.next()
    registry.wait_for(lambda: registry.named('renew'), what='a renewal')
    time.sleep(0.3)
    same(node.state()[2], registry.named('renew')[0].request['lease']['leased_until'], 'the end')
    node.next()


# Calls

KEYS = {'acquire': 'protocol start call layout clock max_ahead window lease first_number last_number fixed uses ids_end_at '
                   'starts_at launched_at kind host_name name',
        'renew': 'protocol start call layout clock max_ahead window lease',
        'release': 'protocol start call layout lease'}
LEASE = 'token node_number incarnation generation granted_by leased_until'


@check('calls have the keys that the page has', 5)
def keys(kit):
    # a call may have its text as a literal
    registry, name = kit.registry(), "orders' \\ api"
    node = kit.node(registry, layout='leaf', max_ahead=2, name=name, host_name='app-1').open()
    node.next()
    registry.wait_for(lambda: registry.named('renew'), what='a renewal')
    node.ask('close')
    for call in registry.calls:
        holds(set(KEYS[call.name].split()) <= set(call.request) | {'uses', 'ids_end_at', 'starts_at', 'lease'},
              f'keys are missing in {call}')
        said = {key for key, value in call.request.items() if value is not None}
        same(said & set(' '.join(KEYS.values()).split()) - set(KEYS[call.name].split()), set(), f'keys that {call.name} does not have')
    acquire, renew, release = (registry.named(name)[0].request for name in ('acquire', 'renew', 'release'))
    wanted = {'protocol': 1, 'first_number': 0, 'last_number': 1022, 'fixed': False, 'kind': 'program', 'name': name,
              'host_name': 'app-1', 'max_ahead': 2_001_000, 'lease': None, 'uses': None, 'ids_end_at': None, 'starts_at': None,
              'layout': 'timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2010-11-04T01:42:54.657Z'}
    same({key: acquire.get(key) for key in wanted}, wanted, 'acquire_lease')
    holds(acquire['window'] <= 10 * MICROS, 'the first window is longer than 10 s')
    for key in 'clock', 'launched_at':
        holds(type(acquire[key]) is int and abs(acquire[key] - now()) < 30 * MICROS, f'{key} is {acquire[key]}')
    same(str(uuid.UUID(acquire['start'])), acquire['start'], 'start')
    for request in renew, release:
        lease = request['lease']
        holds(set(LEASE.split()) <= set(lease), f'lease is {lease}')
        same((lease['incarnation'], lease['generation'], lease['node_number'], lease['granted_by']),
             (registry.incarnation, 1, 100, acquire['call']), 'the lease that is named')
        same((request['start'], request['layout']), (acquire['start'], acquire['layout']), 'start and layout')
    holds('ids_end_at' not in renew['lease'] or renew['lease']['ids_end_at'] is None, 'a renewal says no end')


@check('a host name that is not given is that of the machine')
def own_host_name(kit):
    registry = kit.registry()
    kit.node(registry, host_name=None).open().next()
    same(registry.named('acquire')[0].request['host_name'].split('.')[0], socket.gethostname().split('.')[0], 'host name')


@check('each call has a greater number, also after failures', 8)
def numbers(kit):
    registry = kit.registry()
    fails = iter([Reply(error=error('42501', 'permission denied')), Reply(error=error('XX000', 'broken')),
                  refused('not yet', 0.2), refused('not yet', 0)])
    registry.answer = lambda call: next(fails, None) or registry.honest(call)
    node = kit.node(registry, max_wait=0).open()
    registry.wait_for(lambda: len(registry.calls) >= 5, what='the fifth call')
    kit.wait_for_lease(node)
    node.next()
    node.ask('close')
    called = [call.request['call'] for call in registry.calls]
    holds(called[0] >= 1, 'numbers begin with 1')
    increasing(called)
    same(len({call.request['start'] for call in registry.calls}), 1, 'starts')
    same(registry.calls[-1].request['lease']['granted_by'], registry.calls[4].request['call'], 'granted_by')


@check('an answer that comes too late is not used, and its call is cancelled', 12)
def late(kit):
    registry = kit.registry()

    def answer(call):
        granted = registry.honest(call)
        if len(registry.calls) == 1:
            call.connection.hang(8)
            time.sleep(0.2)
        elif len(registry.calls) == 2:
            return refused('for the check', 3)
        return granted

    registry.answer = answer
    node = kit.node(registry, max_wait=0).open()
    registry.wait_for(lambda: len(registry.calls) >= 2, what='the second call')
    first, second = registry.calls[:2]
    holds(first.connection.ended_at and 3 < first.connection.ended_at - first.at < 8, 'the connection was not closed in time')
    registry.wait_for(lambda: registry.cancels, 3, 'a cancel request')
    same(registry.cancels[0][0], first.connection.number, 'the connection that is cancelled')
    time.sleep(0.5)
    same(node.state()[1], -1, 'the number before a call is answered in time')
    same((second.request['lease'], second.request['call'] > first.request['call']), (None, True), 'the second call')
    registry.wait_for(lambda: len(registry.calls) >= 3, what='the third call')
    kit.wait_for_lease(node)
    same(Layout(TWITTER).number(node.next()), 102, 'number')


@check('a lease whose answer was lost is not used')
def lost(kit):
    registry = kit.registry()
    registry.at = {'answer': 'close'}
    node = kit.node(registry, max_wait=20).open()
    registry.wait_for(lambda: registry.calls, what='a call')
    registry.wait_for(lambda: registry.connections[0].ended.is_set(), what='the end of the connection')
    registry.at = {}
    same(Layout(TWITTER).number(node.next()), 101, 'number')
    same(registry.calls[1].request['lease'], None, 'the lease that is named')
    increasing([call.request['call'] for call in registry.calls])


@check('a renewal whose answer was lost counts only when it is answered', 8)
def renewal_lost(kit):
    registry = kit.registry()
    node = kit.node(registry, max_wait=0).open()
    kit.wait_for_lease(node)
    until = node.state()[2]
    registry.at = {'end': 'close'}
    registry.wait_for(lambda: registry.named('renew'), what='a renewal')
    registry.wait_for(lambda: registry.named('renew')[0].connection.ended.is_set(), what='the end of the connection')
    same(node.state()[2], until, 'the end')
    node.next()
    registry.at = {}
    registry.wait_for(lambda: len(registry.named('renew')) > 1, what='another renewal')
    same(registry.named('renew')[1].request['lease']['leased_until'], until, 'the end that is named')
    kit.wait(lambda: node.state()[2] > until, 'the new end')


@check('a commit whose wait for a standby was cancelled has failed', 4)
def cancelled_wait(kit):
    registry = kit.registry()
    notice = warning('canceling wait for synchronous replication due to user request', 'SyncRepWaitForLSN')
    registry.answer = lambda call: Reply(registry.honest(call), [notice] if len(registry.calls) == 1 else [])
    node = kit.node(registry, max_wait=0).open()
    registry.wait_for(lambda: registry.calls, what='a call')
    time.sleep(0.3)
    same(node.state()[1], -1, 'number')
    holds('warning' in node.state()[3], f'the problem is {node.state()[3]}')
    kit.wait_for_lease(node)
    same(Layout(TWITTER).number(node.next()), 101, 'number')


@check('other warnings and notices fail no call')
def other_warning(kit):
    registry = kit.registry()
    notices = [warning('somebody warns', 'exec_stmt_raise'), {'S': 'NOTICE', 'V': 'NOTICE', 'C': '00000', 'M': 'x', 'R': 'y'}]
    registry.answer = lambda call: Reply(registry.honest(call), notices)
    node = kit.node(registry).open()
    same(Layout(TWITTER).number(node.next()), 100, 'number')


@check('what is no answer of the protocol gives no lease', 5)
def garbage(kit):
    registry = kit.registry()
    good = {'answer': 'yes', 'token': str(uuid.uuid4()), 'node_number': 5, 'starts_at': now() - MICROS,
            'leased_until': now() + 9 * MICROS}
    node = kit.node(registry, max_wait=0)
    nothing = None, Reply(rows=0)
    for bad in (*nothing, 'not JSON', '[]', 'null', '{}', '{"protocol": 1, "answer": "yes"}', {**good, 'protocol': 2},
                {**good, 'answer': 'maybe'}, {**good, 'answer': 'no', 'reason': 'closed'}, {**good, 'node_number': '5'},
                {**good, 'node_number': 5.5}, {**good, 'leased_until': None}, {**good, 'leased_until': True},
                {**good, 'leased_until': 1 << 70}, {**good, 'token': 'x'}, {**good, 'generation': '1'},
                {**good, 'incarnation': None}, refused('for ever', 3600), refused('no state', 1, sqlstate='?'),
                refused('success', 1, sqlstate='00000')):
        registry.answer = lambda call, bad=bad: bad
        count = len(registry.calls)
        node.open()
        registry.wait_for(lambda count=count: len(registry.calls) > count, what='a call')
        kit.wait(lambda: node.state()[3], f'a problem after {bad}')
        same((node.state()[0], node.state()[1]), ('retrying', -1), f'state after {bad}')
        same(node.state()[3].endswith('the registry gave no answer'), bad in nothing, f'problem after {bad}')
        node.ask('close')
    registry.answer = registry.honest
    node.ask('set max_wait 5')
    node.open().next()


@check('an answer with a number or a text that cannot be gives no lease', 8)
def out_of_range(kit):
    registry = kit.registry()
    node = kit.node(registry, max_wait=0)
    good = {'answer': 'yes', 'token': str(uuid.uuid4()), 'node_number': 5, 'starts_at': now() - MICROS,
            'leased_until': now() + 9 * MICROS}
    end = 253_402_300_800 * MICROS
    for key, values, known in (
            ('protocol', (0, '1', None), good), ('generation', (0, 1 << 31, 1.5, None), good),
            ('node_number', (-1, 1 << 63, None), good), ('clock', (end, -end, 'now'), good), ('starts_at', (end, -end, None), good),
            ('leased_until', (end, -end), good),
            ('token', (None, f'{uuid.UUID(int=10 << 8)}'.upper(), f'{uuid.uuid4()}0', f'0{uuid.uuid4()}'), good),
            ('answer', ('', None, 'yes '), good), ('incarnation', ('', f'{uuid.uuid4()} '), good),
            ('wait', (-1, 10_000_001, None, 0.5), refused('no')),
            ('sqlstate', ('5500', '550000', '5500a', '01000', '02000', None), refused('no')),
            ('message', (None, 5), refused('no')), ('detail', (5,), refused('no')), ('hint', ([],), refused('no'))):
        for value in values:
            registry.answer = lambda call, bad={**known, key: value}: Reply(bad)
            node.open()
            kit.wait(lambda: node.state()[3], f'a problem after {key} {value}')
            same(node.state()[:2], ('retrying', -1), f'state after {key} {value}')
            holds('cannot be read' in node.state()[3] and (key in node.state()[3] or key == 'protocol'), node.state()[3])
            node.ask('close')


@check('a renewal or a no that cannot be read changes nothing', 7)
def bad_renewal(kit):
    registry = kit.registry()
    bad = [{'answer': 'no'}, {'answer': 'no', 'reason': 5}, {'answer': 'yes'}, {'answer': 'maybe'}]
    registry.answer = lambda call: bad.pop() if call.name == 'renew' and bad else registry.honest(call)
    node = kit.node(registry, max_wait=0).open()
    kit.wait_for_lease(node)
    until = node.state()[2]
    kit.wait(lambda: node.state()[3], 'the problem')
    same((node.state()[0], node.state()[1:3]), ('retrying', (100, until)), 'state')
    node.next()
    kit.wait(lambda: node.state()[0] == 'ready' and node.state()[2] > until, 'a renewal')
    same((bad, len(registry.named('acquire'))), ([], 1), 'what was not answered, and leases')


@check('values at the bounds of what can be are read')
def in_range(kit):
    registry = kit.registry()
    registry.generation = (1 << 31) - 1
    node = kit.node(registry, max_wait=0)
    for bad in (refused('no', 0, sqlstate='ZZZZZ'), refused('no', 10, sqlstate='03000'),
                {**refused('no'), 'detail': None, 'hint': None}):
        registry.answer = lambda call, bad=bad: bad
        node.open()
        kit.wait(lambda: node.state()[3], 'the refusal')
        same((node.state()[0], node.state()[3]), ('refused', 'no'), 'state')
        node.ask('close')
    # an answer is read up to 64 kB
    for more, number in (1, -1), (0, 100):
        def answer(call, more=more):
            granted = {**registry.honest(call), 'node_number': 100, 'protocol': 1, 'incarnation': registry.incarnation,
                       'generation': registry.generation, 'clock': now(), 'more': ''}
            granted['more'] = 'x' * (65_536 + more - len(json.dumps(granted)))
            return json.dumps(granted)

        registry.answer = answer
        node.open()
        kit.wait(lambda: node.state()[0] != 'starting', 'the answer')
        same(node.state()[1], number, f'number after {65_536 + more} bytes')
        holds(more == 0 or 'more than 65536' in node.state()[3], node.state()[3])
        node.ask('close')


@check('an answer without end is not read to its end')
def endless(kit):
    registry = kit.registry()
    registry.at = {'query': 'flood'}
    node = kit.node(registry, max_wait=0)
    if node.ask('bounded') == 'none':
        return 'its driver reads what comes'
    node.open()
    registry.wait_for(lambda: registry.calls and registry.calls[0].connection.ended_at, what='the end of the connection')
    # the sockets' buffers have some of it
    sent = registry.calls[0].connection.flooded
    holds(sent < 64 << 20, f'{sent >> 20} MB were taken')
    kit.wait(lambda: node.state()[3], 'the problem')
    registry.at = {}
    kit.wait_for_lease(node)


@check('what a registry says is shown in one short line, without what moves a cursor')
def printable(kit):
    registry = kit.registry()
    node = kit.node(registry, max_wait=0)
    for message in ' a\n\x1b[2J\u2028b\t ' + 'x' * 2000, ' a\r\n\x1b[2J b ' + 'x' * 992, 'a [2J b ' + 'x' * 993:
        registry.answer = lambda call, message=message: refused(message, 10, detail=message, hint=message)
        wanted = 'a [2J b ' + 'x' * message.count('x')
        wanted = wanted if len(wanted) <= 1000 else wanted[:1000] + ' ...'
        node.open()
        kit.wait(lambda: node.state()[3], 'the refusal')
        same(node.state()[3], f'{wanted}.  Detail: {wanted}  Hint: {wanted}', 'the problem')
        node.ask('close')
        # a driver may have words of its own before them
        registry.answer = lambda call, message=message: Reply(error=error('XX000', message))
        node.open()
        kit.wait(lambda: node.state()[3], 'the error')
        said = node.state()[3]
        holds('a [2J b xxx' in said and len(said) <= 1004 and (len(wanted) <= 1000 or said.endswith('x ...')), said)
        node.ask('close')


@check('keys that are not known are left unread', 5)
def unknown_keys(kit):
    registry = kit.registry()
    registry.answer = lambda call: {**registry.honest(call), 'later': {'a': [1, 2.5, None, {'b': 'c'}]}, 'more': 'x\u20ac\n'}
    kit.node(registry).open().next()
    # of another answer
    registry.answer = lambda call: {**registry.honest(call), 'reason': 'rolled back'}
    node = kit.node(registry, alone=True).open()
    node.next()
    registry.wait_for(lambda: registry.named('renew'), what='a renewal')
    time.sleep(0.5)
    same(' '.join(node.log).count('does not know'), 0, 'lines about a rollback')


# No, refused, and false registries

@check('what the registry refuses is said in its words, and asked again after its wait', 4)
def refusal_said(kit):
    registry = kit.registry()
    registry.answer = lambda call: refused('the registry is closed', 10, detail='Its successor is X.', hint='Do this.')
    node = kit.node(registry, max_wait=60).open()
    refusal = node.refusal()
    same((refusal.reason, refusal.text), ('REFUSED', 'could not get a node number from the registry: the registry is closed.  '
                                          'Detail: Its successor is X.  Hint: Do this.'), 'the refusal')
    same(node.state()[0], 'refused', 'phase')
    node.ask('close')
    registry.answer = lambda call: refused('no node number is free', 10, sqlstate='53400')
    same(node.open().refusal().reason, 'NO_NUMBER_FREE', 'the reason')
    node.ask('close')
    count = len(registry.calls)
    registry.answer = lambda call: refused('soon', 1.2) if len(registry.calls) == count + 1 else registry.honest(call)
    node.open().next()
    holds(0.85 < registry.calls[-1].at - registry.calls[-2].at < 5, 'the wait')
    node.ask('close')
    # what is over later than a call may wait is said at once; what is over earlier is waited for
    registry.answer = lambda call: refused('not so soon', 9.9)
    node.ask('set max_wait 9')
    start = time.monotonic()
    refusal = node.open().refusal()
    took = time.monotonic() - start
    holds('not so soon' in refusal.text and took < 5, f'after {took} s: {refusal.text}')
    node.ask('close')
    node.ask('set max_wait 3')
    registry.answer = lambda call: refused('a moment', 0.5)
    start = time.monotonic()
    same(node.open().refusal().reason, 'REFUSED', 'the reason')
    holds(time.monotonic() - start > 0.7, 'it does not wait')


@check('a node that may not wait is told so, in the same words in each language')
def gave_up(kit):
    registry = kit.registry()
    registry.at = {'query': 'hang'}
    node = kit.node(registry, max_wait='0.25').open()
    start = time.monotonic()
    refusal = node.refusal()
    holds(0.2 < time.monotonic() - start < 3, f'it waits for {time.monotonic() - start} s')
    same((refusal.reason, node.state()[0]), ('GAVE_UP', 'starting'), 'reason and phase')
    words = (r'gave up waiting for {}\nDetail: max_?wait is 0.250 s.\nHint: Try again, or raise max_?wait.  See whether the '
             "registry's database answers.")
    holds(re.fullmatch(words.format('a node number'), refusal.text, re.I), refusal.text)
    node.ask('close')
    registry.at = {}
    node.open()
    kit.wait_for_lease(node)
    node.ask('clock 11')
    registry.at = {'query': 'hang'}
    refusal = node.refusal()
    holds(re.fullmatch(words.format('the lease to be extended'), refusal.text, re.I), refusal.text)


@check('of errors some do not go away by waiting, and of some the registry is too busy', 5)
def sqlstates(kit):
    registry = kit.registry()
    node = kit.node(registry, max_wait='0.5')
    for state in '22023', '3D000', '3F000', '42501', '42883', '55000':
        registry.answer = lambda call, state=state: Reply(error=error(state, 'for the check'))
        node.open()
        kit.wait(lambda: node.state()[3], 'the problem')
        same((state, node.refusal().reason, node.state()[0]), (state, 'REFUSED', 'refused'), 'state')
        node.ask('close')
    for state in '22P02', '3B001', '42P01', 'XX000':
        registry.answer = lambda call, state=state: Reply(error=error(state, 'for the check'))
        node.open()
        kit.wait(lambda: node.state()[3], 'the problem')
        same((state, node.refusal().reason, node.state()[0]), (state, 'GAVE_UP', 'retrying'), 'state')
        node.ask('close')
    others = []
    for state in '08P01', '40001', '53400', '57014', '55P03', '55000', '42883', 'XX000', '58000':
        other = kit.registry()
        fails = [Reply(error=error(state, 'for the check'))]
        other.answer = lambda call, other=other, fails=fails: fails.pop() if fails else other.honest(call)
        kit.node(other, max_wait=0).open()
        others.append((state, other))
    for state, other in others:
        other.wait_for(lambda other=other: len(other.calls) > 1, 10, f'another call after {state}')
        same((state, other.calls[1].request['window'] // MICROS),
             (state, 120 if re.match('08|40|53|57|55P03', state) else 10), 'the window')


@check('before its layout has begun a node asks nobody')
def before_the_epoch(kit):
    registry = kit.registry()
    node = kit.node(registry, layout='twitter, epoch 2100-01-01T00:00:00Z', max_wait=20).open()
    refusal = node.refusal()
    same(refusal.reason, 'REFUSED', 'the reason')
    holds(re.fullmatch(r'could not get a node number from the registry: the first tick of the layout begins at'
                       r' 2100-01-01T00:00:00(\.0+)?Z, which is to come.  Hint: Correct the clock if it is behind; else'
                       r' choose an earlier epoch.', refusal.text), refusal.text)
    same(registry.calls, [], 'calls')
    node.ask(f'clock {80 * 366 * 86400}')
    kit.wait_for_lease(node)
    node.next()


@check('ids go on while renewals are refused', 7)
def refused_renewal(kit):
    registry = kit.registry()
    registry.answer = lambda call: refused('for the check', 0.4) if call.name == 'renew' else registry.honest(call)
    node = kit.node(registry, lease_duration=6, max_wait=0).open()
    kit.wait_for_lease(node)
    start, ids = time.monotonic(), []
    while not registry.named('acquire')[1:] and time.monotonic() - start < 4:
        ids.append(node.next())
        time.sleep(0.01)
    holds(len(registry.named('renew')) >= 2, 'it asks again')
    same({Layout(TWITTER).number(value) for value in ids}, {100}, 'numbers')
    registry.answer = registry.honest
    kit.wait(lambda: node.state()[0] == 'ready', 'ready')
    increasing([*ids, node.next()])


@check('after a no the lease is sealed, and another one asked for at once, with the end of its ids', 5)
def answer_no(kit):
    registry = kit.registry()
    node = kit.node(registry).open()
    ids = [node.next()]
    saved = registry.honest
    registry.answer = lambda call: {'answer': 'no', 'reason': 'closed'} if call.name == 'renew' else saved(call)
    layout = Layout(TWITTER)
    while len(registry.named('acquire')) < 2:
        ids += node.batch(2)
    ids += [node.next()]
    renew, acquire = registry.named('renew')[0], registry.named('acquire')[1]
    # how long a driver takes to connect is not the node's
    holds(acquire.connection.at - renew.at < 0.7, 'it was not asked for in the same moment')
    old = [value for value in ids if layout.number(value) == 100]
    lease = acquire.request['lease']
    holds(lease['ids_end_at'] >= layout.end(max(old)), 'ids were issued after the end that was said')
    holds(lease['ids_end_at'] <= now() + 2 * MICROS, 'the end is not that of the ids')
    same((acquire.request['ids_end_at'], acquire.request['starts_at'], acquire.request['uses']),
         (lease['ids_end_at'], None, registry.incarnation), 'ids_end_at, starts_at and uses')
    same([layout.number(value) for value in ids[-1:]], [101], 'number')
    holds(ids[-1] not in old and ids == sorted(ids, key=lambda v: (layout.number(v), v)), 'an id of the old lease')
    inside(registry, layout, ids)


@check('after the ids of another incarnation leases start where ids ended', 9)
def another_registry(kit):
    registry = kit.registry()
    node = kit.node(registry).open()
    layout = Layout(TWITTER)
    first, before = node.next(), registry.incarnation
    registry.incarnation = str(uuid.uuid4())
    registry.answer = lambda call: ({'answer': 'no', 'reason': 'incarnation'} if call.name == 'renew'
                                    and len(registry.named('renew')) < 3 else registry.honest(call))
    registry.wait_for(lambda: len(registry.named('acquire')) > 1, what='another lease')
    kit.wait(lambda: node.state()[1] == 101, 'the new number')
    second = node.next()
    same(registry.named('acquire')[1].request['uses'], before, 'uses')
    registry.wait_for(lambda: len(registry.named('acquire')) > 2, what='the third lease')
    request = registry.named('acquire')[2].request
    same(request['uses'], registry.incarnation, 'uses')
    holds(request['starts_at'] is not None and request['starts_at'] >= layout.end(first), 'starts_at')
    holds(request['ids_end_at'] >= layout.end(second), 'ids_end_at')


@check('a lease that starts before ids of another incarnation ended is not used', 9)
def another_registry_ids(kit):
    registry = kit.registry()
    node = kit.node(registry, max_wait=0).open()
    kit.wait_for_lease(node)
    node.next()
    registry.incarnation = str(uuid.uuid4())

    def answer(call):
        if call.name == 'renew' and len(registry.named('renew')) < 3:
            return {'answer': 'no', 'reason': 'incarnation'}
        granted = registry.honest(call)
        if call.name == 'acquire' and len(registry.named('acquire')) == 3:
            granted['starts_at'] = call.request['starts_at'] - 1
        return granted

    registry.answer = answer
    kit.wait(lambda: 'not asked for: it starts at' in node.state()[3], 'the problem')
    same(node.state()[1], 101, 'number')
    kit.wait(lambda: node.state()[1] == 103, 'another lease')


def false_lease(kit, change, after_no=False):
    """A false lease is an error: it is not used, and the next one is."""
    registry = kit.registry()
    state = {'false': 0}

    def answer(call):
        if call.name == 'renew' and after_no and len(registry.named('renew')) == 1:
            return {'answer': 'no', 'reason': 'closed'}
        granted = registry.honest(call)
        if call.name == 'acquire' and state['false'] == 0 and len(registry.named('acquire')) == 1 + after_no:
            state['false'] = 1
            return {**granted, **change(granted, call.request)}
        return granted

    registry.answer = answer
    node = kit.node(registry, max_wait=0).open()
    if after_no:
        kit.wait_for_lease(node)
        node.next()
    registry.wait_for(lambda: state['false'], what='the false lease')
    kit.wait(lambda: 'not asked for' in node.state()[3], 'the problem')
    holds(node.state()[1] in (-1, 100 if after_no else -1), 'the false lease is used')
    node.refusal()
    registry.wait_for(lambda: len(registry.named('acquire')) >= 2 + after_no, what='the next call')
    kit.wait(lambda: node.state()[1] == 101 + after_no, 'a lease')
    node.next()


@check('a number that was not asked for is not used')
def foreign_number(kit):
    false_lease(kit, lambda granted, request: {'node_number': 1023})


@check('a lease at the bounds of what was asked for is used', 4)
def at_the_bounds(kit):
    for change in (lambda granted, request: {'node_number': 1022},
                   lambda granted, request: {'starts_at': request['clock'] + request['max_ahead'] + 10 * MICROS,
                                             'leased_until': request['clock'] + 60 * MICROS},
                   lambda granted, request: {'starts_at': request['clock'] + 1, 'leased_until': request['clock'] + 1}):
        registry = kit.registry()

        def answer(call, registry=registry, change=change):
            granted = registry.honest(call)
            return {**granted, **change(granted, call.request)} if call.name == 'acquire' else granted

        registry.answer = answer
        node = kit.node(registry, max_wait=0).open()
        kit.wait_for_lease(node)
        same(len(registry.named('acquire')), 1, 'leases asked for')
        node.ask('close')
    # the own number again, from where its ids ended
    registry = kit.registry()

    def again(call):
        if call.name == 'renew' and not registry.named('acquire')[1:]:
            return {'answer': 'no', 'reason': 'closed'}
        granted = registry.honest(call)
        return {**granted, 'node_number': 100, 'starts_at': call.request['lease']['ids_end_at']} if granted.get(
            'node_number') == 101 else granted

    registry.answer = again
    node = kit.node(registry).open()
    ids = [node.next()]
    registry.wait_for(lambda: registry.named('acquire')[1:], what='another lease')
    kit.wait(lambda: node.state()[0] == 'ready', 'ready')
    increasing([*ids, node.next()])
    same((node.state()[1], len(registry.named('acquire'))), (100, 2), 'number, and leases asked for')


@check('a lease that ends before it starts is not used')
def ends_first(kit):
    false_lease(kit, lambda granted, request: {'leased_until': granted['starts_at'] - 1})


@check('a lease that had ended when it was asked for is not used, and not asked for without pause', 5)
def ended_before(kit):
    false_lease(kit, lambda granted, request: {'leased_until': request['clock']})
    registry = kit.registry()

    def answer(call):
        granted = registry.honest(call)
        if call.name == 'acquire':
            return {**granted, 'leased_until': call.request['clock']}
        return {'answer': 'no', 'reason': 'closed'}

    registry.answer = answer
    node = kit.node(registry, max_wait=0).open()
    time.sleep(3)
    holds(2 <= len(registry.calls) <= 5, f'{len(registry.calls)} calls in 3 s')
    holds(re.fullmatch(r'the registry granted a lease that was not asked for: it starts at \S+Z and had ended at \S+Z, before it'
                       r' was asked for\.  ?See which server answers there, and whether somebody has changed the functions in its'
                       r' schema snowflake\.', node.state()[3]), node.state()[3])


@check('a lease that starts too late is not used')
def starts_late(kit):
    false_lease(kit, lambda granted, request: {
        'starts_at': request['clock'] + request['max_ahead'] + 10 * MICROS + 1,
        'leased_until': request['clock'] + 60 * MICROS})


@check('a lease of the own number that starts before its ids ended is not used', 6)
def own_ids(kit):
    false_lease(kit, lambda granted, request: {
        'node_number': 100, 'starts_at': request['lease']['ids_end_at'] - 1}, True)


@check('a lease of another generation that starts before all ids ended is not used', 6)
def generation_ids(kit):
    false_lease(kit, lambda granted, request: {'generation': 2, 'starts_at': request['ids_end_at'] - 1}, True)


@check('a former number starts where ids of another generation ended, not where its own did', 12)
def former_number(kit):
    registry = kit.registry()
    ended = []

    def answer(call):
        count = len(registry.named('acquire'))
        if call.name == 'renew' and count < 4:
            return {'answer': 'no', 'reason': 'closed'}
        registry.generation = 1 if count < 3 else 2
        granted = registry.honest(call)
        if call.name == 'acquire' and count > 1:
            ended.append(call.request['lease']['ids_end_at'])
        if call.name == 'acquire' and count == 4:
            return {**granted, 'node_number': 100, 'starts_at': ended[0]}
        return granted

    registry.answer = answer
    node = kit.node(registry).open()
    for number in 100, 101, 102:
        kit.wait(lambda number=number: node.state()[:2] == ('ready', number), f'number {number}')
        node.next()
    kit.wait(lambda: 'not asked for: it starts at' in node.state()[3], 'the problem')
    holds(ended[0] < ended[1], f'the ids ended at {ended}')
    kit.wait(lambda: node.state()[1] == 104, 'another lease')


@check('clocks that differ, an earlier generation and a lease that is cut are logged', 7)
def logged(kit):
    registry = kit.registry()
    registry.limit = 4 * MICROS
    registry.generation = 3
    node = kit.node(registry, alone=True, lease_duration=20).open()
    node.next()
    registry.wait_for(lambda: registry.named('renew'), what='a renewal')
    registry.generation = 2
    registry.answer = lambda call: {**registry.honest(call), 'clock': now() + 100 * MICROS}
    kit.wait(lambda: len(registry.named('renew')) > 3, 'more renewals')
    log = ' '.join(node.log)
    for words in 'the clocks of this program and of the registry differ', 'generation 2', 'has cut it to':
        same(log.count(words), 1, f'"{words}" in the log')


@check('what is over is logged once, and a registry that was rolled back', 10)
def logged_over(kit):
    registry = kit.registry()
    registry.limit = 4 * MICROS
    node = kit.node(registry, alone=True, lease_duration=3, max_wait=0).open()
    kit.wait_for_lease(node)

    def renewals(count):
        least = len(registry.named('renew')) + count
        kit.wait(lambda: len(registry.named('renew')) >= least, 'more renewals')

    def has_logged(words):
        kit.wait(lambda: words in ' '.join(node.log), f'"{words}" in the log')

    registry.generation = 3
    renewals(2)
    registry.generation = 2
    registry.answer = lambda call: {**registry.honest(call), 'clock': now() - 100 * MICROS}
    has_logged('though it was in generation 3 before')
    has_logged('the clocks of this program and of the registry differ by ')
    registry.generation = 3
    registry.answer = lambda call: Reply(error=error('XX000', 'for the check'))
    has_logged('for the check')
    registry.answer = registry.honest
    has_logged('ready again')
    has_logged('the clocks agree again')
    has_logged('the registry answers as of its newest generation again')
    renewals(2)
    registry.answer = lambda call: {'answer': 'no', 'reason': 'rolled back'} if call.name == 'renew' else registry.honest(call)
    has_logged('the registry does not know that node number 100 is leased to this program from')
    log = ' '.join(node.log)
    for words in ('ready again', 'the clocks agree again', 'newest generation again', 'for the check',
                  'though it was in generation', 'the registry differ'):
        same(log.count(words), 1, f'"{words}" in the log')


@check('settings that are not given: leases of two minutes, and ids up to a second ahead', 6)
def defaults(kit):
    registry, node = overloaded(kit)
    registry.at = {}
    kit.wait_for_lease(node)
    request = registry.named('acquire')[0].request
    same(request['window'], 120 * MICROS, 'the whole window')
    same(request['max_ahead'], MICROS + 1000, 'max_ahead, and a tick')


@check('another registry has generations of its own', 7)
def generations_of_another(kit):
    registry = kit.registry()
    registry.limit = 4 * MICROS
    registry.generation = 3
    node = kit.node(registry, alone=True, lease_duration=3, max_wait=0).open()
    kit.wait_for_lease(node)
    registry.incarnation, registry.generation = str(uuid.uuid4()), 2
    seen = len(registry.named('renew'))
    kit.wait(lambda: len(registry.named('renew')) > seen + 1, 'renewals')
    registry.generation = 1
    kit.wait(lambda: 'as of generation 1, though it was in generation 2' in ' '.join(node.log), 'the line about it')
    same(' '.join(node.log).count('though it was in generation'), 1, 'such lines')


@check('a lease that is cut is renewed by what it has got', 6)
def cut(kit):
    registry = kit.registry()
    registry.limit = 4 * MICROS
    node = kit.node(registry, lease_duration=60).open()
    node.next()
    time.sleep(4.5)
    node.next()
    holds(2 <= len(registry.named('renew')) <= 6, f'{len(registry.named("renew"))} renewals in 4.5 s')
    inside(registry, Layout(TWITTER), [node.next()])


# A registry that is away, hangs, closes or is busy

def add_steps():
    for step in scripted.STEPS:
        before = step in ('connect', 'startup', 'login')

        def hangs(kit, step=step, before=before):
            registry = kit.registry()
            registry.at = {step: 'hang'}
            node = kit.node(registry, max_wait=0).open()
            registry.wait_for(lambda: registry.connections, what='a connection')
            hanging = registry.connections[0]
            registry.wait_for(hanging.ended.is_set, 25, 'the end of the call')
            took = hanging.ended_at - hanging.at
            holds(3 < took < (18 if before else 8), f'the call was given up after {took:.1f} s')
            same(node.state()[1], -1, 'number')
            registry.at = {}
            registry.wait_for(lambda: len(registry.calls) > (not before), what='the next call')
            kit.wait_for_lease(node)
            node.next()
            if not before:
                same(registry.calls[1].request['lease'], None, 'the lease that is named')
                holds(registry.cancels, 'the call was not cancelled')

        def closes(kit, step=step, before=before):
            registry = kit.registry()
            registry.at = {step: 'close'}
            node = kit.node(registry, max_wait=0).open()
            registry.wait_for(lambda: registry.connections and registry.connections[0].ended.is_set(), what='a connection')
            kit.wait(lambda: node.state()[3], 'the problem')
            same(node.state()[1], -1, 'number')
            registry.at = {}
            registry.wait_for(lambda: len(registry.calls) > (not before), 8, 'the next call')
            kit.wait_for_lease(node)
            node.next()

        check(f'a registry that hangs: {step}', 20 if before else 9)(hangs)
        check(f'a registry that closes the connection: {step}', 4)(closes)


add_steps()


@check('a renewal that hangs stops no id', 9)
def renewal_hangs(kit):
    registry = kit.registry()
    node = kit.node(registry, max_wait=0).open()
    kit.wait_for_lease(node)
    registry.at = {'query': 'hang'}
    registry.wait_for(lambda: registry.named('renew'), what='a renewal')
    ids, start = [], time.monotonic()
    while time.monotonic() - start < 5.5:
        ids.append(node.next())
        time.sleep(0.01)
    increasing(ids)
    registry.at = {}
    kit.wait(lambda: node.state()[0] == 'ready' and len(registry.named('renew')) > 1, 'a renewal')
    inside(registry, Layout(TWITTER), [*ids, node.next()])


def gaps(times):
    return [b - a for a, b in zip(times, times[1:])]


@check('a registry that has too many connections is asked after longer and longer waits', 20)
def busy(kit):
    registry = kit.registry()
    registry.at = {'startup': error('53300', 'sorry, too many clients already', 'FATAL')}
    node = kit.node(registry, max_wait='0.2').open()
    kit.wait(lambda: node.state()[3], 'the problem')
    refusal = node.refusal()
    same(refusal.reason, 'GAVE_UP', 'the reason')
    holds('too many clients' in refusal.text, refusal.text)
    registry.wait_for(lambda: len(registry.connections) >= 4, 40, 'the fourth call')
    waits = gaps([connection.at for connection in registry.connections[:4]])
    holds(waits[0] > 0.7 and waits[1] > waits[0] and waits[2] > waits[1] and waits[2] < 16, f'waits are {waits}')


def overloaded(kit, **settings):
    """A registry, and a node whose first call has found it overloaded."""
    registry = kit.registry()
    registry.at = {'startup': error('53300', 'sorry, too many clients already', 'FATAL')}
    node = kit.node(registry, **settings).open()
    registry.wait_for(lambda: registry.connections, what='a connection')
    registry.wait_for(lambda: registry.connections[0].ended.is_set(), what='the end of the connection')
    return registry, node


def overloaded_later(kit, lease_duration):
    """The same with a node that has a lease: its renewals find it so."""
    registry = kit.registry()
    node = kit.node(registry, lease_duration=lease_duration, max_wait=0).open()
    kit.wait_for_lease(node)
    registry.at = {'startup': error('53300', 'sorry, too many clients already', 'FATAL')}
    kit.wait(lambda: node.state()[3], 'the problem')
    return registry, node


def gives_up_after(registry, name, least, most):
    """How long a node waits for the answer of a call that hangs; then it cancels the call."""
    registry.at = {'query': 'hang'}
    registry.wait_for(lambda: registry.named(name), what='a call')
    hanging = registry.named(name)[0].connection
    registry.wait_for(hanging.ended.is_set, what='the end of the call')
    took = hanging.ended_at - hanging.at
    holds(least < took < most, f'the call was given up after {took:.1f} s')
    registry.wait_for(lambda: registry.cancels, 3, 'a cancel request')


@check('a node that has found the registry overloaded asks for all of the window', 6)
def whole_window(kit):
    registry, node = overloaded(kit, lease_duration=120, max_wait=20)
    registry.at = {}
    node.next()
    same(registry.calls[0].request['window'], 120 * MICROS, 'the window')


@check('a node that has found the registry overloaded waits longer for its answer', 22)
def patient(kit):
    registry, _ = overloaded(kit, lease_duration=30, max_wait=0)
    gives_up_after(registry, 'acquire', 13, 18)


@check('also after the end of its lease', 40)
def patient_later(kit):
    registry, node = overloaded_later(kit, 30)
    kit.wait(lambda: node.state()[2] < now(), 'the end of the lease')
    gives_up_after(registry, 'renew', 13, 18)


@check('but no longer than usual while little is left of its lease', 16)
def hasty(kit):
    registry, _ = overloaded_later(kit, 12)
    gives_up_after(registry, 'renew', 3, 8)


@check('a process that ends without closing does not wait for the answer', 8)
def ends_unclosed(kit):
    registry, node = overloaded(kit, alone=True, max_wait=0)
    registry.at = {'query': 'hang'}
    registry.wait_for(lambda: registry.named('acquire'), what='a call')
    node.input.close()
    node.process.wait(4)


@check('a call that fails is repeated after about a second, each time', 6)
def fails(kit):
    registry = kit.registry()
    registry.answer = lambda call: Reply(error=error('42501', 'permission denied for function acquire_lease'))
    node = kit.node(registry, max_wait=60).open()
    refusal = node.refusal()
    same(refusal.reason, 'REFUSED', 'the reason: somebody must act')
    holds('permission denied' in refusal.text, refusal.text)
    registry.wait_for(lambda: len(registry.calls) >= 5, what='the fifth call')
    waits = gaps([call.at for call in registry.calls[:5]])
    holds(all(0.6 < wait < 3 for wait in waits), f'waits are {waits}')


@check('a registry that is away: to the end of the lease, the reason, and then ids', 7)
def away(kit):
    registry, ids = kit.registry(), []
    node = kit.node(registry, lease_duration=3, max_wait='0.1').open()
    kit.wait_for_lease(node)
    ids.append(node.next())
    until = node.state()[2]
    registry.go_away()
    start = time.monotonic()
    holds(ids_until(node, ids, 9), 'ids go on')
    holds(time.monotonic() - start > 1.2, 'ids should go on to the end of the lease')
    refusal = node.refusal()
    same(refusal.reason, 'GAVE_UP', 'the reason')
    holds(refusal.text.startswith('could not extend the lease of node number 100: '), refusal.text)
    holds(Layout(TWITTER).end(max(ids)) <= max(until, node.state()[2]), 'an id ends after the lease')
    registry.listen()
    node.ask('close')
    node.ask('set max_wait 5')
    node.open().next()


@check('a registry that is away at the start is found when it comes', 5)
def away_first(kit):
    registry = kit.registry()
    registry.go_away()
    node = kit.node(registry, max_wait=10).open()
    node.send('next')
    time.sleep(1.5)
    registry.listen()
    node.receive(4)
    node.ask('close')


@check('waits differ, in one node and between nodes', 16)
def waits_differ(kit):
    registry = kit.registry()
    registry.answer = lambda call: refused('for the check', 1.6)
    for _ in range(6):
        kit.node(registry, max_wait=0).open()

    def waits():
        """Of each start, in seconds of its own clock."""
        clocks = collections.defaultdict(list)
        for call in list(registry.calls):
            clocks[call.request['start']].append(call.request['clock'] / MICROS)
        return [gaps(times) for times in clocks.values()]

    registry.wait_for(lambda: len(waits()) == 6 and all(len(of) >= 8 for of in waits()), 40, 'calls')
    of_nodes = waits()
    for of in of_nodes:
        holds(1.1 < min(of) and max(of) < 4 and max(of) - min(of) > 0.15, f'waits are {of}')
    holds(max(abs(a - b) for a, b in zip(*of_nodes[:2])) > 0.1, 'two nodes wait alike')
    # a quarter less to a quarter more; a machine that is busy makes waits longer, never shorter
    longest, shortest = max(max(of) for of in of_nodes), min(min(of) for of in of_nodes)
    holds(shortest < 1.42 and longest > 1.78, f'waits are from {shortest:.2f} to {longest:.2f} s')


@check('a lease is asked for that holds max_ahead and a tick, however short leases are to be')
def least_window(kit):
    registry = kit.registry()
    kit.node(registry, layout=SECONDS, lease_duration=1, max_ahead=2).open().next()
    window = registry.calls[0].request['window']
    holds(window > 3 * MICROS, f'the window is {window}')


@check('a lease is renewed when about a quarter is used, each time for twice as long', 14)
def renewals(kit):
    registry = kit.registry()
    node = kit.node(registry, lease_duration=120).open()
    node.next()
    registry.wait_for(lambda: len(registry.named('renew')) >= 2, 20, 'two renewals')
    acquire, one, two = registry.calls[:3]
    same([call.request['window'] // MICROS for call in (acquire, one, two)], [10, 20, 40], 'windows')
    waits = [gap / MICROS for gap in gaps([call.request['clock'] for call in (acquire, one, two)])]
    holds(1.7 < waits[0] < 4 and 3.5 < waits[1] < 7, f'renewals come after {waits}')
    same(two.request['lease']['leased_until'], one.request['clock'] + one.request['window'], 'the end that is named')


# Clocks

@check('a clock that is set back a little, a lot, and once more', 5)
def set_back(kit):
    registry = kit.registry()
    node = kit.node(registry, max_wait=2).open()
    kit.wait_for_lease(node)
    layout = Layout(TWITTER)
    ids = [node.next()]
    node.ask('clock -0.8')
    ids.append(node.next())
    increasing(ids)
    same(layout.number(ids[1]), 100, 'number')
    node.ask('clock -60')
    value = node.next()
    same(layout.number(value), 101, 'another number')
    holds(layout.begin(value) <= now() - 58 * MICROS, 'an id of the clock as it is')
    holds(registry.named('acquire')[1].request['lease']['ids_end_at'] >= layout.end(ids[1]), 'the end of the ids')
    inside(registry, layout, [*ids, value])
    # a clock that goes on so does not use up numbers
    node.ask('clock -200')
    same(layout.number(node.next()), 102, 'another number')
    _, one, two = registry.named('acquire')
    holds(two.at - one.at > 0.4, f'two numbers within {two.at - one.at} s')
    same([call.request['starts_at'] for call in (one, two)], [None, None], 'starts_at of one registry')


@check('a clock that is set back while a renewal hangs', 7)
def set_back_hanging(kit):
    registry = kit.registry()
    node = kit.node(registry, max_wait=2).open()
    kit.wait_for_lease(node)
    node.next()
    registry.at = {'query': 'hang'}
    registry.wait_for(lambda: registry.named('renew'), what='a renewal')
    registry.at = {}
    node.ask('clock -60')
    value = node.next()
    same(Layout(TWITTER).number(value), 101, 'another number')
    renewal, acquire = registry.calls[1:3]
    holds(acquire.request['call'] > renewal.request['call'], 'the number of the call')
    registry.wait_for(lambda: registry.cancels, 3, 'a cancel request')
    inside(registry, Layout(TWITTER), [value])


@check('a clock that is set back before the first id of a lease', 4)
def set_back_unused(kit):
    registry = kit.registry()
    node = kit.node(registry, max_wait=2).open()
    kit.wait_for_lease(node)
    # the lease starts a minute before what the clock has shown
    node.ask('clock -100')
    value = node.next()
    same(Layout(TWITTER).number(value), 101, 'another number')
    inside(registry, Layout(TWITTER), [value])


@check('a clock that is set back by more than the node may wait, without another number')
def set_back_refused(kit):
    registry = kit.registry()
    node = kit.node(registry, max_wait=0).open()
    kit.wait_for_lease(node)
    node.next()
    node.ask('clock -1.9')
    refusal = node.refusal()
    same(refusal.reason, 'TOO_FAR_AHEAD', 'the reason')
    holds('set back' in refusal.text, refusal.text)


@check('while the clock is set back, a renewal would give nothing, and is not asked for', 3)
def set_back_idle(kit):
    registry = kit.registry()
    node = kit.node(registry, lease_duration=2).open()
    kit.wait_for_lease(node)
    node.ask('clock -60')
    # the next one would be due after half a second
    time.sleep(2)
    same([call for call in registry.named('renew') if call.request['clock'] < now() - 30 * MICROS], [], 'renewals')


@check('who waits for the clock waits as long as it must, and says how long that is if it is too long', 6)
def waits_for_the_clock(kit):
    registry = kit.registry()
    node = kit.node(registry, max_ahead=1, max_wait='1.3').open()
    kit.wait_for_lease(node)
    node.ask('clock 0.1')
    value = node.next()
    # 0.7 s to wait, which is less than max_wait; with what max_ahead allows it would be more
    node.ask('clock -1.6')
    start = time.monotonic()
    other = node.next()
    took = time.monotonic() - start
    increasing([value, other])
    same(Layout(TWITTER).number(other), 100, 'number')
    holds(took > 0.4, f'the id came after {took} s')
    holds(Layout(TWITTER).begin(other) <= now() - 1.6 * MICROS + MICROS, 'the id is further ahead than max_ahead')
    # 0.95 s is more than max_wait allows: then it does not wait at all
    node = kit.node(registry, max_ahead='0.5', max_wait='0.4').open()
    kit.wait_for_lease(node)
    node.next()
    node.ask('clock -1.45')
    refusal = node.refusal()
    same(refusal.reason, 'TOO_FAR_AHEAD', 'the reason')
    said = re.fullmatch(r'the next id would be (\d\.\d{3}) s ahead of the clock\nDetail: max_?ahead allows 0.500 s; the clock'
                        r' is there in (\d\.\d{3}) s, max_?wait is 0.400 s.\nHint: If the clock was set back, ids go on when'
                        r' it has caught up.  If too many ids are needed, choose a layout with more sequence bits.',
                        refusal.text, re.I)
    holds(said, refusal.text)
    ahead, need = map(float, said.groups())
    holds(0.551 < need <= 0.951 and abs(ahead - need - 0.5) < 0.0011, refusal.text)


@check('a clock that jumps about: all ids are distinct, and inside their leases', 8)
def jumps(kit):
    registry = kit.registry()
    node = kit.node(registry, max_wait=3, lease_duration=20).open()
    ids = []
    for step in (0, 3, -3, 15, 14, 40, -20, 0, 7, -9, 120, 119.5, -0.5, 0.2):
        node.ask(f'clock {step}')
        try:
            ids += [node.next(), *node.batch(5000)]
        except Refusal as refusal:
            holds(refusal.reason in ('TOO_FAR_AHEAD', 'GAVE_UP'), str(refusal))
    holds(len(ids) > 30000, f'{len(ids)} ids')
    same(len(set(ids)), len(ids), 'distinct ids')
    inside(registry, Layout(TWITTER), ids)


@check('when the time of the layout is over, it is said; and over when the clock is right')
def field_full(kit):
    registry = kit.registry()
    node = kit.node(registry, max_wait=3).open()
    kit.wait_for_lease(node)
    node.next()
    node.ask(f'clock {100 * 366 * 86400}')
    refusal = node.refusal()
    same(refusal.reason, 'FIELD_FULL', 'the reason')
    holds(refusal.text.startswith(f'the timestamp field of layout "{TWITTER}" is full\nDetail: Its last tick ends at 2080-07-10T17:30:30.209'),
          refusal.text)
    node.ask('clock 0')
    node.next()


@check('a lease that begins after the time of the layout is over is opened when the clock is right')
def granted_when_full(kit):
    registry = kit.registry()
    node = kit.node(registry, max_wait=3).open()
    kit.wait_for_lease(node)
    registry.answer = lambda call: {'answer': 'no', 'reason': 'closed'} if call.name == 'renew' else registry.honest(call)
    node.ask(f'clock {100 * 366 * 86400}')
    node.refusal()
    registry.wait_for(lambda: len(registry.named('acquire')) > 1, what='another lease')
    for _ in range(2):
        same(node.refusal().reason, 'FIELD_FULL', 'the reason')
    node.ask('clock 0')
    node.next()


# Processes and threads

@check('64 threads or tasks: all ids are distinct')
def threads(kit):
    registry = kit.registry()
    node = kit.node(registry).open()
    ids = [int(word) for word in node.ask('many 64 500').split()]
    same((len(ids), len(set(ids))), (32000, 32000), 'distinct ids')
    for thread in range(64):
        increasing(ids[thread * 500:(thread + 1) * 500])
    inside(registry, Layout(TWITTER), ids)


@check('a million ids take no memory', 6)
def memory(kit):
    registry = kit.registry()
    node = kit.node(registry, alone=True, max_wait=20).open()
    node.ask('burn 1000000', 120)
    before = node.memory()
    node.ask('burn 1000000', 120)
    more = node.memory() - before
    holds(more < 32 << 20, f'{more >> 20} MB more')
    inside(registry, Layout(TWITTER), [node.next()])


@check('a clock that takes an id gives none twice')
def nested(kit):
    registry = kit.registry()
    node = kit.node(registry).open()
    kit.wait_for_lease(node)
    ids = []
    for _ in range(20):
        answer = node.ask('nested')
        if answer == 'none':
            return 'not of this language'
        ids += [int(word) for word in answer.split()]
    same(len(set(ids)), len(ids), 'distinct ids')
    inside(registry, Layout(TWITTER), ids)


@check('a clock that closes the node ends its ids, and the lease after them')
def closing(kit):
    registry = kit.registry()
    node = kit.node(registry).open()
    kit.wait_for_lease(node)
    ids = [node.next()]
    answer = node.ask('closing')
    if answer == 'none':
        return 'not of this language'
    ids += [int(word) for word in answer.split()]
    same(node.refusal().reason, 'CLOSED', 'the reason')
    registry.wait_for(lambda: registry.named('release'), what='the release')
    release, = registry.named('release')
    holds(Layout(TWITTER).end(max(ids)) <= release.request['lease']['ids_end_at'], 'an id is later than the end that was told')
    same(len(set(ids)), len(ids), 'distinct ids')
    inside(registry, Layout(TWITTER), ids)


@check('a log that closes the node at once ends its ids, and the lease after them', 6)
def closing_log(kit):
    registry, layout = kit.registry(), Layout(TWITTER)
    node = kit.node(registry, alone=True, lease_duration=2, max_wait=20)
    node.ask('logging the clocks of this program')
    ids = [node.open().next()]

    def answer(call):
        if call.name == 'renew':
            return {'answer': 'no', 'reason': 'closed'}
        if call.name == 'release':
            time.sleep(1)
        # a line that comes with the second lease
        return {**registry.honest(call), 'clock': now() + (100 * MICROS if registry.named('acquire')[1:] else 0)}

    registry.answer = answer
    registry.wait_for(lambda: registry.named('acquire')[1:], what='another lease')
    end = time.monotonic() + 5
    while time.monotonic() < end:
        try:
            ids.append(node.next())
        except Refusal as refusal:
            same(refusal.reason, 'CLOSED', 'the reason')
            break
    registry.wait_for(lambda: registry.named('release'), what='the release')
    release, = registry.named('release')
    took = release.at - registry.named('acquire')[1].at
    holds(took < 4, f'the release came after {took:.1f} s: who closes waits for itself')
    lease = release.request['lease']
    late = [value for value in ids if layout.number(value) != 100]
    holds(all((layout.number(value), layout.end(value) <= lease['ids_end_at']) == (lease['node_number'], True) for value in late),
          f'ids of a lease that the release does not end: {lease}')
    inside(registry, layout, ids)
    # the log that closes is not waited for by itself
    start = time.monotonic()
    node.ask('close')
    took = time.monotonic() - start
    holds(took < 3, f'to close again takes {took:.1f} s')


@check('who closes has the last line of the log', 4)
def last_line(kit):
    registry = kit.registry()
    # a line that comes with the answer to the release
    registry.answer = lambda call: {**registry.honest(call), 'clock': now() + (call.name == 'release') * 200 * MICROS}
    node = kit.node(registry, alone=True)
    node.ask('slow 1')
    node.open().next()
    node.ask('close')
    same([call.name for call in registry.calls], ['acquire', 'release'], 'calls')
    kit.wait(lambda: 'the clocks of this program' in ' '.join(node.log), 'the last line', 0.5)
    node = kit.node(registry, alone=True).open()
    node.next()
    node.send('quit')
    node.process.wait(10)
    kit.wait(lambda: 'the clocks of this program' in ' '.join(node.log), 'the last line of a process that has ended', 1)


@check('a process that forks is two nodes', 4)
def forks(kit):
    registry = kit.registry()
    node = kit.node(registry, alone=True, max_wait=10).open()
    ids = [node.next()]
    answer = node.ask('fork')
    if answer == 'none':
        return 'this language does not fork'
    ids += [int(word) for word in answer.split()]
    layout = Layout(TWITTER)
    same(len(set(ids)), len(ids), 'distinct ids')
    same(len({layout.number(value) for value in ids}), 2, 'numbers')
    same(len({call.request['start'] for call in registry.named('acquire')}), 2, 'starts')
    same(len(registry.named('acquire')), 2, 'calls: each process has one keeper')
    inside(registry, layout, [*ids, node.next()])


@check('a process that is killed comes back as another start')
def killed(kit):
    registry, ids = kit.registry(), []
    for _ in range(2):
        node = kit.node(registry, alone=True).open()
        ids += node.batch(100)
        node.kill()
    same(len(set(ids)), 200, 'distinct ids')
    one, two = (call.request for call in registry.named('acquire'))
    holds(one['start'] != two['start'], 'the same start')
    same((two['lease'], two['uses'], two['ids_end_at']), (None, None, None), 'what the new start knows')
    same(registry.named('release'), [], 'releases')


@check('who closes gives the number back, with the end of its ids; then there are no ids')
def closes(kit):
    registry = kit.registry()
    node = kit.node(registry).open()
    ids = node.batch(50)
    node.ask('close')
    release, = registry.named('release')
    end = release.request['lease']['ids_end_at']
    holds(Layout(TWITTER).end(max(ids)) <= end <= now() + 2 * MICROS, 'ids_end_at')
    refusal = node.refusal()
    same((refusal.reason, refusal.text), ('CLOSED', 'this Snowflake is closed\nHint: Close it after the last id.'),
         'the refusal')
    node.ask('close')
    same(len(registry.named('release')), 1, 'releases')


@check('a task closes without a thread')
def closes_in_a_task(kit):
    registry = kit.registry()
    node = kit.node(registry).open()
    value = node.next()
    start = time.monotonic()
    if node.ask('aclose') == 'none':
        return 'not of this language'
    holds(time.monotonic() - start < 2, 'it takes too long')
    release, = registry.named('release')
    holds(Layout(TWITTER).end(value) <= release.request['lease']['ids_end_at'], 'ids_end_at')
    same(node.refusal().reason, 'CLOSED', 'the reason')


@check('a lease without ids ends where it starts')
def closes_unused(kit):
    registry = kit.registry()
    node = kit.node(registry).open()
    kit.wait_for_lease(node)
    node.ask('close')
    release, = registry.named('release')
    same(release.request['lease']['ids_end_at'], registry.spans[100][0][0], 'ids_end_at')


@check('who closes does not wait long for a registry that hangs, and issues nothing', 9)
def closes_hanging(kit):
    registry = kit.registry()
    node = kit.node(registry).open()
    node.next()
    registry.at = {'startup': 'hang'}
    start = time.monotonic()
    node.ask('close')
    holds(time.monotonic() - start < 8, 'close takes too long')
    same(node.refusal().reason, 'CLOSED', 'the reason')


@check('a thread that waits is told of the end')
def closes_waiting(kit):
    registry = kit.registry()
    registry.go_away()
    node = kit.node(registry, max_wait=30).open()
    node.ask('begin next')
    time.sleep(0.5)
    node.ask('close')
    start = time.monotonic()
    same(node.refusal('end').reason, 'CLOSED', 'the reason')
    holds(time.monotonic() - start < 2, 'it was told late')


@check('a node that is forgotten, not closed, lets its lease end', 6)
def forgotten(kit):
    registry = kit.registry()
    node = kit.node(registry, lease_duration=2).open()
    node.next()
    node.ask('forget')
    registry.calls.clear()
    time.sleep(4)
    late = [call for call in registry.calls if call.at > time.monotonic() - 2 and call.name == 'renew']
    same(late, [], 'renewals')


@check('arguments and settings that cannot be are refused')
def arguments(kit):
    registry = kit.registry()
    node = kit.node(registry).open()
    node.next()
    for count in 0, -1, 1_000_001:
        refusal = node.refusal(f'next {count}')
        same(refusal.reason, 'INVALID', f'next {count}')
        same(refusal.text, f'batch of {count} ids is out of range\nHint: Ask for 1 to 1000000 ids at a time.', 'the refusal')
    same(len(node.batch(1_000_000)), 1_000_000, 'the largest batch')
    node.ask('close')
    for name, bad, good in (('max_ahead', -1, 1), ('max_ahead', 3601, 1), ('max_wait', -1, 5), ('lease_duration', '0.5', 120),
                            ('lease_duration', 86401, 120), ('max_wait', 86401, 5)):
        node.ask(f'set {name} {bad}')
        refusal = node.refusal('open')
        same(refusal.reason, 'INVALID', f'{name} {bad}')
        # in the units of the language
        said = name.replace('_', '_?') + r' is \S+( m?s)?\nHint: It is from \S+ to \S+( m?s)?\.'
        holds(re.fullmatch(said, refusal.text, re.I), refusal.text)
        node.ask(f'set {name} {good}')
    for name, what in ('name', 'name'), ('host_name', 'host name'):
        for bad in ('x' * 256, '\u20ac' * 86, 'a\u200bb', 'a\tb', '', 'a\u034fb', 'a\u115f', 'a\u3164b', 'a\ufe0f',
                    'a\U000e0100'):
            node.ask(f'set {name} {bad}')
            refusal = node.refusal('open')
            shown = re.sub('[\u200b\t]', ' ', bad)
            same((refusal.reason, refusal.text),
                 ('INVALID', f'invalid {what}: "{shown}"\nHint: It has 1 to 255 bytes of printable characters.'), bad)
        node.ask(f'set {name} kit')
    for name, good, usual in (('max_ahead', 3600, 1), ('max_wait', 86400, 5), ('lease_duration', 1, 120),
                              ('lease_duration', 86400, 120), ('name', '\u20ac' * 85, 'kit'), ('name', '\u0378', 'kit'),
                              ('host_name', 'x', 'here')):
        node.ask(f'set {name} {good}')
        node.open()
        node.ask('close')
        node.ask(f'set {name} {usual}')
    node.open().next()


def not_printable():
    """The code points that no text of a node can have: the ranges of snowflake.printable(), which the registry calls."""
    with open(TOP / 'src' / 'sql' / 'registry' / 'calls.sql', encoding='utf-8') as file:
        function = re.search(r'^CREATE FUNCTION snowflake\.printable\(.*?^\$\$;$', file.read(), re.M | re.S)[0]
    ranges = re.findall(r'\\\\[uU]([0-9a-f]+)(?:-\\\\[uU]([0-9a-f]+))?', function)
    holds(len(ranges) > 30, f'snowflake.printable() has {len(ranges)} ranges')
    return {point for first, last in ranges for point in range(int(first, 16), int(last or first, 16) + 1)}


def characters():
    """All code points but surrogates, which UTF-8 does not have."""
    return [point for point in range(1, 0x110000) if not 0xd800 <= point <= 0xdfff]


@check('names have the characters that the registry takes, and no others', 6)
def names(kit):
    node, usual, unprintable = kit.node(max_wait=0), {'name': 'kit', 'host_name': 'here'}, not_printable()
    # the first and the last of each run of one kind: what takes others differs in one of them
    ends = set()
    for _, run in itertools.groupby(characters(), lambda point: (point in unprintable, unicodedata.category(chr(point)))):
        run = list(run)
        ends |= {run[0], run[-1]}

    def spell(name, points):
        node.ask(f'spell {name} {" ".join(f"{point:x}" for point in points)}')

    for point in [0, *sorted(ends & unprintable)]:
        for name in usual:
            spell(name, [0x61, point])
            holds(node.refusal('open').text.startswith(f'invalid {name.replace("_", " ")}: "a'), f'U+{point:04X} in a {name}')
            node.ask(f'set {name} {usual[name]}')
    taken = sorted(ends - unprintable)
    for begin in range(0, len(taken), 63):
        for name in usual:
            spell(name, taken[begin:begin + 63])
        try:
            node.open()
        except Refusal as refusal:
            holds(False, f'one of {" ".join(f"U+{point:04X}" for point in taken[begin:begin + 63])}: {refusal}')
        node.ask('close')
