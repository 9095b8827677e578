package example.snowflake;

import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongSupplier;
import java.util.function.LongUnaryOperator;

/**
 * The hot path: one compare-and-swap on one word for each id, or for each part of a batch.
 *
 * <p>The word is the last id issued, or, right after a lease is opened, the last one that may not
 * be: {@code node number | tick | sequence} in the widths of the layout, at most 63 bits.  Bit 63
 * says that it is sealed: no id is issued until a lease is opened.  The limit is the first word that
 * the lease does not cover; its sequence is 0.
 *
 * <p>Why no id is issued twice: an id is issued by the thread that swapped the word to it, and an
 * unsealed word only grows.  A thread swaps to words below the limit only.  Each opening has a word
 * and a limit of its own ({@link Opening}), and a word that was sealed stays so.  So a thread that
 * slept over sealing and opening swaps nothing, and has read no limit of another lease.
 *
 * <p>Any thread may issue.  Only the lease keeper's thread calls {@link #open} and {@link #seal}, so
 * {@code leasedFrom} belongs to it.  Times are microseconds since 1970-01-01 UTC.
 */
final class Generator {
    static final long SEALED = Long.MIN_VALUE;
    private static final LongUnaryOperator SEAL = word -> word | SEALED;
    /** What {@link #seal} returns if no id was issued. */
    static final long NO_ID = Long.MIN_VALUE;

    /** The first sequence of a fresh tick is below this. */
    private static final long START_RANGE = 16;
    /** No registry lets a lease start further ahead than this, beyond maxAhead. */
    static final long LONGEST_START = 11_000_000;

    /** Why there is no id yet. */
    enum Outcome { ISSUED, SEALED_WORD, PAST_LIMIT, TOO_FAR_AHEAD, FIELD_FULL }

    /** What an attempt has given; it belongs to the thread that makes it. */
    static final class Attempt {
        /** The first word issued, and how many; they are of one tick. */
        long word;
        int count;
        /** Of TOO_FAR_AHEAD: when the tick of the next id begins, and what the clock showed. */
        long begin;
        long now;
    }

    /** The bits of the last node number, in the word and in an id. */
    private static final class Node {
        final long inWord;
        final long inId;

        Node(long inWord, long inId) {
            this.inWord = inWord;
            this.inId = inId;
        }
    }

    /** The word and the limit of one opening.  The first word is never issued. */
    private static final class Opening {
        final AtomicLong word;
        final long first;
        volatile long limit;

        Opening(long first, long limit) {
            this.first = first & ~SEALED;
            this.limit = limit;
            word = new AtomicLong(first);
        }
    }

    private final Layout layout;
    private final LongSupplier clock;
    private final long maxAhead;
    private final SequenceStart sequenceStart;

    private final int tickShift;
    private final int nodeShift;
    private final long sequenceMask;
    private final long tickMask;
    /** Below tickMask if the field is wider than the times that PostgreSQL can show. */
    private final long lastTick;
    private final long nodeMask;
    private final int timestampShift;
    private final int sequenceShift;
    private final long tick;
    private final long epoch;

    /** The last one; at first there was none, and its word is sealed. */
    private volatile Opening opening = new Opening(SEALED, 0);
    private volatile boolean full;
    private Node node = new Node(-1, 0);

    /** Where the last lease starts. */
    private long leasedFrom;

    /**
     * @param clock microseconds since 1970; any thread calls it
     * @param maxAhead how far an id's timestamp may be past the clock, in microseconds
     */
    Generator(Layout layout, LongSupplier clock, long maxAhead, SequenceStart sequenceStart) {
        this.layout = layout;
        this.clock = clock;
        this.maxAhead = maxAhead;
        this.sequenceStart = sequenceStart;
        tickShift = layout.sequenceBits();
        nodeShift = layout.sequenceBits() + layout.timestampBits();
        sequenceMask = layout.maxSequence();
        tickMask = (1L << layout.timestampBits()) - 1;
        lastTick = layout.maxTick();
        nodeMask = (nodeShift == 63 ? 0 : ~0L << nodeShift) & Long.MAX_VALUE;
        timestampShift = Long.numberOfTrailingZeros(layout.compose(1, 0, 0));
        sequenceShift = Long.numberOfTrailingZeros(layout.compose(0, 0, 1));
        tick = layout.tickMicros();
        epoch = layout.epochMicros();
    }

    long now() {
        return clock.getAsLong();
    }

    /** One attempt to take up to count words of one tick.  Unless ISSUED, nothing has happened. */
    Outcome tryIssue(int count, Attempt attempt) {
        Opening mine = opening;
        long last = mine.word.get();

        for (;;) {
            if (last < 0) {
                if (mine == opening) {
                    return Outcome.SEALED_WORD;
                }
                mine = opening;
                last = mine.word.get();
                continue;
            }
            // after the last word of the last tick comes another node number
            if ((last & ~nodeMask) == (lastTick << tickShift | sequenceMask)) {
                return Outcome.FIELD_FULL;
            }
            long next = last + 1;
            long begin = epoch + (next >>> tickShift & tickMask) * tick;
            long now = clock.getAsLong();

            if (begin - now > maxAhead) {
                attempt.begin = begin;
                attempt.now = now;
                return Outcome.TOO_FAR_AHEAD;
            }
            if (now - begin >= tick) {
                long at = (now - epoch) / tick;

                if (at > lastTick) {
                    return Outcome.FIELD_FULL;
                }
                next = last & nodeMask | at << tickShift | freshSequence(last);
            }
            if (next >= mine.limit) {
                return Outcome.PAST_LIMIT;
            }
            // the limit has sequence 0, so it covers the rest of the tick as well
            int taken = (int) Math.min(count, sequenceMask - (next & sequenceMask) + 1);
            long seen = mine.word.compareAndExchange(last, next + taken - 1);

            if (seen == last) {
                attempt.word = next;
                attempt.count = taken;
                return Outcome.ISSUED;
            }
            last = seen;
        }
    }

    /** Where the sequence of a fresh tick starts, given the last word. */
    private long freshSequence(long last) {
        long mask = Math.min(sequenceMask, START_RANGE - 1);

        switch (sequenceStart) {
            case ZERO:
                return 0;
            case RANDOM:
                return ThreadLocalRandom.current().nextLong() & mask;
            default:
                return last + 1 & mask;
        }
    }

    /** The id of a word that was issued. */
    long id(long issued) {
        Node known = node;

        if (known.inWord != (issued & nodeMask)) {
            long number = (issued & nodeMask) >>> nodeShift;

            known = new Node(issued & nodeMask, layout.compose(0, number, 0));
            node = known;
        }
        return (issued >>> tickShift & tickMask) << timestampShift | known.inId
                | (issued & sequenceMask) << sequenceShift;
    }

    private long makeWord(long number, long atTick, long sequence) {
        return (number << nodeShift) + (atTick << tickShift) + sequence;
    }

    private long tickOf(long ofWord) {
        return ofWord >>> tickShift & tickMask;
    }

    private long nodeOf(long ofWord) {
        return (ofWord & nodeMask) >>> nodeShift;
    }

    /** The first word that is not of a tick that ends at or before a time. */
    private long limitAt(long number, long leasedUntil) {
        long ticks = leasedUntil <= epoch ? 0 : (leasedUntil - epoch) / tick;

        return makeWord(number, Math.min(ticks, lastTick + 1), 0);
    }

    private long endOf(long ofWord) {
        return epoch + (tickOf(ofWord) + 1) * tick;
    }

    /**
     * Opens a word if the last one is sealed, and moves the limit, for a lease that is durable up to
     * leasedUntil.  The first tick begins at or after startsAt, and after the number's last tick
     * here.  If the layout has no tick left, the word stays sealed.
     */
    void open(long number, long startsAt, long leasedUntil) {
        long last = opening.word.get();

        if (last >= 0) {
            opening.limit = limitAt(number, leasedUntil);
            return;
        }
        leasedFrom = startsAt;
        last &= ~SEALED;
        if (nodeOf(last) == number) {
            startsAt = Math.max(startsAt, endOf(last));
        }
        // not 0, so that the first word is greater than 0
        long first = Math.max(layout.tickFrom(startsAt), 1);

        full = first > lastTick;
        if (full || isOver()) {
            return;
        }
        opening = new Opening(makeWord(number, first, 0), limitAt(number, leasedUntil));
    }

    /** Whether {@link #open} would open a word that it has left sealed, since the clock was wrong. */
    boolean isOpenable() {
        return opening.word.get() < 0 && !full && !isOver();
    }

    /**
     * From then on no id is issued.  Returns the end of the tick of the last id of the node number,
     * or NO_ID.
     */
    long seal(long number) {
        // a thread may issue meanwhile
        long last = opening.word.getAndUpdate(SEAL) & ~SEALED;

        return last != opening.first && nodeOf(last) == number ? endOf(last) : NO_ID;
    }

    /** Whether the clock is past the layout's last tick. */
    boolean isOver() {
        return now() >= layout.tickBegin(lastTick + 1);
    }

    /** Whether no tick is left for the lease. */
    boolean isFull() {
        return full || isOver();
    }

    /**
     * How long until the clock allows the next id, in microseconds; 0: it does, or another number would
     * start no earlier.  That is so for a word of which nothing was issued, unless the lease was granted
     * before the clock was set back; such a lease may start after the layout's end.
     */
    long behind() {
        long last = opening.word.get();
        boolean sealed = last < 0;

        if (sealed && (!full || isOver())) {
            return 0;
        }
        long begin = sealed ? leasedFrom : epoch + tickOf(last + 1) * tick;
        long behind = begin - maxAhead - now();

        return !sealed && last != opening.first || behind > LONGEST_START ? Math.max(0, behind) : 0;
    }
}
