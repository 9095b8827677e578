package example.snowflake;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/** The lease keeper with a registry that says yes to all, and a monotonic clock that the test sets. */
public final class KeeperTest {
    private static final Layout TWITTER = Layout.of("twitter");
    private static final long SECOND = 1_000_000;

    /** Thrown by a test where nobody expects it. */
    private static final class Unforeseen extends Error {
        private static final long serialVersionUID = 1;

        Unforeseen() {
            super("not foreseen\u0007");
        }
    }

    /** A keeper, and what it has to do with. */
    private static class World {
        final AtomicLong monotonic = new AtomicLong(SECOND);
        final Set<String> starts = ConcurrentHashMap.newKeySet();
        final AtomicInteger calls = new AtomicInteger();
        /** Connections that were aborted after they had been given back. */
        final AtomicInteger aborted = new AtomicInteger();
        /** Calls that the server has got. */
        final AtomicInteger executing = new AtomicInteger();
        /** Connections that are in use. */
        final AtomicInteger open = new AtomicInteger();
        /** How far the registry's clock is ahead of ours. */
        volatile long ahead;
        volatile boolean broken;
        /** Leases end in the year 9999. */
        volatile boolean late;
        /** The registry's limit for ends. */
        volatile long limit = Long.MAX_VALUE;
        volatile int generation = 1;
        /** What a renewal is answered in place of yes: the part of the answer that says so. */
        volatile String instead;
        /** The last call that has asked for an end. */
        volatile Map<String, Object> lastCall;
        final Generator generator = new Generator(TWITTER, this::clock, SECOND, SequenceStart.CARRIED);
        final LeaseKeeper keeper = new LeaseKeeper(uses -> new LeaseMachine(UUID.randomUUID(), uses, TWITTER,
                SECOND, 5 * SECOND, 120 * SECOND, () -> 0.5), null, generator,
                new Registry(this::connect, TWITTER, "test", "here", clock()), monotonic::get, "keeper");

        private long clock() {
            if (broken) {
                throw new Unforeseen();
            }
            return now();
        }

        /** Goes on by what passes of the monotonic clock, too. */
        private long now() {
            return System.currentTimeMillis() * 1000 + monotonic.get() - SECOND;
        }

        private static Object fake(Class<?> type, InvocationHandler handler) {
            return Proxy.newProxyInstance(KeeperTest.class.getClassLoader(), new Class<?>[] {type}, handler);
        }

        Connection connect() {
            return connection();
        }

        /** What happens when a connection is given back. */
        void givenBack() throws Exception {
        }

        /** What a call does in the server. */
        void executes() throws Exception {
        }

        void cancelled() throws Exception {
        }

        void aborted() {
        }

        final Connection connection() {
            AtomicBoolean closed = new AtomicBoolean();

            open.incrementAndGet();
            return (Connection) fake(Connection.class, (proxy, method, arguments) -> {
                switch (method.getName()) {
                    case "getAutoCommit":
                        return true;
                    case "isReadOnly":
                    case "isClosed":
                        return false;
                    case "getTransactionIsolation":
                        return Connection.TRANSACTION_READ_COMMITTED;
                    case "prepareStatement":
                        return statement();
                    case "abort":
                        aborted.addAndGet(closed.get() ? 1 : 0);
                        aborted();
                        return null;
                    case "close":
                        closed.set(true);
                        givenBack();
                        open.decrementAndGet();
                        return null;
                    default:
                        return null;
                }
            });
        }

        private PreparedStatement statement() {
            String[] json = new String[1];

            return (PreparedStatement) fake(PreparedStatement.class, (proxy, method, arguments) -> {
                switch (method.getName()) {
                    case "setString":
                        json[0] = (String) arguments[1];
                        return null;
                    case "cancel":
                        cancelled();
                        return null;
                    case "executeQuery":
                        executing.incrementAndGet();
                        executes();
                        return fake(ResultSet.class, (rows, call, none) ->
                                call.getName().equals("next") ? Boolean.TRUE
                                        : call.getName().equals("getString") ? answer(json[0]) : null);
                    default:
                        return null;
                }
            });
        }

        private String answer(String json) {
            Map<String, Object> call = Json.read(json);
            boolean acquires = call.containsKey("kind");
            String other = acquires || !call.containsKey("window") ? null : instead;
            String text = "{\"protocol\": 1, " + (other != null ? other : "\"answer\": \"yes\"") + ", \"generation\": "
                    + generation + ", \"incarnation\": \"00000000-0000-4000-8000-000000000001\", \"clock\": "
                    + (now() + ahead);

            if (call.containsKey("window")) {
                text += ", \"leased_until\": " + (late ? Registry.END_TIME - 1
                        : (Long) call.get("clock") + Math.min((Long) call.get("window"), limit));
                lastCall = call;
            }
            starts.add((String) call.get("start"));
            if (acquires) {
                text += ", \"token\": \"00000000-0000-4000-8000-000000000002\", \"starts_at\": " + call.get("clock")
                        + ", \"node_number\": " + calls.incrementAndGet();
            }
            return text + "}";
        }

        long number() {
            Generator.Attempt attempt = new Generator.Attempt();

            return generator.tryIssue(1, attempt) != Generator.Outcome.ISSUED ? -1
                    : TWITTER.nodeNumber(generator.id(attempt.word));
        }

        /** A second passes. */
        void pass() {
            monotonic.addAndGet(SECOND);
            keeper.ask();
        }

        /** Time passes, and the keeper looks. */
        void lookAfter(long micros) throws InterruptedException {
            monotonic.addAndGet(micros);
            for (int i = 0; i < 5; i++) {
                keeper.ask();
                Thread.sleep(20);
            }
        }

        /** Seconds pass until a condition holds, so fast that calls have the time to end; how many. */
        long passUntil(String what, Check.Condition condition) throws Exception {
            long from = monotonic.get();
            AtomicInteger looks = new AtomicInteger();

            Check.waitFor(what, () -> {
                if (condition.holds()) {
                    return true;
                }
                if (looks.incrementAndGet() % 4 == 0 && open.get() == 0) {
                    pass();
                }
                return false;
            });
            return (monotonic.get() - from) / SECOND;
        }

        void end() {
            Check.holds(keeper.stop(5 * SECOND), "the keeper ends");
            Check.same(number(), -1L, "sealed");
        }
    }

    private KeeperTest() {
    }

    public static void main(String[] args) {
        Check.test("what nobody has foreseen seals; then another start begins", KeeperTest::unforeseen);
        Check.test("a keeper that fails again and again can be stopped", KeeperTest::stopped);
        Check.test("calls that hang for ever: few, and fewer and fewer, but not none", KeeperTest::hang);
        Check.test("a login has 15 s, and the call after it 5 s", KeeperTest::timeouts);
        Check.test("ends that are later than was asked for: it renews all the same", KeeperTest::tooLate);
        Check.test("a connection that was given back is not aborted, and nothing in it cancelled", KeeperTest::givenBack);
        Check.test("a call that is given up on is cancelled, then its connection is closed", KeeperTest::cancels);
        Check.test("a cancel that hangs: the connection is closed all the same", KeeperTest::cancelHangs);
        Check.test("a hundred nodes that lost a busy registry come back at a hundred times", KeeperTest::spread);
        Check.test("the log: the first failure, one a minute, and the end; clocks that differ", KeeperTest::logs);
        Check.test("the log: a lease that is cut, once", KeeperTest::logsCut);
        Check.test("the log: tables that were rolled back, and a former primary", KeeperTest::logsGuards);
        Check.test("a refusal reaches threads as it is, and ids go on when it is over", KeeperTest::refused);
        Check.test("a log that blocks stops nothing, and what lasts is said later", KeeperTest::logBlocks);
        Check.test("a call has no inheritable variables of the thread that built", KeeperTest::inherits);
        Check.end();
    }

    private static void unforeseen() throws Exception {
        World world = new World();

        world.keeper.start();
        Check.waitFor("a lease", () -> world.number() == 1);
        world.broken = true;
        world.pass();
        Check.waitFor("the word is sealed", () -> {
            world.keeper.ask();
            return world.generator.seal(-1) == Generator.NO_ID && world.keeper.status().problem != null;
        });
        Check.same(world.keeper.status().problem.message,
                "the lease keeper has failed: example.snowflake.KeeperTest$Unforeseen: not foreseen", "the problem");
        Check.same(world.keeper.status().phase, LeaseMachine.Phase.RETRYING, "phase");
        world.broken = false;
        long seconds = world.passUntil("another number", () -> world.number() > 1);
        Check.same(world.starts.size(), 2, "starts");
        Check.holds(seconds >= 1, "not at once");
        Check.waitFor("the problem is over", () -> world.keeper.status().problem == null);
        world.end();
    }

    private static void stopped() throws Exception {
        World world = new World();

        world.broken = true;
        world.keeper.start();
        Check.waitFor("a failure", () -> world.keeper.status().problem != null);
        world.end();
    }

    private static void hang() throws Exception {
        CountDownLatch end = new CountDownLatch(1);
        AtomicInteger logins = new AtomicInteger();
        World world = new World() {
            @Override
            Connection connect() {
                if (logins.incrementAndGet() <= LeaseKeeper.MOST_HANGING + 2) {
                    try {
                        end.await();
                    } catch (InterruptedException e) {
                        throw new IllegalStateException(e);
                    }
                }
                return connection();
            }
        };

        world.keeper.start();
        world.passUntil("four hang", () -> logins.get() == LeaseKeeper.MOST_HANGING);
        world.passUntil("no further one", () -> world.keeper.status().problem != null
                && world.keeper.status().problem.message.contains("loginTimeout"));
        long fifth = world.passUntil("a fifth", () -> logins.get() == LeaseKeeper.MOST_HANGING + 1);
        long sixth = world.passUntil("a sixth", () -> logins.get() == LeaseKeeper.MOST_HANGING + 2);
        Check.holds(fifth >= 30 && sixth >= fifth * 3 / 2, "after " + fifth + " and " + sixth + " s");
        world.passUntil("a lease", () -> world.number() > 0);
        long leasedUntil = world.keeper.view().leasedUntil;
        // six calls still hang, but the last one was answered: it does not wait for that
        long renewal = world.passUntil("a renewal", () -> world.keeper.view().leasedUntil > leasedUntil);
        Check.holds(renewal < sixth, "after " + renewal + " s");
        end.countDown();
        world.end();
    }

    private static void timeouts() throws Exception {
        CountDownLatch login = new CountDownLatch(1);
        CountDownLatch call = new CountDownLatch(1);
        World world = new World() {
            @Override
            Connection connect() {
                open.incrementAndGet();
                try {
                    login.await();
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
                open.decrementAndGet();
                return connection();
            }

            @Override
            void executes() throws Exception {
                call.await();
            }
        };

        world.keeper.start();
        Check.waitFor("a login", () -> world.open.get() == 1);
        world.lookAfter(LeaseKeeper.LOGIN_TIMEOUT - SECOND);
        Check.same(world.keeper.status().problem, null, "a problem after 14 s");
        login.countDown();
        Check.waitFor("a call", () -> world.open.get() == 1 && world.executing.get() == 1);
        // it sees the connection, and then has 5 s
        world.lookAfter(0);
        world.lookAfter(LeaseKeeper.CALL_TIMEOUT - SECOND);
        Check.same(world.keeper.status().problem, null, "a problem after 18 s");
        world.lookAfter(SECOND);
        // a few looks are enough for it
        for (int looks = 0; looks < 100 && world.keeper.status().problem == null; looks++) {
            world.lookAfter(0);
        }
        Check.holds(world.keeper.status().problem != null, "no problem after 19 s");
        Check.same(world.keeper.status().problem.message, "the registry did not answer within 5 s", "the problem");
        call.countDown();
        world.passUntil("a lease", () -> world.number() > 0);
        world.end();
    }

    private static void tooLate() throws Exception {
        World world = new World();

        world.late = true;
        world.keeper.start();
        Check.waitFor("a lease", () -> world.number() > 0);
        for (int i = 0; i < 2; i++) {
            Map<String, Object> before = world.lastCall;
            Check.same(world.keeper.view().leasedUntil, (Long) before.get("clock") + (Long) before.get("window"),
                    "leased until");
            world.passUntil("a renewal", () -> world.lastCall != before);
            Check.waitFor("its end", () -> world.keeper.view().leasedUntil
                    == (Long) world.lastCall.get("clock") + (Long) world.lastCall.get("window"));
        }
        world.end();
    }

    private static void givenBack() throws Exception {
        AtomicInteger times = new AtomicInteger();
        AtomicInteger cancelled = new AtomicInteger();
        World world = new World() {
            @Override
            void givenBack() throws Exception {
                if (times.incrementAndGet() == 1) {
                    Check.waitFor("the call is given up on", () -> {
                        pass();
                        return keeper.status().problem != null;
                    });
                    // the thread that ends it
                    Thread.sleep(100);
                }
            }

            @Override
            void cancelled() {
                cancelled.incrementAndGet();
            }
        };

        world.keeper.start();
        world.passUntil("a lease", () -> world.number() > 0);
        Check.same(world.aborted.get(), 0, "aborted");
        Check.same(cancelled.get(), 0, "cancelled");
        world.end();
    }

    private static void cancels() throws Exception {
        CountDownLatch end = new CountDownLatch(1);
        List<String> ends = new CopyOnWriteArrayList<>();
        World world = new World() {
            @Override
            void executes() throws Exception {
                end.await();
            }

            @Override
            void cancelled() {
                ends.add("cancel");
            }

            @Override
            void aborted() {
                ends.add("abort");
            }
        };

        world.keeper.start();
        Check.waitFor("a call", () -> world.open.get() == 1);
        Check.waitFor("its end", () -> {
            world.pass();
            return ends.size() >= 2;
        });
        world.lookAfter(0);
        Check.same(ends, List.of("cancel", "abort"), "what was done, once");
        end.countDown();
        Check.waitFor("the connection is given back", () -> world.open.get() == 0);
        world.passUntil("a lease", () -> world.number() > 0);
        world.end();
    }

    private static void cancelHangs() throws Exception {
        CountDownLatch end = new CountDownLatch(1);
        CountDownLatch abort = new CountDownLatch(1);
        World world = new World() {
            @Override
            void executes() throws Exception {
                abort.await();
            }

            @Override
            void cancelled() throws Exception {
                end.await();
            }

            @Override
            void aborted() {
                abort.countDown();
            }
        };

        world.keeper.start();
        Check.waitFor("a call", () -> world.open.get() == 1);
        Check.waitFor("its end", () -> {
            world.pass();
            return abort.getCount() == 0;
        });
        world.passUntil("a lease", () -> world.number() > 0);
        end.countDown();
        world.end();
    }

    /** The waits are those of the builder's nodes, whose randomness comes from the names of their starts. */
    private static void spread() {
        LeaseMachine.Problem busy = new LeaseMachine.Problem("53300", "too many connections", null);
        Set<Long> times = ConcurrentHashMap.newKeySet();

        for (int i = 0; i < 100; i++) {
            LeaseMachine machine = Snowflake.machine(null, TWITTER, SECOND, 5 * SECOND, 120 * SECOND);
            LeaseMachine.Now now = new LeaseMachine.Now();

            now.clock = System.currentTimeMillis() * 1000;
            now.monotonic = SECOND;
            machine.failed(busy, now.monotonic);
            times.add(machine.step(now, false).until);
        }
        Check.holds(times.size() > 95, "different times: " + times.size());
    }

    private static void logs() throws Exception {
        List<String> lines = new CopyOnWriteArrayList<>();
        AtomicBoolean away = new AtomicBoolean(true);
        World world = new World() {
            @Override
            Connection connect() {
                if (away.get()) {
                    throw new IllegalStateException("away");
                }
                return connection();
            }
        };

        Check.withLog(lines::add, () -> {
            world.keeper.start();
            Check.waitFor("a line", () -> lines.size() == 1);
            for (int i = 0; i < 30; i++) {
                world.pass();
                Thread.sleep(5);
            }
            Check.same(lines.size(), 1, "lines within a minute");
            world.passUntil("another line", () -> lines.size() == 2);
            away.set(false);
            world.passUntil("a lease", () -> world.number() > 0);
            Check.waitFor("a line", () -> lines.size() >= 3);
            world.ahead = 150 * SECOND;
            world.broken = true;
            world.pass();
            Check.waitFor("failure", () -> world.keeper.status().problem != null);
            world.broken = false;
            world.passUntil("a line about clocks", () -> lines.size() >= 4);
            world.end();
        });
        Check.same(lines.get(0), "WARNING keeper: java.lang.IllegalStateException: away", "the first line");
        Check.same(lines.get(1), lines.get(0), "a minute later");
        Check.same(lines.get(2), "INFO keeper: ready again", "the third line");
        Check.holds(lines.get(3).matches("WARNING keeper: the clocks of this program and of the registry differ by"
                + " 1[45][0-9]\\.[0-9]{3} s\\..*"), lines.get(3));
    }

    /** To the next renewal, and its answer. */
    private static void renew(World world) throws Exception {
        Map<String, Object> before = world.lastCall;

        world.passUntil("a renewal", () -> world.lastCall != before);
        Check.waitFor("its answer", () -> {
            world.keeper.ask();
            return world.open.get() == 0;
        });
    }

    private static void logsCut() throws Exception {
        List<String> lines = new CopyOnWriteArrayList<>();
        World world = new World();

        world.limit = 15 * SECOND;
        Check.withLog(lines::add, () -> {
            world.keeper.start();
            Check.waitFor("a lease", () -> world.number() > 0);
            Check.same(lines.size(), 0, "lines about ten seconds");
            for (int i = 0; i < 10; i++) {
                renew(world);
            }
            Check.waitFor("a line", () -> lines.size() == 1);
            // another start, and again a minute later
            world.broken = true;
            world.pass();
            Check.waitFor("failure", () -> world.keeper.status().problem != null);
            world.broken = false;
            world.passUntil("another lease", () -> world.number() > 1);
            for (int i = 0; i < 100; i++) {
                world.pass();
            }
            renew(world);
            renew(world);
            world.end();
        });
        Check.same(lines.get(0).replaceFirst("  Hint: .*", ""), "WARNING keeper: a lease of 20.000 s was asked for, and the registry"
                + " has cut it to 15.000 s, by its limit for ends.", "the line");
        Check.same(lines.stream().filter(line -> line.contains("limit for ends")).count(), 1L, "lines: " + lines);
    }

    private static void logsGuards() throws Exception {
        List<String> lines = new CopyOnWriteArrayList<>();
        World world = new World();

        Check.withLog(lines::add, () -> {
            world.generation = 2;
            world.keeper.start();
            Check.waitFor("a lease", () -> world.number() == 1);
            world.instead = "\"answer\": \"no\", \"reason\": \"rolled back\"";
            world.passUntil("another number", () -> world.number() == 2);
            Check.waitFor("a line", () -> lines.size() == 1);
            // other reasons are none to warn
            world.instead = "\"answer\": \"no\", \"reason\": \"closed\"";
            world.passUntil("another number", () -> world.number() == 3);
            world.instead = null;
            renew(world);
            Check.same(lines.size(), 1, "lines: " + lines);

            world.generation = 1;
            renew(world);
            Check.waitFor("a line", () -> lines.size() == 2);
            world.generation = 2;
            renew(world);
            Check.waitFor("a line", () -> lines.size() == 3);
            world.generation = 3;
            renew(world);
            world.end();
        });
        Check.holds(lines.get(0).matches("WARNING keeper: the registry does not know that node number 1 is leased to this program"
                + " from 20[-0-9T:.]+Z until 20[-0-9T:.]+Z: its storage was rolled back, or another server is a copy of it\\..*"),
                lines.get(0));
        Check.holds(lines.get(1).startsWith("WARNING keeper: the registry has answered as of generation 1, though it was in"
                + " generation 2 before: a former primary of it was started again."), lines.get(1));
        Check.same(lines.get(2), "INFO keeper: the registry answers as of its newest generation again", "the third line");
        Check.same(lines.size(), 3, "lines: " + lines);
    }

    private static void refused() throws Exception {
        World world = new World();

        world.keeper.start();
        Check.waitFor("a lease", () -> world.number() == 1);
        world.instead = "\"answer\": \"refused\", \"sqlstate\": \"55000\", \"message\": \"the registry is closed\","
                + " \"detail\": \"Another one takes it over.\", \"hint\": \"Ask that one.\", \"wait\": 5000000";
        renew(world);
        Check.waitFor("the refusal", () -> world.keeper.status().problem != null);
        Check.same(world.keeper.status().problem.message, "the registry is closed.  Detail: Another one takes it over."
                + "  Hint: Ask that one.", "the problem");
        Check.same(world.keeper.status().phase, LeaseMachine.Phase.RETRYING, "phase, of a lease that goes on");
        Check.same(world.number(), 1L, "ids go on");
        world.instead = null;
        renew(world);
        Check.waitFor("no problem", () -> world.keeper.status().problem == null);
        Check.same(world.number(), 1L, "the number");
        world.end();
    }

    private static void logBlocks() throws Exception {
        CountDownLatch end = new CountDownLatch(1);
        List<String> lines = new CopyOnWriteArrayList<>();
        World world = new World();

        world.ahead = -150 * SECOND;
        world.limit = 15 * SECOND;
        Check.withLog(line -> {
            lines.add(line);
            try {
                end.await();
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }, () -> {
            world.keeper.start();
            Check.waitFor("a line", () -> lines.size() == 1);
            Check.waitFor("a lease", () -> world.number() > 0);
            renew(world);
            renew(world);
            Check.same(world.keeper.status().problem, null, "a problem");
            Check.same(lines.size(), 1, "lines");
            end.countDown();
            // the first one can come again before it, if a minute has passed meanwhile
            Check.waitFor("the next line", () -> {
                world.keeper.ask();
                return lines.get(lines.size() - 1).contains("limit for ends");
            });
            Check.holds(lines.get(0).contains("the clocks"), lines.toString());
            world.end();
        });
    }

    private static void inherits() throws Exception {
        InheritableThreadLocal<String> variable = new InheritableThreadLocal<>();
        AtomicInteger seen = new AtomicInteger();
        World world = new World() {
            @Override
            Connection connect() {
                seen.addAndGet(variable.get() == null ? 0 : 1);
                return connection();
            }
        };

        variable.set("a transaction");
        world.keeper.start();
        Check.waitFor("a lease", () -> world.number() > 0);
        Check.same(seen.get(), 0, "inherited");
        world.end();
    }
}
