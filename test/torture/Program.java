import example.snowflake.SequenceStart;
import example.snowflake.Snowflake;
import example.snowflake.SnowflakeException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.sql.DriverManager;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CopyOnWriteArrayList;

/**
 * A program that is a node itself: asks its {@link Snowflake} for ids for ever, in three threads,
 * and logs every id that it got, as writer.c does for a server's clients (log.h).
 *
 * <p>Now and then it closes its Snowflake, while the threads go on, and makes another one.  At
 * SIGTERM it does that for the last time and ends.
 *
 * <p>Arguments, each KEY=VALUE: url (JDBC, of the registry), name, layout, lease and max_ahead (in
 * milliseconds), start, log (the beginning of the logs' names), step (how far the ids of
 * consecutive sequence values are apart), rate (ids a second to aim at), most (ids at a time),
 * seed, real_least and real_most (bounds for real time minus monotonic time, in microseconds: our
 * wall clock is set to and fro).
 */
public final class Program {

    private static final int MAGIC = 0x676f4c53;
    private static final int RECORD_SIZE = 56;
    private static final int RUN_SIZE = 16;
    private static final int MOST_RUNS = 110_000;
    private static final int ERROR_PAUSE = 20;
    private static final long SECOND = 1_000_000;

    private static final Map<String, String> ARGUMENTS = new HashMap<>();

    private static volatile Snowflake ids;
    private static volatile boolean stop;

    public static void main(String[] args) throws Exception {
        for (String argument : args) {
            String[] words = argument.split("=", 2);
            ARGUMENTS.put(words[0], words[1]);
        }
        Random random = new Random(number("seed"));
        List<Thread> threads = new CopyOnWriteArrayList<>();

        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> fail(error));
        // first, since SIGTERM can come at once
        Runtime.getRuntime().addShutdownHook(new Thread(() -> end(threads)));
        threads.add(new Client("single", 400, 1, random.nextLong()));
        threads.add(new Client("other", 200, 1, random.nextLong()));
        threads.add(new Client("batch", number("rate"), (int) number("most"), random.nextLong()));
        if (begin()) {
            threads.forEach(Thread::start);
        }
        while (!stop) {
            Thread.sleep(1000 + random.nextInt(8000));
            makeAnother(random.nextBoolean());
        }
    }

    private static long number(String key) {
        return Long.parseLong(ARGUMENTS.get(key));
    }

    private static void fail(Throwable error) {
        System.err.println("program: " + error);
        error.printStackTrace();
        Runtime.getRuntime().halt(2);
    }

    private static Snowflake make() {
        return Snowflake.builder(() -> DriverManager.getConnection(ARGUMENTS.get("url")))
                .layout(ARGUMENTS.get("layout"))
                .name(ARGUMENTS.get("name"))
                .leaseDuration(Duration.ofMillis(number("lease")))
                .maxAhead(Duration.ofMillis(number("max_ahead")))
                .sequenceStart(SequenceStart.valueOf(ARGUMENTS.get("start").toUpperCase(Locale.ROOT)))
                .build();
    }

    /** False: it ends already. */
    private static synchronized boolean begin() {
        if (!stop) {
            ids = make();
        }
        return !stop;
    }

    /** With overlap, another one takes over before the last one is closed. */
    private static synchronized void makeAnother(boolean overlap) {
        if (stop) {
            return;
        }
        Snowflake last = ids;

        if (overlap) {
            ids = make();
        }
        last.close();
        if (!overlap) {
            ids = make();
        }
    }

    private static void end(List<Thread> threads) {
        stop = true;
        synchronized (Program.class) {
            if (ids != null) {
                ids.close();
            }
        }
        for (Thread thread : threads) {
            try {
                thread.join(10_000);
            } catch (InterruptedException ended) {
                return;
            }
        }
    }

    /** Asks for up to "most" ids at a time, at a rate. */
    private static final class Client extends Thread {
        private final FileChannel log;
        private final double rate;
        private final int most;
        private final Random random;
        private final long step = number("step");
        private final long realLeast = number("real_least");
        private final long realMost = number("real_most");
        private final ByteBuffer record;
        private final ByteBuffer runs;
        private long due = monotonic();

        Client(String kind, double rate, int most, long seed) throws IOException {
            super(kind);
            log = FileChannel.open(Path.of(ARGUMENTS.get("log") + "." + kind),
                    StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            this.rate = rate;
            this.most = most;
            random = new Random(seed);
            record = ByteBuffer.allocateDirect(RECORD_SIZE
                    + RUN_SIZE * (most == 1 ? 1 : MOST_RUNS)).order(ByteOrder.nativeOrder());
            record.position(RECORD_SIZE);
            runs = record.slice().order(ByteOrder.nativeOrder());
        }

        @Override
        public void run() {
            try {
                while (!stop) {
                    waitForTurn(ask());
                }
            } catch (IOException | InterruptedException error) {
                fail(error);
            }
        }

        /** Asks once, and logs what came of it: returns how many ids there are. */
        private int ask() throws IOException, InterruptedException {
            int wanted = howMany();
            long sent = monotonic();
            long[] got = new long[0];
            String state = "";

            try {
                Snowflake now = ids;
                got = wanted == 1 ? new long[] {now.next()} : now.next(wanted);
            } catch (SnowflakeException error) {
                state = error.reason().sqlState();
            }
            write(sent, monotonic(), got, state);
            if (!state.isEmpty()) {
                Thread.sleep(ERROR_PAUSE);
            }
            return got.length;
        }

        /** From 1 to most, each power of two as likely as any other. */
        private int howMany() {
            int power = 1 << random.nextInt(32 - Integer.numberOfLeadingZeros(most));

            return Math.min(most, power + random.nextInt(power));
        }

        /** One write, so that only the last record of a log can be incomplete. */
        private void write(long sent, long received, long[] got, String state) throws IOException {
            int count = addRuns(got);

            record.clear();
            record.putInt(MAGIC).putInt(count);
            // the real times are never too late and never too early, and the others are cut off
            record.putLong(sent + realLeast).putLong(received + 1 + realMost);
            record.putLong(sent).putLong(received);
            record.putLong(got.length);
            for (int i = 0; i < 8; i++) {
                record.put(i < state.length() ? (byte) state.charAt(i) : 0);
            }
            record.rewind().limit(RECORD_SIZE + count * RUN_SIZE);
            int size = record.remaining();
            if (log.write(record) != size) {
                throw new IOException("incomplete write of " + size + " bytes");
            }
        }

        private int addRuns(long[] got) {
            int count = 0;

            for (int i = 0; i < got.length; count++) {
                int first = i;
                while (++i < got.length && got[i] == got[i - 1] + step) {
                    continue;
                }
                runs.putLong(count * RUN_SIZE, got[first]);
                runs.putInt(count * RUN_SIZE + 8, i - first);
                runs.putInt(count * RUN_SIZE + 12, 0);
            }
            return count;
        }

        /** What an outage has kept us from is made up for one second at most. */
        private void waitForTurn(int count) throws InterruptedException {
            due = Math.max(due, monotonic() - SECOND) + (long) (count / rate * SECOND);
            long wait = due - monotonic();
            if (wait > 0) {
                Thread.sleep(wait / 1000, (int) (wait % 1000) * 1000);
            }
        }
    }

    private static long monotonic() {
        return System.nanoTime() / 1000;
    }
}
