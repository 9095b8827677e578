package example.snowflake;

import java.lang.System.Logger.Level;
import java.sql.SQLException;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * What people who run the program can read in its log: the first failure, one a minute while it lasts,
 * and that it is over.  The logger has the name of the package.
 *
 * <p>A log can block.  So a line is written in a thread of its own, and left out while an earlier one is
 * not written.  The lease keeper's thread alone calls this.  Times are monotonic, in microseconds.
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
    private final AtomicBoolean writing = new AtomicBoolean();

    KeeperLog(String prefix) {
        this.prefix = prefix;
    }

    /** @param problem null: there is none */
    void problem(LeaseMachine.Problem problem, long now) {
        Throwable cause = problem == null ? null : problem.cause;

        // where in the driver an error was raised says nothing
        note(calls, problem == null ? null : problem.message, cause instanceof SQLException ? null : cause,
                "the trouble is over, ids are issued", now);
    }

    /** @param differ by how much the registry's clock differs from ours, in microseconds; 0: not too much */
    void clocks(long differ, long now) {
        note(clocks, differ == 0 ? null : String.format(Locale.ROOT, "the clocks of this program and of the registry differ by %.3f s."
                + "  Hint: Correct the one that is wrong.", differ / 1e6), null, "the clocks agree again", now);
    }

    private void note(Trouble trouble, String message, Throwable cause, String over, long now) {
        if (message == null && trouble.logged) {
            trouble.logged = false;
            write(Level.INFO, over, null);
        } else if (message != null && (trouble.loggedAt == 0 || now - trouble.loggedAt >= AGAIN)) {
            trouble.logged = true;
            trouble.loggedAt = now;
            write(Level.WARNING, message, cause);
        }
    }

    private void write(Level level, String message, Throwable cause) {
        // before the flag is set, since there may be no memory for it
        String name = prefix + " logs";
        Runnable task = () -> {
            try {
                LOGGER.log(level, prefix + ": " + message, cause);
            } finally {
                writing.set(false);
            }
        };

        if (writing.compareAndSet(false, true) && !LeaseKeeper.startThread(task, name)) {
            writing.set(false);
        }
    }
}
