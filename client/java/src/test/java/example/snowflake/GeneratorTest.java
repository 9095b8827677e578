package example.snowflake;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.function.LongSupplier;

/** The hot path with a clock that the test sets. */
public final class GeneratorTest {
    private static final Layout TWITTER = Layout.of("twitter");
    private static final long MS = 1_000;
    private static final long SECOND = 1_000_000;
    /** A time at which a tick of twitter begins. */
    private static final long BEGIN = TWITTER.epochMicros() + 475_000_000_000L * MS;

    private static final class World {
        final Layout layout;
        final AtomicLong clock = new AtomicLong(BEGIN);
        final Generator generator;
        final Generator.Attempt attempt = new Generator.Attempt();

        /** How often something was. */
        final AtomicLong issued = new AtomicLong();

        World(Layout layout, long maxAhead, SequenceStart start) {
            this.layout = layout;
            generator = new Generator(layout, clock::get, maxAhead, start);
        }

        World() {
            this(TWITTER, SECOND, SequenceStart.CARRIED);
        }

        long id() {
            Check.same(generator.tryIssue(1, attempt), Generator.Outcome.ISSUED, "an id");
            return generator.id(attempt.word);
        }

        void refuses(Generator.Outcome outcome) {
            Check.same(generator.tryIssue(1, attempt), outcome, "the outcome");
        }

        /** All ids until one is refused, and why that is. */
        List<Long> drain(Generator.Outcome why) {
            List<Long> ids = new ArrayList<>();
            Generator.Outcome outcome;

            while ((outcome = generator.tryIssue(1 << 20, attempt)) == Generator.Outcome.ISSUED) {
                for (int i = 0; i < attempt.count; i++) {
                    ids.add(generator.id(attempt.word + i));
                }
            }
            Check.same(outcome, why, "why it ends");
            return ids;
        }

        long begin(long id) {
            return layout.tickBegin(layout.tick(id));
        }
    }

    private GeneratorTest() {
    }

    public static void main(String[] args) {
        Check.test("nothing is issued before a lease is opened, or after it is sealed", GeneratorTest::sealed);
        Check.test("the clock shows milliseconds, and microseconds where a tick is no multiple of one", GeneratorTest::clocks);
        Check.test("ids stay inside the lease, to the tick", GeneratorTest::insideTheLease);
        Check.test("all ids of a lease are issued, in order", GeneratorTest::allIds);
        Check.test("an extension goes on where the ids are", GeneratorTest::extension);
        Check.test("ids are at most maxAhead ahead of the clock", GeneratorTest::ahead);
        Check.test("a clock that is set back gives no earlier id", GeneratorTest::back);
        Check.test("a batch is of one tick", GeneratorTest::batch);
        Check.test("the sequence of a fresh tick starts where it is told", GeneratorTest::sequences);
        Check.test("a number that is opened again gives other words", GeneratorTest::reopened);
        Check.test("a number that comes again starts after its last id", GeneratorTest::again);
        Check.test("a lease that ends during an attempt, and one of the same number in its place", GeneratorTest::during);
        Check.test("a word that is as one before, in a shorter lease", GeneratorTest::sameWord);
        Check.test("an opened lease without an id has no end", GeneratorTest::noId);
        Check.test("fields in any order", GeneratorTest::fields);
        Check.test("a full timestamp field, and one that was only thought full", GeneratorTest::full);
        Check.test("the greatest number's last tick does not run into bit 63", GeneratorTest::greatest);
        Check.test("how far the clock is behind, where another number helps", GeneratorTest::behind);
        Check.test("a timestamp field that is wider than times are", GeneratorTest::wide);
        Check.test("ids of four threads over leases that come and go are distinct", GeneratorTest::threads);
        Check.end();
    }

    private static void clocks() throws Exception {
        LongSupplier coarse = Snowflake.clockFor(TWITTER);
        LongSupplier fine = Snowflake.clockFor(Layout.of("timestamp 45, worker 8, sequence 10, tick 1500us, epoch 2024-01-01T00:00:00Z"));

        for (LongSupplier clock : Arrays.asList(coarse, fine)) {
            Check.waitFor("a clock that is as the system's", () -> {
                long before = System.currentTimeMillis();
                long shown = clock.getAsLong();

                return before * MS <= shown && shown < (System.currentTimeMillis() + 1) * MS;
            });
        }
        Check.waitFor("a part of a millisecond", () -> fine.getAsLong() % MS != 0);
        for (int i = 0; i < 100; i++) {
            Check.same(coarse.getAsLong() % MS, 0L, "the part of a millisecond");
        }
    }

    private static void sealed() {
        World world = new World();

        world.refuses(Generator.Outcome.SEALED_WORD);
        world.generator.open(5, BEGIN, BEGIN + SECOND);
        long id = world.id();
        Check.same(world.generator.seal(5), world.begin(id) + MS, "the end of the last tick");
        world.refuses(Generator.Outcome.SEALED_WORD);
        Check.same(world.generator.seal(5), world.begin(id) + MS, "the end, sealed again");
        Check.same(world.generator.seal(6), Generator.NO_ID, "the end of another number");
    }

    private static void insideTheLease() {
        World world = new World();
        long startsAt = BEGIN + 10 * MS + 1;
        long leasedUntil = BEGIN + 20 * MS - 1;

        world.generator.open(5, startsAt, leasedUntil);
        List<Long> ids = world.drain(Generator.Outcome.PAST_LIMIT);

        for (long id : ids) {
            Check.holds(world.begin(id) >= startsAt, "begins in the lease");
            Check.holds(world.begin(id) + MS <= leasedUntil, "ends in the lease");
            Check.same(world.layout.nodeNumber(id), 5L, "node number");
        }
        Check.same(world.begin(ids.get(0)), BEGIN + 11 * MS, "the first tick");
        Check.same(world.begin(ids.get(ids.size() - 1)), BEGIN + 18 * MS, "the last tick");
    }

    private static void allIds() {
        World world = new World();

        world.generator.open(5, BEGIN, BEGIN + 3 * MS);
        List<Long> ids = world.drain(Generator.Outcome.PAST_LIMIT);

        // the first word is never issued
        Check.same(ids.size(), 3 * 4096 - 1, "ids of three ticks");
        for (int i = 1; i < ids.size(); i++) {
            Check.holds(ids.get(i) > ids.get(i - 1), "in order");
        }
    }

    private static void extension() {
        World world = new World();

        world.generator.open(5, BEGIN, BEGIN + MS);
        long last = world.drain(Generator.Outcome.PAST_LIMIT).get(4094);
        world.generator.open(5, BEGIN, BEGIN + 2 * MS);
        Check.same(world.layout.tick(world.id()), world.layout.tick(last) + 1, "the next tick");
    }

    private static void ahead() {
        World world = new World(TWITTER, 10 * MS, SequenceStart.CARRIED);

        world.generator.open(5, BEGIN - SECOND, BEGIN + SECOND);
        List<Long> ids = world.drain(Generator.Outcome.TOO_FAR_AHEAD);
        Check.same(world.begin(ids.get(ids.size() - 1)), BEGIN + 10 * MS, "the last tick");
        Check.same(world.attempt.begin, BEGIN + 11 * MS, "the tick that is too far ahead");
        Check.same(world.generator.behind(), MS, "how far the clock is behind");
        world.clock.addAndGet(MS);
        Check.same(world.begin(world.id()), BEGIN + 11 * MS, "a millisecond later");
    }

    private static void back() {
        World world = new World();

        world.generator.open(5, BEGIN, BEGIN + 60 * SECOND);
        world.clock.set(BEGIN + 30 * SECOND);
        long last = world.id();

        world.clock.set(BEGIN + 30 * SECOND - MS * 100);
        Check.same(world.id(), last + 1, "the next id");
        world.clock.set(BEGIN);
        world.refuses(Generator.Outcome.TOO_FAR_AHEAD);
        world.clock.set(BEGIN + 31 * SECOND);
        Check.same(world.begin(world.id()), BEGIN + 31 * SECOND, "when the clock has caught up");
    }

    private static void batch() {
        World world = new World();

        world.generator.open(5, BEGIN, BEGIN + SECOND);
        world.id();
        Check.same(world.generator.tryIssue(1_000_000, world.attempt), Generator.Outcome.ISSUED, "a batch");
        long first = world.generator.id(world.attempt.word);
        long end = world.generator.id(world.attempt.word + world.attempt.count - 1);
        Check.same(world.layout.tick(end), world.layout.tick(first), "its tick");
        Check.same(world.layout.sequence(end), 4095L, "the last sequence");
        Check.same(world.layout.sequence(world.id()), 0L, "the next sequence");
    }

    private static void sequences() {
        boolean[] seen = new boolean[16];

        for (SequenceStart start : SequenceStart.values()) {
            World world = new World(TWITTER, SECOND, start);
            long last = 0;

            world.generator.open(5, BEGIN, BEGIN + 60 * SECOND);
            for (int i = 0; i < 1000; i++) {
                world.clock.addAndGet(MS);
                long sequence = world.layout.sequence(world.id());

                if (start == SequenceStart.ZERO) {
                    Check.same(sequence, 0L, "sequence from zero");
                } else if (start == SequenceStart.CARRIED) {
                    Check.same(sequence, last + 1 & 15, "carried sequence");
                } else {
                    Check.holds(sequence < 16, "random sequence below 16");
                    seen[(int) sequence] = true;
                }
                last = sequence;
            }
        }
        for (boolean one : seen) {
            Check.holds(one, "each random start was seen");
        }
    }

    /** No id comes back when a number is opened again. */
    private static void reopened() {
        World world = new World();
        List<Long> words = new ArrayList<>();

        long end = BEGIN;

        for (int i = 0; i < 10_000; i++) {
            world.generator.open(5, end, BEGIN + 3600 * SECOND);
            for (int j = 0; j < i % 3; j++) {
                world.id();
                words.add(world.attempt.word);
            }
            // the registry grants a number from the end that it was told
            end = Math.max(end, world.generator.seal(5));
            if (i % 2 == 0) {
                world.generator.open(6, BEGIN, BEGIN + 3600 * SECOND);
                world.generator.seal(6);
            }
            world.clock.addAndGet(5 * MS);
        }
        Check.same(words.stream().distinct().count(), (long) words.size(), "distinct words");
    }

    private static void again() {
        World world = new World();

        world.generator.open(5, BEGIN, BEGIN + SECOND);
        world.clock.set(BEGIN + 10 * MS);
        long last = world.id();
        world.clock.set(BEGIN);
        world.generator.seal(5);
        world.generator.open(5, BEGIN, BEGIN + SECOND);
        Check.same(world.begin(world.id()), world.begin(last) + MS, "the first tick");
    }

    /** A generator; the next reading of its clock does something first. */
    private static Generator hooked(AtomicLong clock, Runnable[] meanwhile) {
        return new Generator(TWITTER, () -> {
            Runnable once = meanwhile[0];

            meanwhile[0] = null;
            if (once != null) {
                once.run();
            }
            return clock.get();
        }, SECOND, SequenceStart.CARRIED);
    }

    /** The clock is read between the word and the swap: that is when the keeper does all this. */
    private static void during() {
        AtomicLong clock = new AtomicLong(BEGIN + 500 * MS);
        Runnable[] meanwhile = {null};
        Generator generator = hooked(clock, meanwhile);
        Generator.Attempt attempt = new Generator.Attempt();

        for (long[] others : new long[][] {{5}, {6}, {6, 5}, {6, 7, 5}}) {
            generator.open(5, BEGIN, BEGIN + SECOND);
            meanwhile[0] = () -> {
                generator.seal(5);
                for (long other : others) {
                    generator.seal(other);
                    generator.open(other, BEGIN, BEGIN + 10 * MS);
                }
            };
            Check.same(generator.tryIssue(1, attempt), Generator.Outcome.PAST_LIMIT, "the outcome");
            generator.seal(5);
        }
        generator.open(5, BEGIN, BEGIN + SECOND);
        meanwhile[0] = () -> generator.seal(5);
        Check.same(generator.tryIssue(1, attempt), Generator.Outcome.SEALED_WORD, "the outcome");
    }

    /** Leases of a number of which nothing is issued begin with equal words; the last one is shorter. */
    private static void sameWord() {
        for (int i = 0; i < 3 * 4; i++) {
            int before = i % 3;
            int others = i / 3;
            AtomicLong clock = new AtomicLong(BEGIN + 500 * MS);
            Runnable[] meanwhile = {null};
            Generator generator = hooked(clock, meanwhile);

            openUnused(generator, 5, before);
            generator.open(5, BEGIN, BEGIN + SECOND);
            meanwhile[0] = () -> {
                generator.seal(5);
                openUnused(generator, 6, others);
                generator.open(5, BEGIN, BEGIN + 10 * MS);
            };
            Check.same(generator.tryIssue(1, new Generator.Attempt()), Generator.Outcome.PAST_LIMIT,
                    "the outcome, " + before + " before and " + others + " between");
        }
    }

    private static void openUnused(Generator generator, long number, int times) {
        for (int i = 0; i < times; i++) {
            generator.open(number, BEGIN, BEGIN + SECOND);
            generator.seal(number);
        }
    }

    private static void noId() {
        World world = new World();

        world.generator.open(5, BEGIN, BEGIN + SECOND);
        Check.same(world.generator.seal(5), Generator.NO_ID, "no id");
        world.generator.open(5, BEGIN, BEGIN + SECOND);
        world.id();
        Check.same(world.generator.seal(5), BEGIN + 2 * MS, "the end of an id");
    }

    private static void fields() {
        Layout layout = Layout.of("timestamp 38, sequence 9, clock 2, worker 7, datacenter 3, tick 1ms, epoch 2020-01-01T00:00:00Z");

        for (long number : new long[] {0, 1, 5, 127, 128, 4000, layout.maxNodeNumber() - 1}) {
            World world = new World(layout, SECOND, SequenceStart.CARRIED);

            world.generator.open(number, BEGIN, BEGIN + SECOND);
            for (int i = 0; i < 2000; i++) {
                long id = world.id();

                Check.same(layout.nodeNumber(id), number, "node number");
                Check.same(layout.sequence(id), world.attempt.word & 511, "sequence");
                Check.holds(world.begin(id) >= BEGIN && world.begin(id) < BEGIN + SECOND, "time");
            }
        }
    }

    private static void full() {
        Layout layout = Layout.of("timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2000-01-01T00:00:00Z");
        World world = new World(layout, SECOND, SequenceStart.ZERO);
        long end = layout.tickBegin(layout.maxTick() + 1);

        world.generator.open(5, BEGIN, END_OF_LEASES);
        world.clock.set(end);
        world.refuses(Generator.Outcome.FIELD_FULL);
        Check.holds(world.generator.isOver(), "the clock is past the end");
        world.generator.seal(5);
        world.generator.open(5, BEGIN, END_OF_LEASES);
        world.refuses(Generator.Outcome.SEALED_WORD);
        Check.holds(world.generator.isFull() && !world.generator.isOpenable(), "it stays sealed");

        world.clock.set(BEGIN);
        Check.holds(world.generator.isOpenable(), "the clock was wrong: it can be opened");
        world.generator.open(5, BEGIN, END_OF_LEASES);
        world.id();

        world.clock.set(end - 1);
        List<Long> ids = world.drain(Generator.Outcome.FIELD_FULL);
        Check.same(layout.tick(ids.get(ids.size() - 1)), layout.maxTick(), "the last tick");
        Check.same(layout.sequence(ids.get(ids.size() - 1)), 4095L, "the last sequence");
    }

    private static final long END_OF_LEASES = Registry.END_TIME - 1;

    private static void greatest() {
        Layout layout = Layout.of("timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2000-01-01T00:00:00Z");
        World world = new World(layout, SECOND, SequenceStart.ZERO);
        long last = layout.maxNodeNumber() - 1;

        world.clock.set(layout.tickBegin(layout.maxTick() - 1));
        world.generator.open(last, world.clock.get(), END_OF_LEASES);
        for (long id : world.drain(Generator.Outcome.FIELD_FULL)) {
            Check.same(layout.nodeNumber(id), last, "node number");
        }
    }

    private static void behind() {
        World world = new World();

        world.generator.open(5, BEGIN + 9 * SECOND, BEGIN + 60 * SECOND);
        world.refuses(Generator.Outcome.TOO_FAR_AHEAD);
        Check.same(world.generator.behind(), 0L, "a lease that starts ahead, as the next one would");
        world.clock.set(BEGIN + 8 * SECOND);
        world.id();
        world.clock.set(BEGIN + 6 * SECOND);
        Check.same(world.generator.behind(), 2 * SECOND, "behind an id");
        world.generator.seal(5);
        Check.same(world.generator.behind(), 0L, "sealed");
        world.generator.open(6, BEGIN + 100 * SECOND, BEGIN + 160 * SECOND);
        Check.same(world.generator.behind(), 93 * SECOND, "granted before the clock was set back");

        // a lease whose first tick is after the layout's end, and then the clock is set back
        Layout layout = Layout.of("timestamp 29, worker 21, sequence 13, tick 1s, epoch 2016-09-20T00:00:00Z");
        World late = new World(layout, SECOND, SequenceStart.CARRIED);
        long start = layout.tickBegin(layout.maxTick()) + SECOND / 2;

        late.clock.set(start);
        late.generator.open(5, start, start + SECOND / 2);
        late.refuses(Generator.Outcome.SEALED_WORD);
        Check.holds(late.generator.isFull() && !late.generator.isOver(), "full");
        late.clock.set(BEGIN);
        Check.same(late.generator.behind(), start - SECOND - BEGIN, "behind a lease that has no tick");
        late.clock.set(start + SECOND);
        Check.same(late.generator.behind(), 0L, "past the end no number helps");
    }

    /** Its last tick is not a number whose bits are all set. */
    private static void wide() {
        Layout layout = Layout.of("timestamp 50, worker 8, sequence 5, tick 1s, epoch 2020-01-01T00:00:00Z");
        World world = new World(layout, 3 * SECOND, SequenceStart.ZERO);
        long begin = layout.tickFrom(BEGIN);

        world.generator.open(5, BEGIN, BEGIN + 10 * SECOND);
        for (int second = 0; second < 4; second++) {
            List<Long> ids = world.drain(Generator.Outcome.TOO_FAR_AHEAD);

            for (long id : ids) {
                Check.holds(layout.tick(id) >= begin && world.begin(id) <= world.clock.get() + 3 * SECOND, "time");
                Check.same(layout.nodeNumber(id), 5L, "node number");
            }
            world.clock.addAndGet(SECOND);
        }
        Check.same(world.generator.behind(), 0L, "behind");
        Check.same(world.generator.seal(5), world.begin(world.generator.id(world.attempt.word)) + SECOND, "the end");
    }

    /** Leases that are sealed as soon as an id was issued, of two numbers in turn, each from where it ended. */
    private static void threads() throws Exception {
        // short ticks: what a race loses is soon in another one
        World world = new World(Layout.of("timestamp 52, worker 4, sequence 4, tick 1us, epoch 2024-01-01T00:00:00Z"),
                SECOND, SequenceStart.CARRIED);
        int leases = 3_000;
        List<long[]> all = Collections.synchronizedList(new ArrayList<>());
        AtomicBoolean stop = new AtomicBoolean();
        List<Thread> threads = new ArrayList<>();
        long[] ends = {BEGIN, BEGIN};

        for (int i = 0; i < 4; i++) {
            int most = 1 + i;

            threads.add(new Thread(() -> all.add(issue(world, most, stop))));
        }
        threads.forEach(Thread::start);
        for (int i = 0; i < leases; i++) {
            int number = i & 1;
            long from = Math.max(ends[number], world.clock.get());

            world.generator.open(number, from, from + 3 * MS);
            world.clock.addAndGet(5 * MS);
            world.generator.open(number, from, from + 6 * MS);
            for (long before = world.issued.get(); world.issued.get() == before;) {
                LockSupport.parkNanos(1);
            }
            long end = world.generator.seal(number);

            Check.holds(end <= from + 6 * MS, "the end is in the lease");
            ends[number] = end;
        }
        stop.set(true);
        for (Thread thread : threads) {
            thread.join();
        }
        long[] ids = all.stream().flatMapToLong(Arrays::stream).sorted().toArray();

        Check.holds(ids.length >= leases, "ids");
        for (int i = 1; i < ids.length; i++) {
            Check.holds(ids[i] != ids[i - 1], "distinct");
        }
    }

    private static long[] issue(World world, int most, AtomicBoolean stop) {
        Generator.Attempt attempt = new Generator.Attempt();
        long[] ids = new long[1 << 20];
        int done = 0;

        while (!stop.get()) {
            if (world.generator.tryIssue(most, attempt) != Generator.Outcome.ISSUED) {
                LockSupport.parkNanos(1);
                continue;
            }
            world.issued.incrementAndGet();
            // the first ones are enough
            for (int j = 0; j < attempt.count && done < ids.length; j++) {
                ids[done++] = world.generator.id(attempt.word + j);
            }
        }
        return Arrays.copyOf(ids, done);
    }
}
