"""A change of the default layout, proved apart: ids of two layouts in one column differ.

What the lease proof shows is about one layout: two leases never issue the same (tick, number).
A column has ids of its default layout, and after a change those of another one, whose fields
are elsewhere; so here ids are compared as numbers.  All that is known of a layout is that its
ids grow with time: `first` is the least id whose tick begins at or after a time, `last` the
greatest one whose tick ends at or before it.  One server with the registry's tables: a change
is an order of the administrator, and A1 has it on every standby.
"""
from z3 import And, Const, DeclareSort, Function, If, Implies, IntSort, BoolSort, Not, Or

from world import LETTERS, Lease, after, every, greatest, kept, rule

Int, Bool = IntSort(), BoolSort()
Layout = DeclareSort('Layout')
LETTERS.update(y=Layout, i=Int)

# What never changes
default = Function('default', Lease, Layout)        # the default layout of the node
starts = Function('starts', Lease, Int)
first = Function('first', Layout, Int, Int)
last = Function('last', Layout, Int, Int)

STATE = dict(
    row=(Lease, Bool), until=(Lease, Int), open=(Lease, Bool),
    renewed=(Lease, Int),                           # renewed_at, which grows from call to call
    issued=(Lease, Int, Bool),                      # these ids
    may=(Lease, Int),                               # proof only: no id of it is of a later tick
)


def world():
    return And(
        every(lambda y, c, u: Implies(c <= u, And(
            first(y, c) <= first(y, u), last(y, c) <= last(y, u)))),
        every(lambda y, c: last(y, c) < first(y, c)))


def counts(a, l):
    """A row that may have issued ids: not one that was closed where it started."""
    return And(a.row(l), Or(a.open(l), starts(l) < a.until(l)))


def invariants(a):
    return {
        'ids of a later layout are greater': every(lambda l, m: Implies(
            And(counts(a, l), counts(a, m), default(l) != default(m), a.renewed(l) < a.renewed(m)),
            And(last(default(l), a.may(l)) < first(default(m), starts(m)), Not(a.open(l))))),
        'ids are those of their lease': every(lambda l, i: Implies(
            a.issued(l, i), And(
                counts(a, l), starts(l) < a.may(l),
                first(default(l), starts(l)) <= i, i <= last(default(l), a.may(l))))),
        'the row has the end': every(lambda l: Implies(a.row(l), And(
            starts(l) <= a.until(l), a.may(l) <= a.until(l)))),
        'each row has its time': every(lambda l, m: Implies(
            And(a.row(l), a.row(m), l != m), a.renewed(l) != a.renewed(m))),
    }


def first_state(a):
    return And(every(lambda l: Not(a.row(l))), every(lambda l, i: Not(a.issued(l, i))))


def duplicate(a, l, m, i):
    return And(l != m, default(l) != default(m), a.issued(l, i), a.issued(m, i))


def is_recorded(a, y):
    """The recorded layout is that of the newest row that counts; any, if there is none."""
    return every(lambda l: Implies(
        And(counts(a, l), every(lambda m: Implies(counts(a, m), a.renewed(m) <= a.renewed(l)))),
        default(l) == y))


def grant(a, L=Lease, U=Int, R=Int):
    """lease {L} is granted, with layout {default(L)} from {starts(L)} to {U}"""
    # snowflake.acquire_lease(); if the layout is the recorded one, the rule holds by itself
    return And(
        Not(a.row(L)), starts(L) <= U, every(lambda l: Implies(a.row(l), a.renewed(l) < R)),
        rule('ids-are-greater-than-those-of-other-layouts', every(lambda l: Implies(
            And(counts(a, l), default(l) != default(L)),
            last(default(l), a.until(l)) < first(default(L), starts(L))))),
    ), after(
        a, row=lambda l: Or(a.row(l), l == L), until=lambda l: If(l == L, U, a.until(l)),
        may=lambda l: If(l == L, U, a.may(l)), renewed=lambda l: If(l == L, R, a.renewed(l)),
        open=lambda l: Or(l == L, And(a.open(l), Not(And(
            kept('a-change-of-layout-closes-rows'), default(l) != default(L))))))


def renew(a, L=Lease, U=Int, R=Int):
    """lease {L} is renewed to {U}"""
    # snowflake.renew_lease()
    return And(
        a.row(L), a.open(L), a.until(L) <= U, every(lambda l: Implies(a.row(l), a.renewed(l) < R)),
        rule('renew-the-recorded-layout', is_recorded(a, default(L))),
    ), after(
        a, until=lambda l: If(l == L, U, a.until(l)), renewed=lambda l: If(l == L, R, a.renewed(l)),
        may=lambda l: If(l == L, greatest(a.may(L), U), a.may(l)))


def close(a, L=Lease, U=Int):
    """lease {L} is closed at {U}"""
    # any call: at the end that the lease has, at its true end, or at its start if it was not opened
    return And(
        a.row(L), a.open(L), starts(L) <= U, U <= a.until(L),
        every(lambda i: Implies(a.issued(L, i), And(starts(L) < U, i <= last(default(L), U)))),
    ), after(a, until=lambda l: If(l == L, U, a.until(l)), open=lambda l: And(a.open(l), l != L),
             may=lambda l: If(And(l == L, U < a.may(L)), U, a.may(l)))


def issue(a, L=Lease, I=Int):
    """lease {L} issues id {I}"""
    # anything up to the end that was granted at last
    return And(a.row(L), starts(L) < a.may(L), first(default(L), starts(L)) <= I,
               I <= last(default(L), a.may(L))), after(
        a, issued=lambda l, i: Or(a.issued(l, i), And(l == L, i == I)))


ACTIONS = dict(grant=grant, renew=renew, close=close, issue=issue)
