package example.snowflake;

import java.lang.ref.Cleaner;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Locale;
import java.util.Objects;
import java.util.Random;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.function.LongSupplier;
import java.util.regex.Pattern;
import javax.sql.DataSource;

/**
 * Makes ids in this process, as a node of a registry of the PostgreSQL extension snowflake: 64-bit,
 * time-ordered, and unique among all ids of all nodes of that registry, servers and programs.
 *
 * <pre>{@code
 * try (Snowflake ids = Snowflake.builder(dataSource).layout("twitter").name("orders-api").build()) {
 *     long id = ids.next();
 *     long[] batch = ids.next(1000);
 * }
 * }</pre>
 *
 * <p>One object per process is enough: any number of threads may use it.  It takes a node number when
 * it is built, and gives it back in {@link #close}.  The registry is asked in the background, about
 * four times in each {@code leaseDuration}; ids go on for two thirds of it, at least, while the
 * registry is away.
 *
 * <p>doc/programs.md says when to use it.
 */
public final class Snowflake implements AutoCloseable {
    /** The most ids of one {@link #next(int)}. */
    public static final int MAX_BATCH = 1_000_000;

    private static final Duration DAY = Duration.ofDays(1);
    private static final Duration HOUR = Duration.ofHours(1);
    private static final int LONGEST_NAME = 255;

    /** As snowflake.printable() of the registry has it: control and format characters, line ends, other spaces, ... */
    static final Pattern NOT_PRINTABLE = Pattern.compile("[\\x00-\\x1f\\x7f-\\xa0\\xad\\u034f\\u0600-\\u0605\\u061c\\u06dd\\u070f"
            + "\\u0890\\u0891\\u08e2\\u115f\\u1160\\u1680\\u17b4\\u17b5\\u180b-\\u180f\\u2000-\\u200f\\u2028-\\u202f\\u205f-\\u206f"
            + "\\u3000\\u3164\\ud800-\\udfff\\ue000-\\uf8ff\\ufdd0-\\ufdef\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb\\ufffe\\uffff"
            + "\\x{110bd}\\x{110cd}\\x{13430}-\\x{1343f}\\x{1bca0}-\\x{1bca3}\\x{1d173}-\\x{1d17a}\\x{e0000}-\\x{10ffff}]");

    private static final Cleaner CLEANER = Cleaner.create();

    /** What belongs to one start of a node.  Another start has another one, so none is used twice. */
    private static final class Start {
        final Generator generator;
        final LeaseKeeper keeper;

        Start(Generator generator, LeaseKeeper keeper) {
            this.generator = generator;
            this.keeper = keeper;
        }
    }

    private final ConnectionSource source;
    private final Layout layout;
    private final String name;
    private final String hostName;
    private final long leaseDuration;
    private final long maxAhead;
    private final long maxWait;
    private final SequenceStart sequenceStart;
    private final LongSupplier clock;
    private final Checkpoint checkpoint;

    /** Replaced by {@link #resume} and {@link #close}, under this object's monitor, as {@code closed}. */
    private volatile Start start;
    private volatile boolean closed;

    private Snowflake(Builder builder) {
        source = builder.source;
        layout = builder.layout;
        name = builder.name;
        hostName = builder.hostName;
        leaseDuration = micros(builder.leaseDuration);
        maxAhead = micros(builder.maxAhead);
        maxWait = micros(builder.maxWait);
        sequenceStart = builder.sequenceStart;
        clock = builder.clock != null ? builder.clock : clockFor(layout);
        // no checkpoint can come in between: it would be restored with the lease
        synchronized (this) {
            checkpoint = Checkpoint.of(this);
            start = begin(null);
        }
    }

    /** Connections are those of the database that has the registry, by a role that may call it. */
    public static Builder builder(DataSource registry) {
        Objects.requireNonNull(registry, "registry");
        return new Builder(registry::getConnection);
    }

    /** As {@link #builder(DataSource)}, without a DataSource. */
    public static Builder builder(ConnectionSource registry) {
        return new Builder(Objects.requireNonNull(registry, "registry"));
    }

    //
    // Starts
    //

    /** @param uses the registry that the start before it in this process has used, or null */
    private Start begin(UUID uses) {
        Generator generator = new Generator(layout, clock, maxAhead, sequenceStart);
        Registry registry = new Registry(source, layout, name, hostName, clock.getAsLong());
        LeaseKeeper keeper = new LeaseKeeper(machines(layout, maxAhead, maxWait, leaseDuration), uses, generator,
                registry, Snowflake::monotonicNow, "snowflake " + name);

        keeper.start();
        // an object that nobody has any more, and that nobody has closed, gives its number back
        CLEANER.register(this, () -> keeper.stop(0));
        return new Start(generator, keeper);
    }

    /** Without this object, or nothing would be forgotten. */
    private static Function<UUID, LeaseMachine> machines(Layout layout, long maxAhead, long maxWait, long leaseDuration) {
        return uses -> machine(uses, layout, maxAhead, maxWait, leaseDuration);
    }

    /** Of another start. */
    static LeaseMachine machine(UUID uses, Layout layout, long maxAhead, long maxWait, long leaseDuration) {
        UUID node = UUID.randomUUID();

        // from the start's name: no two nodes wait alike, nor do two copies of a checkpoint
        return new LeaseMachine(node, uses, layout, maxAhead, maxWait, leaseDuration,
                new Random(node.getMostSignificantBits())::nextDouble);
    }

    private static long monotonicNow() {
        // not 0, which stands for never
        return Math.max(TimeUnit.NANOSECONDS.toMicros(System.nanoTime() - NANO_ZERO), 0) + 1;
    }

    private static final long NANO_ZERO = System.nanoTime();

    /** The coarser one is faster, and exact enough where ticks are no finer. */
    static LongSupplier clockFor(Layout layout) {
        if (layout.tickMicros() % 1000 == 0) {
            return () -> System.currentTimeMillis() * 1000;
        }
        return () -> {
            Instant now = Instant.now();

            return now.getEpochSecond() * 1_000_000 + now.getNano() / 1000;
        };
    }

    /** Seals and releases, and begins no other start.  For a checkpoint: see {@link Checkpoint}. */
    synchronized void pause() {
        if (!start.keeper.stop(LeaseKeeper.CALL_TIMEOUT + 1_000_000)) {
            throw new IllegalStateException("the lease keeper has not ended");
        }
    }

    /** Ids go on, as a new start. */
    synchronized void resume() {
        if (!closed) {
            start = begin(start.keeper.uses());
        }
    }

    //
    // Ids
    //

    /**
     * Issues one id.  Usually that is one compare-and-swap.  Waits for at most {@code maxWait}, for
     * a node number, for a renewal or for the clock.
     *
     * @throws SnowflakeException if there is none; the message says why, and what to do
     */
    public long next() {
        Generator generator = start.generator;
        Generator.Attempt attempt = new Generator.Attempt();

        if (generator.tryIssue(1, attempt) == Generator.Outcome.ISSUED) {
            return generator.id(attempt.word);
        }
        return issueSlowly(1, attempt, new Wait()).id(attempt.word);
    }

    /**
     * Issues a batch, in order, usually with one compare-and-swap for each tick.  Waits for at most
     * {@code maxWait} in all.
     *
     * @param count 1 to {@value #MAX_BATCH}, and no more than the layout holds within {@code maxAhead}
     *     and {@code maxWait}
     * @throws IllegalArgumentException if count is out of range
     * @throws SnowflakeException as {@link #next()}; ids that were issued before are lost
     */
    public long[] next(int count) {
        checkBatch(count);
        long[] ids = new long[count];
        Generator.Attempt attempt = new Generator.Attempt();
        Wait wait = new Wait();
        Generator before = null;

        for (int done = 0; done < count; done += attempt.count) {
            Generator generator = issueSlowly(count - done, attempt, wait);

            // there was a checkpoint: whoever is restored has the ids before it
            if (generator != before) {
                before = generator;
                done = 0;
            }
            for (int i = 0; i < attempt.count; i++) {
                ids[done + i] = generator.id(attempt.word + i);
            }
        }
        return ids;
    }

    /** As the server does: refuses what could not be issued even if nothing else were. */
    private void checkBatch(int count) {
        if (count < 1 || count > MAX_BATCH) {
            throw new IllegalArgumentException("batch of " + count + " ids is out of range\n"
                    + "Hint: Ask for 1 to " + MAX_BATCH + " ids at a time.");
        }
        long ticks = Math.min((maxAhead + maxWait) / layout.tickMicros(), MAX_BATCH);
        long most = Math.max(ticks, 1) * Math.min(layout.maxSequence() + 1, MAX_BATCH);

        if (count > most) {
            throw new IllegalArgumentException("batch of " + count + " ids is too large for layout \"" + layout
                    + "\"\nDetail: Within maxAhead and maxWait it holds at most " + most
                    + " ids.\nHint: Ask for at most " + most + " ids at a time.");
        }
    }

    /** How long one call has waited already, in microseconds. */
    private static final class Wait {
        long waited;
    }

    /** Issues up to count ids of one tick, waiting if need be.  Returns what has issued them. */
    private Generator issueSlowly(int count, Generator.Attempt attempt, Wait wait) {
        for (;;) {
            Start current = start;
            // before the attempt, so that a change in between is not missed
            LeaseKeeper.Status seen = current.keeper.status();
            Generator.Outcome outcome = current.generator.tryIssue(count, attempt);

            if (outcome == Generator.Outcome.ISSUED) {
                return current.generator;
            }
            if (closed) {
                throw new SnowflakeException(SnowflakeException.Reason.CLOSED, "this Snowflake is closed\n"
                        + "Hint: Close it after the last id.", null);
            }
            sleep(current, seen, outcome, attempt, wait);
        }
    }

    /** Waits where that can help, at most for what the call may still wait; else throws. */
    private void sleep(Start current, LeaseKeeper.Status seen, Generator.Outcome outcome,
            Generator.Attempt attempt, Wait wait) {
        long remaining = maxWait - wait.waited;
        long before = monotonicNow();

        switch (outcome) {
            case FIELD_FULL:
                // the clock may have been wrong: the keeper looks again
                current.keeper.ask();
                throw fieldFull();
            case TOO_FAR_AHEAD:
                long need = attempt.begin - maxAhead - attempt.now;

                if (need <= remaining) {
                    remaining = need;
                } else {
                    current.keeper.ask();
                    // only then the keeper takes another number
                    if (remaining <= 0 || need <= Math.max(maxWait, LeaseMachine.LEAST_MOVE)
                            || seen.phase != LeaseMachine.Phase.READY) {
                        throw tooFarAhead(attempt, need);
                    }
                }
                break;
            default:
                current.keeper.ask();
                checkStatus(current, seen, outcome, remaining);
                if (remaining <= 0) {
                    throw gaveUp(current, outcome);
                }
                break;
        }
        try {
            current.keeper.await(seen, remaining);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new SnowflakeException(SnowflakeException.Reason.INTERRUPTED,
                    "interrupted while waiting for an id", e);
        }
        wait.waited += Math.max(monotonicNow() - before, 1);
    }

    /** An error if waiting is of no use: for somebody to act, or for what is over later than the call may wait. */
    private void checkStatus(Start current, LeaseKeeper.Status seen, Generator.Outcome outcome, long remaining) {
        if (seen.phase == LeaseMachine.Phase.REFUSED && seen.refusedUntil - monotonicNow() > remaining) {
            throw problem(current, outcome, seen.problem);
        }
        if (seen.phase == LeaseMachine.Phase.READY && current.generator.isOver()) {
            throw fieldFull();
        }
    }

    private static SnowflakeException problem(Start current, Generator.Outcome outcome, LeaseMachine.Problem problem) {
        SnowflakeException.Reason reason = SnowflakeException.Reason.GAVE_UP;
        String what = outcome == Generator.Outcome.SEALED_WORD ? "could not get a node number from the registry"
                : "could not extend the lease of node number " + current.keeper.view().nodeNumber;

        if (problem.refused || problem.isLasting()) {
            // what it is called: nothing depends on it
            reason = problem.sqlState.equals(SnowflakeException.Reason.NO_NUMBER_FREE.sqlState())
                    ? SnowflakeException.Reason.NO_NUMBER_FREE : SnowflakeException.Reason.REFUSED;
        }
        return new SnowflakeException(reason, what + ": " + problem.message, problem.cause);
    }

    private SnowflakeException fieldFull() {
        return new SnowflakeException(SnowflakeException.Reason.FIELD_FULL, "the timestamp field of layout \""
                + layout + "\" is full\nDetail: Its last tick ends at " + instant(layout.tickBegin(layout.maxTick() + 1))
                + ".\nHint: Correct the clock if it is ahead; else choose a layout with a later end.", null);
    }

    private SnowflakeException tooFarAhead(Generator.Attempt attempt, long need) {
        return new SnowflakeException(SnowflakeException.Reason.TOO_FAR_AHEAD, String.format(Locale.ROOT,
                "the next id would be %.3f s ahead of the clock\n"
                + "Detail: maxAhead allows %.3f s; the clock is there in %.3f s, maxWait is %.3f s.\n"
                + "Hint: If the clock was set back, ids go on when it has caught up.  If too many ids are needed, "
                + "choose a layout with more sequence bits.",
                (attempt.begin - attempt.now) / 1e6, maxAhead / 1e6, need / 1e6, maxWait / 1e6), null);
    }

    private SnowflakeException gaveUp(Start current, Generator.Outcome outcome) {
        LeaseKeeper.Status status = current.keeper.status();

        if (status.problem != null && (status.phase == LeaseMachine.Phase.RETRYING
                || status.phase == LeaseMachine.Phase.REFUSED)) {
            return problem(current, outcome, status.problem);
        }
        if (status.phase == LeaseMachine.Phase.READY && current.generator.isFull()) {
            return fieldFull();
        }
        return new SnowflakeException(SnowflakeException.Reason.GAVE_UP, String.format(Locale.ROOT,
                "gave up waiting for %s\nDetail: maxWait is %.3f s.\n"
                + "Hint: Try again, or raise maxWait.  See whether the registry's database answers.",
                outcome == Generator.Outcome.SEALED_WORD ? "a node number" : "the lease to be extended",
                maxWait / 1e6), null);
    }

    //
    // Ids, read
    //

    /**
     * The parts of an id of this object's layout.
     *
     * @throws IllegalArgumentException if it is not an id of that layout
     */
    public Layout.Parts parse(long id) {
        return layout.parts(id);
    }

    /** When the tick of an id of this object's layout begins. */
    public Instant time(long id) {
        return layout.parts(id).timestamp();
    }

    /**
     * The parts of an id of a layout, without a registry.
     *
     * @throws IllegalArgumentException if the layout is not valid, or has no such id
     */
    public static Layout.Parts parse(long id, String layout) {
        return Layout.of(layout).parts(id);
    }

    /** The layout of the ids. */
    public Layout layout() {
        return layout;
    }

    //
    // State
    //

    /** What this node has and does at one moment, for metrics and logs. */
    public static final class State {
        private final LeaseKeeper.Status status;
        private final LeaseKeeper.View view;

        private State(LeaseKeeper.Status status, LeaseKeeper.View view) {
            this.status = status;
            this.view = view;
        }

        /** {@code starting}, {@code ready}, {@code retrying} or {@code refused}; ids may go on in all but the first. */
        public String phase() {
            return status.phase.name().toLowerCase(Locale.ROOT);
        }

        /** Of the newest lease; -1 before the first. */
        public long nodeNumber() {
            return view.nodeNumber;
        }

        /** Where the newest lease ends; null before the first. */
        public Instant leasedUntil() {
            return view.nodeNumber < 0 ? null : instant(view.leasedUntil);
        }

        /** What the last call to the registry failed with, or was refused with; null if it was not. */
        public String problem() {
            return status.problem == null ? null : status.problem.message;
        }

        @Override
        public String toString() {
            return phase() + ", node number " + nodeNumber() + ", leased until " + leasedUntil()
                    + (problem() == null ? "" : ", " + problem());
        }
    }

    /** What this node has and does now.  Asks nobody, and never waits. */
    public State state() {
        Start current = start;

        return new State(current.keeper.status(), current.keeper.view());
    }

    /**
     * Ends the lease where its ids end, so that the number is free at once, and waits for that, and for the log, for some
     * seconds.  When it returns, no id is issued any more.  Safe to call twice.
     */
    @Override
    public void close() {
        // not below the monitor, which the log can want, to close, too
        end().awaitLog(LeaseKeeper.CALL_TIMEOUT);
    }

    private synchronized LeaseKeeper end() {
        closed = true;
        checkpoint.forget();
        start.keeper.stop(LeaseKeeper.CALL_TIMEOUT + 1_000_000);
        // the keeper may not have come to seal its word: nobody finds that word any more
        start = new Start(new Generator(layout, clock, maxAhead, sequenceStart), start.keeper);
        return start.keeper;
    }

    private static Instant instant(long micros) {
        return Instant.ofEpochSecond(Math.floorDiv(micros, 1_000_000), Math.floorMod(micros, 1_000_000L) * 1000);
    }

    private static long micros(Duration span) {
        return span.getSeconds() * 1_000_000 + span.getNano() / 1000;
    }

    /** What can be set.  Only the name must be. */
    public static final class Builder {
        private final ConnectionSource source;
        private Layout layout = Layout.of("twitter");
        private String name;
        private String hostName;
        private Duration leaseDuration = Duration.ofMinutes(2);
        private Duration maxAhead = Duration.ofSeconds(1);
        private Duration maxWait = Duration.ofSeconds(5);
        private SequenceStart sequenceStart = SequenceStart.CARRIED;
        private LongSupplier clock;

        private Builder(ConnectionSource source) {
            this.source = source;
        }

        /**
         * The layout of the registry's nodes, as {@code snowflake.layout} has it on servers; default
         * {@code twitter}.
         *
         * @throws IllegalArgumentException if it is not valid, or no ids can be issued with it
         */
        public Builder layout(String definition) {
            Layout chosen = Layout.of(definition);

            if (!chosen.isIssuable()) {
                throw new IllegalArgumentException("the layout \"" + definition + "\" is for parsing only\n"
                        + "Detail: Ids are issued with a worker field and a tick of at most 1s.\n"
                        + "Hint: Take the layout of the registry's other nodes.");
            }
            layout = chosen;
            return this;
        }

        /** What the registry's view nodes shows; several programs can have the same. */
        public Builder name(String shown) {
            name = checkText("name", shown);
            return this;
        }

        /** Where this program runs, for the view, too; default what the machine says. */
        public Builder hostName(String shown) {
            hostName = checkText("host name", shown);
            return this;
        }

        /**
         * 1 s to a day, default 2 minutes: how long ids go on while the registry cannot be asked.  What is longer than
         * the registry's limit for ends (3 minutes, unless its owner has set it) is cut to that.
         */
        public Builder leaseDuration(Duration span) {
            leaseDuration = checkSpan("leaseDuration", span, Duration.ofSeconds(1), DAY);
            return this;
        }

        /** 0 to an hour, default 1 s: how far the time of an id may be ahead of the clock. */
        public Builder maxAhead(Duration span) {
            maxAhead = checkSpan("maxAhead", span, Duration.ZERO, HOUR);
            return this;
        }

        /** 0 to a day, default 5 s: the longest time that one call waits. */
        public Builder maxWait(Duration span) {
            maxWait = checkSpan("maxWait", span, Duration.ZERO, DAY);
            return this;
        }

        /** Where the sequence of a fresh tick starts; default {@link SequenceStart#CARRIED}. */
        public Builder sequenceStart(SequenceStart where) {
            sequenceStart = Objects.requireNonNull(where, "where");
            return this;
        }

        /** Microseconds since 1970-01-01 UTC, for tests. */
        Builder clock(LongSupplier microseconds) {
            clock = microseconds;
            return this;
        }

        /**
         * Begins.  The first lease is taken in the background: {@link #next()} waits for it.  Without
         * {@link #hostName} the machine's resolver is asked for the name, which can take its time.  Each
         * call makes another node.
         *
         * @throws IllegalStateException if there is no name
         */
        public Snowflake build() {
            if (name == null) {
                throw new IllegalStateException("a name is missing\nHint: Call name(\"...\") with what people know "
                        + "this program by; the registry shows it.");
            }
            if (hostName == null) {
                hostName = ownHostName();
            }
            return new Snowflake(this);
        }

        private static String checkText(String what, String text) {
            int length = text.getBytes(StandardCharsets.UTF_8).length;

            if (length < 1 || length > LONGEST_NAME || NOT_PRINTABLE.matcher(text).find()) {
                throw new IllegalArgumentException("invalid " + what + ": \"" + Registry.printable(text)
                        + "\"\nHint: It has 1 to " + LONGEST_NAME + " bytes of printable characters.");
            }
            return text;
        }

        private static Duration checkSpan(String what, Duration span, Duration least, Duration greatest) {
            if (span.compareTo(least) < 0 || span.compareTo(greatest) > 0) {
                throw new IllegalArgumentException(what + " is " + span + "\nHint: It is from " + least + " to "
                        + greatest + ".");
            }
            return span;
        }

        private static String ownHostName() {
            try {
                return checkText("host name", InetAddress.getLocalHost().getHostName());
            } catch (UnknownHostException | IllegalArgumentException e) {
                return "unknown";
            }
        }
    }
}
