package example.snowflake;

import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongSupplier;

/**
 * The lease keeper: one daemon thread that performs what the lease machine decides.
 *
 * <p>It alone has the machine, and opens, extends and seals the word.  A call to the registry runs in
 * a thread of its own, since no driver can be trusted to give up in time: after {@value #CALL_TIMEOUT}
 * microseconds the call has failed, and its result is thrown away if it comes.  If the keeper's thread
 * ends, ids end with the lease.
 *
 * <p>What other threads share with it is below {@code lock}, or volatile.  No lock is held over a call
 * or a clock call.
 */
final class LeaseKeeper implements Runnable {
    /** Of a call, in microseconds. */
    static final long CALL_TIMEOUT = 5_000_000;
    /** Threads whose calls were given up on and hang, for example in a resolver. */
    static final int MOST_HANGING = 4;
    /** The clock may be set while a thread sleeps: it looks again at least so often. */
    static final long LONGEST_SLEEP = 500_000;

    /** What threads that got no id are told.  It never changes. */
    static final class Status {
        final LeaseMachine.Phase phase;
        final LeaseMachine.Problem problem;

        Status(LeaseMachine.Phase phase, LeaseMachine.Problem problem) {
            this.phase = phase;
            this.problem = problem;
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

    private final LeaseMachine machine;
    private final Generator generator;
    private final Registry registry;
    private final LongSupplier monotonic;
    private final String threadName;
    private final AtomicInteger calling = new AtomicInteger();

    private final ReentrantLock lock = new ReentrantLock();
    /** The keeper waits for it: wanted, stop or a result. */
    private final Condition event = lock.newCondition();
    /** Threads wait for it: the word was opened, its limit moved, or the status changed. */
    private final Condition changed = lock.newCondition();
    // below lock
    private boolean wanted;
    private boolean stop;
    private LeaseMachine.Result result;
    private long resultNumber;
    private boolean ended;

    private volatile Status status = new Status(LeaseMachine.Phase.STARTING, null);
    private volatile View view;

    // the keeper's own
    private boolean stopping;
    private Registry.Attempt attempt;
    private long attemptNumber;
    private long attemptDeadline;
    private Lease openedLease;
    private long openedUntil;

    /** @param monotonic microseconds since any time, never 0 */
    LeaseKeeper(LeaseMachine machine, Generator generator, Registry registry, LongSupplier monotonic, String threadName) {
        this.machine = machine;
        this.generator = generator;
        this.registry = registry;
        this.monotonic = monotonic;
        this.threadName = threadName;
        view = new View(machine);
    }

    void start() {
        Thread thread = new Thread(this, threadName);

        thread.setDaemon(true);
        thread.start();
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

    //
    // The keeper
    //

    @Override
    public void run() {
        Status last = null;

        try {
            while (pass()) {
                // until the machine says so
            }
        } catch (RuntimeException | Error e) {
            last = new Status(LeaseMachine.Phase.REFUSED, new LeaseMachine.Problem("XX000",
                    "the lease keeper has ended: " + Registry.printable(e.toString()), e));
            throw e;
        } finally {
            // also after an error: no id without a keeper that could seal
            generator.seal(-1);
            lock.lock();
            try {
                ended = true;
                status = last != null ? last : new Status(status.phase, status.problem);
                changed.signalAll();
            } finally {
                lock.unlock();
            }
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
        LeaseMachine.Result arrived;
        long number;
        boolean told;

        lock.lock();
        try {
            now.wanted = wanted;
            arrived = result;
            number = resultNumber;
            told = stop;
            wanted = false;
            result = null;
        } finally {
            lock.unlock();
        }
        now.clock = generator.now();
        now.monotonic = monotonic.getAsLong();
        now.issued = generator.issued();
        now.behind = generator.behind();
        now.openable = isOpened() && generator.isOpenable();
        if (arrived != null && attempt != null && number == attemptNumber) {
            attempt = null;
            machine.result(number, arrived, now);
        }
        if (told && !stopping) {
            stopping = true;
            machine.stop();
        }
        giveUp(now);
        return now;
    }

    /** A call that takes too long, or that the machine has given up on. */
    private void giveUp(LeaseMachine.Now now) {
        boolean late = attempt != null && now.monotonic >= attemptDeadline;

        if (attempt == null || machine.call() != LeaseMachine.Call.NONE && !late) {
            return;
        }
        // if no thread can be started, the driver's own timeouts end it
        startThread(attempt::giveUp, " ends a call");
        attempt = null;
        if (late) {
            machine.result(attemptNumber, failed("the registry did not answer within "
                    + CALL_TIMEOUT / 1_000_000 + " s"), now);
        }
    }

    private static LeaseMachine.Result failed(String message) {
        return new LeaseMachine.Result(LeaseMachine.Answer.FAILED, new LeaseMachine.Problem("08006", message, null));
    }

    private void startCall(LeaseMachine.Request request, LeaseMachine.Now now) {
        Registry.Attempt made = registry.new Attempt(request);

        if (calling.get() >= MOST_HANGING) {
            machine.result(request.number, failed("earlier calls to the registry hang"), now);
            return;
        }
        attempt = made;
        attemptNumber = request.number;
        attemptDeadline = now.monotonic + CALL_TIMEOUT;
        calling.incrementAndGet();
        if (!startThread(() -> call(made, request.number), " calls")) {
            calling.decrementAndGet();
            deliver(request.number, failed("no thread could be started for the call to the registry"));
        }
    }

    private boolean startThread(Runnable task, String what) {
        Thread thread = new Thread(task, threadName + what);

        thread.setDaemon(true);
        try {
            thread.start();
            return true;
        } catch (OutOfMemoryError e) {
            // of threads
            return false;
        }
    }

    /** In a thread of its own. */
    private void call(Registry.Attempt made, long number) {
        LeaseMachine.Result came = null;

        try {
            came = made.make();
        } finally {
            calling.decrementAndGet();
            deliver(number, came != null ? came : failed("the call has ended without a result"));
        }
    }

    private void deliver(long number, LeaseMachine.Result came) {
        lock.lock();
        try {
            // a late one does not take the place of one that was not seen yet
            if (result == null || number > resultNumber) {
                result = came;
                resultNumber = number;
            }
            event.signal();
        } finally {
            lock.unlock();
        }
    }

    private void publish(LeaseMachine.Now now, boolean opened) {
        LeaseMachine.Phase phase = machine.phase(now);
        Status before = status;

        view = new View(machine);
        if (!opened && before.phase == phase && before.problem == machine.problem()) {
            return;
        }
        lock.lock();
        try {
            status = new Status(phase, machine.problem());
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }

    private void sleep(long until, LeaseMachine.Now now) {
        long deadline = attempt == null ? until : Math.min(until, attemptDeadline);
        long left = TimeUnit.MICROSECONDS.toNanos(Math.max(deadline - now.monotonic, 0));

        lock.lock();
        try {
            while (!wanted && !(stop && !stopping) && result == null && left > 0) {
                left = event.awaitNanos(left);
            }
        } catch (InterruptedException e) {
            // nobody has a reason to: go on
        } finally {
            lock.unlock();
        }
    }
}
