"""What happens without a rule: a story for each.

A story is a sequence of actions from the first state, by name; z3 finds who, what and when.
Without the rule it ends with two equal ids, and with all rules it cannot.
"""
import inspect
import itertools
import re

from z3 import (And, BoolVal, Const, Distinct, FuncDeclRef, Function, IntSort, IntVal, Or, Solver,
                is_true, sat)

import world
from parameters import parameters

LEASE = 'ask acquire_lease open '
RENEWAL = 'tell renew_lease extend '
RELEASE = 'seal tell release_lease '
PROMOTE = 'promote count_generation '
MOVE = 'create close_registry take_over '
# a lease that a failover loses, and a second failover, to the parity of the first server
TWICE = 'replicate ' + PROMOTE + LEASE + 'stop replicate ' + PROMOTE + LEASE + 'issue issue'

# rule: what is done without it, and the story
RULES = {
    # Calls
    'refuse-late-calls': (
        'a registry carries out a call that arrives after a later one',
        LEASE + 'seal tell ' + LEASE + 'release_lease ' + LEASE + 'issue issue'),
    'only-the-last-result-counts': (
        'a node opens a lease that an earlier call was granted',
        LEASE + 'seal ask acquire_lease tell release_lease open ' + LEASE + 'issue issue'),
    'close-at-start-what-was-granted-later': (
        'a call closes all leases that it does not name where they started',
        LEASE + 'issue replicate ' + PROMOTE + 'seal ' + LEASE + 'tell release_lease ' + LEASE + 'issue'),
    'a-call-closes-what-it-does-not-name': (
        'leases whose result was lost stay open to their end', None),
    'name-the-newest-lease': (
        'a call names an older lease than the newest that was opened',
        LEASE + 'seal ' + LEASE + 'tell release_lease ' + LEASE + 'issue issue'),
    'say-the-end-of-all-ids': (
        'a node asks without saying where the ids of its start end',
        'replicate ' + LEASE + 'issue seal ' + PROMOTE + LEASE + 'issue'),
    'start-after-the-ids-of-the-start': (
        'a registry does not use what the node says about the ids of its start',
        'replicate ' + LEASE + 'issue seal ' + PROMOTE + LEASE + 'issue'),
    'keep-the-end-when-the-registry-changes': (
        'a node that has had a lease of a generation says no more where ids of earlier ones end',
        'replicate ' + PROMOTE + LEASE + 'issue seal ask acquire_lease drop ' + LEASE + 'issue'),
    # Grants
    'start-after-ended-until': (
        'a lease starts before the end of one that is closed', LEASE + 'issue ' + RELEASE + LEASE + 'issue'),
    'start-after-the-open-lease': (
        'a lease starts before the end of the one that is open', LEASE * 2 + 'issue issue'),
    'closing-never-lowers-ended-until': (
        'a lease that is closed at its true end takes the place of a later end of its number',
        'create ' + LEASE * 2 + 'close_registry take_over ' + RELEASE + LEASE + 'issue issue'),
    'start-after-the-creation': (
        'leases start before the tables were made', LEASE + 'issue crash create ' + LEASE + 'issue'),
    'max-ahead-past-the-creation': (
        'leases start at the creation of the tables, not max_ahead after it',
        LEASE + 'issue crash create ' + LEASE + 'issue'),
    'start-after-the-count': (
        'leases start before the generation was counted', TWICE),
    'start-after-the-floor': (
        'leases start before the floor',
        LEASE + 'stop create take_over_lost ' + LEASE + 'issue issue'),
    'start-after-the-creation-of-own-tables': (
        'a registry does not use what the node says about the creation of its own tables',
        'create ' + LEASE + 'issue crash create ' + LEASE + 'issue'),
    'say-when-own-tables-were-made': (
        'a node does not say when its own tables were made',
        'create ' + LEASE + 'issue crash create ' + LEASE + 'issue'),
    'a-fixed-number-starts-at-the-clock': (
        'a fixed number starts where the tables say, before the clock',
        'replicate ' + LEASE + 'issue crash ' + PROMOTE + LEASE + 'issue'),
    'parity': (
        'automatic numbers are chosen without regard to the generation',
        'replicate ' + PROMOTE + LEASE * 2 + 'issue issue'),
    # Renewals
    'renew-the-open-lease-only': (
        'a closed lease is renewed', LEASE + 'tell ' + LEASE + 'renew_lease extend issue issue'),
    'renew-within-the-generation': (
        'a promoted server renews a lease of an earlier generation',
        LEASE + 'replicate ' + PROMOTE + 'tell renew_lease ' + LEASE + 'extend issue issue'),
    'a-renewal-never-lowers': (
        'a renewal lowers leased_until', LEASE + 'tell renew_lease ' + LEASE + 'issue issue'),
    'renew-what-starts-after-ended-until': (
        'a lease is renewed that starts before an end which a dump or another registry brought', None),
    # The limit for ends
    'ends-are-limited': ('a lease ends later than the limit allows', TWICE),
    'a-limit-that-was-lowered-counts': (
        'the limit is lowered, and the longest window with it at once',
        'replicate ' + PROMOTE + LEASE + 'stop limit_leases replicate ' + PROMOTE + LEASE + 'issue issue'),
    'clocks-differ-when-a-limit-was-lowered': (
        'the limit before counts only until a clock that is ahead says that it has passed',
        'replicate ' + PROMOTE + LEASE + 'stop limit_leases limit_has_passed replicate ' + PROMOTE
        + LEASE + 'issue issue'),
    # Generations
    'count-at-the-head-of-every-call': (
        'a promoted server grants before it counts its generation',
        'replicate promote ' + LEASE * 2 + 'issue issue'),
    'count-every-entry': (
        'the generation grows by one, not by the number of new entries', None),
    'store-the-time-of-the-count': ('the time of the count is not stored', TWICE),
    'a-count-stores-a-floor': (
        'a count that is no plain promotion, or soon follows another one, stores no floor', None),
    'store-the-time-of-pg-upgrade': (
        'another system identifier stores no time',
        'replicate ' + LEASE + 'stop promote upgrade ' + LEASE + 'issue issue'),
    'pg-upgrade-closes-leases': (
        'after pg_upgrade, leases of before are renewed',
        LEASE + 'replicate ' + LEASE + 'stop promote upgrade ' + RENEWAL + 'issue issue'),
    'created-at': (
        'created_at is no floor', LEASE + 'issue crash create ' + LEASE + 'issue'),
    # Nodes
    'seal-before-opening': (
        'a node opens a lease while the words of another one are open',
        'replicate ' + LEASE * 2 + 'seal ' + PROMOTE + LEASE + 'issue issue'),
    'a-fixed-number-seals-before-asking': (
        'a node asks another server for its own fixed number while the words are open',
        'replicate ' + LEASE + PROMOTE + 'ask issue acquire_lease change issue'),
    'say-an-end-only-when-sealed': (
        'a node says where the ids of a lease end while its words are open',
        LEASE + 'tell release_lease ' + LEASE + 'issue issue'),
    'seal-before-the-end-is-told': (
        'a node tells the end of its ids without sealing the words',
        LEASE + RELEASE + LEASE + 'issue issue'),
    'tell-the-true-end': (
        'the end that is told is before the last id',
        LEASE + 'issue ' + RELEASE + LEASE + 'issue'),
    'a-sealed-word-issues-nothing': (
        'a sealed word issues ids', LEASE + RELEASE + LEASE + 'issue issue'),
    'a-sealed-lease-is-not-renewed': (
        'a node asks for the renewal of a lease that it has sealed',
        LEASE + 'seal ' + RENEWAL + 'tell release_lease ' + LEASE + 'issue issue'),
    'sealing-gives-up-the-call': (
        'the result of a renewal opens a lease again that was sealed meanwhile',
        LEASE + 'tell renew_lease seal extend tell release_lease ' + LEASE + 'issue issue'),
    'the-row-is-durable-before-the-limit': (
        'the limit follows before the row is durable',
        LEASE + 'tell extend ' + LEASE + 'issue issue'),
    'a-tick-begins-after-the-start': (
        'ids of a lease are of ticks before its start', LEASE * 2 + 'issue issue'),
    'a-tick-ends-before-the-limit': (
        'ids of a lease are of ticks after its limit', LEASE * 2 + 'issue issue'),
    # Guards
    'another-mark-keeps-the-parity': (
        'a promoted server was moved, counts a promotion, and the former primary goes on',
        'replicate ' + PROMOTE + 'note_copy ' + LEASE * 2 + 'issue issue'),
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
    'a-restore-keeps-the-record': (
        'a dump takes the place of the record of what the cluster uses',
        'create ' + LEASE + 'issue crash merge_record ' + LEASE + 'issue'),
    'a-node-of-its-primary-grants-nothing': (
        'a promoted standby became a node of its primary, and its own tables still grant leases',
        'replicate promote become_node replicate ' + PROMOTE + 'count_generation ' + LEASE * 2
        + 'issue issue'),
    'a-registry-is-a-root': (
        'a registry grants leases whose own cluster uses another one', None),
    # Closing and taking over
    'a-closed-registry-grants-nothing': (
        'a closed registry grants leases', MOVE + LEASE * 2 + 'issue issue'),
    'a-closed-registry-renews-nothing': (
        'a closed registry renews leases', LEASE + MOVE + LEASE + RENEWAL + 'issue issue'),
    'a-closed-registry-changes-nothing': ('a closed registry closes leases at their true end', None),
    'close-before-taking-over': (
        'a registry is taken over that is not closed',
        LEASE + 'create take_over ' + LEASE + RENEWAL + 'issue issue'),
    'hand-on-the-ends-of-open-leases': (
        'the ends of open leases are not taken over', LEASE + MOVE + LEASE + 'issue issue'),
    'hand-on-ended-until': (
        'ended_until is not taken over', LEASE + 'issue ' + RELEASE + MOVE + LEASE + 'issue'),
    'take-over-the-parity': (
        'numbers are chosen without regard to the generation of what was taken over',
        'create replicate ' + PROMOTE + LEASE + 'stop close_registry take_over ' + LEASE + 'issue issue'),
    'hand-on-the-creation': (
        'the creation of the tables is not taken over',
        LEASE + 'create create close_registry take_over ' + LEASE + 'issue issue'),
    'hand-on-the-floor': (
        'the floor is not taken over',
        LEASE + 'stop create take_over_lost ' + MOVE + LEASE + 'issue issue'),
    'hand-on-the-time-of-the-count': (
        'the time of the last count is not taken over',
        'create replicate ' + PROMOTE + LEASE + 'stop replicate ' + PROMOTE
        + 'stop close_registry take_over ' + LEASE + 'issue issue'),
    'hand-on-the-limit': (
        'the limit for ends is not taken over',
        'create replicate ' + PROMOTE + LEASE + 'stop close_registry take_over replicate ' + PROMOTE
        + LEASE + 'issue issue'),
    'a-lost-registry-may-issue-for-the-longest-window': (
        'taking over a lost registry stores no floor',
        LEASE + 'stop create take_over_lost ' + LEASE + 'issue issue'),
    'a-role-loses-open-leases-only': (
        'ids_end_before() for a role lowers ended_until, with the end of another lease in it',
        'create ' + LEASE + 'lie acquire_lease close_registry take_over lie release_lease '
        + 'ids_of_role_end_before ' + LEASE + 'issue issue'),
    # Assumptions
    'A1-orders-reach-every-standby': (
        'a standby is promoted that has not received an order',
        'replicate ' + MOVE + 'stop ' + PROMOTE + LEASE * 2 + 'issue issue'),
    'A1-a-first-use-is-an-order': (
        'two servers of a cluster are writable, and one of them uses another registry first',
        'create ask ask acquire_lease open acquire_lease open issue issue'),
    'A1-orders-on-the-only-server': (
        'an order is given while another server of the registry is writable',
        'replicate ' + PROMOTE + 'limit_leases limit_has_passed ' + LEASE + 'stop replicate '
        + PROMOTE + LEASE + 'issue issue'),
    'A3-other-servers-were-stopped': (
        'three servers with one registry\'s tables are writable',
        'replicate ' + PROMOTE + 'replicate ' + PROMOTE + LEASE * 2 + 'issue issue'),
    'A3-if-the-promotion-is-a-plain-one': (
        'a server goes on that was promoted and had not counted when the next one was promoted',
        'replicate promote stop replicate ' + PROMOTE + 'count_generation ' + LEASE * 2
        + 'issue issue'),
    'A3-taking-over-counts': (
        'a registry changes its parity by taking over, and a former primary was stopped just now',
        'create replicate ' + PROMOTE + LEASE + 'stop close_registry take_over ' + LEASE + 'issue issue'),
    'A3-a-fixed-number-is-alone': (
        'two servers with the same fixed number run',
        'replicate ' + PROMOTE + LEASE * 2 + 'issue issue'),
    'A3-clocks-are-right': ('the clock at the count is behind others by 10 s or more', TWICE),
    'A4-no-id-is-later': (
        'DROP EXTENSION snowflake_registry, and ids are later than the new creation',
        LEASE + 'create ' + LEASE + 'issue issue'),
    'A4-the-server-has-no-lease': (
        'DROP EXTENSION snowflake_registry, and the server itself has a lease',
        'create ' + LEASE + 'create ' + RENEWAL + 'issue ask acquire_lease change issue'),
    'A5-a-call-before-pg-upgrade': (
        'pg_upgrade of a promoted server that has not counted, and the old primary goes on',
        'replicate promote upgrade ' + LEASE * 2 + 'issue issue'),
    # What the owner says
    'what-is-lost-had-no-greater-limit': (
        'a registry is taken over as lost that had a greater limit, and stopped just now',
        LEASE + 'stop create take_over_lost ' + LEASE + 'issue issue'),
    'what-is-lost-never-runs-again': (
        'a standby of a registry is promoted that was taken over as lost',
        'replicate stop create take_over_lost ' + PROMOTE + LEASE * 2 + 'issue issue'),
    'ids-end-when-the-owner-says': (
        'ids_end_before() is called, and an id that is not in these tables ends later',
        LEASE + 'stop create take_over_lost ids_end_before ' + LEASE + 'issue issue'),
    'ids-of-the-role-end-when-the-owner-says': (
        'ids_end_before() is called for a role, and an id of it ends later',
        LEASE + 'ids_of_role_end_before ' + LEASE + 'issue issue'),
}

# Why a rule stays that the promise does not need
WHY_KEPT = {
    'a-call-closes-what-it-does-not-name': 'numbers whose result was lost are free at once',
    'renew-what-starts-after-ended-until': 'it keeps apart what two deployments, or a dump, bring together',
    'count-every-entry': 'A3 has all other servers stopped where more than one entry is new',
    'a-count-stores-a-floor': 'A3 is enough; the guard is for owners who do not wait',
    'a-registry-is-a-root': 'it says which deployment a cluster belongs to',
    'a-closed-registry-changes-nothing': 'closed_registry() returns the same each time; true ends do no harm',
}

# Sequences that can happen with all rules
REACHED = [
    LEASE + 'issue ' + RENEWAL + 'issue ' + RELEASE + LEASE + 'issue crash',
    'replicate ' + LEASE + 'replicate ' + PROMOTE + LEASE + 'issue issue stop',
    'replicate ' + LEASE + 'issue promote stop upgrade ' + LEASE + 'issue merge_rows',
    LEASE + MOVE + LEASE + 'issue close_registry take_over_again ' + LEASE + 'issue',
    LEASE + 'issue ' + MOVE + 'ask acquire_lease issue change issue',
    'create replicate ' + PROMOTE + LEASE + 'stop close_registry take_over ' + LEASE + 'issue issue',
    LEASE + 'issue replicate ' + PROMOTE + 'ask acquire_lease ' + RENEWAL
    + 'issue ask acquire_lease change issue',
    'ask acquire_lease drop tell release_lease ask acquire_lease drop ' + LEASE + 'issue',
    LEASE + MOVE + LEASE + 'stop take_over_lost_again ' + LEASE + 'issue',
    LEASE + 'stop create take_over_lost ids_end_before ' + LEASE + 'issue',
    'create ' + LEASE + 'issue seal create ' + LEASE + 'issue seal create ' + LEASE + 'issue',
    TWICE,
    'replicate promote replicate stop stop ' + PROMOTE + LEASE + 'issue',
    LEASE + 'ids_of_role_end_before change_layout limit_leases limit_has_passed pass_time ' + LEASE + 'issue',
    'lie acquire_lease lie note_lost_end ' + LEASE + 'issue',
    'replicate promote leases_are_over stop note_copy ' + LEASE + 'issue',
    'replicate promote become_node replicate ' + PROMOTE + LEASE + 'issue',
    'replicate ' + PROMOTE + 'become_node ' + LEASE + 'issue stop take_over_lost_again ' + LEASE + 'issue',
    'merge_record ' + LEASE + 'issue crash',
]

GRANT = 'acquire_lease '
LAYOUT_RULES = {
    'another-layout-is-refused': (
        'a lease of another layout than the recorded one is granted', GRANT * 2 + 'issue issue'),
    'start-above-the-greatest-id': (
        'leases of the new layout start before those of the one before end',
        GRANT + 'change_layout ' + GRANT + 'issue issue'),
    'a-change-of-layout-closes-leases': (
        'leases of the layout before stay open, and are renewed',
        GRANT + 'change_layout ' + GRANT + 'renew_lease issue issue'),
    'store-what-leases-allow': (
        'what the leases on record allow is not stored', None),
    'store-what-a-failover-has-lost': (
        'only what the leases on record allow is stored',
        GRANT + 'fail_over change_layout ' + GRANT + 'issue issue'),
    'the-greatest-id-never-falls': (
        'a second change of the layout stores a lesser id',
        GRANT + 'change_layout change_layout ' + GRANT + 'issue issue'),
    'refuse-a-layout-that-would-wait-too-long': (
        'a layout is accepted that starts later than the longest window, and its registry is lost',
        GRANT + 'change_layout ' + GRANT + 'take_over_lost ' + GRANT + 'issue issue'),
    'what-is-lost-had-the-same-layout': (
        'a registry with another layout is taken over as lost',
        GRANT * 2 + 'take_over_lost ' + GRANT + 'issue issue'),
    'start-after-the-floor': (
        'taking over a lost registry stores no floor, and its greatest id is lost',
        GRANT + 'change_layout ' + GRANT + 'take_over_lost ' + GRANT + 'issue issue'),
    'a-restore-takes-the-greater-id': (
        'a dump brings a lesser greatest id',
        GRANT + 'change_layout merge_record ' + GRANT + 'issue issue'),
    'refuse-to-take-over-another-layout': (
        'a registry with another layout is taken over',
        GRANT * 2 + 'close_registry take_over ' + GRANT + 'issue issue'),
    'take-over-the-greatest-id': (
        'the greatest id is not taken over',
        GRANT + 'change_layout close_registry take_over ' + GRANT + 'issue issue'),
}
LAYOUT_WHY_KEPT = {
    'store-what-leases-allow': 'no lease ends later than the longest window from now',
}
LAYOUT_REACHED = [
    GRANT + 'issue renew_lease release_lease ' + GRANT + 'fail_over pass_time change_layout ' + GRANT
    + 'issue merge_record close_registry take_over',
    GRANT * 2 + 'take_over_lost ' + GRANT + 'issue',
]

RLIMIT = 40000000


class Story:
    """A sequence of actions of a model, with a few members of each sort."""

    def __init__(self, script, model, duplicate=True):
        self.model = model
        self.steps = script.split()
        self.wants_duplicate = duplicate
        self.told = []                  # each step: the action, and what it acts on
        self.end = None                 # the last state
        count = lambda *names: sum(step in names for step in self.steps)
        grants = count('acquire_lease')
        sizes = {
            'Lease': grants, 'Node': grants, 'Number': 2, 'Tick': 2, 'Cluster': 2, 'Layout': 3,
            'Entry': 1 + count('promote'),
            'Server': 1 + count('promote', 'upgrade', 'create', 'take_over_again',
                               'take_over_lost_again'),
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
            # time passes before each action
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
            self.told.append((action, arguments, a.now))
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
            words = lambda found: name(eval(found.group(1), scope))
            yield name(now()) + ': ' + re.sub('{([^}]*)}', words, inspect.getdoc(action))
        for l, m, x in self.pairs():
            if is_true(answer.eval(self.model.duplicate(self.end, l, m, x), model_completion=True)):
                yield 'leases %s and %s have issued the same id: %s' % (
                    name(l), name(m), 'number %s, tick %s to %s' % (
                        name(self.model.number(l)), name(self.model.begins(x)), name(self.model.ends(x)))
                    if not self.is_layout else name(x))
                return
