package example.snowflake;

import java.lang.System.Logger.Level;
import java.sql.SQLException;
import java.util.Locale;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/**
 * What people who run the program can read in its log: the first failure, one a minute while it lasts,
 * and that it is over.  What is no failure is said once.  The logger has the name of the package.
 *
 * <p>A log can block.  So a line is written in a thread of its own, and left out while an earlier one is
 * not written; what lasts is said later.  The lease keeper's thread alone calls this, but for {@link #await}.  Times are
 * monotonic, in microseconds.
 */
final class KeeperLog {
    private static final System.Logger LOGGER = System.getLogger("example.snowflake");
    private static final long AGAIN = 60_000_000;

    /** Something that lasts, and what was logged of it. */
    private static final class Trouble {
        boolean logged;
        /** 0: never. */
        long loggedAt;
    }

    private final String prefix;
    private final Trouble calls = new Trouble();
    private final Trouble clocks = new Trouble();
    private final Trouble generations = new Trouble();
    private final Trouble rollback = new Trouble();
    private boolean cutLogged;
    /** Whoever writes a line has it. */
    private final Semaphore writing = new Semaphore(1);
    /** Who has written last, or writes now. */
    private volatile Thread writer;

    KeeperLog(String prefix) {
        this.prefix = prefix;
    }

    /** @param problem null: there is none */
    void problem(LeaseMachine.Problem problem, long now) {
        Throwable cause = problem == null ? null : problem.cause;

        // where in the driver an error was raised says nothing
        note(calls, problem == null ? null : problem.message, cause instanceof SQLException ? null : cause,
                "ready again", now);
    }

    /** @param differ by how much the registry's clock differs from ours, in microseconds; 0: not too much */
    void clocks(long differ, long now) {
        note(clocks, differ == 0 ? null : String.format(Locale.ROOT, "the clocks of this program and of the registry differ by %.3f s."
                + "  Hint: Correct the one that is wrong.", differ / 1e6), null, "the clocks agree again", now);
    }

    /** @param newest generation that this registry has shown */
    void generations(long answered, long newest, long now) {
        note(generations, answered == newest ? null : "the registry has answered as of generation " + answered
                + ", though it was in generation " + newest + " before: a former primary of it was started again."
                + "  Hint: Stop that server: see \"Failover\" in doc/operations.md.", null,
                "the registry answers as of its newest generation again", now);
    }

    /** The registry says that it does not know of the lease as we do. */
    void rolledBack(Lease lease, long now) {
        note(rollback, "the registry does not know that node number " + lease.nodeNumber + " is leased to this program from "
                + LeaseMachine.time(lease.startsAt) + " until " + LeaseMachine.time(lease.leasedUntil) + ": its storage was"
                + " rolled back, or another server is a copy of it.  Hint: See \"Failover\" in doc/operations.md.",
                null, null, now);
    }

    /** @param lease null: there is none yet */
    void cut(Lease lease) {
        if (lease != null && lease.window < lease.asked && !cutLogged) {
            cutLogged = write(Level.WARNING, String.format(Locale.ROOT, "a lease of %.3f s was asked for, and the registry has"
                    + " cut it to %.3f s, by its limit for ends.  Hint: Set leaseDuration to less than that limit, or raise it:"
                    + " see snowflake.limit_leases() in doc/reference.md.  If the clock of this program is ahead, correct it.",
                    lease.asked / 1e6, lease.window / 1e6), null);
        }
    }

    private void note(Trouble trouble, String message, Throwable cause, String over, long now) {
        if (message == null && trouble.logged) {
            trouble.logged = !write(Level.INFO, over, null);
        } else if (message != null && (trouble.loggedAt == 0 || now - trouble.loggedAt >= AGAIN)
                && write(Level.WARNING, message, cause)) {
            trouble.logged = true;
            trouble.loggedAt = now;
        }
    }

    /** False: it is left out. */
    private boolean write(Level level, String message, Throwable cause) {
        // before the flag is set, since there may be no memory for it
        String name = prefix + " logs";
        Runnable task = () -> {
            writer = Thread.currentThread();
            try {
                LOGGER.log(level, prefix + ": " + message, cause);
            } finally {
                writing.release();
            }
        };

        if (!writing.tryAcquire()) {
            return false;
        }
        if (!LeaseKeeper.startThread(task, name)) {
            writing.release();
            return false;
        }
        return true;
    }

    /** Until the last line is written, at most for micros.  The log itself can close the node: it does not wait. */
    void await(long micros) {
        try {
            if (Thread.currentThread() != writer && writing.tryAcquire(micros, TimeUnit.MICROSECONDS)) {
                writing.release();
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
