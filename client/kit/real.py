"""The checks against a real registry, which they share: kit.py --registry."""
import shlex
import subprocess
import time
import uuid

from checks import TWITTER, Layout, characters, holds, increasing, not_printable, same
from node import Refusal

CHECKS = []


def check(title, seconds):
    def add(function):
        CHECKS.append((seconds, title, function))
        return function
    return add


def admin(kit, sql):
    done = subprocess.run([*shlex.split(kit.options.admin), '-c', sql], capture_output=True, text=True, check=False)
    holds(done.returncode == 0, done.stderr)
    return done.stdout.strip()


def node(kit, name, **settings):
    return kit.node(address=kit.options.registry, name=name, **settings)


@check('a real registry shows the node while it runs, and no longer', 3)
def shown(kit):
    # a name of its own: what ran before, and failed, can have left a lease
    name = f'kit {uuid.uuid4()}'
    shows = f"SELECT string_agg(kind || ' ' || host_name || ' ' || node_number, ',') FROM snowflake.nodes WHERE name = '{name}'"
    one = node(kit, name).open()
    ids = [one.next(), *one.batch(1000)]
    increasing(ids)
    same(admin(kit, shows), f'program here {Layout(TWITTER).number(ids[0])}', 'the view')
    one.ask('close')
    leases = f"SELECT closed_at IS NOT NULL, (extract(epoch FROM leased_until) * 1000000)::bigint FROM snowflake.leases WHERE name = '{name}'"
    same(admin(kit, leases), f't|{Layout(TWITTER).begin(ids[-1]) + 1000}', 'its lease, which is closed at the end of the last id')
    # the view shows it to this end, which can be ahead of the clock
    kit.wait(lambda: admin(kit, shows) == '', 'the end of the node in the view')


@check('a real registry: processes that are killed, frozen and started again have distinct ids', 14)
def killed(kit):
    ids, nodes = [], [node(kit, 'kit killed', alone=True, max_wait=20, lease_duration=3).open() for _ in range(4)]
    for turn in range(12):
        one = nodes[turn % 4]
        for each in nodes:
            ids += each.batch(500)
        if turn % 3 == 2:
            one.freeze()
            time.sleep(1.2)
            one.thaw()
        elif turn % 3 == 1:
            one.kill()
            nodes[turn % 4] = node(kit, 'kit killed', alone=True, max_wait=20, lease_duration=3).open()
    for each in nodes:
        ids += each.batch(500)
        each.ask('close')
    same(len(set(ids)), len(ids), 'distinct ids')


@check('a real registry that is locked: ids go on, the call is cancelled, and the lease renewed', 12)
def locked(kit):
    one = node(kit, 'kit locked', max_wait=0).open()
    kit.wait_for_lease(one)
    with subprocess.Popen([*shlex.split(kit.options.admin)], stdin=subprocess.PIPE, text=True) as locker:
        number = one.state()[1]
        # the row of this node alone: other checks use this registry, too
        locker.stdin.write(f'BEGIN; SELECT FROM snowflake.node_number WHERE node_number = {number} FOR UPDATE;\n')
        locker.stdin.flush()
        kit.wait(lambda: one.state()[3], 'the problem')
        one.next()
        locker.stdin.write('ROLLBACK;\n')
        locker.stdin.close()
    kit.wait(lambda: one.state()[0] == 'ready', 'the renewal')
    same(one.state()[1], number, 'number')
    one.ask('close')


@check('a real registry refuses another layout at once', 2)
def refused(kit):
    node(kit, 'kit layout').open().next()
    other = kit.node(address=kit.options.registry, name='kit other', layout='sonyflake', max_wait=60).open()
    try:
        other.next()
        holds(False, 'it gives ids of another layout')
    except Refusal as refusal:
        same(refusal.reason, 'REFUSED', 'the reason')
        holds('the layout is not the one that ids are issued under' in refusal.text, refusal.text)


@check('a real registry takes the characters in names that the kit does', 4)
def characters_taken(kit):
    taken = admin(kit, "SELECT encode(convert_to(snowflake.printable(string_agg(chr(n), '' ORDER BY n)), 'UTF8'), 'hex')"
                       ' FROM generate_series(1, 1114111) AS n WHERE n NOT BETWEEN 55296 AND 57343')
    taken, unprintable = bytes.fromhex(taken).decode(), not_printable()
    wanted = ''.join('?' if point in unprintable else chr(point) for point in characters())
    differ = [f'U+{point:04X}' for point, one, other in zip(characters(), taken, wanted) if one != other]
    same((len(taken), differ[:10]), (len(wanted), []), 'what differs')
