package example.snowflake;

import java.util.Objects;
import java.util.function.Consumer;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;

/** What the tests share: a check that fails ends its test, and each test prints a line. */
final class Check {
    /** A test. */
    interface Body {
        void run() throws Exception;
    }

    /** What waits for a state. */
    interface Condition {
        boolean holds() throws Exception;
    }

    /** A machine that does nothing else needs less. */
    private static final long PATIENCE_MS = Long.getLong("patience", 360_000);

    /** Of the library; what it has to say is no trouble in a test. */
    static final Logger LOGGER = Logger.getLogger("example.snowflake");

    static {
        LOGGER.setUseParentHandlers(false);
    }

    private static boolean failed;

    private Check() {
    }

    static void test(String what, Body body) {
        try {
            body.run();
            System.out.println("ok - " + what);
        } catch (Exception | AssertionError e) {
            failed = true;
            System.out.println("not ok - " + what);
            e.printStackTrace(System.out);
        }
    }

    /** At the end of main. */
    static void end() {
        System.exit(failed ? 1 : 0);
    }

    static void same(Object got, Object wanted, String what) {
        if (!Objects.equals(got, wanted)) {
            throw new AssertionError(what + ": " + got + " should be " + wanted);
        }
    }

    static void holds(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }

    /** Waits until a condition holds, for so long that only what never comes fails. */
    static void waitFor(String what, Condition condition) throws Exception {
        long deadline = System.nanoTime() + PATIENCE_MS * 1_000_000;

        while (!condition.holds()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError("did not come: " + what);
            }
            Thread.sleep(5);
        }
    }

    /** What is logged while a body runs. */
    static void withLog(Consumer<String> lines, Body body) throws Exception {
        Handler handler = new Handler() {
            @Override
            public void publish(LogRecord line) {
                lines.accept(line.getLevel() + " " + line.getMessage());
            }

            @Override
            public void flush() {
            }

            @Override
            public void close() {
            }
        };

        LOGGER.addHandler(handler);
        try {
            body.run();
        } finally {
            LOGGER.removeHandler(handler);
        }
    }

    /** The refusal that a call throws. */
    static SnowflakeException refusal(Body body) throws Exception {
        try {
            body.run();
        } catch (SnowflakeException e) {
            return e;
        }
        throw new AssertionError("nothing was refused");
    }

    static IllegalArgumentException illegal(Body body) throws Exception {
        try {
            body.run();
        } catch (IllegalArgumentException e) {
            return e;
        }
        throw new AssertionError("nothing was refused");
    }
}
