package example.snowflake;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.math.BigDecimal;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.sql.DriverManager;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.LongStream;

/**
 * The driver of client/kit for this library: commands from the standard input, an answer to each.  With the argument
 * "listen" it is many drivers in one process, each for a connection.
 */
public final class KitDriver {
    private static final Logger LOGGER = Logger.getLogger("example.snowflake");

    private final Map<String, String> settings = new HashMap<>();
    private volatile long offset;
    /** What the clock shows while it stands still; 0: it goes on. */
    private volatile long frozen;
    private volatile Snowflake ids;
    private CompletableFuture<String> begun;

    private KitDriver() {
    }

    public static void main(String[] args) throws IOException {
        if (args.length == 0) {
            new KitDriver().serve(System.in, System.out);
            System.exit(0);
        }
        ServerSocket listener = new ServerSocket(0, 100, InetAddress.getLoopbackAddress());

        System.out.println("ok " + listener.getLocalPort());
        for (;;) {
            Socket connection = listener.accept();

            new Thread(() -> serve(connection)).start();
        }
    }

    private static void serve(Socket connection) {
        KitDriver driver = new KitDriver();

        try (connection) {
            driver.serve(connection.getInputStream(), connection.getOutputStream());
        } catch (IOException e) {
            // the kit has gone
        } finally {
            if (driver.ids != null) {
                driver.ids.close();
            }
        }
    }

    private void serve(InputStream in, OutputStream out) throws IOException {
        BufferedReader commands = new BufferedReader(new InputStreamReader(in, StandardCharsets.UTF_8));

        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            out.write((run(line).replace("\n", "\\n") + "\n").getBytes(StandardCharsets.UTF_8));
            out.flush();
        }
    }

    private long clock() {
        return frozen != 0 ? frozen : micros(Instant.now()) + offset;
    }

    private static long micros(Instant time) {
        return time.getEpochSecond() * 1_000_000 + time.getNano() / 1000;
    }

    private String run(String line) {
        List<String> words = Arrays.asList(line.split(" "));
        String rest = line.substring(Math.min(words.get(0).length() + 1, line.length()));

        try {
            if (words.get(0).equals("end")) {
                return begun.get();
            }
            return ("ok " + answer(words, rest)).trim();
        } catch (SnowflakeException e) {
            return "error " + e.reason() + " " + e.getMessage();
        } catch (IllegalArgumentException e) {
            return "error INVALID " + e.getMessage();
        } catch (InterruptedException | ExecutionException e) {
            throw new IllegalStateException(e);
        }
    }

    private String answer(List<String> words, String rest) throws InterruptedException {
        switch (words.get(0)) {
            case "set":
                settings.put(words.get(1), rest.substring(Math.min(words.get(1).length() + 1, rest.length())));
                return "";
            case "spell":
                settings.put(words.get(1), words.stream().skip(2).map(point -> Character.toString(Integer.parseInt(point, 16)))
                        .collect(Collectors.joining()));
                return "";
            case "open":
                ids = open();
                return "";
            case "next":
                return words.size() == 1 ? String.valueOf(ids.next())
                        : join(LongStream.of(ids.next(Integer.parseInt(words.get(1)))));
            case "many":
                return many(Integer.parseInt(words.get(1)), Integer.parseInt(words.get(2)));
            case "burn":
                for (int i = Integer.parseInt(words.get(1)); i > 0; i--) {
                    ids.next();
                }
                return "";
            case "begin":
                begun = CompletableFuture.supplyAsync(() -> run(rest));
                return "";
            case "parse":
                return parse(Long.parseLong(words.get(1)), rest.substring(words.get(1).length() + 1));
            case "layout":
                return Layout.of(rest).definition();
            case "clock":
                offset = (long) (Double.parseDouble(rest) * 1_000_000);
                frozen = 0;
                return "";
            case "freeze":
                frozen = clock();
                return String.valueOf(frozen);
            case "state":
                return state(ids.state());
            case "logging":
                LOGGER.addHandler(new LineHandler(line -> {
                    if (line.contains(rest)) {
                        ids.close();
                    }
                }));
                return "";
            case "slow":
                LOGGER.addHandler(new LineHandler(line -> LockSupport.parkNanos((long) (Double.parseDouble(rest) * 1e9))));
                return "";
            case "bounded":
                return "";
            case "fork":
            case "nested":
            case "closing":
            case "aclose":
                return "none";
            case "forget":
                ids = null;
                for (int i = 0; i < 5; i++) {
                    System.gc();
                    Thread.sleep(20);
                }
                return "";
            case "close":
                ids.close();
                return "";
            case "quit":
                ids.close();
                Runtime.getRuntime().halt(0);
                return "";
            default:
                throw new IllegalStateException(words.get(0));
        }
    }

    /** Comes before what writes the line. */
    private static final class LineHandler extends Handler {
        private final Consumer<String> first;

        LineHandler(Consumer<String> first) {
            this.first = first;
        }

        @Override
        public void publish(LogRecord line) {
            first.accept(line.getMessage());
        }

        @Override
        public void flush() {
            // it keeps nothing
        }

        @Override
        public void close() {
            // it has nothing
        }
    }

    private Duration seconds(String name, String otherwise) {
        return Duration.ofNanos((long) (Double.parseDouble(settings.getOrDefault(name, otherwise)) * 1e9));
    }

    private Snowflake open() {
        String url = "jdbc:postgresql://" + settings.get("registry") + "/postgres?user=" + settings.get("user")
                + "&loginTimeout=10&socketTimeout=10&maxResultBuffer=100K";

        Snowflake.Builder builder = Snowflake.builder(() -> DriverManager.getConnection(url));

        if (settings.containsKey("host_name")) {
            builder.hostName(settings.get("host_name"));
        }
        return builder
                .layout(settings.getOrDefault("layout", "twitter"))
                .name(settings.get("name"))
                .leaseDuration(seconds("lease_duration", "120"))
                .maxAhead(seconds("max_ahead", "1"))
                .maxWait(seconds("max_wait", "5"))
                .clock(this::clock)
                .build();
    }

    private static String join(LongStream of) {
        return of.mapToObj(String::valueOf).collect(Collectors.joining(" "));
    }

    private String many(int threads, int each) throws InterruptedException {
        long[][] got = new long[threads][each];
        List<Thread> started = IntStream.range(0, threads).mapToObj(n -> new Thread(() -> {
            for (int i = 0; i < each; i++) {
                got[n][i] = ids.next();
            }
        })).collect(Collectors.toList());

        started.forEach(Thread::start);
        for (Thread thread : started) {
            thread.join();
        }
        return join(Arrays.stream(got).flatMapToLong(Arrays::stream));
    }

    private static String parse(long id, String layout) {
        Layout.Parts parts = Snowflake.parse(id, layout);

        return BigDecimal.valueOf(parts.timestamp().getEpochSecond()).add(BigDecimal.valueOf(parts.timestamp().getNano(), 9))
                .movePointRight(6).toBigInteger() + " " + parts.datacenterId() + " " + parts.workerId() + " " + parts.clock() + " "
                + parts.sequence() + " " + parts.nodeNumber();
    }

    private static String state(Snowflake.State state) {
        return state.phase() + " " + state.nodeNumber() + " "
                + (state.leasedUntil() == null ? 0 : micros(state.leasedUntil())) + " "
                + (state.problem() == null ? "" : state.problem());
    }
}
