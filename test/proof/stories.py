"""What happens without a rule: a story for each.

A story is a sequence of actions from the first state, by name; z3 finds who, what and when.
Without the rule it ends with two equal ids, and with all rules it cannot.
"""
import inspect
import itertools
import re

from z3 import (And, BoolVal, Const, Distinct, FuncDeclRef, Function, IntSort, IntVal, Or, Solver,
                is_true, sat)

import layout
import lease
import world
from parameters import parameters

LEASE = 'ask grant open '
RENEWAL = 'tell renew extend '
MOVE = 'create close take_over '

# rule: what is done without it, and the story
RULES = {
    # Calls
    'refuse-late-calls': (
        'a registry carries out a call that arrives after a later one',
        LEASE + 'seal tell ' + LEASE + 'release ' + LEASE + 'issue issue'),
    'only-the-last-result-counts': (
        'a node opens a lease that an earlier call was granted',
        LEASE + 'seal ask grant tell release open ' + LEASE + 'issue issue'),
    'close-at-start-what-was-granted-later': (
        'a call closes all rows that it does not name where they started',
        LEASE + 'issue replicate promote count seal ' + LEASE + 'tell release ' + LEASE + 'issue'),
    'a-call-closes-what-it-does-not-name': (
        'rows whose result was lost stay open to their end', None),
    'name-the-newest-lease': (
        'a call names an older lease than the newest that was opened',
        LEASE + 'seal ' + LEASE + 'tell release ' + LEASE + 'issue issue'),
    'say-the-end-of-all-ids': (
        'a node asks without saying where the ids of its start end',
        'replicate ' + LEASE + 'issue seal promote count ' + LEASE + 'issue'),
    'start-after-the-ids-of-the-start': (
        'a registry does not use what the node says about the ids of its start',
        'replicate ' + LEASE + 'issue seal promote count ' + LEASE + 'issue'),
    'keep-the-end-when-the-registry-changes': (
        'a node that has had a lease of a generation says no more where ids of earlier ones end',
        'replicate promote count ' + LEASE + 'issue seal ask grant drop ' + LEASE + 'issue'),
    # Grants
    'start-after-all-rows-of-the-number': (
        'a lease starts before the end of an earlier one', LEASE * 2 + 'issue issue'),
    'a-grant-closes-the-rows-of-its-number': (
        'a grant leaves the earlier rows of its number open',
        LEASE + 'tell ' + LEASE + 'renew extend issue issue'),
    'start-after-rows-of-other-incarnations': (
        'rows of other incarnations do not count',
        LEASE + MOVE + LEASE + 'issue issue'),
    'start-after-the-creation': (
        'leases start before the tables were made', LEASE + 'issue crash create ' + LEASE + 'issue'),
    'max-ahead-past-the-creation': (
        'leases start at the creation of the tables, not max_ahead after it',
        LEASE + 'issue crash create ' + LEASE + 'issue'),
    'start-after-the-floor': (
        'leases start before the floor',
        'replicate promote ' + LEASE + 'stop replicate promote count ' + LEASE + 'issue issue'),
    'start-after-the-creation-of-own-tables': (
        'a registry does not use what the node says about the creation of its own tables',
        'create ' + LEASE + 'issue crash create ' + LEASE + 'issue'),
    'say-when-own-tables-were-made': (
        'a node does not say when its own tables were made',
        'create ' + LEASE + 'issue crash create ' + LEASE + 'issue'),
    'a-fixed-number-starts-at-the-clock': (
        'a fixed number starts where the tables say, before the clock',
        'replicate ' + LEASE + 'issue crash promote count ' + LEASE + 'issue'),
    'parity': (
        'automatic numbers are chosen without regard to the generation',
        'replicate promote count ' + LEASE * 2 + 'issue issue'),
    # Renewals
    'renew-open-rows-only': (
        'a closed row is renewed', LEASE + 'tell ' + LEASE + 'renew extend issue issue'),
    'renew-within-the-generation': (
        'a promoted server renews a lease of an earlier generation',
        LEASE + 'replicate promote count tell renew ' + LEASE + 'extend issue issue'),
    'a-renewal-never-lowers': (
        'a renewal lowers leased_until', LEASE + 'tell renew ' + LEASE + 'issue issue'),
    # Generations
    'count-at-the-head-of-every-call': (
        'a promoted server grants before it counts its generation',
        'replicate promote ' + LEASE * 2 + 'issue issue'),
    'count-every-entry': (
        'the generation grows by one, not by the number of new entries',
        'replicate promote replicate stop count promote count ' + LEASE * 2 + 'issue issue'),
    'store-the-time-of-the-count': (
        'the time of the count is not stored',
        'replicate promote ' + LEASE + 'stop replicate promote count ' + LEASE + 'issue issue'),
    'a-floor-never-falls': (
        'the time of the count takes the place of a later floor',
        'replicate promote count ' + LEASE + 'stop stop create take_over_lost '
        + 'replicate promote count ' + LEASE + 'issue issue'),
    'store-the-time-of-pg-upgrade': (
        'another system identifier stores no time',
        'replicate ' + LEASE + 'stop upgrade ' + LEASE + 'issue issue'),
    'pg-upgrade-closes-rows': (
        'after pg_upgrade, leases of before are renewed',
        LEASE + 'replicate ' + LEASE + 'stop upgrade tell renew extend issue issue'),
    'created-at': (
        'created_at is no floor', LEASE + 'issue crash create ' + LEASE + 'issue'),
    # Nodes
    'seal-before-opening': (
        'a node opens a lease while the words of another one are open',
        'replicate ' + LEASE * 2 + 'seal promote count ' + LEASE + 'issue issue'),
    'a-fixed-number-seals-before-asking': (
        'a node asks another server for its own fixed number while the words are open',
        'replicate ' + LEASE + 'promote count ask issue grant change issue'),
    'say-an-end-only-when-sealed': (
        'a node says where the ids of a lease end while its words are open',
        LEASE + 'tell release ' + LEASE + 'issue issue'),
    'seal-before-the-end-is-told': (
        'a node tells the end of its ids without sealing the words',
        LEASE + 'seal tell release ' + LEASE + 'issue issue'),
    'tell-the-true-end': (
        'the end that is told is before the last id',
        LEASE + 'issue seal tell release ' + LEASE + 'issue'),
    'a-sealed-word-issues-nothing': (
        'a sealed word issues ids', LEASE + 'seal tell release ' + LEASE + 'issue issue'),
    'a-sealed-lease-is-not-renewed': (
        'a node asks for the renewal of a lease that it has sealed',
        LEASE + 'seal tell renew extend tell release ' + LEASE + 'issue issue'),
    'sealing-gives-up-the-call': (
        'the result of a renewal opens a lease again that was sealed meanwhile',
        LEASE + 'tell renew seal extend tell release ' + LEASE + 'issue issue'),
    'the-row-is-durable-before-the-limit': (
        'the limit follows before the row is durable',
        LEASE + 'tell extend ' + LEASE + 'issue issue'),
    'a-tick-begins-after-the-start': (
        'ids of a lease are of ticks before its start', LEASE * 2 + 'issue issue'),
    'a-tick-ends-before-the-limit': (
        'ids of a lease are of ticks after its limit', LEASE * 2 + 'issue issue'),
    # The source guard
    'source-guard': (
        'a registry accepts nodes of a registry that it has not taken over',
        'create ' + LEASE + 'issue crash ' + LEASE + 'issue'),
    'say-what-the-cluster-uses': (
        'a node does not say what its cluster uses',
        'create ' + LEASE + 'issue crash ' + LEASE + 'issue'),
    'record-what-is-used': (
        'a cluster does not record what it uses',
        'create ' + LEASE + 'issue crash ' + LEASE + 'issue'),
    # Closing and taking over
    'a-closed-registry-grants-nothing': (
        'a closed registry grants leases', MOVE + LEASE * 2 + 'issue issue'),
    'a-closed-registry-renews-nothing': (
        'a closed registry renews leases', LEASE + MOVE + LEASE + RENEWAL + 'issue issue'),
    'a-closed-registry-changes-nothing': ('a closed registry closes rows at their true end', None),
    'close-before-taking-over': (
        'a registry is taken over that is not closed',
        LEASE + 'create take_over ' + LEASE + RENEWAL + 'issue issue'),
    'hand-on-the-ends-of-rows': (
        'the ends of rows are not taken over', LEASE + MOVE + LEASE + 'issue issue'),
    'hand-on-the-ends-of-predecessors': (
        'ends that were taken over are not handed on', LEASE + MOVE * 2 + LEASE + 'issue issue'),
    'take-over-the-parity': (
        'numbers are chosen without regard to the generation of what was taken over',
        'replicate promote count ' + LEASE + 'stop ' + MOVE + LEASE + 'issue issue'),
    'hand-on-the-creation': (
        'the creation of the tables is not taken over',
        LEASE + 'create create close take_over ' + LEASE + 'issue issue'),
    'hand-on-the-floor': (
        'the floor is not taken over',
        'replicate promote ' + LEASE + 'stop replicate promote count stop ' + MOVE + LEASE
        + 'issue issue'),
    'a-lost-registry-ends-at-the-clock': (
        'taking over a lost registry stores no time',
        LEASE + 'stop create take_over_lost ' + LEASE + 'issue issue'),
    'own-tables-open-with-a-new-incarnation': (
        'own tables that take over again keep their incarnation',
        LEASE + MOVE + LEASE + 'close take_over_again tell renew extend issue issue'),
    # Assumptions
    'A1-orders-reach-every-standby': (
        'a standby is promoted that has not received an order',
        'replicate ' + MOVE + 'stop promote count ' + LEASE * 2 + 'issue issue'),
    'A1-a-first-use-is-an-order': (
        'two servers of a cluster are writable, and one of them uses another registry first',
        'create ask ask grant open grant open issue issue'),
    'A1-close-the-only-server': (
        'close_registry() is called while another server of the registry is writable',
        'replicate promote count ' + MOVE + 'replicate promote count ' + LEASE * 2 + 'issue issue'),
    'A3-at-most-two-servers': (
        'three servers with one registry\'s tables are writable',
        LEASE + 'replicate promote replicate promote count ' + LEASE + RENEWAL + 'issue issue'),
    'A3-a-fixed-number-is-alone': (
        'two servers with the same fixed number run',
        'replicate promote count ' + LEASE * 2 + 'issue issue'),
    'A3-lost-ends-are-over': (
        'a second failover comes before the ends that the first one lost are over',
        'replicate promote ' + LEASE + 'stop replicate promote count ' + LEASE + 'issue issue'),
    'A3-clocks-are-right': (
        'the clock at the count is behind the one at the promotion',
        'replicate promote ' + LEASE + 'stop replicate promote count ' + LEASE + 'issue issue'),
    'A4-no-id-is-later': (
        'DROP EXTENSION snowflake_registry, and ids are later than the new creation',
        LEASE + 'create ' + LEASE + 'issue issue'),
    'A4-the-server-has-no-lease': (
        'DROP EXTENSION snowflake_registry, and the server itself has a lease',
        'create ' + LEASE + 'create ' + RENEWAL + 'issue ask grant change issue'),
    'A5-the-old-primary-is-gone': (
        'pg_upgrade of a promoted server that has not counted, and the old primary goes on',
        'replicate upgrade ' + LEASE * 2 + 'issue issue'),
    'A5-what-it-granted-is-over': (
        'pg_upgrade of a promoted server that has not counted, and the clock is behind an end',
        'replicate ' + LEASE + 'stop upgrade ' + LEASE + 'issue issue'),
    # What the administrator says
    'what-is-lost-is-over': (
        'a registry is taken over as lost, and the clock is behind an end that it granted',
        LEASE + 'stop create take_over_lost ' + LEASE + 'issue issue'),
    'ids-end-when-the-owner-says': (
        'ids_end_before() is called, and an id that is not in these tables ends later',
        LEASE + 'stop create take_over_lost ids_end_before ' + LEASE + 'issue issue'),
}

LAYOUT_RULES = {
    'ids-are-greater-than-those-of-other-layouts': (
        'another layout is accepted whose ids may be less than those of the one before',
        'grant grant issue issue'),
    'a-change-of-layout-closes-rows': (
        'rows of the layout before stay open, and are renewed when it is used again',
        'grant grant grant renew issue issue'),
    'renew-the-recorded-layout': (
        'a lease of another layout than the recorded one is renewed', None),
}

# Why a rule stays that the promise does not need
WHY_KEPT = {
    'a-call-closes-what-it-does-not-name': 'numbers whose result was lost are free at once',
    'renew-the-recorded-layout': 'its row is closed; the node learns of it sooner',
    'a-closed-registry-changes-nothing':
        'closed_registry() returns the same each time; true ends do no harm',
}

# Sequences that can happen with all rules
REACHED = [
    LEASE + 'issue ' + RENEWAL + 'issue seal tell release ' + LEASE + 'issue crash',
    'replicate ' + LEASE + 'replicate promote count ' + LEASE + 'issue issue stop',
    'replicate ' + LEASE + 'issue stop upgrade ' + LEASE + 'issue restore_rows',
    LEASE + MOVE + LEASE + 'issue close take_over_again ' + LEASE + 'issue',
    LEASE + 'issue ' + MOVE + 'ask grant issue change issue',
    'replicate promote count ' + LEASE + 'stop create close take_over_and_count ' + LEASE + 'issue issue',
    LEASE + 'issue replicate promote count ask grant ' + RENEWAL + 'issue ask grant change issue',
    'ask grant drop tell release ask grant drop ' + LEASE + 'issue',
    LEASE + MOVE + LEASE + 'stop take_over_lost_again ' + LEASE + 'issue',
    LEASE + 'stop create take_over_lost ids_end_before ' + LEASE + 'issue',
    'create ' + LEASE + 'issue seal create ' + LEASE + 'issue seal create ' + LEASE + 'issue',
]

RLIMIT = 40000000


class Story:
    """A sequence of actions of a model, with a few members of each sort."""

    def __init__(self, script, model=lease, duplicate=True):
        self.model = model
        self.steps = script.split()
        self.wants_duplicate = duplicate
        self.told = []                  # each step: the action, and what it acts on
        self.end = None                 # the last state
        count = lambda *names: sum(step in names for step in self.steps)
        grants = count('grant', 'acquire_lease')
        sizes = {
            'Lease': grants, 'Node': grants, 'Number': 2, 'Tick': 2, 'Cluster': 2, 'Layout': 3,
            'Entry': 1 + count('promote'),
            'Server': 1 + count('promote', 'upgrade', 'create', 'take_over_and_count',
                               'take_over_again', 'take_over_lost_again'),
            'Registry': 1 + count('create', 'take_over_again', 'take_over_lost_again',
                               *['take_over', 'take_over_lost'] if hasattr(model, 'Layout') else [])}
        sorts = {sort for sorts in model.STATE.values() for sort in sorts} | {
            x.range() for x in vars(model).values() if isinstance(x, FuncDeclRef)}
        self.members = {sort.name(): [Const('%s_%d' % (sort.name().lower(), i), sort)
                                      for i in range(sizes[sort.name()])]
                        for sort in sorts if sort.name() in sizes}
        # lease.py asks only of the first state what holds for all times; in layout.py a time
        # is one of these.
        self.is_layout = hasattr(model, 'Layout')
        self.members['Int'] = [IntVal(i) for i in range(8 if self.is_layout else 1)]

    def search(self):
        """z3's answer, and the model of the story if there is one."""
        world.members.update(self.members)
        try:
            solver = Solver()
            solver.set('rlimit', RLIMIT)
            solver.add(*self.formulas())
            answer = solver.check()
            return answer, solver.model() if answer == sat else None
        finally:
            world.members.clear()

    def is_member(self, x):
        kind = x.sort().name()
        if kind not in self.members or kind == 'Int' and not self.is_layout:
            return BoolVal(True)
        return Or([x == y for y in self.members[kind]])

    def formulas(self):
        yield from (Distinct(*members) for members in self.members.values() if len(members) > 1)
        for function in vars(self.model).values():
            if isinstance(function, FuncDeclRef):
                kinds = [function.domain(i).name() for i in range(function.arity())]
                if self.is_layout or 'Int' not in kinds:
                    for x in itertools.product(*[self.members[kind] for kind in kinds]):
                        yield self.is_member(function(*x))
        a = self.state(0)
        for thing, sorts in self.model.STATE.items():
            if 'Int' in [sort.name() for sort in sorts[:-1]]:
                setattr(a, thing, lambda *x: BoolVal(False))    # results, and ids of layout.py
            elif sorts[-1].name() != 'Int':
                for x in itertools.product(*[self.members[sort.name()] for sort in sorts[:-1]]):
                    yield self.is_member(getattr(a, thing)(*x))
        yield self.model.first_state(a)
        yield self.model.world()
        self.told = []
        for i, name in enumerate(self.steps, 1):
            world.action[0] = name
            action = self.model.ACTIONS[name]
            arguments = parameters(action, '_%d' % i)
            if hasattr(a, 'now'):       # time passes before each action
                passes, a = self.model.pass_time(a, Const('time_%d' % i, IntSort()))
                yield passes
            guard, b = action(a, **arguments)
            yield guard
            for x in arguments.values():
                if not isinstance(x, FuncDeclRef):
                    yield self.is_member(x)
            if name in ('ask', 'tell', 'lie'):
                call = arguments['N'], arguments['C']
                yield from (self.is_member(function(*call)) for function in (
                    self.model.sent_to, self.model.named, self.model.said_uses))
            self.told.append((action, arguments, getattr(a, 'now', None)))
            a = self.following(i, b)
            yield from a.is_that
        self.end = a
        if self.wants_duplicate:
            yield Or([self.model.duplicate(a, *x) for x in self.pairs()])

    def state(self, i):
        return world.State({thing: Function('%s_%d' % (thing, i), *sorts)
                            for thing, sorts in self.model.STATE.items()})

    def following(self, i, b):
        """State b with names of its own, so that formulas stay small."""
        c = self.state(i)
        c.is_that = []
        for thing, sorts in self.model.STATE.items():
            new = getattr(b, thing)
            if isinstance(new, FuncDeclRef) or 'Int' in [sort.name() for sort in sorts[:-1]]:
                setattr(c, thing, new)
                continue
            for x in itertools.product(*[self.members[sort.name()] for sort in sorts[:-1]]):
                c.is_that.append(getattr(c, thing)(*x) == new(*x))
        return c

    def pairs(self):
        for l, m in itertools.combinations(self.members['Lease'], 2):
            for x in self.members['Int' if self.is_layout else 'Tick']:
                yield l, m, x

    def tell(self, answer):
        """The story in words, a line for each action."""
        value = lambda x: answer.eval(x, model_completion=True)
        names = {}
        for kind, members in self.members.items():
            if kind in ('Server', 'Lease') and not self.is_layout:
                members = sorted(members, key=lambda x: value(
                    self.model.turn(x) if kind == 'Server' else self.model.order(x)).as_long())
            for i, member in enumerate(members):
                names[str(value(member))] = str(value(member)) if kind == 'Int' else (
                    'ABCDEFG'[i] if kind == 'Server' else str(i + 1))
        name = lambda x: names.get(str(value(x)), str(value(x)))
        for action, arguments, now in self.told:
            scope = {**vars(self.model), **arguments}
            time = name(now()) + ': ' if now else ''
            yield time + re.sub('{([^}]*)}', lambda found: name(eval(found.group(1), scope)),
                         inspect.getdoc(action))
        for l, m, x in self.pairs():
            if is_true(answer.eval(self.model.duplicate(self.end, l, m, x), model_completion=True)):
                yield 'leases %s and %s have issued the same id: %s' % (
                    name(l), name(m), 'number %s, tick %s to %s' % (
                        name(self.model.number(l)), name(self.model.begins(x)), name(self.model.ends(x)))
                    if not self.is_layout else name(x))
                return
