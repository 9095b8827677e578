package example.snowflake;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.sql.DriverManager;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;

/**
 * 64 programs on 16 node numbers, each of which starts, makes some ids, stops and starts again: no
 * two ids are equal.
 *
 * <p>They are in 4 processes, which are killed without notice and started again all the time.  Of
 * the 32 numbers of the layout, those of one generation are in use.
 *
 * <p>Arguments: a JDBC URL of a registry's database, with no leases of another layout; a directory
 * for what the programs write.  As a process of its own: "programs", the URL, the file for ids.
 */
public final class ManyTest {
    private static final String LAYOUT = "timestamp 41, worker 5, sequence 12, tick 1ms, epoch 2024-01-01T00:00:00Z";
    private static final int PROCESSES = 4;
    private static final int PROGRAMS = 16;
    private static final int NUMBERS = 16;
    /** A process is killed when so many starts in it have given ids. */
    private static final int STARTS = 16;
    private static final int KILLED = 2 * PROCESSES;
    private static final int MOST_IDS = 64;
    /** The longest time that a program is away, in milliseconds: or all would ask for numbers all the time. */
    private static final int AWAY = 20_000;
    /** In a file: a program begins here. */
    private static final long BEGIN = -1;

    private static String url;
    private static Path directory;

    private ManyTest() {
    }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("programs")) {
            url = args[1];
            runPrograms(Path.of(args[2]));
            return;
        }
        url = args[0] + "?user=app";
        directory = Path.of(args[1]);
        Check.test("64 programs that start, stop and are killed on " + NUMBERS + " numbers: all ids are distinct",
                ManyTest::many);
        Check.end();
    }

    //
    // The test
    //

    private static void many() throws Exception {
        List<Process> processes = new ArrayList<>();

        try {
            for (int i = 0; i < PROCESSES; i++) {
                processes.add(start(i));
            }
            for (int i = 0; i < KILLED; i++) {
                int oldest = i;

                Check.waitFor("ids of process " + i, () -> hasFailed(oldest) || starts(oldest) >= STARTS);
                Check.holds(!hasFailed(i), "process " + i + ": " + Files.readString(log(i)));
                processes.get(i % PROCESSES).destroyForcibly().waitFor();
                processes.set(i % PROCESSES, start(i + PROCESSES));
            }
        } finally {
            for (Process process : processes) {
                process.destroyForcibly().waitFor(10, TimeUnit.SECONDS);
            }
        }
        compare(KILLED + PROCESSES);
    }

    private static Path file(int process) {
        return directory.resolve("ids" + process);
    }

    private static Path log(int process) {
        return directory.resolve("log" + process);
    }

    private static Process start(int process) throws IOException {
        Files.createFile(file(process));
        return new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-Xmx64m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                "-cp", System.getProperty("java.class.path"), ManyTest.class.getName(),
                "programs", url, file(process).toString())
                .redirectErrorStream(true).redirectOutput(log(process).toFile()).start();
    }

    private static long[] read(int process) throws IOException {
        ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(file(process)));
        long[] words = new long[bytes.remaining() / Long.BYTES];

        bytes.asLongBuffer().get(words);
        return words;
    }

    private static boolean hasFailed(int process) throws IOException {
        return Files.size(log(process)) > 0;
    }

    /** How many starts have given ids. */
    private static long starts(int process) throws IOException {
        return Arrays.stream(read(process)).filter(word -> word == BEGIN).count();
    }

    private static void compare(int processes) throws IOException {
        Layout layout = Layout.of(LAYOUT);
        Set<Long> numbers = new TreeSet<>();
        List<long[]> all = new ArrayList<>();

        for (int i = 0; i < processes; i++) {
            all.add(read(i));
        }
        long[] ids = all.stream().flatMapToLong(Arrays::stream).filter(word -> word != BEGIN).sorted().toArray();
        for (int i = 0; i < ids.length; i++) {
            Check.holds(i == 0 || ids[i] != ids[i - 1], "two ids are " + layout.parts(ids[i]));
            numbers.add(layout.nodeNumber(ids[i]));
        }
        Check.same(numbers.size(), NUMBERS, "node numbers used, of " + ids.length + " ids");
    }

    //
    // A process with some of the programs
    //

    private static void runPrograms(Path ids) throws IOException {
        FileChannel file = FileChannel.open(ids, StandardOpenOption.APPEND);

        // that no number is free is no failure here
        Check.LOGGER.setLevel(Level.OFF);
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        });
        for (int i = 0; i < PROGRAMS; i++) {
            new Thread(() -> runProgram(file)).start();
        }
    }

    private static void runProgram(FileChannel file) {
        Random random = new Random();

        try {
            for (;;) {
                runOnce(file, random);
                Thread.sleep(random.nextInt(AWAY));
            }
        } catch (IOException | InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    private static void runOnce(FileChannel file, Random random) throws IOException, InterruptedException {
        try (Snowflake ids = Snowflake.builder(() -> DriverManager.getConnection(url))
                .layout(LAYOUT)
                .name("many")
                .leaseDuration(Duration.ofSeconds(2))
                .maxWait(Duration.ofSeconds(2))
                .build()) {
            write(file, BEGIN, ids.next());
            for (int i = random.nextInt(20); i > 0; i--) {
                write(file, ids.next(1 + random.nextInt(MOST_IDS)));
                Thread.sleep(random.nextInt(20));
            }
        } catch (SnowflakeException e) {
            // there are fewer numbers than programs
            if (e.reason() != SnowflakeException.Reason.NO_NUMBER_FREE
                    && e.reason() != SnowflakeException.Reason.GAVE_UP) {
                throw e;
            }
        }
    }

    /** By one write, so that no id is cut when the process is killed. */
    private static void write(FileChannel file, long... words) throws IOException {
        ByteBuffer bytes = ByteBuffer.allocate(words.length * Long.BYTES);

        bytes.asLongBuffer().put(words);
        if (file.write(bytes) != bytes.capacity()) {
            throw new IOException("incomplete write");
        }
    }
}
