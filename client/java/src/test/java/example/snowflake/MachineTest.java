package example.snowflake;

import java.io.EOFException;
import java.io.IOException;
import java.net.ConnectException;
import java.net.NoRouteToHostException;
import java.net.SocketTimeoutException;
import java.net.UnknownHostException;
import java.sql.SQLException;
import java.sql.SQLTimeoutException;
import java.sql.SQLTransientConnectionException;
import java.util.HashSet;
import java.util.Random;
import java.util.Set;
import java.util.UUID;

/** The lease machine, event by event in each state; then a long random life with its rules checked. */
public final class MachineTest {
    private static final long SECOND = 1_000_000;
    private static final long MAX_AHEAD = SECOND;
    private static final long MAX_WAIT = 5 * SECOND;
    private static final long LEASE_DURATION = 120 * SECOND;
    private static final long TICK = 1_000;
    private static final UUID REGISTRY = new UUID(1, 1);
    private static final LeaseMachine.Problem AWAY = new LeaseMachine.Problem("08001", "away", new ConnectException());
    private static final LeaseMachine.Problem BUSY = new LeaseMachine.Problem("53300", "busy", null);
    private static final double ALMOST_ONE = Math.nextDown(1.0);

    /** A machine, and what its keeper would do. */
    private static final class World {
        final LeaseMachine machine;
        final LeaseMachine.Now now = new LeaseMachine.Now();
        boolean opened;
        LeaseMachine.Action action;
        /** The last call. */
        LeaseMachine.Request request;
        /** What is random: waits where nobody listens are a second, and renewals come when a quarter is used. */
        double random = 0.5;

        World(UUID uses, long leaseDuration) {
            machine = new LeaseMachine(new UUID(0, 1), uses, Layout.of("twitter"), MAX_AHEAD, MAX_WAIT, leaseDuration,
                    () -> random);
            now.clock = 1_764_000_000_000_000L;
            now.monotonic = SECOND;
        }

        World() {
            this(null, LEASE_DURATION);
        }

        void pass(long micros) {
            now.clock += micros;
            now.monotonic += micros;
        }

        LeaseMachine.Action step() {
            action = machine.step(now, opened);
            now.wanted = false;
            if (action.kind == LeaseMachine.ActionKind.CALL) {
                request = action.request;
            }
            Check.holds(action.kind != LeaseMachine.ActionKind.WAIT || action.until > now.monotonic, "a wait is one");
            return action;
        }

        LeaseMachine.Request calls(LeaseMachine.Call kind) {
            Check.same(step().kind, LeaseMachine.ActionKind.CALL, "the action");
            Check.same(request.kind, kind, "the call");
            Check.same(machine.call(), kind, "the call that is out");
            return request;
        }

        void opens() {
            Check.same(step().kind, LeaseMachine.ActionKind.OPEN, "the action");
            opened = true;
        }

        void seals(long end) {
            Check.same(step().kind, LeaseMachine.ActionKind.SEAL, "the action");
            opened = false;
            machine.sealed(end);
        }

        /** It waits, and until when: microseconds from now. */
        long waits() {
            Check.same(step().kind, LeaseMachine.ActionKind.WAIT, "the action");
            return action.until - now.monotonic;
        }

        void answers(LeaseMachine.Result result) {
            machine.result(request.number, result, now);
        }

        void fails() {
            fails(AWAY);
        }

        void fails(LeaseMachine.Problem problem) {
            answers(new LeaseMachine.Result(LeaseMachine.Answer.FAILED, problem));
        }

        void isRefused(long wait) {
            answers(refusal(wait));
        }

        /** After a call without a lease: how long the next one waits, and that it comes then. */
        long waitsAndCalls() {
            long wait = waits();

            pass(wait - 1);
            waits();
            pass(1);
            calls(LeaseMachine.Call.ACQUIRE);
            return wait;
        }

        long failsAndWaits(LeaseMachine.Problem problem) {
            fails(problem);
            return waitsAndCalls();
        }

        long isRefusedAndWaits(long wait) {
            isRefused(wait);
            return waitsAndCalls();
        }

        void says(LeaseMachine.Answer answer) {
            answers(new LeaseMachine.Result(answer, null));
        }

        LeaseMachine.Result grant(UUID incarnation, long generation, long number) {
            LeaseMachine.Result result = new LeaseMachine.Result(LeaseMachine.Answer.YES, null);

            result.incarnation = incarnation;
            result.generation = generation;
            result.token = new UUID(7, request.number);
            result.nodeNumber = number;
            result.startsAt = now.clock;
            result.leasedUntil = now.clock + request.window;
            return result;
        }

        LeaseMachine.Result renewal(long leasedUntil) {
            LeaseMachine.Result result = new LeaseMachine.Result(LeaseMachine.Answer.YES, null);

            result.leasedUntil = leasedUntil;
            return result;
        }

        /** To an open lease. */
        World open() {
            calls(LeaseMachine.Call.ACQUIRE);
            answers(grant(REGISTRY, 1, 7));
            opens();
            return this;
        }

        /** To a renewal that is out. */
        LeaseMachine.Request renews() {
            pass(machine.lease().renewAfter);
            return calls(LeaseMachine.Call.RENEW);
        }

        /** The renewal that is out is answered so, and the limit moved. */
        void renewed(long leasedUntil) {
            answers(renewal(leasedUntil));
            opened = false;
            opens();
        }

        /** While the word is looked at again and again, to the next call; how long that took. */
        long passUntilRenewal() {
            long from = now.monotonic;

            while (step().kind == LeaseMachine.ActionKind.WAIT) {
                Check.holds(action.until - now.monotonic <= LeaseMachine.LOOK, "the wait");
                pass(action.until - now.monotonic);
            }
            Check.same(action.kind, LeaseMachine.ActionKind.CALL, "the action");
            Check.same(request.kind, LeaseMachine.Call.RENEW, "the call");
            return now.monotonic - from;
        }

        /** A grant that is none; the next call is out after it. */
        void refuses(LeaseMachine.Result result, String why) {
            answers(result);
            state(LeaseMachine.State.ASKING);
            Check.same(machine.problem().sqlState, "55000", "SQLSTATE");
            Check.same(machine.problem().message, "the registry granted a lease that was not asked for: " + why
                    + ".  See which server answers there, and whether somebody has changed the functions in its"
                    + " schema snowflake.", "the message");
            pass(waits());
            calls(LeaseMachine.Call.ACQUIRE);
        }

        /** The lease ends, with ids up to a time; another one is asked for. */
        void ends(long end) {
            renews();
            says(LeaseMachine.Answer.NO);
            seals(end);
            calls(LeaseMachine.Call.ACQUIRE);
        }

        void state(LeaseMachine.State state) {
            Check.same(machine.state(), state, "the state");
        }
    }

    private static LeaseMachine.Result refusal(long wait) {
        LeaseMachine.Result result = new LeaseMachine.Result(LeaseMachine.Answer.REFUSED,
                LeaseMachine.Problem.refusal("55000", "the registry is closed", wait));

        result.wait = wait;
        return result;
    }

    private MachineTest() {
    }

    public static void main(String[] args) {
        Check.test("ASKING: the first lease, short, with nothing to say", MachineTest::first);
        Check.test("ASKING: a failure, and again after a second, with a new number", MachineTest::retry);
        Check.test("ASKING: where nobody listens, about a second, and no longer the next time", MachineTest::retryAway);
        Check.test("ASKING: a busy registry, longer each time, up to 15 s", MachineTest::retryBusy);
        Check.test("ASKING: a refusal, as long as it says, up to 10 s", MachineTest::retryRefused);
        Check.test("failures are told apart by SQLSTATE and by exception", MachineTest::kinds);
        Check.test("ASKING: another start in the process names its registry", MachineTest::uses);
        Check.test("ASKING: a grant that was not asked for is none", MachineTest::impossible);
        Check.test("ASKING: no later end than was asked for", MachineTest::laterEnd);
        Check.test("ASKING: no lease that starts before own ids end", MachineTest::ownIds);
        Check.test("ASKING: not before the layout's epoch, and then by itself", MachineTest::epoch);
        Check.test("ASKING: stopped, with and without a lease", MachineTest::stopAsking);
        Check.test("OPEN: renewed when a quarter is used, for twice as long", MachineTest::renewal);
        Check.test("OPEN: nodes renew at different times, when about a quarter is used", MachineTest::renewalSpread);
        Check.test("OPEN: a failure goes on to the end, a call a second", MachineTest::renewalFails);
        Check.test("OPEN: no wait is longer than a third of what is left", MachineTest::third);
        Check.test("OPEN: a no seals and asks in the same moment", MachineTest::no);
        Check.test("OPEN: a refusal ends no lease", MachineTest::renewalRefused);
        Check.test("OPEN: a renewal that gives less is not asked again at once", MachineTest::less);
        Check.test("OPEN: leases that the registry cuts are renewed by what is left of them", MachineTest::cut);
        Check.test("OPEN: an end is never lowered", MachineTest::lower);
        Check.test("OPEN: no later end than was asked for", MachineTest::laterRenewal);
        Check.test("OPEN: a clock that is behind for longer than threads wait: another number", MachineTest::move);
        Check.test("OPEN: a clock that is behind a little, or nobody waits: the same number", MachineTest::stay);
        Check.test("OPEN: a word that was left sealed is opened", MachineTest::openable);
        Check.test("OPEN: stopped", MachineTest::stopOpen);
        Check.test("a late result changes nothing, in any state", MachineTest::late);
        Check.test("ENDING: a release that fails ends as well", MachineTest::releaseFails);
        Check.test("other generations and registries: the end of all ids is said twice", MachineTest::generations);
        Check.test("waits are at most a minute, whatever the clock shows", MachineTest::waits);
        Check.test("what threads are told", MachineTest::phases);
        Check.test("a hundred random lives keep the rules", MachineTest::random);
        Check.end();
    }

    private static void first() {
        World world = new World();
        LeaseMachine.Request request = world.calls(LeaseMachine.Call.ACQUIRE);

        Check.same(request.number, 1L, "call");
        Check.same(request.window, 10 * SECOND, "window");
        Check.same(request.maxAhead, MAX_AHEAD + TICK, "max_ahead, with the tick");
        Check.same(request.lease, null, "lease");
        Check.same(request.uses, null, "uses");
        Check.same(request.idsEndAt, null, "ids_end_at");
        Check.same(request.startsAt, null, "starts_at");
        Check.same(request.clock, world.now.clock, "clock");
        Check.holds(world.waits() <= LeaseMachine.LOOK, "it looks again");
        world.answers(world.grant(REGISTRY, 1, 7));
        world.state(LeaseMachine.State.OPEN);
        world.opens();
        Check.same(world.machine.uses(), REGISTRY, "the registry used");
        world.waits();
    }

    private static void retry() {
        World world = new World();

        world.calls(LeaseMachine.Call.ACQUIRE);
        world.fails();
        Check.same(world.waits(), LeaseMachine.RETRY, "the wait");
        world.now.wanted = true;
        Check.same(world.waits(), LeaseMachine.RETRY, "the wait, with threads that wait");
        world.pass(LeaseMachine.RETRY);
        Check.same(world.calls(LeaseMachine.Call.ACQUIRE).number, 2L, "call");
        world.says(LeaseMachine.Answer.NO);
        world.state(LeaseMachine.State.ASKING);
        Check.same(world.waits(), LeaseMachine.RETRY, "the wait after a no, which is none for a grant");
    }

    private static World asks(double random) {
        World world = new World();

        world.random = random;
        world.calls(LeaseMachine.Call.ACQUIRE);
        return world;
    }

    private static void retryAway() {
        for (int i = 0; i < 10; i++) {
            World world = asks(i / 10.0);

            for (int call = 0; call < 20; call++) {
                Check.same(world.failsAndWaits(AWAY), 750_000L + i * 50_000, "wait " + call);
            }
        }
    }

    private static void retryBusy() {
        for (long[] waits : new long[][] {{1_500, 3_000, 6_000, 9_000, 9_000}, {2_000, 4_000, 8_000, 12_000, 12_000}}) {
            World world = asks(waits[0] == 1_500 ? 0 : 0.5);

            for (long wait : waits) {
                Check.same(world.failsAndWaits(BUSY), wait * 1_000, "the wait");
            }
            // they lengthen one after the other
            Check.holds(world.failsAndWaits(AWAY) <= LeaseMachine.RETRY, "a second");
            Check.same(world.failsAndWaits(BUSY), waits[0] * 1_000, "the wait after another failure");
            Check.same(world.failsAndWaits(BUSY), waits[1] * 1_000, "the next wait");
            world.isRefusedAndWaits(SECOND);
            Check.same(world.failsAndWaits(BUSY), waits[0] * 1_000, "the wait after a refusal");
            world.answers(world.grant(REGISTRY, 1, 7));
            world.opens();
            world.ends(Generator.NO_ID);
            Check.same(world.failsAndWaits(BUSY), waits[0] * 1_000, "the wait after a success");
        }
        World world = asks(ALMOST_ONE);

        for (long most : new long[] {2_500_000, 5_000_000, 10_000_000, 15_000_000, 15_000_000}) {
            Check.same(world.failsAndWaits(BUSY), most, "the longest wait");
        }
        for (int call = 0; call < 100; call++) {
            Check.same(world.failsAndWaits(BUSY), 15 * SECOND, "at most 15 s");
        }
    }

    /** By microseconds that the answer says: the shortest, the middle and the longest wait. */
    private static void retryRefused() {
        long[][] waits = {{10_000_000, 7_500_000, 10_000_000, 10_000_000}, {8_000_000, 6_000_000, 8_000_000, 10_000_000},
                {4_000_000, 3_000_000, 4_000_000, 5_000_000}, {200_000, 150_000, 200_000, 250_000},
                {0, 100_000, 100_000, 100_000}};

        for (long[] wait : waits) {
            for (int i = 1; i <= 3; i++) {
                World world = asks(new double[] {0, 0.5, ALMOST_ONE}[i - 1]);

                for (int call = 0; call < 5; call++) {
                    Check.same(world.isRefusedAndWaits(wait[0]), wait[i], "the wait after " + wait[0]);
                }
                Check.same(world.machine.problem().message, "the registry is closed", "the problem");
            }
        }
        // a thread that waits changes nothing
        World world = asks(0.5);

        world.isRefused(8 * SECOND);
        world.pass(7 * SECOND);
        world.now.wanted = true;
        Check.same(world.waits(), SECOND, "the wait, with threads that wait");
    }

    private static boolean isOverload(String sqlState, Throwable cause) {
        return new LeaseMachine.Problem(sqlState, "the words do not count: connection refused", cause).overloaded;
    }

    private static void kinds() {
        for (IOException why : new IOException[] {new ConnectException(), new NoRouteToHostException(),
            new UnknownHostException()}) {
            SQLException driver = new SQLException("", "08001", why);

            Check.holds(!isOverload("08001", driver), "away: " + why);
            // a pool that has waited for it
            Check.holds(!isOverload("08001", new SQLTransientConnectionException("", "08001", driver)),
                    "away: " + why + ", from a pool");
        }
        for (String sqlState : new String[] {"08000", "08001", "08006", "08007", "08P01", "40001", "40P01", "53000", "53100",
            "53200", "53300", "55P03", "57014", "57P01", "57P02", "57P03"}) {
            Check.holds(isOverload(sqlState, null), "overloaded: " + sqlState);
        }
        for (Exception why : new Exception[] {new SocketTimeoutException(), new EOFException()}) {
            Check.holds(isOverload("08006", new SQLException("", "08006", why)), "overloaded: " + why);
        }
        for (Exception why : new Exception[] {new SQLTimeoutException(), new SQLTransientConnectionException()}) {
            Check.holds(isOverload(null, why), "overloaded: " + why);
        }
        for (String sqlState : new String[] {null, "", "22023", "2200H", "25006", "28P01", "3D000", "42501", "42883",
            "55000", "XX000"}) {
            Check.holds(!isOverload(sqlState, null), "another error: " + sqlState);
        }
        // a refusal is none, whatever it is called
        Check.holds(!LeaseMachine.Problem.refusal("53300", "", 0).overloaded, "a refusal");
        SQLException one = new SQLException("", "55000");
        SQLException other = new SQLException("", "55000", one);
        one.initCause(other);
        Check.holds(!isOverload("55000", one), "what is its own cause");
    }

    /** A lease that starts before the epoch could not be given back: the registry takes no such end. */
    private static void epoch() {
        World world = new World();
        long epoch = Layout.of("twitter").epochMicros();

        world.now.clock = epoch - 1;
        Check.same(world.waits(), LeaseMachine.RETRY, "the wait");
        Check.same(world.machine.phase(world.now), LeaseMachine.Phase.REFUSED, "phase");
        Check.same(world.machine.refusedUntil(), Long.MAX_VALUE, "until somebody acts");
        Check.holds(world.machine.problem().message.startsWith("the first tick of the layout begins at"
                + " 2010-11-04T01:42:54.657Z, which is to come."), world.machine.problem().message);
        world.pass(LeaseMachine.RETRY);
        world.open();
        Check.same(world.machine.problem(), null, "the problem is over");
    }

    private static void uses() {
        Check.same(new World(REGISTRY, LEASE_DURATION).calls(LeaseMachine.Call.ACQUIRE).uses, REGISTRY, "uses");
    }

    private static void impossible() {
        for (long number : new long[] {-1, 1023, Long.MAX_VALUE}) {
            World world = new World();

            world.calls(LeaseMachine.Call.ACQUIRE);
            world.answers(world.grant(REGISTRY, 1, number));
            world.state(LeaseMachine.State.ASKING);
            Check.holds(world.machine.problem().message.contains(String.valueOf(number)), "the message");
        }
        World world = new World();

        world.calls(LeaseMachine.Call.ACQUIRE);
        LeaseMachine.Result result = world.grant(REGISTRY, 1, 7);
        result.startsAt = result.leasedUntil + 1;
        world.refuses(result, "it starts at 2025-11-24T16:00:10.000001Z and ends at 2025-11-24T16:00:10Z");

        // no registry lets it start so late
        result = world.grant(REGISTRY, 1, 7);
        result.startsAt = result.leasedUntil = world.now.clock + 11_001_001;
        world.refuses(result, "it starts at 2025-11-24T16:00:12.001001Z, asked for was one that starts at or before"
                + " 2025-11-24T16:00:12.001Z");
        result = world.grant(REGISTRY, 1, 7);
        result.startsAt = result.leasedUntil = world.now.clock + 11_001_000;
        world.answers(result);
        world.opens();

        // nor end before it could be used
        world = new World();
        world.calls(LeaseMachine.Call.ACQUIRE);
        result = world.grant(REGISTRY, 1, 7);
        result.startsAt = world.now.clock - SECOND;
        result.leasedUntil = world.now.clock;
        world.refuses(result, "it starts at 2025-11-24T15:59:59Z and had ended at 2025-11-24T16:00:00Z, before it was asked for");
        result = world.grant(REGISTRY, 1, 7);
        result.startsAt = result.leasedUntil = world.now.clock + 1;
        world.answers(result);
        world.opens();
    }

    private static void laterEnd() {
        World world = new World();
        long clock = world.now.clock;

        world.calls(LeaseMachine.Call.ACQUIRE);
        LeaseMachine.Result result = world.grant(REGISTRY, 1, 7);
        result.leasedUntil = Registry.END_TIME - 1;
        world.pass(SECOND);
        world.answers(result);
        world.opens();
        Check.same(world.machine.lease().leasedUntil, clock + 10 * SECOND, "leased until");
        Check.same(world.machine.problem(), null, "the problem");
        world.renews();

        // the window is counted from a later start
        world = new World();
        world.calls(LeaseMachine.Call.ACQUIRE);
        result = world.grant(REGISTRY, 1, 7);
        result.startsAt += 2 * SECOND;
        result.leasedUntil += 2 * SECOND;
        world.answers(result);
        Check.same(world.machine.lease().leasedUntil, clock + 12 * SECOND, "leased until, after a later start");

        // less is less
        world = new World();
        world.calls(LeaseMachine.Call.ACQUIRE);
        result = world.grant(REGISTRY, 1, 7);
        result.leasedUntil -= SECOND;
        world.answers(result);
        Check.same(world.machine.lease().leasedUntil, clock + 9 * SECOND, "leased until, of less than was asked for");
    }

    private static void laterRenewal() {
        World world = new World().open();

        LeaseMachine.Request request = world.renews();
        long asked = request.clock + request.window;
        world.pass(SECOND);
        world.answers(world.renewal(Registry.END_TIME - 1));
        Check.same(world.machine.lease().leasedUntil, asked, "leased until");
        Check.same(world.machine.problem(), null, "the problem");
        world.opened = false;
        world.opens();
        world.renews();

        // after a renewal whose answer was lost, the registry has more
        world = new World().open();
        world.renews();
        world.fails();
        world.pass(LeaseMachine.RETRY);
        request = world.calls(LeaseMachine.Call.RENEW);
        asked = request.clock + request.window;
        world.answers(world.renewal(asked + 1000 * SECOND));
        Check.same(world.machine.lease().leasedUntil, asked, "leased until, after a lost renewal");
        Check.same(world.machine.problem(), null, "the problem after a lost renewal");
    }

    /** A grant of this number that starts then. */
    private static LeaseMachine.Result grantAt(World world, UUID incarnation, long generation, long number,
            long startsAt) {
        LeaseMachine.Result result = world.grant(incarnation, generation, number);

        result.startsAt = startsAt;
        result.leasedUntil = Math.max(startsAt, world.now.clock) + 10 * SECOND;
        return result;
    }

    private static void ownIds() {
        World world = new World().open();
        long end = world.now.clock + SECOND;
        String ends = "it starts at 2025-11-24T16:00:00.999999Z, ids of this start end at 2025-11-24T16:00:01Z";

        world.ends(end);
        world.refuses(grantAt(world, REGISTRY, 1, 7, end - 1), ends);
        world.refuses(grantAt(world, REGISTRY, 2, 8, end - 1), ends);
        world.refuses(grantAt(world, new UUID(2, 2), 1, 8, end - 1), ends);
        // of another number the registry knows
        world.answers(grantAt(world, REGISTRY, 1, 8, end - SECOND));
        world.opens();
        world.ends(Generator.NO_ID);
        world.refuses(grantAt(world, REGISTRY, 1, 7, end - 1), ends);
        world.answers(grantAt(world, REGISTRY, 2, 7, end));
        world.opens();
        world.ends(Generator.NO_ID);
        // later, of the same generation
        world.refuses(grantAt(world, REGISTRY, 2, 9, end - 1), ends);
        world.answers(grantAt(world, REGISTRY, 2, 9, end));
        world.opens();

        // many numbers: the first end is forgotten
        world = new World();
        long base = world.now.clock;
        world.open().ends(base + SECOND);
        for (int number = 100; number < 100 + LeaseMachine.ENDED_NUMBERS; number++) {
            world.answers(grantAt(world, REGISTRY, 1, number, base));
            world.opens();
            world.ends(base + 2 * SECOND);
        }
        for (int number = 100; number < 100 + LeaseMachine.ENDED_NUMBERS; number++) {
            world.refuses(grantAt(world, REGISTRY, 1, number, base + 2 * SECOND - 1),
                    "it starts at 2025-11-24T16:00:01.999999Z, ids of this start end at 2025-11-24T16:00:02Z");
        }
        world.answers(grantAt(world, REGISTRY, 1, 7, base));
        world.opens();
        // the newest one is not, though it is before all others
        world.ends(base + SECOND / 2);
        world.refuses(grantAt(world, REGISTRY, 1, 7, base),
                "it starts at 2025-11-24T16:00:00Z, ids of this start end at 2025-11-24T16:00:00.500Z");
    }

    private static void stopAsking() {
        World world = new World();

        world.calls(LeaseMachine.Call.ACQUIRE);
        world.machine.stop();
        world.answers(world.grant(REGISTRY, 1, 7));
        Check.same(world.step().kind, LeaseMachine.ActionKind.EXIT, "the action");

        world = new World().open();
        world.renews();
        world.says(LeaseMachine.Answer.NO);
        world.seals(world.now.clock + TICK);
        world.calls(LeaseMachine.Call.ACQUIRE);
        world.machine.stop();
        Check.same(world.calls(LeaseMachine.Call.RELEASE).lease.end, world.now.clock + TICK, "the end");
    }

    private static void renewalSpread() {
        for (int i = 0; i < 4; i++) {
            World world = new World();

            world.random = i / 4.0;
            world.open();
            long window = 10 * SECOND;
            for (long next : new long[] {20 * SECOND, 40 * SECOND, 80 * SECOND}) {
                // from 3 to 5 sixteenths
                world.pass(window * 3 / 16 + i * window / 32 - 1);
                // neither it nor its wait has the renewal later
                Check.holds(world.waits() <= LeaseMachine.LEAST_LOOK, "the wait");
                world.pass(1);
                world.calls(LeaseMachine.Call.RENEW);
                world.renewed(world.now.clock + next);
                window = next;
            }
        }
    }

    private static void third() {
        LeaseMachine.Result[] failures = {new LeaseMachine.Result(LeaseMachine.Answer.FAILED, AWAY),
                new LeaseMachine.Result(LeaseMachine.Answer.FAILED, BUSY), refusal(10 * SECOND)};

        for (LeaseMachine.Result failure : failures) {
            World world = new World();
            int calls = 0;

            world.open();
            world.renews();
            world.renewed(world.now.clock + 20 * SECOND);
            world.random = ALMOST_ONE;
            long end = world.machine.lease().leasedUntil;
            world.renews();
            for (long left = end - world.now.clock; left > 0; left = end - world.now.clock) {
                world.answers(failure);
                calls++;
                long waited = world.passUntilRenewal();
                Check.holds(waited <= Math.max(left / 3, 1_250_000), waited + " us, with " + left + " us left");
                Check.holds(waited >= LeaseMachine.RETRY, "no busy loop: " + waited);
            }
            Check.holds(calls >= 6 && calls <= 12, "calls before the end: " + calls);
            // then there is nothing to lose
            world.answers(failure);
            long waited = world.passUntilRenewal();
            Check.holds(waited > SECOND, "a second and more: " + waited);
        }
    }

    private static void renewal() {
        World world = new World().open();
        long window = 10 * SECOND;
        long clock = world.now.clock;

        // the first one needs to be longer, so it is renewed at once when a quarter is used
        world.pass(window / 4 - 1);
        world.waits();
        world.pass(1);
        for (long next : new long[] {20 * SECOND, 40 * SECOND, 80 * SECOND, 120 * SECOND, 120 * SECOND}) {
            LeaseMachine.Request request = world.calls(LeaseMachine.Call.RENEW);

            Check.same(request.window, next, "window");
            Check.same(request.clock, world.now.clock, "clock");
            Check.same(request.maxAhead, MAX_AHEAD + TICK, "max_ahead, with the tick");
            Check.same(request.lease.token, new UUID(7, 1), "token");
            Check.same(request.lease.nodeNumber, 7L, "node number");
            Check.same(request.lease.grantedBy, 1L, "granted by");
            Check.same(request.lease.incarnation, REGISTRY, "incarnation");
            Check.same(request.lease.generation, 1L, "generation");
            Check.same(request.lease.leasedUntil, world.machine.lease().leasedUntil, "the end that is known");
            Check.same(request.lease.end, null, "the end, of ids that go on");
            world.renewed(world.now.clock + next);
            Check.same(world.machine.lease().leasedUntil, world.now.clock + next, "leased until");
            Check.holds(request.lease.leasedUntil < world.now.clock + next, "a request never changes");
            world.waits();
            world.pass(next / 4);
        }
        Check.holds(world.now.clock > clock, "time passed");
    }

    private static void renewalFails() {
        World world = new World().open();
        long end = world.machine.lease().leasedUntil;
        int calls = 0;

        world.renews();
        while (world.now.clock < end + 60 * SECOND) {
            world.fails();
            calls++;
            world.state(LeaseMachine.State.OPEN);
            world.passUntilRenewal();
        }
        Check.same(world.machine.lease().leasedUntil, end, "leased until");
        Check.holds(calls >= 67, "a call a second");
        world.answers(world.renewal(world.now.clock + 20 * SECOND));
        world.opened = false;
        world.opens();
        Check.same(world.machine.problem(), null, "the problem");
    }

    private static void no() {
        World world = new World().open();
        long end = world.now.clock + 5 * SECOND;

        world.renews();
        world.says(LeaseMachine.Answer.NO);
        world.state(LeaseMachine.State.SEALING);
        world.seals(end);
        world.state(LeaseMachine.State.ASKING);
        LeaseMachine.Request request = world.calls(LeaseMachine.Call.ACQUIRE);
        Check.same(request.lease.token, new UUID(7, 1), "token");
        Check.same(request.lease.grantedBy, 1L, "granted by");
        Check.same(request.lease.end, end, "the end");
        Check.same(request.idsEndAt, end, "the end of all ids");
        Check.same(request.uses, REGISTRY, "uses");
        Check.same(request.lease.generation, 1L, "generation");
        Check.same(request.window, 10 * SECOND, "window");

        // without an id, the end is the start
        world = new World().open();
        long startsAt = world.machine.lease().startsAt;
        world.renews();
        world.says(LeaseMachine.Answer.NO);
        world.seals(Generator.NO_ID);
        request = world.calls(LeaseMachine.Call.ACQUIRE);
        Check.same(request.lease.end, startsAt, "the end of a lease without an id");
        Check.same(request.idsEndAt, null, "no id was issued");
    }

    /** As while the generation before still uses up what it has. */
    private static void renewalRefused() {
        World world = new World().open();
        long end = world.machine.lease().leasedUntil;

        world.renews();
        while (world.now.clock < end + 30 * SECOND) {
            world.isRefused(5 * SECOND);
            world.state(LeaseMachine.State.OPEN);
            Check.same(world.machine.lease().leasedUntil, end, "leased until");
            world.passUntilRenewal();
        }
        world.says(LeaseMachine.Answer.NO);
        world.seals(end);
        world.calls(LeaseMachine.Call.ACQUIRE);
    }

    private static void less() {
        World world = new World().open();

        // to where threads find the limit
        world.pass(9 * SECOND);
        world.calls(LeaseMachine.Call.RENEW);
        world.answers(world.renewal(world.machine.lease().leasedUntil));
        world.now.wanted = true;
        Check.holds(world.waits() > 0, "it waits");
        world.pass(LeaseMachine.RETRY - 1);
        world.now.wanted = true;
        world.waits();
        world.pass(1);
        world.calls(LeaseMachine.Call.RENEW);
    }

    /** By its limit for ends, of three minutes: else each second would have a renewal. */
    private static void cut() {
        World world = new World(null, 600 * SECOND).open();

        Check.same(world.machine.lease().window, world.machine.lease().asked, "the first is not cut");
        for (long asks : new long[] {20, 40, 80, 160, 320, 360, 360, 360}) {
            LeaseMachine.Request request = world.renews();
            long gets = Math.min(asks, 180) * SECOND;

            Check.same(request.window, asks * SECOND, "window");
            world.renewed(world.now.clock + gets);
            Check.same(world.machine.lease().leasedUntil, world.now.clock + gets, "leased until");
            Check.same(world.machine.lease().asked, asks * SECOND, "asked for");
            Check.same(world.machine.lease().window, gets, "got");
            Check.same(world.machine.problem(), null, "the problem");
            // nothing is due before a quarter is used
            long from = world.now.monotonic;
            Check.same(world.passUntilRenewal(), gets / 4, "the next renewal comes after");
            Check.same(world.now.monotonic - from, gets / 4, "time that passed");
            world.fails();
            world.pass(LeaseMachine.RETRY);
            world.calls(LeaseMachine.Call.RENEW);
            world.renewed(world.now.clock + gets);
        }

        // a first lease, too: the node's clock is ahead of the registry's
        world = new World();
        world.calls(LeaseMachine.Call.ACQUIRE);
        LeaseMachine.Result result = world.grant(REGISTRY, 1, 7);
        result.leasedUntil -= 6 * SECOND;
        world.answers(result);
        world.opens();
        Check.same(world.machine.lease().window, 4 * SECOND, "got");
        Check.same(world.passUntilRenewal(), SECOND, "its renewal comes after");
        Check.same(world.request.window, 10 * SECOND, "window");

        // an end that is before the start: nothing is left
        world = new World().open();
        world.now.clock += 3600 * SECOND;
        world.calls(LeaseMachine.Call.RENEW);
        world.answers(world.renewal(world.machine.lease().leasedUntil));
        Check.same(world.machine.lease().window, 0L, "got");
        world.pass(LeaseMachine.RETRY);
        Check.same(world.calls(LeaseMachine.Call.RENEW).window, 10 * SECOND, "window");
    }

    private static void lower() {
        World world = new World().open();
        long end = world.machine.lease().leasedUntil;

        world.renews();
        world.answers(world.renewal(end - SECOND));
        Check.same(world.machine.lease().leasedUntil, end, "leased until");
    }

    private static void move() {
        World world = new World().open();

        world.now.behind = MAX_WAIT + 1;
        world.now.wanted = true;
        world.seals(world.now.clock + 10 * SECOND);
        LeaseMachine.Request request = world.calls(LeaseMachine.Call.ACQUIRE);
        Check.same(request.lease.end, world.now.clock + 10 * SECOND, "the end");
        world.answers(world.grant(REGISTRY, 1, 8));
        world.opens();

        // the clock stays behind: another one after a second
        world.now.behind = MAX_WAIT + 1;
        world.now.wanted = true;
        world.waits();
        world.pass(LeaseMachine.MOVE_AGAIN);
        world.now.wanted = true;
        world.seals(Generator.NO_ID);
    }

    private static void stay() {
        World world = new World().open();

        world.now.behind = MAX_WAIT;
        world.now.wanted = true;
        world.waits();
        world = new World().open();
        world.now.behind = MAX_WAIT * 1000;
        world.waits();
    }

    private static void openable() {
        World world = new World().open();

        world.waits();
        world.now.openable = true;
        world.opens();
    }

    private static void stopOpen() {
        World world = new World().open();

        world.renews();
        world.machine.stop();
        world.state(LeaseMachine.State.SEALING);
        world.seals(world.now.clock + TICK);
        world.state(LeaseMachine.State.ENDING);
        Check.same(world.calls(LeaseMachine.Call.RELEASE).lease.end, world.now.clock + TICK, "the end");
        world.says(LeaseMachine.Answer.YES);
        Check.same(world.step().kind, LeaseMachine.ActionKind.EXIT, "the action");
    }

    private static void late() {
        World world = new World();

        world.calls(LeaseMachine.Call.ACQUIRE);
        LeaseMachine.Result first = world.grant(REGISTRY, 1, 3);
        world.fails();
        world.machine.result(1, first, world.now);
        world.state(LeaseMachine.State.ASKING);
        world.pass(LeaseMachine.RETRY);
        world.calls(LeaseMachine.Call.ACQUIRE);
        world.machine.result(1, first, world.now);
        world.state(LeaseMachine.State.ASKING);
        world.answers(world.grant(REGISTRY, 1, 7));
        Check.same(world.machine.lease().nodeNumber, 7L, "the number of the last call");
        world.machine.result(1, first, world.now);
        world.opens();

        // a renewal that was given up on does not extend the lease
        long end = world.machine.lease().leasedUntil;
        world.renews();
        long renewal = world.request.number;
        world.fails();
        world.machine.result(renewal, world.renewal(end + 60 * SECOND), world.now);
        Check.same(world.machine.lease().leasedUntil, end, "leased until");

        // nor does it open one that is over
        world.pass(LeaseMachine.RETRY);
        world.calls(LeaseMachine.Call.RENEW);
        world.says(LeaseMachine.Answer.NO);
        world.machine.result(renewal, world.renewal(end + 60 * SECOND), world.now);
        world.state(LeaseMachine.State.SEALING);
        world.seals(Generator.NO_ID);
        world.machine.result(renewal, world.renewal(end + 60 * SECOND), world.now);
        world.state(LeaseMachine.State.ASKING);
    }

    private static void releaseFails() {
        World world = new World().open();

        world.machine.stop();
        world.seals(Generator.NO_ID);
        world.calls(LeaseMachine.Call.RELEASE);
        world.waits();
        world.fails();
        world.state(LeaseMachine.State.STOPPED);
        Check.same(world.step().kind, LeaseMachine.ActionKind.EXIT, "the action");
    }

    /** Rule 8 of doc/protocol.md. */
    private static void generations() {
        World world = new World().open();
        long end = world.now.clock + 2 * SECOND;

        world.renews();
        world.says(LeaseMachine.Answer.NO);
        world.seals(end);
        Check.same(world.calls(LeaseMachine.Call.ACQUIRE).startsAt, null, "the registry knows of these ids");
        world.answers(grantAt(world, REGISTRY, 2, 8, end));
        world.opens();

        world.renews();
        world.says(LeaseMachine.Answer.NO);
        world.seals(Generator.NO_ID);
        LeaseMachine.Request request = world.calls(LeaseMachine.Call.ACQUIRE);
        Check.same(request.startsAt, end, "the end of ids of the generation before");
        Check.same(request.idsEndAt, end, "the end of all ids");
        Check.same(request.lease.generation, 2L, "generation");
        world.answers(grantAt(world, new UUID(2, 2), 2, 9, end));
        world.opens();

        world.renews();
        world.says(LeaseMachine.Answer.NO);
        world.seals(end + SECOND);
        request = world.calls(LeaseMachine.Call.ACQUIRE);
        Check.same(request.uses, new UUID(2, 2), "uses");
        Check.same(request.startsAt, end, "the floor");
        Check.same(request.idsEndAt, end + SECOND, "the end of all ids");
    }

    private static void waits() {
        for (long step : new long[] {-3600 * SECOND * 24 * 365, -3600 * SECOND, 0}) {
            World world = new World().open();

            world.now.clock += step;
            world.pass(120 * SECOND);
            Check.holds(world.action.until - world.now.monotonic <= LeaseMachine.LONGEST_WAIT, "the wait");
            if (step != 0) {
                Check.holds(world.waits() <= LeaseMachine.LONGEST_WAIT, "the wait");
            }
        }
    }

    private static void phases() {
        World world = new World();

        Check.same(world.machine.phase(world.now), LeaseMachine.Phase.STARTING, "before the first answer");
        world.calls(LeaseMachine.Call.ACQUIRE);
        world.fails();
        Check.same(world.machine.phase(world.now), LeaseMachine.Phase.RETRYING, "away");
        world.pass(LeaseMachine.RETRY);
        world.calls(LeaseMachine.Call.ACQUIRE);
        world.isRefused(SECOND);
        Check.same(world.machine.phase(world.now), LeaseMachine.Phase.REFUSED, "refused");
        Check.same(world.machine.refusedUntil(), world.now.monotonic + SECOND, "for a second: threads wait");
        world.pass(world.waits());
        world.calls(LeaseMachine.Call.ACQUIRE);
        // an error that waiting does not cure
        world.fails(new LeaseMachine.Problem("42501", "no rights", null));
        Check.same(world.machine.phase(world.now), LeaseMachine.Phase.REFUSED, "no rights");
        Check.same(world.machine.refusedUntil(), Long.MAX_VALUE, "threads hear of it at once");
        world.pass(world.waits());
        world.open();
        Check.same(world.machine.phase(world.now), LeaseMachine.Phase.READY, "open");
        world.renews();
        world.fails();
        Check.same(world.machine.phase(world.now), LeaseMachine.Phase.RETRYING, "a renewal failed");
        world.passUntilRenewal();
        world.isRefused(10 * SECOND);
        Check.same(world.machine.phase(world.now), LeaseMachine.Phase.RETRYING, "a renewal was refused");
        world.pass(10 * SECOND);
        Check.same(world.machine.phase(world.now), LeaseMachine.Phase.REFUSED, "and the lease is over");
        Check.same(world.machine.refusedUntil(), Long.MAX_VALUE, "nobody knows until when");
        world.calls(LeaseMachine.Call.RENEW);
        world.fails();
        Check.same(world.machine.phase(world.now), LeaseMachine.Phase.RETRYING, "a renewal failed, of a lease that is over");
    }

    /**
     * Random results, late ones, failures, clocks set to and fro.  The registry here is as kind as its
     * rules: a token for each grant, its end durable before the answer.  Sometimes another one answers.
     */
    private static void random() {
        int opened = 0;

        for (int seed = 1; seed <= 100; seed++) {
            opened += new Life(seed).live();
        }
        Check.holds(opened > 2_000, "leases were opened: " + opened);
    }

    private static final class Life {
        final Random random;
        final World world = new World();
        final Set<UUID> sealed = new HashSet<>();
        long lastCall;
        long lastCallAt = Long.MIN_VALUE;
        /** How long the next call waits at least. */
        long pause;
        long greatestEnd = Long.MIN_VALUE;
        UUID openToken;
        /** Where the row of the newest lease ends. */
        long rowEnd;
        long outNumber;
        boolean notAskedFor;
        LeaseMachine.Result lateResult;
        long lateNumber;
        int opened;

        Life(long seed) {
            random = new Random(seed);
        }

        int live() {
            for (int i = 0; i < 3_000; i++) {
                world.random = random.nextDouble();
                world.now.wanted = random.nextInt(3) == 0;
                world.now.behind = random.nextInt(50) == 0 ? 20 * SECOND : 0;
                perform(world.step());
                if (world.machine.call() != LeaseMachine.Call.NONE && random.nextInt(3) == 0) {
                    answer();
                }
                if (lateResult != null && random.nextInt(5) == 0) {
                    LeaseMachine.State before = world.machine.state();

                    if (lateNumber != outNumber || world.machine.call() == LeaseMachine.Call.NONE) {
                        world.machine.result(lateNumber, lateResult, world.now);
                        Check.same(world.machine.state(), before, "the state after a late result");
                    }
                }
                if (random.nextInt(200) == 0) {
                    world.now.clock += (random.nextInt(41) - 20) * SECOND;
                }
                if (random.nextInt(1500) == 0) {
                    world.machine.stop();
                }
            }
            return opened;
        }

        void perform(LeaseMachine.Action action) {
            switch (action.kind) {
                case WAIT:
                    Check.holds(action.until > world.now.monotonic, "a wait is in the future");
                    Check.holds(action.until <= world.now.monotonic + LeaseMachine.LONGEST_WAIT, "it is bounded");
                    world.pass(Math.min(action.until - world.now.monotonic, 1 + random.nextInt(5_000_000)));
                    break;
                case OPEN:
                    Check.same(world.machine.state(), LeaseMachine.State.OPEN, "the state");
                    Check.holds(!sealed.contains(world.machine.lease().token), "a sealed lease is not opened");
                    Check.holds(world.machine.lease().leasedUntil <= rowEnd, "its end is that of its row");
                    openToken = world.machine.lease().token;
                    world.opened = true;
                    opened++;
                    break;
                case SEAL:
                    seal();
                    break;
                case CALL:
                    check(action.request);
                    break;
                default:
                    Check.same(openToken, null, "the word at the end");
                    break;
            }
        }

        void seal() {
            Lease lease = world.machine.lease();
            long end = Generator.NO_ID;

            if (openToken != null && random.nextInt(4) != 0) {
                end = lease.startsAt + (long) (random.nextDouble() * (lease.leasedUntil - lease.startsAt));
                greatestEnd = Math.max(greatestEnd, end);
            }
            sealed.add(lease.token);
            openToken = null;
            world.opened = false;
            world.machine.sealed(end);
        }

        void check(LeaseMachine.Request request) {
            Check.holds(request.number > lastCall, "calls have growing numbers");
            Check.holds(world.now.monotonic >= lastCallAt + pause || request.kind == LeaseMachine.Call.RELEASE,
                    "a while after a failure");
            lastCall = request.number;
            outNumber = request.number;
            if (request.kind == LeaseMachine.Call.RENEW) {
                Check.same(request.lease.token, openToken, "the lease that is renewed is the open one");
                Check.holds(request.lease.leasedUntil <= rowEnd, "no later end is said than the registry knows");
            } else {
                Check.same(openToken, null, "the word is sealed before its end is said");
                if (greatestEnd != Long.MIN_VALUE && request.kind == LeaseMachine.Call.ACQUIRE) {
                    Check.same(request.idsEndAt, greatestEnd, "the end of all ids");
                }
            }
        }

        void answer() {
            LeaseMachine.Result result;
            boolean acquires = world.machine.call() == LeaseMachine.Call.ACQUIRE;

            if (random.nextInt(4) == 0) {
                result = new LeaseMachine.Result(LeaseMachine.Answer.FAILED, random.nextInt(2) == 0 ? AWAY : BUSY);
            } else if (random.nextInt(8) == 0) {
                result = refusal(random.nextInt((int) Registry.LONGEST_REFUSAL + 1));
            } else if (acquires) {
                result = grant();
            } else if (random.nextInt(4) == 0) {
                result = new LeaseMachine.Result(LeaseMachine.Answer.NO, null);
            } else {
                long asked = world.request.clock + world.request.window;

                rowEnd = Math.max(rowEnd, asked);
                result = world.renewal(random.nextInt(10) == 0 ? Registry.END_TIME - 1 : asked);
                world.opened = world.machine.call() != LeaseMachine.Call.RENEW && world.opened;
            }
            pause = result.answer == LeaseMachine.Answer.FAILED || notAskedFor ? 750_000
                    : result.answer == LeaseMachine.Answer.REFUSED ? Math.min(Math.max(result.wait * 3 / 4, 100_000), 750_000) : 0;
            lastCallAt = world.now.monotonic;
            if (random.nextInt(3) == 0 && result.answer == LeaseMachine.Answer.YES) {
                lateResult = result;
                lateNumber = outNumber;
            }
            world.machine.result(outNumber, result, world.now);
            if (notAskedFor) {
                Check.same(world.machine.state(), LeaseMachine.State.ASKING, "the state after what was not asked for");
            }
            notAskedFor = false;
        }

        /** It starts after all ids, if the clock is not too far behind. */
        LeaseMachine.Result grant() {
            long startsAt = Math.max(world.request.clock, greatestEnd);

            if (startsAt > world.request.clock + MAX_AHEAD + 10 * SECOND) {
                return new LeaseMachine.Result(LeaseMachine.Answer.FAILED, AWAY);
            }
            LeaseMachine.Result result = grantAt(world, new UUID(1, random.nextInt(2)), 1 + random.nextInt(3),
                    random.nextInt(1023), startsAt);

            rowEnd = startsAt + world.request.window;
            switch (random.nextInt(20)) {
                case 0:
                    result.leasedUntil = Registry.END_TIME - 1;
                    break;
                case 1:
                    notAskedFor = greatestEnd != Long.MIN_VALUE;
                    result.incarnation = new UUID(1, 9);
                    result.startsAt = notAskedFor ? greatestEnd - 1 : startsAt;
                    break;
                case 2:
                    notAskedFor = true;
                    result.startsAt = world.request.clock + MAX_AHEAD + TICK + 10 * SECOND + 1;
                    result.leasedUntil = result.startsAt;
                    break;
                default:
                    break;
            }
            return result;
        }
    }
}
