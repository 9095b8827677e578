package example.snowflake;

import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Function;
import java.util.function.LongSupplier;

/**
 * The lease keeper: one daemon thread that performs what the lease machine decides.
 *
 * <p>It alone has the machine, and opens, extends and seals the word.  A call to the registry runs in
 * a thread of its own, since no driver can be trusted to give up in time: {@value #CALL_TIMEOUT}
 * microseconds after it has got its connection, or {@value #LOGIN_TIMEOUT} without one, the call has
 * failed, and its result is thrown away if it comes.
 *
 * <p>What nobody has foreseen, such as an OutOfMemoryError, ends the start, as a crash would: the word is
 * sealed, the lease is over when it ends, and a new machine makes another start.
 *
 * <p>What other threads share with it is below {@code lock}, or volatile.  No lock is held over a call
 * or a clock call.
 */
final class LeaseKeeper implements Runnable {
    /** Of a call that has its connection, in microseconds; of the last one, in all. */
    static final long CALL_TIMEOUT = 5_000_000;
    /**
     * Of getting a connection.  That cannot be cancelled: if many that are busy with it were given up on,
     * a registry that is overloaded would go on with logins that are of no use, and never come to a call.
     */
    static final long LOGIN_TIMEOUT = 15_000_000;
    /**
     * Of a call that has its connection, if the one before has found the registry overloaded: if all give up on calls
     * that it is busy with, it works for nobody.
     */
    static final long PATIENCE = 60_000_000;
    /** Threads whose calls were given up on and hang, for example in a resolver or a login. */
    static final int MOST_HANGING = 4;
    /** If there are so many and the last call was one, the next comes after this; each further one after twice as long. */
    static final long HANG = 60_000_000;
    /** After what nobody has foreseen, which may come again at once. */
    private static final long PAUSE = 100_000;
    /** The clock may be set while a thread sleeps: it looks again at least so often. */
    static final long LONGEST_SLEEP = 500_000;

    /** What threads that got no id are told.  It never changes. */
    static final class Status {
        final LeaseMachine.Phase phase;
        final LeaseMachine.Problem problem;
        /** With REFUSED. */
        final long refusedUntil;

        Status(LeaseMachine.Phase phase, LeaseMachine.Problem problem, long refusedUntil) {
            this.phase = phase;
            this.problem = problem;
            this.refusedUntil = refusedUntil;
        }
    }

    /** What threads can see of the lease.  It never changes. */
    static final class View {
        final LeaseMachine.State state;
        final long nodeNumber;
        final long leasedUntil;

        View(LeaseMachine machine) {
            Lease lease = machine.lease();

            state = machine.state();
            nodeNumber = lease == null ? -1 : lease.nodeNumber;
            leasedUntil = lease == null ? Registry.FIRST_TIME : lease.leasedUntil;
        }
    }

    private final Function<UUID, LeaseMachine> starts;
    private final Generator generator;
    private final Registry registry;
    private final LongSupplier monotonic;
    private final String threadName;
    private final KeeperLog log;
    private final AtomicInteger calling = new AtomicInteger();

    private final ReentrantLock lock = new ReentrantLock();
    /** The keeper waits for it: wanted, stop or a result. */
    private final Condition event = lock.newCondition();
    /** Threads wait for it: the word was opened, its limit moved, or the status changed. */
    private final Condition changed = lock.newCondition();
    // below lock
    private boolean wanted;
    private boolean stop;
    private boolean ended;

    private volatile Status status = new Status(LeaseMachine.Phase.STARTING, null, 0);
    private volatile View view;

    // the keeper's own
    private LeaseMachine machine;
    private Throwable broken;
    private boolean stopping;
    /** The call that is out; null: there is none. */
    private Registry.Attempt attempt;
    private long attemptDeadline;
    /** Of its answer, once it has a connection, in microseconds. */
    private long patience;
    /** Whether the deadline is that of a connection. */
    private boolean loggingIn;
    private long calledAt;
    /** Whether the last call has ended in time. */
    private boolean answered;
    private Lease openedLease;
    private long openedUntil;
    /** The registry that has answered last, and the newest generation that it has shown. */
    private UUID answeredBy;
    private long generation;

    /**
     * @param starts makes the machine of a start, given the registry that the start before has used
     * @param uses that registry for the first start, or null
     * @param monotonic microseconds since any time, never 0
     */
    LeaseKeeper(Function<UUID, LeaseMachine> starts, UUID uses, Generator generator, Registry registry,
            LongSupplier monotonic, String threadName) {
        this.starts = starts;
        machine = starts.apply(uses);
        this.generator = generator;
        this.registry = registry;
        this.monotonic = monotonic;
        this.threadName = threadName;
        log = new KeeperLog(threadName);
        view = new View(machine);
    }

    void start() {
        thread(this, threadName).start();
    }

    /** What the thread that calls us has in its inheritable variables is none of theirs. */
    private static Thread thread(Runnable task, String name) {
        Thread thread = new Thread(null, task, name, 0, false);

        // a driver or a pool may be looked for there
        thread.setContextClassLoader(Thread.currentThread().getContextClassLoader());
        thread.setDaemon(true);
        return thread;
    }

    Status status() {
        return status;
    }

    View view() {
        return view;
    }

    /** The registry that ids were issued with; null: none.  After {@link #stop}. */
    UUID uses() {
        return machine.uses();
    }

    //
    // Other threads
    //

    /** An id is wanted, or what the machine does about the clock: it looks again. */
    void ask() {
        lock.lock();
        try {
            wanted = true;
            event.signal();
        } finally {
            lock.unlock();
        }
    }

    /**
     * Waits until something has changed since seen was read, at most for micros.  The order matters:
     * seen is read before the attempt that failed.
     */
    void await(Status seen, long micros) throws InterruptedException {
        lock.lockInterruptibly();
        try {
            if (status == seen) {
                // not below 1 ms: that would be a busy loop
                changed.await(Math.max(1_000, Math.min(micros, LONGEST_SLEEP)), TimeUnit.MICROSECONDS);
            }
        } finally {
            lock.unlock();
        }
    }

    /** Seals, releases and ends.  Returns when that is done, or after micros; then false. */
    boolean stop(long micros) {
        long deadline = System.nanoTime() + TimeUnit.MICROSECONDS.toNanos(micros);
        boolean interrupted = false;

        lock.lock();
        try {
            stop = true;
            event.signal();
            // not interruptible: who returns early would believe that no id is issued any more
            for (long left = deadline - System.nanoTime(); !ended && left > 0; left = deadline - System.nanoTime()) {
                try {
                    changed.awaitNanos(left);
                } catch (InterruptedException e) {
                    interrupted = true;
                }
            }
            return ended;
        } finally {
            lock.unlock();
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /** After {@link #stop}: returns when the log has the last line, or after micros. */
    void awaitLog(long micros) {
        log.await(micros);
    }

    //
    // The keeper
    //

    @Override
    public void run() {
        try {
            while (goOn()) {
                // until the machine says so
            }
        } finally {
            generator.seal(-1);
            lock.lock();
            try {
                ended = true;
                changed.signalAll();
                // for those that are about to wait
                status = new Status(status.phase, status.problem, status.refusedUntil);
            } finally {
                lock.unlock();
            }
        }
    }

    private boolean goOn() {
        try {
            return (broken == null || beginAgain()) && pass();
        } catch (RuntimeException | Error e) {
            // nothing else here, since there may be no memory
            broken = e;
            return true;
        }
    }

    /** Nothing of the start is relied on, and its calls are given up on.  False: it was the last one. */
    private boolean beginAgain() {
        LockSupport.parkNanos(TimeUnit.MICROSECONDS.toNanos(PAUSE));
        // no id under a lease of which the machine may not know
        generator.seal(-1);
        if (isStopped()) {
            return false;
        }
        LeaseMachine.Problem problem = new LeaseMachine.Problem("XX000",
                "the lease keeper has failed: " + Registry.printable(broken.toString()), broken);
        Registry.Attempt out = attempt;

        publish(LeaseMachine.Phase.RETRYING, problem, 0);
        log.problem(problem, monotonic.getAsLong());
        machine = starts.apply(machine.uses());
        machine.failed(problem, monotonic.getAsLong());
        openedLease = null;
        attempt = null;
        if (out != null) {
            startThread(out::giveUp, threadName + " ends a call");
        }
        broken = null;
        return true;
    }

    private boolean isStopped() {
        lock.lock();
        try {
            return stop;
        } finally {
            lock.unlock();
        }
    }

    /** One look and one action.  False: it is over. */
    private boolean pass() {
        LeaseMachine.Now now = look();
        LeaseMachine.Action action = machine.step(now, isOpened());

        switch (action.kind) {
            case OPEN:
                openedLease = machine.lease();
                openedUntil = openedLease.leasedUntil;
                generator.open(openedLease.nodeNumber, openedLease.startsAt, openedUntil);
                publish(now, true);
                return true;
            case SEAL:
                machine.sealed(generator.seal(machine.lease().nodeNumber));
                publish(now, false);
                return true;
            case CALL:
                startCall(action.request, now);
                publish(now, false);
                return true;
            case EXIT:
                publish(now, false);
                return false;
            default:
                publish(now, false);
                sleep(action.until, now);
                return true;
        }
    }

    /** Whether the word has been opened for the lease as it is. */
    private boolean isOpened() {
        return openedLease != null && openedLease == machine.lease() && openedUntil == openedLease.leasedUntil;
    }

    /** What there is to see, and the events that have come. */
    private LeaseMachine.Now look() {
        LeaseMachine.Now now = new LeaseMachine.Now();
        LeaseMachine.Result arrived = attempt == null ? null : attempt.result();
        boolean told;

        lock.lock();
        try {
            now.wanted = wanted;
            told = stop;
            wanted = false;
        } finally {
            lock.unlock();
        }
        now.clock = generator.now();
        now.monotonic = monotonic.getAsLong();
        now.behind = generator.behind();
        now.openable = isOpened() && generator.isOpenable();
        if (arrived != null) {
            LeaseMachine.Request request = attempt.request();

            attempt = null;
            answered = true;
            if (arrived.answer != LeaseMachine.Answer.FAILED) {
                noteAnswer(request, arrived, now);
            }
            machine.result(request.number, arrived, now);
        }
        if (told && !stopping) {
            stopping = true;
            machine.stop();
        }
        giveUp(now);
        return now;
    }

    /** What people are told of an answer; the machine decides nothing by it. */
    private void noteAnswer(LeaseMachine.Request request, LeaseMachine.Result answer, LeaseMachine.Now now) {
        if (!answer.incarnation.equals(answeredBy)) {
            answeredBy = answer.incarnation;
            generation = 0;
        }
        generation = Math.max(generation, answer.generation);
        // first, since it comes once
        if (Registry.ROLLED_BACK.equals(answer.reason)) {
            log.rolledBack(request.lease, now.monotonic);
        }
        log.generations(answer.generation, generation, now.monotonic);
        log.clocks(differ(request, answer, now), now.monotonic);
    }

    /** By how much the registry's clock differs from ours, if it is too much for one of them to be right; else 0. */
    private long differ(LeaseMachine.Request request, LeaseMachine.Result answer, LeaseMachine.Now now) {
        long ahead = answer.clock - now.clock;
        long behind = request.clock - answer.clock;
        long most = Math.max(ahead, behind);

        return most > machine.fullWindow() ? most : 0;
    }

    /** A call that takes too long, or that the machine has given up on. */
    private void giveUp(LeaseMachine.Now now) {
        if (attempt != null && loggingIn && attempt.isConnected()) {
            loggingIn = false;
            attemptDeadline = now.monotonic + patience;
        }
        boolean late = attempt != null && now.monotonic >= attemptDeadline;

        if (attempt == null || machine.call() != LeaseMachine.Call.NONE && !late) {
            return;
        }
        Registry.Attempt out = attempt;

        // if no thread can be started, the driver's own timeouts end it
        startThread(out::giveUp, threadName + " ends a call");
        attempt = null;
        if (late) {
            machine.result(out.request().number, failed(loggingIn
                    ? "there was no connection to the registry within " + LOGIN_TIMEOUT / 1_000_000 + " s"
                    : "the registry did not answer within " + patience / 1_000_000 + " s"), now);
        }
    }

    private static LeaseMachine.Result failed(String message) {
        return new LeaseMachine.Result(LeaseMachine.Answer.FAILED, new LeaseMachine.Problem("08006", message, null));
    }

    private void startCall(LeaseMachine.Request request, LeaseMachine.Now now) {
        Registry.Attempt made = registry.new Attempt(request);
        int hanging = calling.get();

        // nothing can end a thread that hangs, and to wait for ever would be as bad
        if (!answered && hanging >= MOST_HANGING && now.monotonic - calledAt < HANG << Math.min(hanging - MOST_HANGING, 16)) {
            machine.result(request.number, failed(hanging + " earlier calls to the registry have not ended."
                    + "  Hint: Give the driver timeouts, as in \"jdbc:postgresql://HOST/postgres?loginTimeout=10"
                    + "&socketTimeout=10\"."), now);
            return;
        }
        attempt = made;
        // who stops does not wait for a login
        loggingIn = request.kind != LeaseMachine.Call.RELEASE;
        patience = patience(request, now);
        attemptDeadline = now.monotonic + (loggingIn ? LOGIN_TIMEOUT : patience);
        calledAt = now.monotonic;
        answered = false;
        // before it is counted, since there may be no memory for it
        Runnable task = () -> call(made);
        String name = threadName + " calls";

        calling.incrementAndGet();
        if (!startThread(task, name)) {
            calling.decrementAndGet();
            deliver(made, failed("no thread could be started for the call to the registry"));
        }
    }

    /** How long its answer is waited for, in microseconds. */
    private long patience(LeaseMachine.Request request, LeaseMachine.Now now) {
        if (!machine.isOverloaded() || request.kind == LeaseMachine.Call.RELEASE) {
            return CALL_TIMEOUT;
        }
        long left = machine.state() == LeaseMachine.State.OPEN ? machine.lease().leasedUntil - now.clock : 0;
        // a third of what is left, while ids can go on; else half of the window: a lease that comes later is soon over
        long most = left > 0 ? left / LeaseMachine.LEFT_DIVISOR : machine.fullWindow() / 2;

        return Math.min(Math.max(most, CALL_TIMEOUT), PATIENCE);
    }

    static boolean startThread(Runnable task, String name) {
        try {
            thread(task, name).start();
            return true;
        } catch (OutOfMemoryError e) {
            // of threads
            return false;
        }
    }

    /** In a thread of its own. */
    private void call(Registry.Attempt made) {
        LeaseMachine.Result came = null;

        try {
            came = made.make();
        } finally {
            calling.decrementAndGet();
            deliver(made, came != null ? came : failed("the call has ended without a result"));
        }
    }

    private void deliver(Registry.Attempt made, LeaseMachine.Result came) {
        lock.lock();
        try {
            made.deliver(came);
            event.signal();
        } finally {
            lock.unlock();
        }
    }

    private void publish(LeaseMachine.Now now, boolean opened) {
        LeaseMachine.Phase phase = machine.phase(now);
        Status before = status;

        view = new View(machine);
        log.problem(machine.problem(), now.monotonic);
        log.cut(machine.lease());
        if (!opened && before.phase == phase && before.problem == machine.problem()) {
            return;
        }
        publish(phase, machine.problem(), machine.refusedUntil());
    }

    private void publish(LeaseMachine.Phase phase, LeaseMachine.Problem problem, long refusedUntil) {
        lock.lock();
        try {
            status = new Status(phase, problem, refusedUntil);
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }

    private boolean isAnswered() {
        return attempt != null && attempt.result() != null;
    }

    private void sleep(long until, LeaseMachine.Now now) {
        long deadline = attempt == null ? until : Math.min(until, attemptDeadline);
        long left = TimeUnit.MICROSECONDS.toNanos(Math.max(deadline - now.monotonic, 0));

        lock.lock();
        try {
            while (!wanted && !(stop && !stopping) && !isAnswered() && left > 0) {
                left = event.awaitNanos(left);
            }
        } catch (InterruptedException e) {
            // nobody has a reason to: go on
        } finally {
            lock.unlock();
        }
    }
}
