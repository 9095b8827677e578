import example.snowflake.Snowflake;
import java.sql.DriverManager;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Scanner;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongSupplier;

/**
 * Issues ids in its own process, for bench/programs.pl: one process for all rounds, so that all
 * that is compared has been compiled before.
 *
 * <p>Arguments: pairs of a layout and the JDBC URL of the registry for it.  Each line of the input is
 * a command, its words separated by tabs, and is answered by a line:
 *
 * <pre>
 * speed WHAT THREADS MILLISECONDS    calls a second, of all threads together
 * latency WHAT MILLISECONDS          of the calls of one thread: p50, p99, p99.9 and the longest, in
 *                                    nanoseconds; how many there were; and 1 if the lease was renewed, or 0
 * </pre>
 *
 * <p>WHAT: "ids N", from a Snowflake with the N-th layout and a lease of two minutes; "renewed N", the
 * same with a lease of a second, which is renewed again and again; "batch N", the ids of the first, a thousand
 * at a time; "increment", an AtomicLong that all threads increment; "clock", a reading of the clock; "uuid", a random
 * UUID; "nothing".
 *
 * <p>What each thread gets must increase (the clock, UUIDs and nothing need not).
 */
public final class Programs {

    private static final int PART = 64;
    private static final int BATCH = 1000;
    private static final int MOST_TIMES = 10_000_000;

    private static final Map<String, Snowflake> IDS = new HashMap<>();
    private static final AtomicLong COUNTER = new AtomicLong();

    private static volatile boolean stop;

    private static String[] layouts;

    public static void main(String[] args) throws Exception {
        layouts = args;
        try (Scanner commands = new Scanner(System.in)) {
            while (commands.hasNextLine()) {
                String[] words = commands.nextLine().split("\t");

                if (words[0].equals("speed")) {
                    System.out.println(speed(words[1], Integer.parseInt(words[2]),
                            Long.parseLong(words[3])));
                } else {
                    System.out.println(latency(words[1], Long.parseLong(words[2])));
                }
            }
        }
        IDS.values().forEach(Snowflake::close);
    }

    /** The Snowflake of "ids N" or "renewed N"; it has a lease. */
    private static Snowflake snowflake(String what) {
        return IDS.computeIfAbsent(what, key -> {
            String[] words = key.split(" ");
            int pair = 2 * Integer.parseInt(words[1]);
            Snowflake made = Snowflake.builder(() -> DriverManager.getConnection(layouts[pair + 1]))
                    .layout(layouts[pair])
                    .name("bench")
                    .leaseDuration(Duration.ofSeconds(words[0].equals("renewed") ? 1 : 120))
                    .build();
            made.next();
            return made;
        });
    }

    /** One call in a loop of its own for each kind, so that each loop is compiled for its call. */
    private interface Loop {
        /** Makes calls until it is told to stop; returns how many. */
        long run();
    }

    private static Loop loop(String what) {
        if (what.equals("increment")) {
            return Programs::increment;
        }
        if (what.equals("clock")) {
            return Programs::readClock;
        }
        if (what.equals("uuid")) {
            return Programs::makeUuids;
        }
        Snowflake ids = snowflake(what.replace("batch", "ids"));
        return what.startsWith("batch") ? () -> issueBatches(ids) : () -> issue(ids);
    }

    private static long issue(Snowflake ids) {
        long last = -1;
        long count = 0;

        for (; !stop; count += PART) {
            for (int i = 0; i < PART; i++) {
                last = later(last, ids.next());
            }
        }
        return count;
    }

    private static long issueBatches(Snowflake ids) {
        long last = -1;
        long count = 0;

        for (; !stop; count += BATCH) {
            for (long id : ids.next(BATCH)) {
                last = later(last, id);
            }
        }
        return count;
    }

    private static long makeUuids() {
        UUID last = null;
        long count = 0;

        for (; !stop; count += PART) {
            for (int i = 0; i < PART; i++) {
                last = UUID.randomUUID();
            }
        }
        if (last == null) {
            throw new AssertionError("there was no time");
        }
        return count;
    }

    private static long increment() {
        long last = -1;
        long count = 0;

        for (; !stop; count += PART) {
            for (int i = 0; i < PART; i++) {
                last = later(last, COUNTER.incrementAndGet());
            }
        }
        return count;
    }

    private static long readClock() {
        long last = 0;
        long count = 0;

        for (; !stop; count += PART) {
            for (int i = 0; i < PART; i++) {
                last = Math.max(last, System.currentTimeMillis());
            }
        }
        if (last == 0) {
            throw new AssertionError("the clock shows nothing");
        }
        return count;
    }

    private static long later(long last, long id) {
        if (id <= last) {
            throw new AssertionError(id + " follows " + last);
        }
        return id;
    }

    /** Calls a second of so many threads. */
    private static long speed(String what, int threads, long milliseconds)
            throws InterruptedException {
        Loop loop = loop(what);
        long[] counts = new long[threads];
        CountDownLatch ready = new CountDownLatch(threads);
        Thread[] all = new Thread[threads];

        stop = false;
        for (int i = 0; i < threads; i++) {
            int number = i;
            all[i] = new Thread(() -> {
                ready.countDown();
                counts[number] = loop.run();
            });
            all[i].start();
        }
        ready.await();
        long begin = System.nanoTime();
        Thread.sleep(milliseconds);
        stop = true;
        long end = System.nanoTime();
        long count = 0;
        for (int i = 0; i < threads; i++) {
            all[i].join();
            count += counts[i];
        }
        return (long) (count * 1e9 / (end - begin));
    }

    private static String latency(String what, long milliseconds) {
        Snowflake ids = what.equals("nothing") ? null : snowflake(what);
        LongSupplier call = ids == null ? System::nanoTime : ids::next;
        int[] times = new int[MOST_TIMES];
        Instant leased = ids == null ? null : ids.state().leasedUntil();
        int count = 0;
        long before = System.nanoTime();
        long until = before + milliseconds * 1_000_000;

        for (; before < until && count < MOST_TIMES; count++) {
            call.getAsLong();
            long after = System.nanoTime();
            times[count] = (int) Math.min(after - before, Integer.MAX_VALUE);
            before = after;
        }
        int renewed = ids == null || ids.state().leasedUntil().equals(leased) ? 0 : 1;
        if (what.startsWith("renewed")) {
            // its renewals would go on while others are measured
            IDS.remove(what).close();
        }
        Arrays.sort(times, 0, count);
        return String.format("%d %d %d %d %d %d", times[count / 2], times[(int) (count * 0.99)],
                times[(int) (count * 0.999)], times[count - 1], count, renewed);
    }
}
