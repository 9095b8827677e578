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
    /** A lease is renewed when this part of the window is used, */
    static final long RENEW_DIVISOR = 4;
    /** or earlier, by less than this part of it: nodes differ. */
    static final long SPREAD_DIVISOR = 16;
    /** Ids were issued so lately: the word is looked at every WATCH. */
    static final long ACTIVE = 60_000_000;
    static final long WATCH = 250_000;
    /** A thread that waits asks again at least every second. */
    static final long WANTED = 2_000_000;
    /** If the word of a result is lost. */
    static final long LOOK = 500_000;
    /** After a failure that costs the registry nothing, the next call: half of it to one and a half. */
    static final long RETRY = 1_000_000;
    /** After others, at most so long the first time, and twice as long each further time; at least half of that. */
    static final long FIRST_RETRY = 2_000_000;
    static final long LONGEST_BUSY_RETRY = 15_000_000;
    static final long LONGEST_REFUSED_RETRY = 10_000_000;
    /** While ids can go on, no call waits longer than this part of what is left of the lease, */
    static final long LEFT_DIVISOR = 3;
    /** but so long, or there would be ever more calls towards its end. */
    static final long LEAST_RETRY = RETRY / 2;
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

    /** How a call ended.  Whatever is not YES or NO is FAILED, also a result that never came. */
    enum Answer { YES, NO, FAILED }

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
        /** Ids were issued since the last step. */
        boolean issued;
        /** How long until the clock allows the next id. */
        long behind;
        /** The word could be opened, which the clock was past the end for. */
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
        /** The newest lease that was opened; token null: there is none. */
        UUID token;
        long grantedBy;
        /** Null: ids go on. */
        Long idsEndAt;
        long clock;
        long window;
        /** Of ACQUIRE: the registry of the last lease, as the next three; null: there was none. */
        UUID uses;
        long generation;
        Long endedAt;
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
        /** Of FAILED. */
        final Problem problem;
        /** Of YES: the registry's. */
        long clock;
        /** Of YES, from ACQUIRE; RENEW has leasedUntil only. */
        UUID incarnation;
        long generation;
        UUID token;
        long nodeNumber;
        long startsAt;
        long leasedUntil;

        Result(Answer answer, Problem problem) {
            this.answer = answer;
            this.problem = problem;
        }
    }

    /** Why a call failed; what threads are told. */
    static final class Problem {
        /** These do not go away by waiting for max_wait. */
        private static final Set<String> REFUSALS =
                new HashSet<>(Arrays.asList("22023", "2200H", "3D000", "3F000", "42501", "42883", "55000"));

        /** What it says of the registry: how long the next call waits. */
        enum Kind {
            /** Nobody listens, or the network is away: a call costs the registry nothing. */
            AWAY,
            /** It does not answer in time, has too many connections, is starting or going down. */
            BUSY,
            /** It has answered, and gives no lease. */
            REFUSED
        }

        /** A cause can be its own. */
        private static final int MOST_CAUSES = 16;

        final String sqlState;
        final String message;
        final Throwable cause;
        final Kind kind;

        Problem(String sqlState, String message, Throwable cause) {
            this(sqlState, message, cause, kind(sqlState == null ? "" : sqlState, cause));
        }

        private Problem(String sqlState, String message, Throwable cause, Kind kind) {
            this.sqlState = sqlState == null ? "XX000" : sqlState;
            this.message = message;
            this.cause = cause;
            this.kind = kind;
        }

        /** What no registry was asked about. */
        static Problem ofOurs(String sqlState, String message) {
            return new Problem(sqlState, message, null, Kind.AWAY);
        }

        private static Kind kind(String sqlState, Throwable cause) {
            boolean inTime = true;
            Throwable why = cause;

            // drivers and pools wrap them
            for (int i = 0; why != null && i < MOST_CAUSES; i++, why = why.getCause()) {
                if (why instanceof ConnectException || why instanceof NoRouteToHostException
                        || why instanceof UnknownHostException) {
                    return Kind.AWAY;
                }
                inTime &= !(why instanceof SQLTimeoutException || why instanceof SQLTransientConnectionException);
            }
            if (sqlState.equals("53400")) {
                return Kind.REFUSED;
            }
            // connection, rollback of a deadlock, resources, a lock that was waited for, cancelled or no server yet
            return !inTime || sqlState.matches("(08|40|53|57).*|55P03") ? Kind.BUSY : Kind.REFUSED;
        }

        boolean isRefusal() {
            return REFUSALS.contains(sqlState);
        }
    }

    private final UUID start;
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

    private Problem problem;
    /** Calls that have failed since one did not, without those that cost the registry nothing. */
    private int failures;
    /** The next call is due then.  Monotonic; 0: at once. */
    private long retryAt;
    /** The newest window is renewed earlier by this part of the spread. */
    private double early;
    private long wantedAt;
    private long activeAt;
    private long movedAt;

    /**
     * @param uses the registry that an earlier start in this process has used, or null
     * @param random from 0 to 1, without 1; each node has others
     */
    LeaseMachine(UUID start, UUID uses, Layout layout, long maxAhead, long maxWait, long leaseDuration,
            DoubleSupplier random) {
        this.start = start;
        this.uses = uses;
        this.maxAhead = maxAhead;
        this.maxWait = maxWait;
        this.leaseDuration = leaseDuration;
        this.random = random;
        tick = layout.tickMicros();
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

    //
    // Windows
    //

    long fullWindow() {
        return Math.max(leaseDuration, maxAhead + tick + RESERVE);
    }

    private long firstWindow() {
        return Math.min(fullWindow(), FIRST_WINDOW);
    }

    /** Twice the last one, so that crashes in a row do not use numbers up. */
    private long nextWindow() {
        return Math.max(Math.min(2 * lease.window, fullWindow()), firstWindow());
    }

    private boolean isWanted(Now now) {
        return wantedAt != 0 && now.monotonic - wantedAt < WANTED;
    }

    private boolean isActive(Now now) {
        return activeAt != 0 && now.monotonic - activeAt < ACTIVE;
    }

    private boolean mustWait(Now now) {
        return retryAt > now.monotonic;
    }

    private long renewLeft() {
        return lease.window - lease.window / RENEW_DIVISOR + (long) (early * (lease.window / SPREAD_DIVISOR));
    }

    private boolean renewalIsDue(Now now) {
        long left = lease.leasedUntil - now.clock;

        // the registry counts the window as this does
        if (Math.max(now.clock, lease.startsAt) + nextWindow() <= lease.leasedUntil + tick) {
            return false;
        }
        // a thread that waits has found the limit if it is as near as ids may be ahead
        return isWanted(now) && left <= maxAhead + 2 * tick || left <= renewLeft();
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

    /** Something has failed: the next call is made after a while. */
    void failed(Problem what, long monotonic) {
        problem = what;
        retryAt = monotonic + pause(what.kind);
    }

    private void noteFailure(Problem what, Now now) {
        failed(what, now.monotonic);
        boundRetry(now);
    }

    /** How long the next call waits.  Nodes that have lost the registry together do not come back together. */
    private long pause(Problem.Kind kind) {
        if (kind == Problem.Kind.AWAY) {
            return LEAST_RETRY + (long) (random.getAsDouble() * RETRY);
        }
        long longest = kind == Problem.Kind.BUSY ? LONGEST_BUSY_RETRY : LONGEST_REFUSED_RETRY;
        long most = Math.min(FIRST_RETRY << Math.min(failures++, 16), longest);

        return most / 2 + (long) (random.getAsDouble() * (most / 2));
    }

    private void boundRetry(Now now) {
        long left = state == State.OPEN ? lease.leasedUntil - now.clock : 0;

        if (left > 0) {
            retryAt = Math.min(retryAt, now.monotonic + Math.max(left / LEFT_DIVISOR, LEAST_RETRY));
        }
    }

    private void noteSuccess() {
        problem = null;
        failures = 0;
        retryAt = 0;
        early = random.getAsDouble();
    }

    /** Where the lease was to end that the call has asked for: the registry counts the window as this does. */
    private long askedEnd(long startsAt) {
        return Math.max(askedClock, startsAt) + askedWindow;
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
        long latest = askedClock + maxAhead + tick + LATEST_START;
        String start = "it starts at " + time(granted.startsAt);

        if (granted.nodeNumber < 0 || granted.nodeNumber > lastNumber) {
            return "node number " + granted.nodeNumber + ", asked for was one from 0 to " + lastNumber;
        }
        if (granted.startsAt > granted.leasedUntil) {
            return start + " and ends at " + time(granted.leasedUntil);
        }
        if (least != null && granted.startsAt < least) {
            return start + ", ids of this start end at " + time(least);
        }
        if (granted.startsAt > latest) {
            return start + ", asked for was one that starts at or before " + time(latest);
        }
        return null;
    }

    private static Instant time(long micros) {
        return Instant.EPOCH.plus(micros, ChronoUnit.MICROS);
    }

    private void takeAcquired(Result result, Now now) {
        if (result.answer != Answer.YES) {
            noteFailure(result.problem != null ? result.problem
                    : new Problem("XX000", "the registry gave no lease and no reason", null), now);
            return;
        }
        String why = notAskedFor(result);

        if (why != null) {
            noteFailure(new Problem("55000", "the registry granted a lease that was not asked for: " + why
                    + ".  See which server answers there, and whether somebody has changed the functions in its"
                    + " schema snowflake.", null), now);
            return;
        }
        noteSuccess();
        // the registry has heard of these ids, and counts them for this lease only
        if (knownUntil != null && !isAkin(result)) {
            floor = later(floor, knownUntil);
        }
        lease = new Lease(callNumber, result.token, result.incarnation, result.generation, result.nodeNumber,
                result.startsAt, Math.min(result.leasedUntil, askedEnd(result.startsAt)), firstWindow());
        uses = result.incarnation;
        wantedAt = 0;
        state = State.OPEN;
    }

    private void takeRenewed(Result result, Now now) {
        switch (result.answer) {
            case YES:
                noteSuccess();
                long asked = askedEnd(lease.startsAt);

                // it gave less than was asked for: not again at once
                if (result.leasedUntil < asked) {
                    retryAt = now.monotonic + pause(Problem.Kind.AWAY);
                }
                lease.window = nextWindow();
                // more is no failure: the answer to another renewal was lost
                lease.leasedUntil = Math.max(lease.leasedUntil, Math.min(result.leasedUntil, asked));
                wantedAt = 0;
                break;
            case NO:
                endLease();
                break;
            default:
                noteFailure(result.problem, now);
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
        if (now.wanted || now.issued) {
            activeAt = now.monotonic;
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
                    failed(Problem.ofOurs("55000", "the first tick of the layout begins at " + time(epoch)
                            + ", which is to come.  Hint: Correct the clock if it is"
                            + " behind; else choose an earlier epoch."), now.monotonic);
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
        long watch = now.monotonic + WATCH;

        if (mustWait(now) && retryAt < watch) {
            return retryAt;
        }
        return isActive(now) ? watch
                : Math.max(now.monotonic + lease.leasedUntil - now.clock - renewLeft(), watch);
    }

    private Request makeCall(Call kind, Now now, long window, Action action) {
        Request request = new Request(kind, ++callNumber, start);

        if (lease != null) {
            request.token = lease.token;
            request.grantedBy = lease.grantedBy;
            request.idsEndAt = lease.end;
        }
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
        if (lease != null) {
            request.generation = lease.generation;
        }
        request.endedAt = knownUntil;
        request.startsAt = floor;
    }

    /** What a thread that got no id is told. */
    Phase phase(Now now) {
        boolean over = lease == null || lease.leasedUntil <= now.clock;
        boolean fieldFull = problem != null && problem.sqlState.equals("2200H");

        if (state == State.OPEN && !(over && fieldFull)) {
            return problem == null ? Phase.READY : Phase.RETRYING;
        }
        if (problem == null) {
            return Phase.STARTING;
        }
        return problem.isRefusal() ? Phase.REFUSED : Phase.RETRYING;
    }
}
