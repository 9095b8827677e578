package example.snowflake;

import java.util.Objects;
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

    private static final long PATIENCE_MS = 360_000;

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
