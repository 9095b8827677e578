"""
mutants.py
      Makes mutants of the code, one at a time, and has the unit test of the lease machine, random
      calls on the twin of the registry, a fuzz target and the simulator look for them.
      test/mutants/run says how to call it.

A mutant is known by its file, its function, and its line or statement before and after, so that
it stays the same when lines move.  One whose object code is that of the original is no mutant, nor
is one that does not compile.
"""
import glob
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading

TWIN = "test/simulator/registry.c"
# as many as find the bugs that test/t/051_registry_twin.pl plants
TWIN_CALLS = "30000"
# what the fuzz target registry has of a node's side of a call
FUZZED = ["src/registry/protocol.c", "src/registry/remote.c"]
# after its corpus: some seconds
FUZZ_RUNS = "4000"
FILES = (sorted(glob.glob("src/ids/*.c")) + ["src/ids/word.h"] + sorted(glob.glob("src/lease/*.c")) +
         ["src/registry/helper.c", TWIN] + FUZZED)
EXPLAINED = "test/mutants/explained"
PROGRAMS = {"unit": "test/unit/machine-test", "twin": "test/mutants/twin", "fuzz": "test/fuzz/fuzz-registry",
            "simulator": "test/simulator/simulator"}
COMPILE = {"unit": ["sh", "test/unit/compile"], "twin": ["sh", "test/mutants/compile"],
           "fuzz": ["sh", "test/fuzz/compile", "registry"], "simulator": ["sh", "test/simulator/compile"]}
# processor seconds of the others, which take some; the simulator may be slower than planned
UNIT_LIMIT = 30
MORE_SECONDS = 30

RELATIONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&"}
# as pgindent writes them: blanks around operators of two operands
RELATION = re.compile(r"(?<= )(<=|>=|==|!=|<|>|&&|\|\|)(?=\s)")
ARITHMETIC = re.compile(r"(?<=[\w)\]]) ([+-]) (?=[\w(])")
ARITHMETIC_END = re.compile(r"(?<=[\w)\]]) ([+-])$", re.M)
NUMBER = re.compile(r"(?<![\w.\"])(0x[0-9A-Fa-f]+|\d+)(?![\w.])")
WORD = re.compile(r"\b(true|false|Min|Max)\b|(?<=[ (!])(!)(?=[\w(!])")
WORDS = {"true": "false", "false": "true", "Min": "Max", "Max": "Min", "!": ""}
# calls and assignments, the statements that can be left out or swapped
CALL = re.compile(r"(\(void\)\s*)?[a-z_]\w*\(.*\);", re.S)
WRITE = re.compile(r"[*(]*[a-z_]\w*[^;={}]*?([-+*/|&]?=[^=]|\+\+|--).*;", re.S)
DECLARATION = re.compile(r"(static |const |volatile )*[A-Za-z_]\w*\s+\**[a-z_]\w*(\[.*\])?( =|;|,)")
# a call that may do something
ACTIVE = re.compile(r"\b[a-z_]\w*\(")
SILENT = ("Assert(", "snprintf(", "break;", "free(")


class Mutant:
    def __init__(self, path, start, end, new, name):
        self.path, self.start, self.end, self.new, self.name = path, start, end, new, name


def blank_out(match):
    return re.sub(r"[^\n]", " ", match.group())


def masked(text):
    """The text with comments, strings and directives blank, so that places stay the same."""
    text = re.sub(r"/\*.*?\*/", blank_out, text, flags=re.S)
    text = re.sub(r'"(\\.|[^"\\\n])*"', blank_out, text)
    text = re.sub(r"'(\\.|[^'\\\n])+'", blank_out, text)
    text = re.sub(r"^#(.*\\\n)*.*", blank_out, text, flags=re.M)
    # what an error says; and all of what is only logged
    text = re.sub(r"(?<=\bereport\(ERROR,)[^;]*(?=\);)", blank_out, text)
    return re.sub(r"\b(ereport\((?!ERROR)|elog\()[^;]*\);", blank_out, text)


def functions(code):
    """Name, start and end of each body: its braces stand at the beginning of lines."""
    for match in re.finditer(r"^(\w+)\([^;{}]*\)\n\{\n(.*?)^\}", code, re.M | re.S):
        yield match.group(1), match.start(2), match.end(2)


def statements(code, start, end):
    """Calls and assignments that stand on lines of their own."""
    for match in re.finditer(r"^(\t+)(?=[(*a-z_])([^;{}]*;)$", code[start:end], re.M):
        text = match.group(2)
        plain = text.startswith(SILENT) or re.match(r"(if|for|while|switch|case|default|return|else|do|goto)\b", text)
        if not plain and not DECLARATION.match(text) and (CALL.fullmatch(text) or WRITE.fullmatch(text)):
            yield start + match.start(2), start + match.end(2), match.group(1)


def operands(code, start, end):
    """Each && and || with the operand after it, and each with the one before it."""
    for match in re.finditer(r"(&&|\|\|)", code[start:end]):
        at, depth = start + match.end(), 0
        while depth > 0 or not (code[at] in ");?:" or code.startswith(("&&", "||"), at)):
            depth += {"(": 1, ")": -1}.get(code[at], 0)
            at += 1
        yield start + match.start(), at
        at, depth = start + match.start() - 1, 0
        while depth > 0 or not (code[at] in "(;?:{}" or code.startswith(("&&", "||", "return", " = "), at)):
            depth += {")": 1, "(": -1}.get(code[at], 0)
            at -= 1
        yield at + {"&": 2, "|": 2, "r": 6, " ": 3}.get(code[at], 1), start + match.end()


def conditions(code, start, end):
    """What stands in the parentheses of each if."""
    for match in re.finditer(r"\bif \(", code[start:end]):
        at, depth = start + match.end(), 1
        while depth > 0:
            depth += {"(": 1, ")": -1}.get(code[at], 0)
            at += 1
        yield start + match.end(), at - 1


def independent(one, other):
    """Whether two assignments do the same in the other order."""
    targets = [text.split("=")[0].strip(" +-*/|&") for text in (one, other)]
    return (not ACTIVE.search(one + other) and "=" in one and "=" in other and
            not re.search(re.escape(targets[0]) + r"\b", other) and not re.search(re.escape(targets[1]) + r"\b", one))


def edits(code, start, end):
    """Each change of a body: from, to, new text."""
    body = code[start:end]
    for match in RELATION.finditer(body):
        yield start + match.start(), start + match.end(), RELATIONS[match.group()]
    for pattern in ARITHMETIC, ARITHMETIC_END:
        for match in pattern.finditer(body):
            yield start + match.start(1), start + match.end(1), "-" if match.group(1) == "+" else "+"
    for match in NUMBER.finditer(body):
        yield start + match.start(), start + match.end(), str(int(match.group(), 0) + 1)
    for match in WORD.finditer(body):
        yield start + match.start(), start + match.end(), WORDS[match.group()]
    for one in operands(code, start, end):
        yield one + ("",)
    for one in conditions(code, start, end):
        yield one + ("false",)
        yield one + ("true",)
    previous = None
    for one in statements(code, start, end):
        yield one[:2] + (";",)
        if previous and previous[2] == one[2] and code[previous[1]:one[0]].isspace():
            first, between, second = code[previous[0]:previous[1]], code[previous[1]:one[0]], code[one[0]:one[1]]
            if not independent(first, second):
                yield previous[0], one[1], second + between + first
        previous = one


def line_of(text, start, end):
    """The whole lines of a place, in one."""
    start = text.rfind("\n", 0, start) + 1
    end = text.find("\n", end)
    return start, end


def shown(text):
    return re.sub(r"\s+", " ", text).strip()


def mutants_of(path):
    with open(path) as file:
        text = file.read()
    code = masked(text)
    seen = {}
    for function, first, last in functions(code):
        for start, end, new in edits(code, first, last):
            # the original's text where it is only moved; as many lines as before
            if "\n" in new or len(new) > 5:
                new = new if code[start:end] == text[start:end] else None
            if new is None or new == code[start:end]:
                continue
            left, right = line_of(text, start, end)
            changed = text[left:start] + new + text[end:right]
            name = f"{path}: {function}: {shown(text[left:right])} -> {shown(changed)}"
            seen[name] = seen.get(name, 0) + 1
            if seen[name] > 1:
                name += f" ({seen[name]})"
            new += "\n" * (text[start:end].count("\n") - new.count("\n"))
            yield Mutant(path, start, end, new, name)


def explanations():
    """Mutants, or functions, each with its reason, which is on the line after it."""
    known, name = {}, None
    with open(EXPLAINED) as file:
        for line in file:
            if line.startswith("\t"):
                known[name] = line.strip()
            elif line.strip() and not line.startswith("#"):
                name = line.strip()
    return known


def function_of(name):
    return ": ".join(name.split(": ")[:2])


def judges_of(path):
    """What looks for the mutants of a file, from the fastest to the slowest."""
    if path in FUZZED:
        return ["fuzz"]
    return (["unit"] if path.startswith("src/lease/machine") else ["twin"] if path == TWIN else []) + ["simulator"]


class Tree:
    """A copy of what is compiled, for one mutant at a time."""

    def __init__(self, directory, judges):
        self.directory = directory
        for part in "src", "test/unit", "test/simulator", "test/mutants", "test/fuzz", "test/stubs":
            shutil.copytree(part, os.path.join(directory, part))
        self.environment = dict(os.environ, COPT="-w -g0", SANITIZERS="address")
        self.inputs = ",".join(sorted(glob.glob("test/fuzz/corpus/registry/*")))
        if not all(self.compile(judge) for judge in judges):
            sys.exit("the code as it is does not compile")
        self.original = {judge: self.code(judge) for judge in judges}
        self.answers = self.twin_answers() if "twin" in judges else None

    def call(self, limit, *command):
        def limited():
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        return subprocess.run(command, cwd=self.directory, env=self.environment, preexec_fn=limited,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def compile(self, judge):
        return self.call(600, *COMPILE[judge]).returncode == 0

    def twin_answers(self):
        """What the twin does with random calls; None if it does not end."""
        result = self.call(UNIT_LIMIT, "test/mutants/twin", "-", "-", os.environ["SEED"], TWIN_CALLS)
        return result.stdout if result.returncode == 0 else None

    def code(self, judge):
        with open(os.path.join(self.directory, PROGRAMS[judge]), "rb") as file:
            return file.read()

    def write(self, path, text):
        with open(os.path.join(self.directory, path), "w") as file:
            file.write(text)
        # of those in src/registry, the object is the target's
        names = os.path.basename(path)[:-2], "fuzz_registry"
        for name in glob.glob(os.path.join(self.directory, "test/[fms]*/*.o")):
            if path.endswith(".h") or os.path.basename(name)[:-2] in names:
                os.remove(name)

    def finds(self, judge):
        """Whether it finds the code that is compiled."""
        if judge == "twin":
            return not self.answers or self.twin_answers() != self.answers
        if judge == "unit":
            return self.call(UNIT_LIMIT, PROGRAMS[judge]).returncode != 0
        if judge == "fuzz":
            return self.call(UNIT_LIMIT, PROGRAMS[judge], "-seed_inputs=" + self.inputs, "-runs=" + FUZZ_RUNS,
                             "-seed=" + os.environ["SEED"], "-max_len=2048", "-len_control=20", "-timeout=10",
                             "-dict=test/fuzz/registry.dict", "-exact_artifact_path=/dev/null").returncode != 0
        seconds = int(os.environ["DURATION"])
        return self.call(seconds + MORE_SECONDS, PROGRAMS[judge], "-q", "-d", str(seconds), "-s",
                         os.environ["SEED"], "-k", "test/simulator/seeds").returncode != 0

    def look(self, judges):
        """What finds the code that is compiled, or nothing."""
        return next((judge for judge in judges if self.finds(judge)), "survived")

    def judge(self, mutant):
        with open(mutant.path) as file:
            text = file.read()
        self.write(mutant.path, text[:mutant.start] + mutant.new + text[mutant.end:])
        judges = judges_of(mutant.path)
        if not all(self.compile(judge) for judge in judges):
            result = "no code"
        elif self.code(judges[-1]) == self.original[judges[-1]]:
            result = "same code"
        else:
            result = self.look(judges)
        self.write(mutant.path, text)
        return result


def work(tree, todo, results, lock):
    while True:
        with lock:
            if not todo:
                return
            mutant = todo.pop()
        result = tree.judge(mutant)
        with lock:
            results[mutant.name] = result
            print(f"{len(results)} {result}: {mutant.name}", flush=True)


def main():
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    files = os.environ["FILES"].split() or FILES
    known = explanations()
    todo = [mutant for path in files for mutant in mutants_of(path)]
    names = {mutant.name for mutant in todo}
    names |= {function_of(name) for name in names}
    stale = [name for name in known if name.split(": ")[0] in files and name not in names]
    todo = [mutant for mutant in todo if os.environ["ONLY"] in mutant.name]
    random.Random(int(os.environ["SEED"])).shuffle(todo)
    if os.environ["SAMPLE"]:
        todo = todo[:int(os.environ["SAMPLE"])]
    if os.environ["LIST"]:
        print("\n".join(sorted(mutant.name for mutant in todo)))
        return
    print(f"{len(todo)} mutants, seed {os.environ['SEED']}", flush=True)
    judges = [judge for judge in PROGRAMS if any(judge in judges_of(path) for path in files)]
    trees = [Tree(os.path.abspath(f"../tmp/mutants-{i}"), judges) for i in range(int(os.environ["JOBS"]))]
    if trees[0].look(judges) != "survived":
        sys.exit("the code as it is fails")
    results, lock = {}, threading.Lock()
    threads = [threading.Thread(target=work, args=(tree, todo, results, lock)) for tree in trees]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    count = {kind: list(results.values()).count(kind)
             for kind in ("unit", "twin", "fuzz", "simulator", "survived", "same code", "no code")}
    survivors = sorted(name for name in results if results[name] == "survived")
    print()
    unexplained = [name for name in survivors if name not in known and function_of(name) not in known]
    for name in survivors:
        print(f"SURVIVED: {name}" if name in unexplained else
              f"explained: {name}\n\t{known.get(name) or known[function_of(name)]}")
    for name in stale:
        print(f"explained, but no mutant any more: {name}")
    print(f"mutants: {count['unit']} found by the unit test, {count['twin']} by calls on the twin, "
          f"{count['fuzz']} by the fuzz target, "
          f"{count['simulator']} by the simulator, {count['survived']} survived, "
          f"of which {len(unexplained)} are not explained ({count['same code']} have the same code, {count['no code']} none)")


main()
