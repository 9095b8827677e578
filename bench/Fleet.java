import example.snowflake.Snowflake;
import example.snowflake.SnowflakeException;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Instant;
import java.util.Locale;
import java.util.Scanner;

/**
 * Many clients in one process, for bench/fleet.pl.  Nothing of theirs is held back: each comes to the
 * registry when its library likes.  One thread asks all of them for an id, again and again.
 *
 * <p>The argument is a layout.  Each line of the input is a command, its words separated by tabs, and is
 * answered by a line:
 *
 * <pre>
 * grants URL N REQUEST     N grants, one after another, each over a new connection: seconds.  In the
 *                          request NODE is the number of the grant, and CLOCK the time
 * start URL N SECONDS      N clients with leases of so many seconds begin
 * leased N SECONDS         waits for N clients that have had an id, at most so long: how many there
 *                          are, and when the last of them had its first one
 * settled PART SECONDS     waits until so much of its lease is left to each of them, at most so long:
 *                          to how many it is
 * refused                  since this was asked before: how many ids were refused to clients that had
 *                          had one, and the longest time in which one had none, in seconds
 * stop                     all clients end
 * </pre>
 *
 * <p>Times are seconds since 1970-01-01 UTC.
 */
public final class Fleet {
    private static final int SCAN_MS = 100;

    /** One client, and what the thread that asks has seen of it. */
    private static final class Client {
        final Snowflake ids;
        /** Nanoseconds of System.nanoTime(), as the next one: of the last id, once there was one. */
        long lastAt;
        boolean hasHad;
        boolean refused;

        Client(Snowflake ids) {
            this.ids = ids;
        }
    }

    private static String layout;
    private static long leaseDuration;

    // below the monitor of the class
    private static Client[] clients = {};
    private static int leased;
    private static double lastLeasedAt;
    private static long refusals;
    private static long longest;

    private Fleet() {
    }

    public static void main(String[] args) throws Exception {
        layout = args[0];
        Thread scanner = new Thread(Fleet::scan);
        scanner.setDaemon(true);
        scanner.start();
        try (Scanner commands = new Scanner(System.in)) {
            while (commands.hasNextLine()) {
                System.out.println(answer(commands.nextLine().split("\t")));
            }
        }
        System.exit(0);
    }

    private static String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "grants":
                return String.format(Locale.ROOT, "%.3f", grants(words[1], Integer.parseInt(words[2]), words[3]));
            case "start":
                leaseDuration = Long.parseLong(words[3]);
                start(words[1], Integer.parseInt(words[2]));
                return "ok";
            case "leased":
                return leased(Integer.parseInt(words[1]), Double.parseDouble(words[2]));
            case "settled":
                return settled(Double.parseDouble(words[1]), Double.parseDouble(words[2]));
            case "refused":
                return refused();
            default:
                stop();
                return "ok";
        }
    }

    private static double grants(String url, int count, String request) throws SQLException {
        long begin = System.nanoTime();

        for (int i = 0; i < count; i++) {
            String json = request.replace("NODE", String.format("%012d", i))
                    .replace("CLOCK", String.valueOf(System.currentTimeMillis() * 1000));

            try (Connection connection = DriverManager.getConnection(url);
                    PreparedStatement call = connection.prepareStatement(
                            "SELECT snowflake.acquire_lease(CAST(? AS jsonb)) ->> 'answer'")) {
                call.setString(1, json);
                try (ResultSet rows = call.executeQuery()) {
                    rows.next();
                    if (!"yes".equals(rows.getString(1))) {
                        throw new AssertionError("the answer is " + rows.getString(1));
                    }
                }
            }
        }
        return (System.nanoTime() - begin) / 1e9;
    }

    private static void start(String url, int count) {
        Client[] made = new Client[count];

        for (int i = 0; i < count; i++) {
            made[i] = new Client(Snowflake.builder(() -> DriverManager.getConnection(url))
                    .layout(layout)
                    .name("client " + i)
                    .hostName("bench")
                    .leaseDuration(java.time.Duration.ofSeconds(leaseDuration))
                    .maxWait(java.time.Duration.ZERO)
                    .build());
        }
        synchronized (Fleet.class) {
            clients = made;
            leased = 0;
            refusals = 0;
            longest = 0;
        }
    }

    private static void scan() {
        try {
            for (;;) {
                synchronized (Fleet.class) {
                    for (Client client : clients) {
                        ask(client);
                    }
                }
                Thread.sleep(SCAN_MS);
            }
        } catch (InterruptedException | RuntimeException e) {
            e.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void ask(Client client) {
        try {
            client.ids.next();
        } catch (SnowflakeException e) {
            if (client.hasHad) {
                refusals++;
                client.refused = true;
                longest = Math.max(longest, System.nanoTime() - client.lastAt);
            }
            return;
        }
        long now = System.nanoTime();

        if (!client.hasHad) {
            client.hasHad = true;
            leased++;
            lastLeasedAt = System.currentTimeMillis() / 1e3;
        } else if (client.refused) {
            longest = Math.max(longest, now - client.lastAt);
        }
        client.refused = false;
        client.lastAt = now;
    }

    private static String leased(int count, double seconds) throws InterruptedException {
        long end = System.nanoTime() + (long) (seconds * 1e9);

        for (;; Thread.sleep(SCAN_MS / 2)) {
            synchronized (Fleet.class) {
                if (leased >= count || System.nanoTime() > end) {
                    return String.format(Locale.ROOT, "%d %.3f", leased, lastLeasedAt);
                }
            }
        }
    }

    private static String settled(double part, double seconds) throws InterruptedException {
        long end = System.nanoTime() + (long) (seconds * 1e9);

        for (;; Thread.sleep(SCAN_MS)) {
            Instant least = Instant.now().plusMillis((long) (part * leaseDuration * 1000));
            int settled = 0;

            for (Client client : clients) {
                Instant until = client.ids.state().leasedUntil();
                settled += until != null && until.isAfter(least) ? 1 : 0;
            }
            if (settled == clients.length || System.nanoTime() > end) {
                return String.valueOf(settled);
            }
        }
    }

    private static synchronized String refused() {
        String answer = String.format(Locale.ROOT, "%d %.3f", refusals, longest / 1e9);

        refusals = 0;
        longest = 0;
        return answer;
    }

    private static void stop() throws InterruptedException {
        Client[] all;

        synchronized (Fleet.class) {
            all = clients;
            clients = new Client[0];
        }
        Thread[] threads = new Thread[all.length];
        for (int i = 0; i < all.length; i++) {
            threads[i] = new Thread(all[i].ids::close);
            threads[i].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }
}
