"""What an action acts on."""
import inspect

from z3 import Const, Function

import world


def parameters(function, suffix=''):
    """Constants, and functions for parameters like {'k': Int}."""
    result = {}
    for name, parameter in list(inspect.signature(function).parameters.items())[1:]:
        sort = parameter.default
        if isinstance(sort, dict):
            (letter, value), = sort.items()
            result[name] = Function(name + suffix, world.LETTERS[letter], value)
        else:
            result[name] = Const(name + suffix, sort)
    return result
