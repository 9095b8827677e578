"""change_layout(), proved apart: ids of two layouts in one column differ.

What the lease proof shows is about one layout: two leases never issue the same (tick, number).
A column has ids of its default layout, and after a change those of another one, whose fields
are elsewhere; so here ids are compared as numbers.  All that is known of a layout is that its
ids grow with time: `first` is the least id whose tick begins at or after a time, `last` the
greatest one whose tick ends at or before it.  A registry is here its newest server; a lease that a
failover has lost is not on record there, and its old primary goes on until the next order (A1).
"""
from z3 import And, BoolSort, Const, DeclareSort, Function, If, Implies, IntSort, Not, Or

from world import LETTERS, Lease, Registry, after, every, greatest, kept, rule

Int, Bool = IntSort(), BoolSort()
Layout = DeclareSort('Layout')
LETTERS.update(y=Layout, i=Int, h=Registry)

# What never changes
default = Function('default', Lease, Layout)        # the default layout of the node
starts = Function('starts', Lease, Int)
home = Function('home', Lease, Registry)
order = Function('order', Lease, Int)               # proof only: leases in the order of grants
succeeds = Function('succeeds', Lease, Registry, Bool)  # proof only: taken over before the grant
first = Function('first', Layout, Int, Int)
last = Function('last', Layout, Int, Int)
window = Const('window', Int)                       # the longest window

STATE = dict(
    now=(Int,),
    granted=(Lease, Bool), on_record=(Lease, Bool), open=(Lease, Bool), until=(Lease, Int),
    frozen=(Lease, Bool),                           # an order was given since a failover lost it
    has_layout=(Registry, Bool), layout=(Registry, Layout),     # cluster: the default layout,
    greatest_id=(Registry, Int),                    # the greatest id that others allowed
    taken=(Registry, Registry, Bool), closed=(Registry, Bool),
    issued=(Lease, Int, Bool),                      # these ids
    may=(Lease, Int),                               # proof only: no id of it is of a later tick
)


def world():
    return And(
        window >= 0,
        every(lambda y, c, u: Implies(c <= u, And(
            first(y, c) <= first(y, u), last(y, c) <= last(y, u)))),
        every(lambda y, c: last(y, c) < first(y, c)))


def covers(a, r, l):
    return Or(home(l) == r, a.taken(r, home(l)))


def can_be_renewed(a, l):
    """By the registry, or by an old primary that goes on after a failover."""
    return And(a.granted(l), Not(a.closed(home(l))),
               If(a.on_record(l), a.open(l), Not(a.frozen(l))))


def invariants(a):
    return {
        'ids of a later layout are greater': every(lambda l, m: Implies(
            And(a.granted(l), a.granted(m), default(l) != default(m), Or(
                And(home(l) == home(m), order(l) < order(m)), succeeds(m, home(l)))),
            last(default(l), a.may(l)) < first(default(m), starts(m)))),
        'what other layouts allowed is on record': every(lambda l, r: Implies(
            And(a.granted(l), covers(a, r, l), a.has_layout(r), default(l) != a.layout(r)),
            And(last(default(l), a.may(l)) <= a.greatest_id(r), Not(can_be_renewed(a, l))))),
        'other layouts allowed no id that is later than the longest window': every(lambda l, r: Implies(
            And(a.granted(l), covers(a, r, l), a.has_layout(r), default(l) != a.layout(r)),
            last(default(l), a.may(l)) < first(a.layout(r), a.now() + window))),
        'ids are those of their lease': every(lambda l, i: Implies(
            a.issued(l, i), And(a.granted(l), first(default(l), starts(l)) <= i,
                                i <= last(default(l), a.may(l))))),
        'the row has the end': every(lambda l: Implies(
            a.granted(l), And(a.may(l) <= a.until(l), a.until(l) <= a.now() + window))),
        'a layout is recorded by the first lease': every(lambda l, r: Implies(
            And(a.granted(l), covers(a, r, l)), a.has_layout(r))),
        'a registry that was taken over is closed': every(lambda r, h: Implies(
            a.taken(r, h), And(a.closed(h), r != h))),
        'a lease succeeds what its registry has taken over': every(lambda l, r: Implies(
            And(a.granted(l), succeeds(l, r)), a.taken(home(l), r))),
        'only leases of the newest layout can be renewed': every(lambda l, m: Implies(
            And(can_be_renewed(a, l), a.granted(m), home(l) == home(m), order(l) < order(m)),
            default(l) == default(m))),
        'each grant has its turn': every(lambda l, m: Implies(
            And(a.granted(l), a.granted(m), l != m), order(l) != order(m))),
    }


def first_state(a):
    return And(
        every(lambda l: Not(a.granted(l))), every(lambda l, i: Not(a.issued(l, i))),
        every(lambda r: And(Not(a.has_layout(r)), Not(a.closed(r)))),
        every(lambda r, h: Not(a.taken(r, h))))


def duplicate(a, l, m, i):
    return And(l != m, default(l) != default(m), a.issued(l, i), a.issued(m, i), Or(
        home(l) == home(m), succeeds(l, home(m)), succeeds(m, home(l))))


def pass_time(a, TIME=Int):
    """time passes: it is {TIME}"""
    return a.now() <= TIME, after(a, now=lambda: TIME)


def acquire_lease(a, L=Lease, U=Int):
    """lease {L} is granted, with layout {default(L)} from {starts(L)} to {U}"""
    R = home(L)
    return And(
        Not(a.granted(L)), Not(a.closed(R)), starts(L) <= U, U <= a.now() + window,
        every(lambda l: Implies(a.granted(l), order(l) < order(L))),
        every(lambda r: succeeds(L, r) == a.taken(R, r)),
        rule('another-layout-is-refused', Implies(a.has_layout(R), default(L) == a.layout(R))),
        rule('start-above-the-greatest-id', Implies(
            a.has_layout(R), a.greatest_id(R) < first(default(L), starts(L)))),
    ), after(
        a, granted=lambda l: Or(a.granted(l), l == L),
        on_record=lambda l: Or(a.on_record(l), l == L), open=lambda l: Or(a.open(l), l == L),
        frozen=lambda l: And(a.frozen(l), l != L),
        until=lambda l: If(l == L, U, a.until(l)), may=lambda l: If(l == L, U, a.may(l)),
        has_layout=lambda r: Or(a.has_layout(r), r == R),
        layout=lambda r: If(r == R, default(L), a.layout(r)))


def renew_lease(a, L=Lease, U=Int):
    """lease {L} is renewed to {U}"""
    # no rule of a renewal needs the layout: change_layout() closes all leases
    return And(can_be_renewed(a, L), a.until(L) <= U, U <= a.now() + window), after(
        a, until=lambda l: If(l == L, U, a.until(l)), may=lambda l: If(l == L, U, a.may(l)))


def release_lease(a, L=Lease, U=Int):
    """lease {L} is closed at {U}"""
    # or any other call that closes it
    return And(
        a.granted(L), a.open(L), a.on_record(L), U <= a.until(L),
        every(lambda i: Implies(a.issued(L, i), i <= last(default(L), U))),
    ), after(a, until=lambda l: If(l == L, U, a.until(l)), open=lambda l: And(a.open(l), l != L),
             may=lambda l: If(And(l == L, U < a.may(L)), U, a.may(l)))


def fail_over(a, L=Lease):
    """a failover loses lease {L}"""
    return And(a.granted(L), a.on_record(L)), after(
        a, on_record=lambda l: And(a.on_record(l), l != L),
        frozen=lambda l: If(l == L, Not(a.open(L)), a.frozen(l)))


def change_layout(a, R=Registry, Y=Layout, G=Int, END=Int):
    """change_layout() to {Y}; the greatest id that was allowed is {G}"""
    closes = lambda l: And(home(l) == R, kept('a-change-of-layout-closes-leases'))
    return And(
        a.has_layout(R), Not(a.closed(R)), Y != a.layout(R), END == a.now() + window,
        rule('the-greatest-id-never-falls', a.greatest_id(R) <= G),
        rule('store-what-leases-allow', every(lambda l: Implies(
            And(a.granted(l), a.on_record(l), covers(a, R, l), default(l) == a.layout(R)),
            last(default(l), a.until(l)) <= G))),
        rule('store-what-a-failover-has-lost', last(a.layout(R), END) <= G),
        rule('refuse-a-layout-that-would-wait-too-long', G < first(Y, END)),
    ), after(
        a, layout=lambda r: If(r == R, Y, a.layout(r)),
        greatest_id=lambda r: If(r == R, G, a.greatest_id(r)),
        open=lambda l: And(a.open(l), Not(closes(l))),
        frozen=lambda l: Or(a.frozen(l), And(home(l) == R, Not(a.on_record(l)))))


def close_registry(a, R=Registry):
    """close_registry()"""
    return Not(a.closed(R)), after(a, closed=lambda r: Or(a.closed(r), r == R))


def take_over(a, S=Registry, R=Registry):
    """take_over() of a closed registry"""
    greater = kept('take-over-the-greatest-id')
    return And(
        a.closed(R), Not(a.closed(S)), S != R, Not(a.taken(R, S)),
        rule('refuse-to-take-over-another-layout', Implies(
            And(a.has_layout(S), a.has_layout(R)), a.layout(S) == a.layout(R))),
    ), after(
        a, taken=lambda q, r: Or(a.taken(q, r), And(q == S, Or(r == R, a.taken(R, r)))),
        layout=lambda r: If(And(r == S, Not(a.has_layout(S))), a.layout(R), a.layout(r)),
        has_layout=lambda r: Or(a.has_layout(r), And(r == S, a.has_layout(R))),
        greatest_id=lambda r: If(And(r == S, a.has_layout(R), greater), If(
            a.has_layout(S), greatest(a.greatest_id(S), a.greatest_id(R)), a.greatest_id(R)),
            a.greatest_id(r)))


def take_over_lost(a, S=Registry, R=Registry, G=Int, END=Int):
    """take_over_lost() of a registry that never runs again"""
    # Nobody knows which layouts it had, nor its greatest id.  So the owner says that its default
    # layout was that of S; and the floor, now + the longest window, is above what others allowed.
    # DROP EXTENSION snowflake_registry (A4) forgets the layout, too.
    return And(
        Not(a.closed(S)), S != R, Not(a.taken(R, S)), a.has_layout(S), a.greatest_id(S) <= G,
        END == a.now() + window,
        rule('what-is-lost-had-the-same-layout', Implies(
            a.has_layout(R), a.layout(S) == a.layout(R))),
        rule('start-after-the-floor', first(a.layout(S), END) <= G + 1),
    ), after(
        a, closed=lambda r: Or(a.closed(r), r == R, a.taken(R, r)),
        taken=lambda q, r: Or(a.taken(q, r), And(q == S, Or(r == R, a.taken(R, r)))),
        greatest_id=lambda r: If(r == S, G, a.greatest_id(r)))


def merge_record(a, R=Registry, G=Int):
    """a dump is restored whose record has greatest id {G}"""
    # the layout that is recorded stays
    return And(
        a.has_layout(R), rule('a-restore-takes-the-greater-id', a.greatest_id(R) <= G),
    ), after(a, greatest_id=lambda r: If(r == R, G, a.greatest_id(r)))


def issue(a, L=Lease, I=Int):
    """lease {L} issues id {I}"""
    # anything up to the end that was granted at last
    return And(a.granted(L), first(default(L), starts(L)) <= I, I <= last(default(L), a.may(L))), after(
        a, issued=lambda l, i: Or(a.issued(l, i), And(l == L, i == I)))


ACTIONS = dict(
    pass_time=pass_time, acquire_lease=acquire_lease, renew_lease=renew_lease,
    release_lease=release_lease, fail_over=fail_over, change_layout=change_layout,
    close_registry=close_registry, take_over=take_over, take_over_lost=take_over_lost,
    merge_record=merge_record, issue=issue)
