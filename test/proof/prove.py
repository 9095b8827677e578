"""make prove: proves the lease protocol, and takes each rule out.  See README."""
import os
import sys
import time

from z3 import Const, Function, Not, Solver, sat, unsat

import layout
import lease
import stories
import world
from parameters import parameters

RLIMIT = 20000000                       # of z3, for each question: the same on every machine


def ask(*formulas):
    solver = Solver()
    solver.set('rlimit', RLIMIT)
    solver.set('mbqi', False)           # looks for counterexamples: the stories do that better
    solver.add(*formulas)
    return solver.check()


def any_state(model):
    return world.State({name: Function(name, *sorts) for name, sorts in model.STATE.items()})


def not_kept(model, name):
    """The invariants that z3 does not prove to be kept by an action; each is looked at alone."""
    world.action[0] = name
    a = any_state(model)
    action = model.ACTIONS[name]
    guard, b = action(a, **parameters(action))
    before = list(model.invariants(a).values())
    return [words for words, formula in model.invariants(b).items()
            if ask(model.world(), *before, guard, Not(formula)) != unsat]


def not_first(model):
    a = any_state(model)
    return [words for words, formula in model.invariants(a).items()
            if ask(model.world(), model.first_state(a), Not(formula)) != unsat]


def unique(model, letters):
    a = any_state(model)
    arguments = [Const('the_' + letter, world.LETTERS[letter]) for letter in letters]
    return ask(model.world(), *model.invariants(a).values(),
               model.duplicate(a, *arguments)) == unsat


class Run:
    def __init__(self):
        self.failures = 0

    def fail(self, line):
        self.failures += 1
        print('FAILED: ' + line, flush=True)

    def prove(self, title, model, letters):
        print('%s: %d actions, %d invariants' % (
            title, len(model.ACTIONS), len(model.invariants(any_state(model)))))
        broken = not_first(model)
        if broken:
            self.fail('the first state does not imply: ' + '; '.join(broken))
        for name in model.ACTIONS:
            broken = not_kept(model, name)
            if broken:
                self.fail('%s does not keep: %s' % (name, '; '.join(broken)))
            else:
                print('  %-16s keeps all invariants' % name, flush=True)
        if unique(model, letters):
            print('  the invariants imply that no id repeats')
        else:
            self.fail('the invariants do not imply that no id repeats')

    def reach(self):
        """That assumptions and rules leave something to be proved: all actions can happen."""
        told = set()
        for script in stories.REACHED:
            answer, _ = stories.Story(script, duplicate=False).search()
            if answer != sat:
                self.fail('cannot happen (%s): %s' % (answer, script))
            told.update(script.split())
        if told != set(lease.ACTIONS):
            self.fail('no story has these actions: ' + ' '.join(set(lease.ACTIONS) - told))
        print('  all actions can happen: %d sequences' % len(stories.REACHED), flush=True)

    def tell(self, name, model, words=False):
        """A story without a rule; says whether there is one, and none with the rule."""
        _, script = {**stories.RULES, **stories.LAYOUT_RULES}[name]
        answer, _ = stories.Story(script, model).search()
        if answer != unsat:
            self.fail('%s: the story is not excluded with all rules (%s)' % (name, answer))
            return False
        world.without.add(name)
        try:
            story = stories.Story(script, model)
            answer, found = story.search()
            if answer != sat:
                self.fail('%s: no story without it (%s)' % (name, answer))
                return False
            if words:
                for i, line in enumerate(story.tell(found), 1):
                    print('  %2d. %s' % (i, line))
        finally:
            world.without.clear()
        return True

    def without(self, name, model):
        """The actions and invariants that are not proved without a rule."""
        world.without.add(name)
        try:
            actions = [x for x in model.ACTIONS if x in world.seen[name]]
            return {x: broken for x in actions for broken in [not_kept(model, x)] if broken}
        finally:
            world.without.clear()


def find_rules():
    """In which actions each rule stands."""
    for model in lease, layout:
        for name, action in model.ACTIONS.items():
            world.action[0] = name
            _, b = action(any_state(model), **parameters(action))
            model.invariants(b)         # so that what says the new state was asked for


def main():
    run = Run()
    find_rules()
    known = {**stories.RULES, **stories.LAYOUT_RULES}
    if set(known) != set(world.seen):
        run.fail('rules without a story, or the other way round: %s'
                 % ' '.join(set(known) ^ set(world.seen)))
    name = os.environ.get('WITHOUT', '')
    if name:
        if name not in known:
            sys.exit('there is no rule %s; there are:\n  %s' % (name, '\n  '.join(known)))
        text, script = known[name]
        model = layout if name in stories.LAYOUT_RULES else lease
        print('Without the rule %s: %s.' % (name, text))
        for action, broken in run.without(name, model).items():
            print('  %s does not keep: %s' % (action, '; '.join(broken)))
        if script is None:
            print('  it is not needed for the promise: ' + stories.WHY_KEPT[name])
            sys.exit(1 if run.without(name, model) else 0)
        found = run.tell(name, model, words=True)
        print('prove: without %s, %s' % (name, 'equal ids' if found else 'NOTHING FOUND'))
        sys.exit(0 if found and not run.failures else 1)

    began = time.time()
    run.prove('leases', lease, 'lmt')
    run.prove('change of layout', layout, 'lmi')
    seconds = time.time() - began
    run.reach()
    refuted = unneeded = 0
    for name, (text, script) in known.items():
        model = layout if name in stories.LAYOUT_RULES else lease
        if script is None:
            broken = run.without(name, model)
            if broken:
                run.fail('%s was thought not to be needed: %s' % (name, broken))
            else:
                unneeded += 1
                print('  without %-42s proved as well: %s' % (name, stories.WHY_KEPT[name]))
        elif run.tell(name, model):
            refuted += 1
            print('  without %-42s equal ids: %s' % (name, text), flush=True)
    if run.failures:
        print('prove: FAILED, %d' % run.failures)
        sys.exit(1)
    print('prove: no two leases issue the same (tick, number): %d actions keep %d invariants, '
          '%.0f s; %d rules taken out and refuted, %d proved as well; %.0f s in all' % (
              len(lease.ACTIONS) + len(layout.ACTIONS),
              sum(len(model.invariants(any_state(model))) for model in (lease, layout)),
              seconds, refuted, unneeded, time.time() - began))


if __name__ == '__main__':
    main()
