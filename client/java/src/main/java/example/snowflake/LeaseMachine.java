package example.snowflake;

import java.net.ConnectException;
import java.net.NoRouteToHostException;
import java.net.UnknownHostException;
import java.sql.SQLTimeoutException;
import java.sql.SQLTransientConnectionException;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.function.DoubleSupplier;

/**
 * The lease machine: what the lease keeper decides, without I/O.
 *
 * <p>The keeper looks at the world, calls {@link #step} with what it saw, and performs the action
 * that comes back, until the action is to wait.  The machine reads no clock and no table, and is given
 * the source of what is random.  It is the server's machine (src/lease/machine.c) with its names, less
 * what a program does not have: tables of its own, fixed numbers, settings that change, and another
 * registry.  Only the keeper's thread may call it.
 *
 * <p>Why no id repeats:
 * <ul>
 * <li>The word is opened, and its limit moved, only for what a call's result has said, and a result
 *     counts only if it is that of the call that is out.
 * <li>No end counts that is later than the one that was asked for, and no lease that starts before ids
 *     which it could repeat have ended: what a false registry answers holds for one window.
 * <li>A lease that is over (SEALING) is never opened or renewed again: its end is told to the
 *     registry, and others may start there.
 * </ul>
 *
 * <p>Times are microseconds: of clocks since 1970-01-01 UTC; monotonic ones since any time but never 0.
 */
final class LeaseMachine {
    /** Bounds each wait, also one that was computed from a clock that was wrong. */
    static final long LONGEST_WAIT = 60_000_000;
    /** A first lease is short, so that crashes in a row use up few numbers. */
    static final long FIRST_WINDOW = 10_000_000;
    /** What a lease lasts beyond what threads can use at once. */
    static final long RESERVE = 1_000_000;
    /** A lease is renewed when about this part of the window is used. */
    static final long RENEW_DIVISOR = 4;
    /** A thread that waits asks again at least every second. */
    static final long WANTED = 2_000_000;
    /** With a lease the keeper looks so often: the word of a result can be lost, and the clock be set. */
    static final long LOOK = 500_000;
    /** It waits no less for what the clock alone says is due. */
    static final long LEAST_LOOK = 100_000;
    /**
     * After a failure, the next call follows after about this time.  While the registry is overloaded, the time doubles
     * with each failure, up to the longest one.  Nodes that lost their registry together must not come back together,
     * so each wait is drawn: see {@link #spread}.
     */
    static final long RETRY = 1_000_000;
    static final long LONGEST_RETRY = 12_000_000;
    /** After a refusal, the wait is what the answer says, but no less, lest a false registry be called without a pause. */
    static final long LEAST_REFUSAL = 100_000;
    /** While ids can go on, no call waits longer than this part of what is left of the lease. */
    static final long LEFT_DIVISOR = 3;
    /** A burst may be ahead by a tick more than it may; a clock that was set back, by more. */
    static final long LEAST_MOVE = 1_000_000;
    /** Another number is tried this often while the clock stays behind. */
    static final long MOVE_AGAIN = 1_000_000;
    /** No registry lets a lease start later than this after the first id that the clock does not allow yet. */
    static final long LATEST_START = 10_000_000;
    /** Of so many node numbers it is known where their ids end. */
    static final int ENDED_NUMBERS = 16;

    /** Threads issue ids in OPEN only.  In other states the word is sealed, or about to be. */
    enum State {
        /** ACQUIRE is due.  It names the lease before, with its end. */
        ASKING,
        /** The word is open, or being opened; the row is durable up to leasedUntil. */
        OPEN,
        /** The lease is over, its row open.  The word is to be sealed; that gives the end of its ids. */
        SEALING,
        /** Sealed.  RELEASE is due, which closes the row at that end. */
        ENDING,
        /** Sealed, and RELEASE made or tried: the keeper ends. */
        STOPPED
    }

    enum Call { NONE, ACQUIRE, RENEW, RELEASE }

    /** How a call ended. */
    enum Answer {
        YES,
        /** Of RENEW: the lease goes on no more.  Of RELEASE: it is closed, or not there. */
        NO,
        /** As the problem says; nothing was granted, renewed or released. */
        REFUSED,
        /** Whatever is no answer, also a result that never came. */
        FAILED
    }

    enum Phase { STARTING, READY, RETRYING, REFUSED }

    enum ActionKind {
        /** Until something happens, at most until {@code until}. */
        WAIT,
        CALL,
        /** Open the word, or move its limit, for the lease. */
        OPEN,
        /** Seal the word; {@link LeaseMachine#sealed} follows. */
        SEAL,
        EXIT
    }

    /** What the keeper sees when it makes a step. */
    static final class Now {
        long clock;
        long monotonic;
        /** A thread has waited since the last step. */
        boolean wanted;
        /** How long until the clock allows the next id. */
        long behind;
        /** The word was left sealed since the clock was past the layout's end, and could be opened now. */
        boolean openable;
    }

    /** What is to be done.  Of CALL: all that the call says. */
    static final class Action {
        ActionKind kind;
        long until;
        Request request;
    }

    /** A call to the registry.  It never changes, so the thread that makes it may read it. */
    static final class Request {
        final Call kind;
        final long number;
        final UUID start;
        /** The newest that was opened, as it was then; null: none was. */
        Lease lease;
        long clock;
        /** With the tick, since ids are of whole ones. */
        long maxAhead;
        long window;
        /** Of ACQUIRE: the registry of the last lease, as the next two; null: there was none. */
        UUID uses;
        Long idsEndAt;
        Long startsAt;

        Request(Call kind, long number, UUID start) {
            this.kind = kind;
            this.number = number;
            this.start = start;
        }
    }

    /** The result of a call. */
    static final class Result {
        final Answer answer;
        /** Of REFUSED and FAILED. */
        final Problem problem;
        /** Of REFUSED: the next call is not before. */
        long wait;
        /** Of NO. */
        String reason;
        /** Of all but FAILED: which registry has answered, and its clock. */
        UUID incarnation;
        long generation;
        long clock;
        /** Of YES, from ACQUIRE; RENEW has leasedUntil only. */
        UUID token;
        long nodeNumber;
        long startsAt;
        long leasedUntil;

        Result(Answer answer, Problem problem) {
            this.answer = answer;
            this.problem = problem;
        }
    }

    /** Why there is no answer, or no lease; what threads are told. */
    static final class Problem {
        /** Errors that do not go away by waiting for max_wait. */
        private static final Set<String> LASTING =
                new HashSet<>(Arrays.asList("22023", "3D000", "3F000", "42501", "42883", "55000"));
        /** A cause can be its own. */
        private static final int MOST_CAUSES = 16;

        final String sqlState;
        final String message;
        final Throwable cause;
        /** The registry has answered so: somebody must act, or time pass. */
        final boolean refused;
        /** The registry has no time, no connection or no server for a call yet: each one is a load to it. */
        final boolean overloaded;
        /** For so long waiting is of no use; {@link Long#MAX_VALUE}: until somebody acts, or nobody knows. */
        final long wait;

        private Problem(
                String sqlState,
                String message,
                Throwable cause,
                boolean refused,
                boolean overloaded,
                long wait) {
            this.sqlState = sqlState;
            this.message = message;
            this.cause = cause;
            this.refused = refused;
            this.overloaded = overloaded;
            this.wait = wait;
        }

        /** @param sqlState of the server or the driver, or null */
        Problem(String sqlState, String message, Throwable cause) {
            this(sqlState == null ? "XX000" : sqlState, message, cause, false,
                    isOverload(sqlState == null ? "" : sqlState, cause),
                    LASTING.contains(sqlState) ? Long.MAX_VALUE : 0);
        }

        /** In the words of the registry, which says how long to wait: less than the longest is until it is over. */
        static Problem refusal(String sqlState, String message, long wait) {
            return new Problem(sqlState, message, null, true, false,
                    wait >= Registry.LONGEST_REFUSAL ? Long.MAX_VALUE : wait);
        }

        private static boolean isOverload(String sqlState, Throwable cause) {
            boolean inTime = true;
            Throwable why = cause;

            // drivers and pools wrap them
            for (int i = 0; why != null && i < MOST_CAUSES; i++, why = why.getCause()) {
                // nobody listens, or the network is away: a call costs the registry nothing
                if (why instanceof ConnectException || why instanceof NoRouteToHostException
                        || why instanceof UnknownHostException) {
                    return false;
                }
                inTime &= !(why instanceof SQLTimeoutException || why instanceof SQLTransientConnectionException);
            }
            // connection, rollback of a deadlock, resources, a lock that was waited for, cancelled or no server yet
            return !inTime || sqlState.matches("(08|40|53|57).*|55P03");
        }

        boolean isLasting() {
            return wait == Long.MAX_VALUE;
        }
    }

    private final UUID start;
    /** With the tick: the last of the ids that are allowed ends so long after the clock. */
    private final long maxAhead;
    private final long maxWait;
    private final long leaseDuration;
    private final long tick;
    private final long epoch;
    private final long lastNumber;
    /** From 0 to 1, without 1. */
    private final DoubleSupplier random;

    private State state = State.ASKING;
    /** In SEALING: whether the machine is to stop after it. */
    private boolean stopping;

    /** The registry call that is out, and the number of it or of the last one. */
    private Call call = Call.NONE;
    private long callNumber;
    /** What the call has asked for, if it is ACQUIRE or RENEW. */
    private long askedClock;
    private long askedWindow;

    /** The newest lease that was opened; null before the first. */
    private Lease lease;
    /** The registry that granted the last lease, of this start or the one before; null: there was none. */
    private UUID uses;

    /** The end of all ids of leases that are over; null: there was none. */
    private Long knownUntil;
    /** The end of those of which the lease's registry may have no row. */
    private Long floor;
    /** By node number, of leases that are over: the latest ends of ids. */
    private final Map<Long, Long> ended = new HashMap<>();

    /** Of the last call. */
    private Problem problem;
    /** So many calls, one after the other, have found the registry overloaded. */
    private int overloads;
    /** The next call is due then.  Monotonic; 0: at once. */
    private long retryAt;
    private long refusedUntil;
    private long wantedAt;
    private long movedAt;

    /**
     * @param uses the registry that an earlier start in this process has used, or null
     * @param random from 0 to 1, without 1; each node has others
     */
    LeaseMachine(UUID start, UUID uses, Layout layout, long maxAhead, long maxWait, long leaseDuration,
            DoubleSupplier random) {
        this.start = start;
        this.uses = uses;
        this.maxWait = maxWait;
        this.leaseDuration = leaseDuration;
        this.random = random;
        tick = layout.tickMicros();
        this.maxAhead = maxAhead + tick;
        epoch = layout.epochMicros();
        lastNumber = layout.lastNumber();
    }

    State state() {
        return state;
    }

    Call call() {
        return call;
    }

    /** Null before the first lease is granted. */
    Lease lease() {
        return lease;
    }

    Problem problem() {
        return problem;
    }

    UUID uses() {
        return uses;
    }

    /** Whether the last call has found that the registry has no time, no connection or no server for it. */
    boolean isOverloaded() {
        return overloads > 0;
    }

    //
    // Windows
    //

    long fullWindow() {
        return Math.max(leaseDuration, maxAhead + RESERVE);
    }

    /** A registry that is overloaded is asked for all of it, so that it is called less often. */
    private long firstWindow() {
        return overloads > 0 ? fullWindow() : Math.min(fullWindow(), FIRST_WINDOW);
    }

    /** Twice the last one, so that crashes in a row do not use numbers up. */
    private long nextWindow() {
        return Math.max(Math.min(2 * lease.window, fullWindow()), firstWindow());
    }

    private boolean isWanted(Now now) {
        return wantedAt != 0 && now.monotonic - wantedAt < WANTED;
    }

    private boolean mustWait(Now now) {
        return retryAt > now.monotonic;
    }

    private long renewLeft() {
        return lease.window - lease.renewAfter;
    }

    private boolean renewalIsDue(Now now) {
        long left = lease.leasedUntil - now.clock;

        // the registry counts the window as this does
        if (Math.max(now.clock, lease.startsAt) + nextWindow() <= lease.leasedUntil + tick) {
            return false;
        }
        // a thread that waits has found the limit if it is as near as ids may be ahead
        return isWanted(now) && left <= maxAhead + tick || left <= renewLeft();
    }

    /** Whether the clock is so far behind the last id that threads fail, and another number helps. */
    private boolean mustMove(Now now) {
        return isWanted(now) && now.behind > Math.max(maxWait, LEAST_MOVE)
                && (movedAt == 0 || now.monotonic - movedAt >= MOVE_AGAIN);
    }

    //
    // Events.  After each, the keeper makes steps until one says to wait.
    //

    /** The result of the call with this number.  That of another call than the one that is out is late. */
    void result(long number, Result result, Now now) {
        Call made = call;

        if (made == Call.NONE || number != callNumber) {
            return;
        }
        call = Call.NONE;
        switch (made) {
            case ACQUIRE:
                takeAcquired(result, now);
                break;
            case RENEW:
                takeRenewed(result, now);
                break;
            default:
                state = State.STOPPED;
                break;
        }
    }

    /** A random time that is a quarter shorter to a quarter longer. */
    private long spread(long mean) {
        return mean - mean / 4 + (long) (random.getAsDouble() * (mean / 2 + 1));
    }

    /** Something has failed that was no call. */
    void failed(Problem what, long monotonic) {
        noteProblem(what, monotonic);
        retryAt = monotonic + spread(RETRY);
    }

    private void noteProblem(Problem what, long monotonic) {
        problem = what;
        refusedUntil = what.isLasting() ? Long.MAX_VALUE : monotonic + what.wait;
    }

    /** How long the next call waits after a failure. */
    private long retryWait() {
        return spread(overloads == 0 ? RETRY : Math.min(RETRY << Math.min(overloads, 16), LONGEST_RETRY));
    }

    /** How long the next call waits after a refusal: as long as the registry said. */
    private long refusalWait(long said) {
        return Math.min(Math.max(spread(said), LEAST_REFUSAL), Registry.LONGEST_REFUSAL);
    }

    private void noteFailure(Result result, Now now) {
        long left = state == State.OPEN ? lease.leasedUntil - now.clock : 0;
        long wait;

        noteProblem(result.problem, now.monotonic);
        overloads = problem.overloaded ? overloads + 1 : 0;
        wait = problem.refused ? refusalWait(result.wait) : retryWait();
        // while ids can go on, unless so little is left that this would be no wait
        if (left > 0) {
            wait = Math.min(wait, Math.max(left / LEFT_DIVISOR, spread(RETRY)));
        }
        retryAt = now.monotonic + wait;
    }

    private void noteSuccess() {
        problem = null;
        overloads = 0;
        retryAt = 0;
    }

    /** Where the window begins that the call has asked for: the registry counts it as this does. */
    private long askedFrom(long startsAt) {
        return Math.max(askedClock, startsAt);
    }

    /** The lease has a new end, perhaps an earlier one than was asked for.  It is renewed by what it has got. */
    private void noteWindow() {
        lease.asked = askedWindow;
        lease.window = Math.max(Math.min(lease.leasedUntil - askedFrom(lease.startsAt), askedWindow), 0);
        lease.renewAfter = spread(lease.window / RENEW_DIVISOR);
    }

    /** Whether a lease is of the registry, and its generation, of the newest one. */
    private boolean isAkin(Result granted) {
        return lease != null && lease.incarnation.equals(granted.incarnation) && lease.generation == granted.generation;
    }

    /** The end of the ids that a lease could repeat; null: there are none. */
    private Long endBefore(Result granted) {
        return later(later(floor, ended.get(granted.nodeNumber)), isAkin(granted) ? null : knownUntil);
    }

    /** Why no registry grants such a lease to this call; null: one can. */
    private String notAskedFor(Result granted) {
        Long least = endBefore(granted);
        long latest = askedClock + maxAhead + LATEST_START;
        String start = "it starts at " + time(granted.startsAt);

        if (granted.nodeNumber < 0 || granted.nodeNumber > lastNumber) {
            return "node number " + granted.nodeNumber + ", asked for was one from 0 to " + lastNumber;
        }
        if (granted.startsAt > granted.leasedUntil) {
            return start + " and ends at " + time(granted.leasedUntil);
        }
        if (granted.leasedUntil <= askedClock) {
            // each of them would be the reason for a next call, at once
            return start + " and had ended at " + time(granted.leasedUntil) + ", before it was asked for";
        }
        if (least != null && granted.startsAt < least) {
            return start + ", ids of this start end at " + time(least);
        }
        if (granted.startsAt > latest) {
            return start + ", asked for was one that starts at or before " + time(latest);
        }
        return null;
    }

    static Instant time(long micros) {
        return Instant.EPOCH.plus(micros, ChronoUnit.MICROS);
    }

    /** An answer that counts as none. */
    private static Result wrong(String sqlState, String message) {
        return new Result(Answer.FAILED, new Problem(sqlState, message, null));
    }

    private void takeAcquired(Result result, Now now) {
        switch (result.answer) {
            case YES:
                takeGranted(result, now);
                break;
            case NO:
                noteFailure(wrong("XX000", "the registry gave no lease and no reason"), now);
                break;
            default:
                noteFailure(result, now);
                break;
        }
    }

    private void takeGranted(Result granted, Now now) {
        String why = notAskedFor(granted);

        if (why != null) {
            noteFailure(wrong("55000", "the registry granted a lease that was not asked for: " + why
                    + ".  See which server answers there, and whether somebody has changed the functions in its"
                    + " schema snowflake."), now);
            return;
        }
        noteSuccess();
        // the registry has heard of these ids, and counts them for this lease only
        if (knownUntil != null && !isAkin(granted)) {
            floor = later(floor, knownUntil);
        }
        lease = new Lease(callNumber, granted.token, granted.incarnation, granted.generation, granted.nodeNumber,
                granted.startsAt, Math.min(granted.leasedUntil, askedFrom(granted.startsAt) + askedWindow));
        noteWindow();
        uses = granted.incarnation;
        wantedAt = 0;
        state = State.OPEN;
    }

    private void takeRenewed(Result result, Now now) {
        switch (result.answer) {
            case YES:
                noteSuccess();
                long asked = askedFrom(lease.startsAt) + askedWindow;

                // it gave less than was asked for: not again at once
                if (result.leasedUntil < asked) {
                    retryAt = now.monotonic + retryWait();
                }
                // more is no failure: the answer to another renewal was lost
                lease.leasedUntil = Math.max(lease.leasedUntil, Math.min(result.leasedUntil, asked));
                noteWindow();
                wantedAt = 0;
                break;
            case NO:
                // what it refused before is not so now
                noteSuccess();
                endLease();
                break;
            default:
                noteFailure(result, now);
                break;
        }
    }

    /** The word is sealed.  The end of the lease's ids, or Generator.NO_ID. */
    void sealed(long end) {
        if (state != State.SEALING) {
            return;
        }
        // nothing was issued if the word was not open
        lease.end = Math.max(end, lease.startsAt);
        if (end != Generator.NO_ID) {
            knownUntil = later(knownUntil, end);
            if (!ended.containsKey(lease.nodeNumber) && ended.size() == ENDED_NUMBERS) {
                ended.values().remove(Collections.min(ended.values()));
            }
            ended.put(lease.nodeNumber, end);
        }
        state = stopping ? State.ENDING : State.ASKING;
    }

    /** The keeper is to end: seal and release. */
    void stop() {
        stopping = true;
        switch (state) {
            case ASKING:
                call = Call.NONE;
                state = lease != null ? State.ENDING : State.STOPPED;
                break;
            case OPEN:
                endLease();
                break;
            default:
                break;
        }
    }

    /** The lease is over.  A call that is out is given up on. */
    private void endLease() {
        call = Call.NONE;
        state = State.SEALING;
    }

    private static Long later(Long a, Long b) {
        return a == null || b != null && b > a ? b : a;
    }

    //
    // Actions
    //

    /** What is due.  opened: whether the last action was OPEN, for the lease as it is. */
    Action step(Now now, boolean opened) {
        Action action = new Action();

        if (now.wanted) {
            wantedAt = now.monotonic;
        }
        if (state == State.OPEN && (!opened || now.openable)) {
            action.kind = ActionKind.OPEN;
        } else if (call != Call.NONE && state != State.OPEN) {
            waitUntil(action, now.monotonic + LOOK);
        } else {
            decide(now, action);
        }
        if (action.kind == ActionKind.WAIT) {
            action.until = Math.min(action.until, now.monotonic + LONGEST_WAIT);
        }
        return action;
    }

    private static void waitUntil(Action action, long until) {
        action.kind = ActionKind.WAIT;
        action.until = until;
    }

    private void decide(Now now, Action action) {
        switch (state) {
            case ASKING:
                if (!mustWait(now) && now.clock < epoch) {
                    failed(new Problem("55000", "the first tick of the layout begins at " + time(epoch)
                            + ", which is to come.  Hint: Correct the clock if it is"
                            + " behind; else choose an earlier epoch.", null), now.monotonic);
                }
                if (mustWait(now)) {
                    waitUntil(action, retryAt);
                } else {
                    callAcquire(now, action);
                }
                break;
            case OPEN:
                decideOpen(now, action);
                break;
            case SEALING:
                action.kind = ActionKind.SEAL;
                break;
            case ENDING:
                makeCall(Call.RELEASE, now, 0, action);
                break;
            default:
                action.kind = ActionKind.EXIT;
                break;
        }
    }

    private void decideOpen(Now now, Action action) {
        if (mustMove(now)) {
            movedAt = now.monotonic;
            endLease();
            action.kind = ActionKind.SEAL;
        } else if (call == Call.NONE && renewalIsDue(now) && !mustWait(now)) {
            makeCall(Call.RENEW, now, nextWindow(), action);
        } else {
            // the clock was set back: what has failed is not due any more
            if (call == Call.NONE && !renewalIsDue(now)) {
                problem = null;
            }
            waitUntil(action, call != Call.NONE ? now.monotonic + LOOK : nextLook(now));
        }
    }

    private long nextLook(Now now) {
        long due = Math.max(lease.leasedUntil - now.clock - renewLeft(), LEAST_LOOK);

        return Math.min(mustWait(now) ? retryAt : now.monotonic + due, now.monotonic + LOOK);
    }

    private Request makeCall(Call kind, Now now, long window, Action action) {
        Request request = new Request(kind, ++callNumber, start);

        if (lease != null) {
            request.lease = new Lease(lease);
        }
        request.maxAhead = maxAhead;
        request.clock = askedClock = now.clock;
        request.window = askedWindow = window;
        call = kind;
        action.kind = ActionKind.CALL;
        action.request = request;
        return request;
    }

    private void callAcquire(Now now, Action action) {
        Request request = makeCall(Call.ACQUIRE, now, firstWindow(), action);

        request.uses = uses;
        request.idsEndAt = knownUntil;
        request.startsAt = floor;
    }

    /** Until then, monotonic, the phase is REFUSED whatever threads do; {@link Long#MAX_VALUE}: nobody knows. */
    long refusedUntil() {
        return refusedUntil;
    }

    /** What a thread that got no id is told. */
    Phase phase(Now now) {
        boolean over = lease == null || lease.leasedUntil <= now.clock;

        if (state == State.OPEN && !(over && problem != null && problem.refused)) {
            return problem == null ? Phase.READY : Phase.RETRYING;
        }
        if (problem == null) {
            return Phase.STARTING;
        }
        return problem.refused || problem.isLasting() ? Phase.REFUSED : Phase.RETRYING;
    }
}
