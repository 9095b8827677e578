package example.snowflake;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.IntStream;
import org.crac.Core;

/**
 * Programs that make ids, on a real registry.
 *
 * <p>Arguments: a JDBC URL of the registry's database, which roles app and postgres can use.
 */
public final class SnowflakeTest {
    private static final Layout TWITTER = Layout.of("twitter");

    private static String app;
    private static Connection owner;
    /** All ids of all tests: no two may be equal. */
    private static final List<long[]> ALL = new ArrayList<>();

    private SnowflakeTest() {
    }

    public static void main(String[] args) throws SQLException {
        app = args[0] + "?user=app";
        owner = DriverManager.getConnection(args[0] + "?user=postgres");
        Check.test("ids of eight threads, one at a time and in batches", SnowflakeTest::threads);
        Check.test("the registry shows the program while it runs, and no longer", SnowflakeTest::shown);
        Check.test("batches that cannot be are refused", SnowflakeTest::batches);
        Check.test("settings that cannot be are refused", SnowflakeTest::settings);
        Check.test("an id is parsed", SnowflakeTest::parsed);
        Check.test("after close no id is issued", SnowflakeTest::closed);
        Check.test("after close no id is issued, also if the keeper stands still", SnowflakeTest::closedLate);
        Check.test("a registry that is away: to the end of the lease, then the reason, then ids", SnowflakeTest::away);
        Check.test("a registry that is away from the start", SnowflakeTest::awayFromTheStart);
        Check.test("maxWait of 0 fails at once", SnowflakeTest::noWait);
        Check.test("a thread that waits is interrupted", SnowflakeTest::interrupted);
        Check.test("a lease that goes on no more: another number, no error", SnowflakeTest::restored);
        Check.test("a registry whose tables were rolled back: another number, and a warning", SnowflakeTest::rolledBack);
        Check.test("a lease is cut by the registry's limit for ends", SnowflakeTest::cut);
        Check.test("a clock that is set back a little, and a lot", SnowflakeTest::clock);
        Check.test("a registry that hangs", SnowflakeTest::hangs);
        Check.test("a commit whose wait for a standby is cancelled is a failure", SnowflakeTest::cancelledWait);
        Check.test("another warning at commit is none", SnowflakeTest::otherWarning);
        Check.test("an answer that comes late is not used", SnowflakeTest::late);
        Check.test("another layout than the registry's is refused at once", SnowflakeTest::otherLayout);
        Check.test("a role without rights is told at once, and has ids when it has them", SnowflakeTest::rights);
        Check.test("a connection of a pool is given back as it was", SnowflakeTest::pooled);
        Check.test("a connection that does not commit by itself", SnowflakeTest::managed);
        Check.test("a connection with a transaction that somebody has left open", SnowflakeTest::leftOpen);
        Check.test("a checkpoint ends the lease, a restored process has another start", SnowflakeTest::checkpoint);
        Check.test("a batch over a checkpoint has no ids from before it", SnowflakeTest::batchOverCheckpoint);
        Check.test("a keeper that fails ends the ids, says so, and takes another number", SnowflakeTest::fails);
        Check.test("all ids of all these tests are distinct", SnowflakeTest::distinct);
        Check.end();
    }

    private static Snowflake.Builder builder(ConnectionSource source) {
        return Snowflake.builder(source).name("test").hostName("here");
    }

    private static Snowflake make() {
        return builder(() -> DriverManager.getConnection(app)).build();
    }

    private static long id(Snowflake ids) {
        long id = ids.next();

        ALL.add(new long[] {id});
        return id;
    }

    private static void execute(String sql) throws SQLException {
        try (Statement statement = owner.createStatement()) {
            statement.execute(sql);
        }
    }

    private static String query(String sql) throws SQLException {
        try (Statement statement = owner.createStatement(); ResultSet rows = statement.executeQuery(sql)) {
            return rows.next() ? rows.getString(1) : null;
        }
    }

    private static long micros(Instant time) {
        return time.getEpochSecond() * 1_000_000 + time.getNano() / 1000;
    }

    private static void threads() throws Exception {
        try (Snowflake ids = make()) {
            List<Thread> threads = new ArrayList<>();
            AtomicInteger disorder = new AtomicInteger();

            for (int i = 0; i < 8; i++) {
                long[] own = new long[200_000];
                boolean single = i % 2 == 0;

                ALL.add(own);
                threads.add(new Thread(() -> {
                    for (int done = 0; done < own.length;) {
                        if (single) {
                            own[done++] = ids.next();
                        } else {
                            long[] batch = ids.next(Math.min(1 + done % 10_000, own.length - done));

                            System.arraycopy(batch, 0, own, done, batch.length);
                            done += batch.length;
                        }
                    }
                    for (int j = 1; j < own.length; j++) {
                        disorder.addAndGet(own[j] <= own[j - 1] ? 1 : 0);
                    }
                }));
            }
            threads.forEach(Thread::start);
            for (Thread thread : threads) {
                thread.join();
            }
            Check.same(disorder.get(), 0, "ids that are not after the thread's last one");
            for (long[] own : ALL) {
                Check.same(TWITTER.nodeNumber(own[0]), ids.state().nodeNumber(), "node number");
            }
            Check.same(ids.state().phase(), "ready", "state");
        }
    }

    private static void shown() throws Exception {
        String nodes = "SELECT string_agg(concat_ws(' ', kind, name, host_name, node_number), ',') FROM snowflake.nodes"
                + " WHERE name IN ('orders-api', 'other')";
        long first;

        try (Snowflake ids = builder(() -> DriverManager.getConnection(app)).name("orders-api").build();
                Snowflake other = builder(() -> DriverManager.getConnection(app)).name("other").build()) {
            first = TWITTER.nodeNumber(id(ids));
            Check.same(query(nodes + " AND name = 'orders-api'"), "program orders-api here " + first, "the view");
            Check.holds(TWITTER.nodeNumber(id(other)) != first, "another number");
            Check.holds(Math.abs(micros(Instant.now()) - micros(ids.state().leasedUntil())) < 60_000_000, "state");
        }
        Check.same(query("SELECT count(*) FROM snowflake.leases WHERE closed_at IS NULL AND name IN ('orders-api', 'other')"),
                "0", "leases that are open after close");
        // one is shown to its end: that of its ids, which can be ahead of the clock
        Check.waitFor("the view, after close", () -> query(nodes) == null);
    }

    private static void batches() throws Exception {
        try (Snowflake ids = make()) {
            Check.holds(Check.illegal(() -> ids.next(0)).getMessage().contains("batch of 0 ids is out of range"), "0");
            Check.holds(Check.illegal(() -> ids.next(-1)).getMessage().contains("Ask for 1 to 1000000"), "-1");
            Check.illegal(() -> ids.next(1_000_001));
            Check.same(ids.next(1).length, 1, "a batch of one");
        }
        try (Snowflake ids = builder(() -> DriverManager.getConnection(app)).maxAhead(Duration.ZERO)
                .maxWait(Duration.ofMillis(10)).build()) {
            Check.waitFor("a lease", () -> ids.state().nodeNumber() >= 0);
            Check.same(Check.illegal(() -> ids.next(40_961)).getMessage(),
                    "batch of 40961 ids is too large for layout \"" + TWITTER.definition()
                    + "\"\nDetail: Within maxAhead and maxWait it holds at most 40960 ids."
                    + "\nHint: Ask for at most 40960 ids at a time.", "the message");
        }
    }

    /** The registry refuses what the library refuses: all that have characters, and the last planes. */
    private static void printable() throws SQLException {
        String all = IntStream.concat(IntStream.range(1, 0x20000), IntStream.rangeClosed(0xe0000, 0x10ffff))
                .filter(point -> point < 0xd800 || point > 0xdfff)
                .collect(StringBuilder::new, StringBuilder::appendCodePoint, StringBuilder::append).toString();

        try (PreparedStatement statement = owner.prepareStatement("SELECT snowflake.printable(?)")) {
            statement.setString(1, all);
            try (ResultSet result = statement.executeQuery()) {
                result.next();
                Check.holds(result.getString(1).equals(Snowflake.NOT_PRINTABLE.matcher(all).replaceAll("?")), "printable");
            }
        }
    }

    private static void settings() throws Exception {
        Snowflake.Builder builder = builder(() -> null);

        Check.illegal(() -> builder.name(""));
        Check.illegal(() -> builder.name("a\nb"));
        Check.illegal(() -> builder.name("é".repeat(128)));
        Check.illegal(() -> builder.name("a\u202eb"));
        Check.illegal(() -> builder.hostName("a\u009bb"));
        builder.name("日本 \ud83d\ude00").name("test");
        printable();
        Check.illegal(() -> builder.layout("nonsense"));
        for (String layout : new String[] {"mastodon", "timestamp 31, worker 10, sequence 12, tick 2s"}) {
            Check.holds(Check.illegal(() -> builder.layout(layout)).getMessage().contains("a worker field and a tick of at most"),
                    layout);
        }
        Check.illegal(() -> builder.leaseDuration(Duration.ofMillis(999)));
        Check.illegal(() -> builder.leaseDuration(Duration.ofDays(1).plusNanos(1)));
        Check.illegal(() -> builder.maxAhead(Duration.ofMillis(-1)));
        Check.illegal(() -> builder.maxWait(Duration.ofDays(2)));
        try {
            Snowflake.builder(() -> null).build();
            throw new AssertionError("built without a name");
        } catch (IllegalStateException e) {
            Check.holds(e.getMessage().contains("name"), "the message");
        }
    }

    private static void parsed() throws Exception {
        try (Snowflake ids = make()) {
            long before = System.currentTimeMillis();
            long id = id(ids);

            Check.holds(ids.parse(id).timestamp().toEpochMilli() >= before, "time");
            Check.same(ids.parse(id).nodeNumber(), ids.state().nodeNumber(), "node number");
            Check.same(ids.parse(id).toString(), Snowflake.parse(id, "twitter").toString(), "without a registry");
            Check.illegal(() -> ids.parse(-1));
        }
    }

    private static void closed() throws Exception {
        Snowflake ids = make();
        AtomicLong last = new AtomicLong();
        AtomicInteger ended = new AtomicInteger();
        List<Thread> threads = new ArrayList<>();

        for (int i = 0; i < 4; i++) {
            threads.add(new Thread(() -> {
                try {
                    for (;;) {
                        long id = ids.next();

                        last.accumulateAndGet(id, Math::max);
                    }
                } catch (SnowflakeException e) {
                    ended.addAndGet(e.reason() == SnowflakeException.Reason.CLOSED ? 1 : 0);
                }
            }));
        }
        threads.forEach(Thread::start);
        Check.waitFor("ids", () -> last.get() > 0);
        ids.close();
        Check.same(Check.refusal(ids::next).reason(), SnowflakeException.Reason.CLOSED, "the reason");
        for (Thread thread : threads) {
            thread.join();
        }
        Check.same(ended.get(), 4, "threads that were told");
        String end = query("SELECT (extract(epoch FROM leased_until) * 1000000)::bigint FROM snowflake.worker_node"
                + " WHERE closed_at IS NOT NULL AND node_number = " + TWITTER.nodeNumber(last.get())
                + " ORDER BY closed_at DESC LIMIT 1");
        Check.same(Long.parseLong(end), TWITTER.tickBegin(TWITTER.tick(last.get()) + 1), "the end of the lease");
        ids.close();
    }

    private static void closedLate() throws Exception {
        AtomicBoolean pause = new AtomicBoolean();
        CountDownLatch paused = new CountDownLatch(1);
        CountDownLatch over = new CountDownLatch(1);
        Snowflake ids = builder(() -> DriverManager.getConnection(app)).clock(() -> {
            if (pause.get() && Thread.currentThread().getName().startsWith("snowflake ")) {
                paused.countDown();
                try {
                    over.await();
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            }
            return System.currentTimeMillis() * 1000;
        }).build();

        try {
            id(ids);
            pause.set(true);
            paused.await();
            ids.close();
            Check.same(Check.refusal(ids::next).reason(), SnowflakeException.Reason.CLOSED, "the reason");
        } finally {
            pause.set(false);
            over.countDown();
        }
    }

    private static void away() throws Exception {
        FaultySource source = new FaultySource(app);

        try (Snowflake ids = builder(source).leaseDuration(Duration.ofSeconds(3)).maxWait(Duration.ofSeconds(1)).build()) {
            id(ids);
            source.set(FaultySource.Mode.AWAY);
            long until = micros(ids.state().leasedUntil());
            long last = 0;
            SnowflakeException refusal = null;

            while (refusal == null) {
                try {
                    last = id(ids);
                    Thread.sleep(1);
                } catch (SnowflakeException e) {
                    refusal = e;
                }
            }
            Check.same(refusal.reason(), SnowflakeException.Reason.GAVE_UP, "the reason");
            Check.same(refusal.getMessage(), "could not extend the lease of node number " + ids.state().nodeNumber()
                    + ": the test has taken the registry away", "the message");
            Check.holds(refusal.getCause() instanceof SQLException, "the cause");
            until = Math.max(until, micros(ids.state().leasedUntil()));
            Check.holds(TWITTER.tickBegin(TWITTER.tick(last) + 1) <= until, "ids end with the lease");
            Check.same(ids.state().phase(), "retrying", "state");
            source.set(FaultySource.Mode.HONEST);
            Check.waitFor("ids again", () -> {
                try {
                    return id(ids) > 0;
                } catch (SnowflakeException e) {
                    return false;
                }
            });
            Check.waitFor("ready", () -> ids.state().phase().equals("ready"));
            Check.same(ids.state().problem(), null, "the problem");
        }
    }

    private static void awayFromTheStart() throws Exception {
        FaultySource source = new FaultySource(app);

        source.set(FaultySource.Mode.AWAY);
        try (Snowflake ids = builder(source).maxWait(Duration.ofMillis(300)).build()) {
            Check.same(Check.refusal(ids::next).reason(), SnowflakeException.Reason.GAVE_UP, "the reason");
            Check.same(ids.state().nodeNumber(), -1L, "no number");
            Check.same(ids.state().leasedUntil(), null, "no lease");
            source.set(FaultySource.Mode.HONEST);
            Check.waitFor("a lease", () -> ids.state().nodeNumber() >= 0);
            id(ids);
        }
    }

    private static void noWait() throws Exception {
        FaultySource source = new FaultySource(app);

        source.set(FaultySource.Mode.AWAY);
        try (Snowflake ids = builder(source).maxWait(Duration.ZERO).build()) {
            Check.same(Check.refusal(ids::next).reason(), SnowflakeException.Reason.GAVE_UP, "the reason");
        }
    }

    private static void interrupted() throws Exception {
        FaultySource source = new FaultySource(app);

        source.set(FaultySource.Mode.AWAY);
        try (Snowflake ids = builder(source).maxWait(Duration.ofHours(1)).build()) {
            AtomicInteger told = new AtomicInteger();
            Thread thread = new Thread(() -> {
                try {
                    ids.next();
                } catch (SnowflakeException e) {
                    told.set(e.reason() == SnowflakeException.Reason.INTERRUPTED
                            && Thread.currentThread().isInterrupted() ? 1 : -1);
                }
            });

            thread.start();
            Check.waitFor("the wait", () -> thread.getState() == Thread.State.TIMED_WAITING);
            thread.interrupt();
            thread.join();
            Check.same(told.get(), 1, "the reason, and the interrupt flag");
        }
    }

    /** As by a restore that brings a later end of the number. */
    private static void restored() throws Exception {
        try (Snowflake ids = builder(() -> DriverManager.getConnection(app)).leaseDuration(Duration.ofSeconds(2)).build()) {
            long first = TWITTER.nodeNumber(id(ids));

            execute("INSERT INTO snowflake.node_number (node_number, ended_until) VALUES (" + first + ", clock_timestamp())");
            Check.waitFor("another number", () -> TWITTER.nodeNumber(id(ids)) != first);
        }
    }

    /** By the storage: what a renewal has written is gone. */
    private static void rolledBack() throws Exception {
        List<String> lines = new CopyOnWriteArrayList<>();

        Check.withLog(lines::add, () -> {
            try (Snowflake ids = builder(() -> DriverManager.getConnection(app)).leaseDuration(Duration.ofSeconds(4)).build()) {
                long first = TWITTER.nodeNumber(id(ids));
                long until = micros(ids.state().leasedUntil());

                execute("UPDATE snowflake.node_number SET leased_until = starts_at, recorded_until = starts_at"
                        + " WHERE node_number = " + first);
                Check.waitFor("another number", () -> TWITTER.nodeNumber(id(ids)) != first);
                Check.waitFor("the warning", () -> lines.size() == 1);
                Check.holds(lines.get(0).contains("does not know that node number " + first + " is leased to this program"),
                        lines.get(0));
                Check.holds(Long.parseLong(query("SELECT (extract(epoch FROM ended_until) * 1000000)::bigint"
                        + " FROM snowflake.node_number WHERE node_number = " + first)) >= until, "the registry has heard of the end");
            }
        });
    }

    private static void cut() throws Exception {
        List<String> lines = new CopyOnWriteArrayList<>();

        execute("SELECT snowflake.limit_leases('10 s')");
        Check.withLog(lines::add, () -> {
            try (Snowflake ids = builder(() -> DriverManager.getConnection(app)).leaseDuration(Duration.ofMinutes(2)).build()) {
                long number = TWITTER.nodeNumber(id(ids));
                Instant first = ids.state().leasedUntil();

                Check.waitFor("two renewals", () -> {
                    id(ids);
                    return ids.state().leasedUntil().isAfter(first.plusSeconds(4));
                });
                Check.holds(ids.state().leasedUntil().isBefore(Instant.now().plusSeconds(11)), "the end");
                Check.same(ids.state().nodeNumber(), number, "node number");
                Check.waitFor("a line", () -> lines.size() == 1);
                Check.holds(lines.get(0).contains("a lease of 20.000 s was asked for, and the registry has cut it to"), lines.get(0));
            }
        });
        execute("SELECT snowflake.limit_leases('3 min')");
    }

    private static void clock() throws Exception {
        AtomicLong offset = new AtomicLong();

        try (Snowflake ids = builder(() -> DriverManager.getConnection(app)).maxWait(Duration.ofSeconds(2))
                .clock(() -> System.currentTimeMillis() * 1000 + offset.get()).build()) {
            long last = id(ids);
            long number = TWITTER.nodeNumber(last);

            offset.addAndGet(-900_000);
            long next = id(ids);
            Check.holds(next > last && TWITTER.nodeNumber(next) == number, "a little");

            // further than it may wait: another number, whose ids begin at the clock
            offset.addAndGet(-5_000_000);
            next = id(ids);
            Check.holds(TWITTER.nodeNumber(next) != number, "another number");
            Check.holds(next < last, "ids of the clock as it is");
        }
        offset.set(0);
        try (Snowflake ids = builder(() -> DriverManager.getConnection(app)).maxWait(Duration.ZERO)
                .clock(() -> System.currentTimeMillis() * 1000 + offset.get()).build()) {
            Check.waitFor("a lease", () -> ids.state().phase().equals("ready"));
            id(ids);
            offset.addAndGet(-1_900_000);
            Locale before = Locale.getDefault();
            Locale.setDefault(Locale.GERMANY);
            SnowflakeException refusal = Check.refusal(ids::next);
            Locale.setDefault(before);
            Check.same(refusal.reason(), SnowflakeException.Reason.TOO_FAR_AHEAD, "the reason");
            Check.holds(refusal.getMessage().contains("If the clock was set back"), refusal.getMessage());
            Check.holds(refusal.getMessage().contains("maxAhead allows 1.000 s"), refusal.getMessage());
        }
    }

    private static void hangs() throws Exception {
        try (Snowflake ids = builder(() -> DriverManager.getConnection(app)).leaseDuration(Duration.ofSeconds(4))
                .maxWait(Duration.ofSeconds(1)).build()) {
            id(ids);
            try (Connection locker = DriverManager.getConnection(app.replace("user=app", "user=postgres"));
                    Statement statement = locker.createStatement()) {
                locker.setAutoCommit(false);
                statement.execute("SELECT FROM snowflake.registry FOR UPDATE");
                Check.waitFor("the call has failed", () -> ids.state().problem() != null);
                Check.same(ids.state().problem(), "the registry did not answer within 5 s", "the problem");
                locker.rollback();
            }
            Check.waitFor("ready", () -> ids.state().phase().equals("ready"));
            id(ids);
        }
        Check.waitFor("no session is left", () -> query("SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'"
                + " AND backend_type = 'client backend'").equals("0"));
    }

    /** A synchronous standby that is not there: the commit is given up on, with a warning. */
    private static void cancelledWait() throws Exception {
        execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
        execute("SELECT pg_reload_conf()");
        Check.waitFor("the setting", () -> query("SHOW synchronous_standby_names").equals("nobody"));
        try (Snowflake ids = builder(() -> DriverManager.getConnection(app)).maxWait(Duration.ofMillis(100)).build()) {
            Check.waitFor("a call that is cancelled", () -> {
                query("SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE usename = 'app'"
                        + " AND wait_event = 'SyncRep'");
                return ids.state().problem() != null;
            });
            Check.holds(ids.state().problem().contains("committed with a warning"), ids.state().problem());
            Check.same(ids.state().nodeNumber(), -1L, "no lease");
            Check.same(Check.refusal(ids::next).reason(), SnowflakeException.Reason.GAVE_UP, "the reason");
            execute("ALTER SYSTEM RESET synchronous_standby_names");
            execute("SELECT pg_reload_conf()");
            Check.waitFor("a lease", () -> ids.state().nodeNumber() >= 0);
            id(ids);
        } finally {
            execute("ALTER SYSTEM RESET synchronous_standby_names");
            execute("SELECT pg_reload_conf()");
        }
    }

    private static void otherWarning() throws Exception {
        execute("CREATE FUNCTION public.warn() RETURNS trigger LANGUAGE plpgsql"
                + " AS 'BEGIN RAISE WARNING ''somebody warns''; RETURN NULL; END'");
        execute("CREATE CONSTRAINT TRIGGER warn AFTER UPDATE ON snowflake.node_number"
                + " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.warn()");
        try (Connection direct = DriverManager.getConnection(app.replace("user=app", "user=postgres"));
                Statement statement = direct.createStatement()) {
            statement.execute("UPDATE snowflake.node_number SET free_since = free_since");
            Check.same(statement.getWarnings().getMessage(), "somebody warns", "the warning");
        }
        try (Snowflake ids = builder(() -> DriverManager.getConnection(app)).leaseDuration(Duration.ofSeconds(4)).build()) {
            id(ids);
            Instant until = ids.state().leasedUntil();
            Check.waitFor("a renewal", () -> {
                id(ids);
                return ids.state().leasedUntil().isAfter(until);
            });
            Check.same(ids.state().problem(), null, "the problem");
        } finally {
            execute("DROP TRIGGER warn ON snowflake.node_number");
            execute("DROP FUNCTION public.warn()");
        }
    }

    private static void late() throws Exception {
        FaultySource source = new FaultySource(app);
        String granted = "SELECT count(*) FROM snowflake.worker_node WHERE name = 'late'";

        source.set(FaultySource.Mode.LATE);
        try (Snowflake ids = builder(source).name("late").maxWait(Duration.ZERO).build()) {
            Check.waitFor("a grant", () -> source.answered.get() == 1);
            Check.waitFor("it is given up on, and the next call is out", () -> source.answered.get() == 2);
            source.set(FaultySource.Mode.AWAY);
            source.deliver();
            Check.waitFor("the answer to the first", () -> source.delivered.get() == 1);
            Check.waitFor("the third call has failed", () -> ids.state().problem().contains("taken the registry away"));
            Check.same(ids.state().nodeNumber(), -1L, "no lease");
            Check.refusal(ids::next);
            source.deliver();
            Check.waitFor("the answer to the second", () -> source.delivered.get() == 2);
            Check.same(query(granted), "2", "leases granted");
            source.set(FaultySource.Mode.HONEST);
            Check.waitFor("a lease", () -> ids.state().nodeNumber() >= 0);
            id(ids);
            Check.same(query(granted), "3", "leases granted");
        }
    }

    private static void otherLayout() throws Exception {
        try (Snowflake ids = make()) {
            id(ids);
            try (Snowflake other = builder(() -> DriverManager.getConnection(app)).layout("sonyflake")
                    .maxWait(Duration.ofHours(1)).build()) {
                SnowflakeException refusal = Check.refusal(other::next);

                Check.same(refusal.reason(), SnowflakeException.Reason.REFUSED, "the reason");
                Check.holds(refusal.getMessage().matches("could not get a node number from the registry: the layout is not the one"
                        + " that ids are issued under\\.  Detail: .*  Hint: .*change_layout.*"), refusal.getMessage());
                Check.same(other.state().phase(), "refused", "state");
            }
        }
    }

    private static void rights() throws Exception {
        execute("REVOKE EXECUTE ON FUNCTION snowflake.acquire_lease FROM app");
        try (Snowflake ids = builder(() -> DriverManager.getConnection(app)).maxWait(Duration.ofHours(1)).build()) {
            SnowflakeException refusal = Check.refusal(ids::next);

            Check.same(refusal.reason(), SnowflakeException.Reason.REFUSED, "the reason");
            Check.same(((SQLException) refusal.getCause()).getSQLState(), "42501", "SQLSTATE");
            Check.holds(!refusal.getMessage().contains("PL/pgSQL"), refusal.getMessage());
            execute("GRANT EXECUTE ON FUNCTION snowflake.acquire_lease TO app");
            Check.waitFor("a lease", () -> ids.state().nodeNumber() >= 0);
            id(ids);
        } finally {
            execute("GRANT EXECUTE ON FUNCTION snowflake.acquire_lease TO app");
        }
    }

    private static void pooled() throws Exception {
        try (Connection real = DriverManager.getConnection(app)) {
            AtomicInteger given = new AtomicInteger();

            real.setReadOnly(true);
            real.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
            real.setAutoCommit(false);
            Connection pooled = (Connection) java.lang.reflect.Proxy.newProxyInstance(
                    SnowflakeTest.class.getClassLoader(), new Class<?>[] {Connection.class},
                    (proxy, method, arguments) -> {
                        if (method.getName().equals("close")) {
                            given.incrementAndGet();
                            return null;
                        }
                        return method.invoke(real, arguments);
                    });
            try (Snowflake ids = builder(() -> pooled).build()) {
                id(ids);
            }
            Check.holds(given.get() >= 2, "connections that were given back: " + given.get());
            Check.holds(real.isReadOnly() && !real.getAutoCommit()
                    && real.getTransactionIsolation() == Connection.TRANSACTION_SERIALIZABLE, "as it was");
        }
    }

    /** A data source of a container that begins and ends transactions itself. */
    private static void managed() throws Exception {
        ConnectionSource source = () -> {
            Connection real = DriverManager.getConnection(app);

            real.setAutoCommit(false);
            return (Connection) java.lang.reflect.Proxy.newProxyInstance(
                    SnowflakeTest.class.getClassLoader(), new Class<?>[] {Connection.class},
                    (proxy, method, arguments) -> {
                        if (method.getName().equals("close")) {
                            real.rollback();
                        }
                        return method.getName().equals("setAutoCommit") ? null : method.invoke(real, arguments);
                    });
        };

        try (Snowflake ids = builder(source).name("managed").maxWait(Duration.ZERO).build()) {
            Check.waitFor("a refusal", () -> ids.state().problem() != null);
            Check.holds(ids.state().problem().contains("does not commit by itself"), ids.state().problem());
            Check.refusal(ids::next);
        }
    }

    /**
     * As a pool may give it out after an application has said BEGIN in SQL.  A grant in it would be rolled
     * back.  Some pools drop what sets a property to what it is; else the driver would complain.
     */
    private static void leftOpen() throws Exception {
        ConnectionSource source = () -> {
            Connection real = DriverManager.getConnection(app);

            try (Statement statement = real.createStatement()) {
                statement.execute("BEGIN");
            }
            return (Connection) java.lang.reflect.Proxy.newProxyInstance(
                    SnowflakeTest.class.getClassLoader(), new Class<?>[] {Connection.class}, (proxy, method, arguments) ->
                            method.getName().equals("setReadOnly") ? null : method.invoke(real, arguments));
        };

        try (Snowflake ids = builder(source).name("left open").build()) {
            id(ids);
            Check.same(query("SELECT count(*) FROM snowflake.worker_node WHERE name = 'left open'"), "1",
                    "leases on record");
        }
    }

    private static void checkpoint() throws Exception {
        String starts = "SELECT count(DISTINCT start) || ' ' || count(closed_at) FROM snowflake.worker_node"
                + " WHERE name = 'checkpoint'";

        try (Snowflake ids = builder(() -> DriverManager.getConnection(app)).name("checkpoint")
                .maxWait(Duration.ofSeconds(20)).build()) {
            long before = id(ids);
            Thread waiting = new Thread(() -> id(ids));

            Core.getGlobalContext().beforeCheckpoint(null);
            Check.same(query(starts), "1 1", "starts and closed leases");
            waiting.start();
            Check.waitFor("a thread waits", () -> waiting.getState() == Thread.State.TIMED_WAITING);
            Core.getGlobalContext().afterRestore(null);
            waiting.join();
            Check.holds(id(ids) != before, "other ids");
            Check.same(query(starts), "2 1", "starts and closed leases");
        }
        Check.same(query(starts), "2 2", "starts and closed leases");
        Core.getGlobalContext().beforeCheckpoint(null);
        Core.getGlobalContext().afterRestore(null);
        Check.same(query(starts), "2 2", "a Snowflake that was closed begins nothing");
    }

    private static void batchOverCheckpoint() throws Exception {
        AtomicLong frozen = new AtomicLong();
        long[][] batch = new long[1][];

        // the clock stands still in the middle of the batch
        try (Snowflake ids = builder(() -> DriverManager.getConnection(app)).maxAhead(Duration.ZERO).maxWait(Duration.ofSeconds(20))
                .clock(() -> frozen.get() != 0 ? frozen.get() : System.currentTimeMillis() * 1000).build()) {
            long before = id(ids);
            Thread waiting = new Thread(() -> batch[0] = ids.next(6000));

            frozen.set(System.currentTimeMillis() * 1000);
            waiting.start();
            Check.waitFor("a thread waits", () -> waiting.getState() == Thread.State.TIMED_WAITING);
            Core.getGlobalContext().beforeCheckpoint(null);
            Core.getGlobalContext().afterRestore(null);
            frozen.set(0);
            waiting.join();
            ALL.add(batch[0]);
            Check.same(Arrays.stream(batch[0]).map(TWITTER::nodeNumber).distinct().count(), 1L, "numbers");
            Check.holds(TWITTER.nodeNumber(batch[0][0]) != TWITTER.nodeNumber(before), "the number from before");
        }
    }

    private static void fails() throws Exception {
        AtomicInteger reads = new AtomicInteger();

        // only the keeper's thread cannot read the clock any more
        try (Snowflake ids = builder(() -> DriverManager.getConnection(app)).maxWait(Duration.ofMillis(300)).clock(() -> {
            if (reads.get() == 1 && Thread.currentThread().getName().startsWith("snowflake ")) {
                throw new IllegalStateException("no clock\u0007");
            }
            return System.currentTimeMillis() * 1000;
        }).build()) {
            Check.waitFor("a lease", () -> ids.state().nodeNumber() >= 0);
            long number = TWITTER.nodeNumber(id(ids));

            reads.set(1);
            Check.waitFor("the failure", () -> ids.state().problem() != null);
            Check.same(Check.refusal(ids::next).getMessage(), "could not get a node number from the registry: "
                    + "the lease keeper has failed: java.lang.IllegalStateException: no clock", "the refusal");
            reads.set(0);
            Check.waitFor("ids again", () -> ids.state().phase().equals("ready"));
            Check.holds(TWITTER.nodeNumber(id(ids)) != number, "another number");
        }
    }

    private static void distinct() {
        long[] all = ALL.stream().flatMapToLong(Arrays::stream).sorted().toArray();

        for (int i = 1; i < all.length; i++) {
            Check.holds(all[i] != all[i - 1], "id " + all[i] + " twice");
        }
        Check.holds(all.length > 1_600_000, all.length + " ids");
    }
}
