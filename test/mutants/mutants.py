"""
mutants.py
      Draws mutants of src and client (edits.py) and has the tests look for each, one at a time, from the
      fastest to the slowest, until one finds it.  test/mutants/run says how to call it.

Which tests look for a mutant says test/belongs, which people use with test/run --changed, too.  One that
is not found in LIMIT seconds, its build included, has survived; a judge whose program does not end in
JUDGE_LIMIT seconds has found it.  One whose object code is that of the original is no mutant, nor is one that
does not compile or cannot be created.

A test that finds something must pass without it, which is tried at once.
"""
import fnmatch
import glob
import os
import random
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

import edits

FILES = ["src/*.[ch]", "src/*/*.[ch]", "src/sql/*/*.sql", "client/java/src/main/java/example/snowflake/*.java",
         "client/node/index.js", "client/node/call.js", "client/node/layout.js", "client/python/snowflake_ids/*.py",
         "client/go/*.go"]
EXPLAINED = "test/mutants/explained"
LIMIT = 300
# a judge's program that takes as long has found a mutant that makes something wait for ever
JUDGE_LIMIT = 150
# seconds of processor time
SIMULATOR_SECONDS = os.environ["DURATION"]
# what a TAP test waits for
TAP_TIMEOUT = "90"
# after its corpus: some seconds
FUZZ_RUNS = "4000"
PROGRAMS = {"test-unit": "test/unit/machine-test", "model": "test/model/memory", "simulate": "test/simulator/simulator",
            "fuzz layout": "test/fuzz/fuzz-layout", "fuzz codec": "test/fuzz/fuzz-codec", "fuzz registry": "test/fuzz/fuzz-registry"}
COMPILE = {"test-unit": ["sh", "test/unit/compile"], "model": ["sh", "test/model/compile"],
           "simulate": ["sh", "test/simulator/compile"]}
JAVA_TESTS = ["GeneratorTest", "MachineTest", "RegistryTest", "KeeperTest"]
# numbers of TAP tests with servers that look at any C code, and take seconds
QUICK_TAP = ["001", "006", "007", "008", "009", "033", "036"]
DRIVER = "/usr/share/java/postgresql.jar"


class TimeIsOver(Exception):
    pass


def belonging(path):
    """The tests of a file, and targets of make, as test/belongs has them."""
    found = []
    with open("test/belongs") as file:
        for line in file:
            words = line.split()
            if words and not line.startswith("#") and fnmatch.fnmatchcase(path, words[0]):
                found += [word for word in words[1:] if word not in found]
    return found


def all_tests():
    """Those of regress, in the order of the Makefile, and of isolation."""
    with open("Makefile") as file:
        regress = re.search(r"^REGRESS = ((?:.*\\\n)*.*)", file.read(), re.M).group(1).replace("\\", "").split()
    return regress, sorted(os.path.basename(name)[:-5] for name in glob.glob("test/specs/*.spec"))


def judges_of(path):
    """The judges of a file, the fastest first; each has a name.  Code of the server has all of regress, its own tests first."""
    names = belonging(path)
    targets = [name[5:] for name in names if name.startswith("make:")]
    all_regress, all_specs = all_tests()
    regress = [name for name in all_regress if name in names]
    specs = [name for name in all_specs if name in names]
    judges = ["test-unit"] if "test-unit" in targets else []
    judges += ["regress " + " ".join(regress)] if regress else []
    judges += ["model"] if "model" in targets else []
    if "fuzz" in targets:
        judges.append("fuzz registry" if "/registry/" in path else "fuzz layout" if "/layout/" in path else "fuzz codec")
    judges += ["isolation " + " ".join(specs)] if specs else []
    judges += ["simulate"] if "simulate" in targets else []
    if path.startswith("src/"):
        judges += [os.path.basename(tap) for name in names for tap in glob.glob(f"test/t/{name}_*.pl")]
        others = [name for name in all_specs if name not in specs]
        judges += ["isolation " + " ".join(others)] if others else []
        others = [name for name in all_regress if name not in regress]
        judges += ["regress " + " ".join(others)] if others else []
    if "test-programs" in targets:
        language = path.split("/")[1]
        judges += ["java", "kit java", "java registry"] if language == "java" else ["kit " + language]
    names = [name for name in QUICK_TAP if path.endswith((".c", ".h")) and name not in names]
    return judges + [os.path.basename(tap) for name in names for tap in glob.glob(f"test/t/{name}_*.pl")]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


class Slot:
    """A copy of the tree with an installation and a server of its own, for one mutant at a time."""

    def __init__(self, number):
        self.home = os.path.abspath(f"../tmp/m{number}")
        self.tree, self.inst, self.data = (os.path.join(self.home, name) for name in ("tree", "inst", "data"))
        shutil.copytree(".", self.tree, symlinks=True)
        self.environment = dict(os.environ, COPT="-w -g0", SANITIZERS="address", PG_TEST_TIMEOUT_DEFAULT=TAP_TIMEOUT,
                                PGPASSFILE=os.path.abspath("../tmp/pgpass"), PYTHONDONTWRITEBYTECODE="1",
                                GO111MODULE="off", GOFLAGS="", GOPATH=f"{self.home}/go:/usr/share/gocode",
                                GOCACHE=os.path.abspath("../tmp/gocache"))
        os.makedirs(f"{self.home}/go/src/example")
        os.symlink(f"{self.tree}/client/go", f"{self.home}/go/src/example/snowflake")
        self.until, self.limit, self.programs, self.said = None, None, {}, b""
        bindir = self.must("sh", "test/private-install", self.inst).stdout.decode().split()[-1]
        self.bindir = os.path.join(self.home, bindir)
        self.port = free_port()
        self.start_server()
        self.inputs = ",".join(sorted(glob.glob("test/fuzz/corpus/registry/*")))
        self.library = self.read("snowflake.so")

    def start_server(self):
        self.must(f"{self.bindir}/initdb", "-D", self.data, "-U", "postgres", "-E", "UTF8", "-N", "--auth-local=trust",
                  "--auth-host=scram-sha-256", "--pwfile=" + os.path.abspath("../tmp/password"))
        with open(f"{self.data}/postgresql.conf", "a") as file:
            file.write(f"port = {self.port}\nlisten_addresses = '127.0.0.1'\nmax_connections = 200\nfsync = off\n"
                       f"unix_socket_directories = '{self.home}'\nshared_preload_libraries = 'snowflake'\n")
        self.must(f"{self.bindir}/pg_ctl", "-D", self.data, "-l", f"{self.home}/server.log", "-w", "-s", "start")
        with open(os.path.abspath("../tmp/password")) as file:
            self.sql("postgres", f"CREATE ROLE app LOGIN PASSWORD '{file.read().strip()}'")
        self.sql("postgres", "CREATE DATABASE shop")
        self.sql("shop", "CREATE EXTENSION snowflake")

    def read(self, name):
        with open(os.path.join(self.tree, name), "rb") as file:
            return file.read()

    def call(self, *command, cpu=None, environment=(), directory=None):
        """Raises TimeIsOver if the mutant has no more time; ends what the judge has no more time for."""
        def begin():
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if cpu:
                resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
        self.check_time()
        limits = [limit for limit in (self.until and self.until - time.monotonic(), self.limit) if limit is not None]
        process = subprocess.Popen(command, cwd=directory or self.tree, env=dict(self.environment, **dict(environment)),
                                   preexec_fn=begin, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            output, _ = process.communicate(timeout=min(limits, default=None))
        except subprocess.TimeoutExpired:
            self.check_time()
            output = b"it does not end"
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.stdout.close()
            process.wait()
        self.said = output
        return subprocess.CompletedProcess(command, process.returncode, output)

    def check_time(self):
        if self.until is not None and self.until <= time.monotonic():
            raise TimeIsOver

    def must(self, *command):
        done = self.call(*command)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: {done.stdout.decode()}")
        return done

    def sql(self, database, *statements):
        return self.call(f"{self.bindir}/psql", "-X", "-q", "-h", self.home, "-p", self.port, "-U", "postgres", "-d", database,
                         "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", *[word for one in statements for word in ("-c", one)])

    def kill_left(self):
        """Servers that a test has left, but not ours."""
        for process in glob.glob("/proc/[0-9]*"):
            try:
                program, directory = os.readlink(process + "/exe"), os.readlink(process + "/cwd")
                if program.startswith(self.inst) and not directory.startswith(self.data):
                    os.kill(int(process[6:]), signal.SIGKILL)
            except OSError:
                pass
        for name in "tmp_check", "tmp_check_iso", "output_iso", "results":
            shutil.rmtree(os.path.join(self.tree, name), ignore_errors=True)

    def write(self, path, text):
        with open(os.path.join(self.tree, path), "w") as file:
            file.write(text)
        # what has no list of what it includes; of src/registry, the object is the target's
        names = os.path.basename(path)[:-2], "fuzz_registry"
        for name in glob.glob(os.path.join(self.tree, "test/[fms]*/*.o")):
            if path.endswith(".h") or os.path.basename(name)[:-2] in names:
                os.remove(name)

    def build(self, path):
        """None if it is a mutant, else why not."""
        language = edits.language_of(path)
        if language == "java":
            shutil.rmtree(f"{self.home}/classes", ignore_errors=True)
            sources = glob.glob(f"{self.tree}/client/java/src/**/*.java", recursive=True)
            return self.compare("classes", self.call("javac", "--release", "11", "-nowarn", "-g:none", "-d",
                                                     f"{self.home}/classes", *sources))
        if language == "go":
            return self.compare("kitdriver", self.call("go", "build", "-trimpath", "-o", f"{self.home}/kitdriver", "./kitdriver",
                                                       directory=f"{self.home}/go/src/example/snowflake"))
        if language == "js":
            return None if self.call("node", "--check", path).returncode == 0 else "no code"
        if language == "python":
            return None if self.call("/usr/bin/python3", "-c", "import ast, sys; ast.parse(open(sys.argv[1]).read())",
                                     path).returncode == 0 else "no code"
        if self.call("make", "-s", "all", "with_llvm=no", "COPT=-w -g0").returncode != 0:
            return "no code"
        if language == "c" and self.until and self.read("snowflake.so") == self.library:
            return "same code"
        self.call("make", "-s", "install", "DESTDIR=" + self.inst, "with_llvm=no", "COPT=-w -g0")
        if language == "c":
            return None
        if "/registry/" in path:
            created = self.sql("postgres", "DROP EXTENSION IF EXISTS snowflake_registry", "CREATE EXTENSION snowflake_registry")
        else:
            self.sql("postgres", "DROP DATABASE IF EXISTS created WITH (FORCE)")
            self.sql("postgres", "CREATE DATABASE created")
            created = self.sql("created", "CREATE EXTENSION snowflake", "CREATE EXTENSION snowflake_tools")
        # a syntax error, or a name that is not there; all else is a test's to find
        return "no code" if re.search(rb"^ERROR: +42", created.stdout, re.M) else None

    def compare(self, name, done):
        """What is made for a language, with what the original makes."""
        if done.returncode != 0:
            return "no code"
        files = sorted(glob.glob(f"{self.home}/{name}/**/*.class", recursive=True)) or [f"{self.home}/{name}"]
        code = [self.read(file) for file in files]
        return "same code" if self.programs.setdefault(name, code) == code and self.until else None

    def compile(self, judge):
        """Compiles the program of a judge; true if it is another one than that of the original."""
        command = COMPILE.get(judge) or ["sh", "test/fuzz/compile", judge.split()[1]]
        if self.call(*command).returncode != 0:
            return False
        return self.read(PROGRAMS[judge]) != self.programs.setdefault(judge, self.read(PROGRAMS[judge]))

    def finds(self, judge, path):
        """Whether a judge finds something, or does not end."""
        self.limit = JUDGE_LIMIT
        try:
            return self.look(judge, path)
        finally:
            self.limit = None

    def look(self, judge, path):
        kind, _, names = judge.partition(" ")
        if judge in PROGRAMS:
            if judge not in self.programs:
                self.with_original(path, lambda: self.compile(judge))
            differs = self.compile(judge)
            return (differs or self.until is None) and self.run_program(judge)
        if judge == "java registry":
            self.make_registry()
            return self.run_java("SnowflakeTest", f"jdbc:postgresql://127.0.0.1:{self.port}/postgres")
        if kind == "java":
            return any(self.run_java(name) for name in JAVA_TESTS) or self.run_java(
                "LayoutTest", "test/data", f"jdbc:postgresql://127.0.0.1:{self.port}/shop?user=postgres")
        if kind == "kit":
            return self.run_kit(names)
        arguments = {"REGRESS": "", "ISOLATION": "", "PROVE_TESTS": ""}
        arguments[{"regress": "REGRESS", "isolation": "ISOLATION"}.get(kind, "PROVE_TESTS")] = names or "test/t/" + kind
        return self.call("make", "-s", "installcheck", "bindir=" + self.bindir, "with_llvm=no", "PROVE_FLAGS=",
                         *[f"{name}={value}" for name, value in arguments.items()]).returncode != 0

    def run_program(self, judge):
        seed = os.environ["SEED"]
        command = [PROGRAMS[judge]]
        if judge.startswith("fuzz"):
            inputs = ",".join(sorted(glob.glob(f"test/fuzz/corpus/{judge.split()[1]}/*")))
            command += ["-seed_inputs=" + inputs, "-runs=" + FUZZ_RUNS, "-seed=" + seed, "-max_len=2048", "-len_control=20",
                        "-timeout=10", f"-dict=test/fuzz/{judge.split()[1]}.dict", "-exact_artifact_path=/dev/null"]
        if judge == "simulate":
            command += ["-q", "-d", SIMULATOR_SECONDS, "-s", seed, "-k", "test/simulator/seeds"]
        return self.call(*command, cpu=int(SIMULATOR_SECONDS) + 40).returncode != 0

    def run_java(self, name, *arguments):
        """Whether a test of Java finds something."""
        done = self.call("java", "-ea", "-Dpatience=120000", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
                         "-cp", f"{self.home}/classes:{DRIVER}", "example.snowflake." + name, *arguments)
        return done.returncode != 0 or b"\nnot ok - " in b"\n" + done.stdout

    def make_registry(self):
        self.sql("postgres", "DROP EXTENSION IF EXISTS snowflake_registry", "CREATE EXTENSION snowflake_registry",
                 "GRANT USAGE ON SCHEMA snowflake TO app",
                 "GRANT EXECUTE ON FUNCTION snowflake.acquire_lease, snowflake.renew_lease, snowflake.release_lease TO app")

    def run_kit(self, language):
        driver = {"java": ["--listen", "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp",
                           f"{self.home}/classes:{DRIVER}", "example.snowflake.KitDriver"],
                  "node": ["node", "--expose-gc", "client/node/kit_driver.js"],
                  "python": ["env", "PYTHONPATH=client/python", "/usr/bin/python3", "client/python/kit_driver.py"],
                  "go": [f"{self.home}/kitdriver"]}[language]
        self.make_registry()
        admin = f"{self.bindir}/psql -X -q -At -h {self.home} -p {self.port} -U postgres -d postgres -v ON_ERROR_STOP=1"
        return self.call("/usr/bin/python3", "client/kit/kit.py", "--stop", "--registry", f"127.0.0.1:{self.port}",
                         "--admin", admin, *driver).returncode != 0

    def with_original(self, path, what):
        """Does something with the original in the place of the mutant, without a limit of time."""
        with open(os.path.join(self.tree, path)) as file:
            mutant = file.read()
        with open(path) as file:
            self.write(path, file.read())
        until, self.until = self.until, None
        limit, self.limit = self.limit, None
        begin = time.monotonic()
        self.build(path)
        result = what()
        self.write(path, mutant)
        if until is not None:
            until += time.monotonic() - begin
            self.spent += time.monotonic() - begin
        self.until = until
        self.build(path)
        self.limit = limit
        return result

    def find(self, mutant, sound):
        """The first judge that finds a mutant, and only with it; None if all have looked."""
        for judge in judges_of(mutant.path):
            if not self.finds(judge, mutant.path):
                continue
            self.found_at = time.monotonic() - self.spent
            self.kill_left()
            # a program and regress do the same each time; others depend on the machine, too
            if judge in sound and (judge in PROGRAMS or judge.startswith("regress ")):
                return judge
            if not self.with_original(mutant.path, lambda: self.finds(judge, mutant.path)):
                sound.add(judge)
                return judge
            print(f"{judge} fails without a mutant, too:\n{self.said.decode(errors='replace')}", flush=True)
        return None

    def judge(self, mutant, sound):
        """What finds it, in how many seconds."""
        with open(mutant.path) as file:
            text = file.read()
        language = edits.language_of(mutant.path)
        if language in ("java", "go") and {"java": "classes", "go": "kitdriver"}[language] not in self.programs:
            self.build(mutant.path)
        begin, self.spent, self.found_at = time.monotonic(), 0, None
        self.until = begin + LIMIT
        try:
            self.write(mutant.path, text[:mutant.start] + mutant.new + text[mutant.end:])
            result = self.build(mutant.path) or self.find(mutant, sound) or "survived"
        except TimeIsOver:
            result = "survived"
        seconds = (self.found_at or time.monotonic() - self.spent) - begin
        self.until = None
        self.kill_left()
        self.write(mutant.path, text)
        if mutant.path.startswith("src/"):
            # clients have the extension as it is
            self.build(mutant.path)
        return result, seconds


def explanations():
    """Mutants, each with its reason, which is on the line after it."""
    known, name = {}, None
    with open(EXPLAINED) as file:
        for line in file:
            if line.startswith("\t"):
                known[name] = line.strip()
            elif line.strip() and not line.startswith("#"):
                name = line.strip()
    return known


def work(slot, todo, results, sound, lock):
    while True:
        with lock:
            if not todo:
                return
            mutant = todo.pop()
        result, seconds = slot.judge(mutant, sound)
        with lock:
            results[mutant.name] = result, seconds
            print(f"{len(results)} {result}, {seconds:.0f} s: {mutant.name}", flush=True)


def report(results, known):
    found = {name: one for name, one in results.items() if one[0] not in ("survived", "same code", "no code")}
    survivors = sorted(name for name, one in results.items() if one[0] == "survived")
    unexplained = [name for name in survivors if name not in known]
    print()
    for name in survivors:
        print(f"SURVIVED: {name}" if name in unexplained else
              f"explained: {name}\n\t{known[name]}")
    judges = [one[0].split(" ")[0] for one in found.values()]
    print("found by: " + ", ".join(f"{judge} {judges.count(judge)}" for judge in sorted(set(judges))))
    count = {kind: [one[0] for one in results.values()].count(kind) for kind in ("same code", "no code")}
    share = 100 * len(found) / max(len(found) + len(unexplained), 1)
    median = statistics.median([one[1] for one in found.values()] or [0])
    print(f"mutants: {len(found)} found ({share:.0f} % of those that count, half of them within {median:.0f} s), "
          f"{len(survivors)} survived, of which {len(unexplained)} are not explained "
          f"({count['same code']} have the same code, {count['no code']} none)")


def main():
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    patterns = os.environ["FILES"].split() or FILES
    files = sorted({path for pattern in patterns for path in glob.glob(pattern)})
    known = explanations()
    todo = [mutant for path in files for mutant in edits.mutants_of(path)]
    names = {mutant.name for mutant in todo}
    for name in known:
        if name.split(": ")[0] in files and name not in names:
            print(f"explained, but no mutant any more: {name}")
    todo = [mutant for mutant in todo if os.environ["ONLY"] in mutant.name]
    random.Random(int(os.environ["SEED"])).shuffle(todo)
    if os.environ["SAMPLE"]:
        todo = todo[:int(os.environ["SAMPLE"])]
    if os.environ["LIST"]:
        print("\n".join(sorted(mutant.name for mutant in todo)))
        return
    drawn = len(todo)
    print(f"{drawn} mutants, seed {os.environ['SEED']}", flush=True)
    slots = [Slot(number) for number in range(int(os.environ["JOBS"]))]
    results, sound, lock = {}, set(), threading.Lock()
    threads = [threading.Thread(target=work, args=(slot, todo, results, sound, lock)) for slot in slots]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(results) < drawn:
        sys.exit(f"{drawn - len(results)} mutants were not judged")
    report(results, known)


main()
