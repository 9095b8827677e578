"""Sorts, states, rules and quantifiers: what the model is written in.

A proof quantifies over sorts without bounds.  A story (stories.py) has a handful of members
of each sort, and every() is then a conjunction over them.
"""
import inspect

from z3 import And, BoolVal, Const, DeclareSort, Exists, ForAll, If, IntSort, Or

Lease = DeclareSort('Lease')
Node = DeclareSort('Node')              # a start of a server (or, later, of a program)
Number = DeclareSort('Number')          # a node number
Server = DeclareSort('Server')          # a server and its copy of a registry's tables
Registry = DeclareSort('Registry')      # an incarnation
Cluster = DeclareSort('Cluster')        # that nodes belong to: it has a record of what it uses
Tick = DeclareSort('Tick')              # of some layout
Entry = DeclareSort('Entry')            # of a timeline history: a name, as 1/0/3000000

# The sort of a variable goes by its letter.
LETTERS = dict(l=Lease, m=Lease, s=Server, q=Server, n=Node, k=Number, r=Registry, t=Tick,
               j=Cluster, e=Entry, c=IntSort(), u=IntSort())

members = {}                            # of each sort, in a story
without = set()                         # the rules that are taken out
seen = {}                               # rule: the actions in which it stands
action = [None]                         # that is being looked at


def quantify(formula, quantifier, connective):
    names = list(inspect.signature(formula).parameters)
    sorts = [LETTERS[name] for name in names]
    if not members:
        variables = [Const(name, sort) for name, sort in zip(names, sorts)]
        return quantifier(variables, formula(*variables))
    combinations = [()]
    for sort in sorts:
        combinations = [rest + (x,) for rest in combinations for x in members[sort.name()]]
    return connective(*[formula(*x) for x in combinations])


def every(formula):
    """For every member of the sorts that the parameters' letters stand for."""
    return quantify(formula, ForAll, And)


def some(formula):
    return quantify(formula, Exists, Or)


def kept(name):
    """Whether a rule stands; for rules that say what a new state is."""
    seen.setdefault(name, set()).add(action[0])
    return name not in without


def rule(name, demand):
    """What a rule demands; nothing if it is taken out."""
    return demand if kept(name) else BoolVal(True)


class State:
    """What changes; each thing is a function of its arguments."""

    def __init__(self, things):
        self.__dict__.update(things)


def after(a, **changes):
    """The state after an action: what is not named stays as it is."""
    return State({**a.__dict__, **changes})


def greatest(*times):
    result = times[0]
    for time in times[1:]:
        result = If(time > result, time, result)
    return result


def even(generation):
    return generation % 2 == 0
