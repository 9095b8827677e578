"""make prove: proves the lease protocol, and takes each rule out.  See README."""
import multiprocessing
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


class Proof:
    """A model, the stories of its rules, and why those are kept that have none."""

    def __init__(self, title, model, letters, rules, why_kept, reached):
        self.title, self.model, self.letters = title, model, letters
        self.rules, self.why_kept, self.reached = rules, why_kept, reached
        self.seen = {}                  # rule: the actions in which it stands
        for name, action in model.ACTIONS.items():
            world.action[0], world.seen = name, self.seen
            _, b = action(any_state(model), **parameters(action))
            model.invariants(b)         # so that what says the new state was asked for


PROOFS = [
    Proof('leases', lease, 'lmt', stories.RULES, stories.WHY_KEPT, stories.REACHED),
    Proof('change_layout()', layout, 'lmi', stories.LAYOUT_RULES, stories.LAYOUT_WHY_KEPT,
          stories.LAYOUT_REACHED),
]


# Questions.  Each returns whether the answer is the one that is wanted, and a line that tells it.

def ask_first_state(proof, _):
    broken = not_first(proof.model)
    return not broken, 'the first state implies the invariants' if not broken else (
        'the first state does not imply: ' + '; '.join(broken))


def ask_action(proof, name):
    broken = not_kept(proof.model, name)
    return not broken, '%-22s keeps all invariants' % name if not broken else (
        '%s does not keep: %s' % (name, '; '.join(broken)))


def ask_unique(proof, _):
    holds = unique(proof.model, proof.letters)
    return holds, 'the invariants %s that no id repeats' % ('imply' if holds else 'do not imply')


def ask_reached(proof, script):
    """That assumptions and rules leave something to be proved."""
    answer, _ = stories.Story(script, proof.model, duplicate=False).search()
    return answer == sat, 'can happen: ' + script if answer == sat else (
        'cannot happen (%s): %s' % (answer, script))


def ask_rule(proof, name):
    """A story without a rule, and none with it; or that all is proved without it."""
    text, script = proof.rules[name]
    if script is None:
        broken = without(proof, name)
        return not broken, 'without %-42s proved as well: %s' % (
            name, proof.why_kept[name]) if not broken else (
            '%s was thought not to be needed: %s' % (name, broken))
    found, line = tell(proof, name)
    return found, 'without %-42s equal ids: %s' % (name, text) if found else line


def tell(proof, name, words=False):
    """Whether there is a story without a rule, and none with it; and what is wrong."""
    _, script = proof.rules[name]
    answer, _ = stories.Story(script, proof.model).search()
    if answer != unsat:
        return False, '%s: the story is not excluded with all rules (%s)' % (name, answer)
    world.without.add(name)
    try:
        story = stories.Story(script, proof.model)
        answer, found = story.search()
        if words and answer == sat:
            for i, line in enumerate(story.tell(found), 1):
                print('  %2d. %s' % (i, line))
    finally:
        world.without.clear()
    return answer == sat, '%s: no story without it (%s)' % (name, answer)


def without(proof, name):
    """The actions and invariants that are not proved without a rule."""
    world.without.add(name)
    try:
        return {x: broken for x in proof.model.ACTIONS if x in proof.seen[name]
                for broken in [not_kept(proof.model, x)] if broken}
    finally:
        world.without.clear()


def questions():
    for i, proof in enumerate(PROOFS):
        yield i, ask_first_state, None
        for name in proof.model.ACTIONS:
            yield i, ask_action, name
        yield i, ask_unique, None
        for script in proof.reached:
            yield i, ask_reached, script
        for name in proof.rules:
            yield i, ask_rule, name


def answer(question):
    i, ask_it, about = question
    return (*question, *ask_it(PROOFS[i], about))


def tell_without(proof, name):
    """What happens without one rule, in words; says whether that is what is known."""
    text, script = proof.rules[name]
    print('Without the rule %s (%s): %s.' % (name, proof.title, text))
    broken = without(proof, name)
    for action, words in broken.items():
        print('  %s does not keep: %s' % (action, '; '.join(words)))
    if script is None:
        print('  it is not needed for the promise: ' + proof.why_kept[name])
        return not broken
    found, line = tell(proof, name, words=True)
    print('prove: without %s, %s' % (name, 'equal ids' if found else 'NOTHING FOUND: ' + line))
    return found


def count_invariants(proof):
    return len(proof.model.invariants(any_state(proof.model)))


def main():
    failures = 0

    def fail(line):
        nonlocal failures
        failures += 1
        print('FAILED: ' + line, flush=True)

    for proof in PROOFS:
        if set(proof.rules) != set(proof.seen):
            fail('%s: rules without a story, or the other way round: %s' % (
                proof.title, ' '.join(set(proof.rules) ^ set(proof.seen))))
        told = {name for script in proof.reached for name in script.split()}
        if told != set(proof.model.ACTIONS):
            fail('%s: no sequence has these actions: %s' % (
                proof.title, ' '.join(set(proof.model.ACTIONS) - told)))
    name = os.environ.get('WITHOUT', '')
    if name:
        having = [proof for proof in PROOFS if name in proof.rules]
        if not having:
            sys.exit('there is no rule %s; there are:\n  %s' % (
                name, '\n  '.join(dict.fromkeys(x for proof in PROOFS for x in proof.rules))))
        found = [tell_without(proof, name) for proof in having]
        sys.exit(0 if all(found) and not failures else 1)

    part = os.environ.get('PART', '').split()
    asked = [question for question in questions() if not part or question[2] in part]
    unknown = set(part) - {about for _, _, about in asked}
    if unknown:
        sys.exit('prove: there is no action or rule ' + ' '.join(unknown))
    began = time.time()
    before = None
    refuted = unneeded = 0
    with multiprocessing.Pool() as pool:        # a question at a time for each processor
        for i, ask_it, about, is_well, line in pool.imap(answer, asked):
            if i != before:
                print('%s: %d actions, %d invariants' % (
                    PROOFS[i].title, len(PROOFS[i].model.ACTIONS), count_invariants(PROOFS[i])))
                before = i
            if not is_well:
                fail(line)
                continue
            print('  ' + line, flush=True)
            if ask_it is ask_rule:
                refuted += PROOFS[i].rules[about][1] is not None
                unneeded += PROOFS[i].rules[about][1] is None
    if failures:
        print('prove: FAILED, %d' % failures)
        sys.exit(1)
    if part:
        print('prove: a part, %d questions, all as they should be; %.0f s' % (
            len(asked), time.time() - began))
        return
    print('prove: no two leases issue the same (tick, number): %d actions keep %d invariants; '
          '%d rules taken out and refuted, %d proved as well; %.0f s' % (
              sum(len(proof.model.ACTIONS) for proof in PROOFS),
              sum(count_invariants(proof) for proof in PROOFS),
              refuted, unneeded, time.time() - began))


if __name__ == '__main__':
    main()
