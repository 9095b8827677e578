"""make prove: see README."""
import inspect
import sys
import time

from z3 import Bool, BoolSort, Const, Function, IntSort, Not, Or, Solver, And, is_expr, unknown, unsat

import lease
import world

import os
OPTS = eval(os.environ.get('OPTS','[]'))
RLIMIT = 40000000                       # of z3, per question: not seconds, so that all machines agree


def ask(*formulas):
    solver = Solver()
    solver.set('rlimit', RLIMIT)
    for x in OPTS: solver.set(*x)
    solver.add(*formulas)
    return solver.check(), solver


def symbolic_state():
    return world.State({
        name: Function(name, *sorts) for name, sorts in lease.STATE.items()})


def parameters(function, suffix=''):
    """What an action acts on: constants, and functions for parameters like {'k': Int}."""
    result = {}
    for name, parameter in list(inspect.signature(function).parameters.items())[1:]:
        sort = parameter.default
        if isinstance(sort, dict):
            (letter, value), = sort.items()
            result[name] = Function(name + suffix, world.LETTERS[letter], value)
        else:
            result[name] = Const(name + suffix, sort)
    return result


def prove_step(name, stop=False):
    """The invariants that an action does not keep."""
    a = symbolic_state()
    world.action[0] = name
    function = lease.ACTIONS[name]
    guard, b = function(a, **parameters(function))
    before = list(lease.invariants(a).values())
    broken = {}
    for words, formula in lease.invariants(b).items():
        t0 = time.time()
        answer, solver = ask(lease.world(), *before, guard, Not(formula))
        if time.time() - t0 > 1 and VERBOSE:
            print('      %.1fs %s' % (time.time() - t0, words))
        if answer != unsat:
            broken[words] = str(answer)
            if stop:
                break
    return broken


VERBOSE = '-v' in sys.argv


def prove():
    a = symbolic_state()
    for words, formula in lease.invariants(a).items():
        answer, _ = ask(lease.world(), lease.first_state(a), Not(formula))
        if answer != unsat:
            print('init', words, answer)
    for name in [x for x in sys.argv[1:] if x in lease.ACTIONS] or lease.ACTIONS:
        t0 = time.time()
        broken = prove_step(name)
        print('%-16s %5.1fs %s' % (name, time.time() - t0, broken or 'kept'), flush=True)
    l, m, t = Const('l1', world.Lease), Const('m1', world.Lease), Const('t1', world.Tick)
    answer, _ = ask(lease.world(), *lease.invariants(a).values(), lease.duplicate(a, l, m, t))
    print('unique', answer)


if __name__ == '__main__':
    prove()
