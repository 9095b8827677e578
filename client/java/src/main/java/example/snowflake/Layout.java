package example.snowflake;

import java.nio.charset.StandardCharsets;
import java.time.DateTimeException;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The bit layout of an id: which fields it has, their widths and order, the length of a tick and
 * the epoch.  Two layouts are equal if they make the same ids.
 *
 * <p>Owns the grammar of layout definitions, the presets, and the arithmetic between ids, ticks and
 * times.  It is the one of the server (src/layout), and so are the texts of its errors.  A layout
 * never changes, and any thread may use it.
 *
 * <p>Ticks count from the layout's epoch.  Times are microseconds since 1970-01-01 00:00 UTC.  The
 * datacenter, worker and clock fields, from high to low and wherever they stand in the id, make up
 * one number, the node number.
 */
public final class Layout {

    private static final int TIMESTAMP = 0;
    private static final int DATACENTER = 1;
    private static final int WORKER = 2;
    private static final int CLOCK = 3;
    private static final int SEQUENCE = 4;
    private static final String[] FIELDS = {
        "timestamp", "datacenter", "worker", "clock", "sequence"
    };

    /** An id is a non-negative 64-bit integer. */
    private static final int MAX_BITS = 63;
    /** Every field but the timestamp is shown as an int. */
    private static final int MAX_FIELD_BITS = 31;
    /** Of a part of a definition, in bytes. */
    private static final int MAX_PART_LENGTH = 127;

    private static final long SECOND = 1_000_000;
    private static final long MAX_TICK = 86_400 * SECOND;
    private static final long MAX_ISSUE_TICK = SECOND;
    /** From 1970 to 2000, where timestamptz counts from. */
    private static final long POSTGRES_EPOCH = 946_684_800 * SECOND;
    /** Exclusive end of timestamptz, counted from 2000. */
    private static final long TIMESTAMPTZ_END = 9_223_371_331_200_000_000L;
    /** The years 1 to 9999, in seconds since 1970. */
    private static final long FIRST_EPOCH = -62_135_596_800L;
    private static final long END_EPOCH = 253_402_300_800L;

    private static final Map<String, String> PRESETS = new LinkedHashMap<>();

    static {
        PRESETS.put("twitter", "timestamp 41, datacenter 5, worker 5, sequence 12, tick 1ms,"
                + " epoch 2010-11-04T01:42:54.657Z");
        PRESETS.put("leaf", "timestamp 41, worker 10, sequence 12, tick 1ms,"
                + " epoch 2010-11-04T01:42:54.657Z");
        PRESETS.put("discord", "timestamp 41, datacenter 5, worker 5, sequence 12, tick 1ms,"
                + " epoch 2015-01-01T00:00:00Z");
        PRESETS.put("instagram", "timestamp 40, worker 13, sequence 10, tick 1ms,"
                + " epoch 2011-08-24T21:07:01.721Z");
        PRESETS.put("mastodon", "timestamp 47, sequence 16, tick 1ms, epoch 1970-01-01T00:00:00Z");
        PRESETS.put("sonyflake", "timestamp 39, sequence 8, worker 16, tick 10ms,"
                + " epoch 2014-09-01T00:00:00Z");
        PRESETS.put("sonyflake2", "timestamp 39, sequence 8, worker 16, tick 10ms,"
                + " epoch 2025-01-01T00:00:00Z");
        PRESETS.put("uidgenerator", "timestamp 29, worker 21, sequence 13, tick 1s,"
                + " epoch 2016-09-20T00:00:00+08:00");
        PRESETS.put("uidgenerator28", "timestamp 28, worker 22, sequence 13, tick 1s,"
                + " epoch 2016-05-20T00:00:00+08:00");
        PRESETS.put("uidstarter", "timestamp 30, worker 16, sequence 7, tick 1s,"
                + " epoch 2019-02-20T00:00:00+08:00");
        PRESETS.put("liaoxuefeng", "timestamp 32, sequence 16, worker 5, tick 1s,"
                + " epoch 2000-01-01T00:00:00Z");
        PRESETS.put("cosid", "timestamp 41, worker 10, sequence 12, tick 1ms,"
                + " epoch 2019-12-25T00:00:00+08:00");
        PRESETS.put("shardingsphere", "timestamp 41, worker 10, sequence 12, tick 1ms,"
                + " epoch 2016-11-01T00:00:00+08:00");
        PRESETS.put("pgedge", "timestamp 41, worker 10, sequence 12, tick 1ms,"
                + " epoch 2023-01-01T00:00:00Z");
        PRESETS.put("pgedge1", "timestamp 41, sequence 12, worker 10, tick 1ms,"
                + " epoch 2023-01-01T00:00:00Z");
        PRESETS.put("js53", "timestamp 38, worker 7, sequence 8, tick 10ms,"
                + " epoch 2024-01-01T00:00:00Z");
    }

    /** Widths, 0 for an absent field, and the lowest bit in the id, by field. */
    private final int[] bits;
    private final int[] shift;
    /** The fields, highest bits first. */
    private final List<Integer> order;
    private final long tickMicros;
    private final long epochMicros;
    private final long maxTick;

    /** A complete definition; {@link #of} has checked it. */
    private Layout(Reader reader) {
        int low = 0;

        bits = reader.bits;
        order = List.copyOf(reader.order);
        shift = new int[FIELDS.length];
        for (int i = order.size() - 1; i >= 0; i--) {
            shift[order.get(i)] = low;
            low += bits[order.get(i)];
        }
        tickMicros = reader.tickMicros;
        epochMicros = reader.epochMicros;
        /* the ticks that end before the end of timestamptz; as many as a long cannot say are more than any field has */
        long ticks = Long.divideUnsigned(TIMESTAMPTZ_END - 1 - (epochMicros - POSTGRES_EPOCH), tickMicros);

        maxTick = ticks < 0 ? lowBits(bits[TIMESTAMP]) : Math.min(lowBits(bits[TIMESTAMP]), ticks - 1);
    }

    /**
     * Reads a definition, as the server's setting {@code snowflake.layout} has it: the name of a
     * preset, a preset with changes, or all parts spelled out.
     *
     * @throws IllegalArgumentException if it is not valid; the message says what to do
     */
    public static Layout of(String definition) {
        try {
            Reader reader = new Reader();

            reader.readDefinition(new String(definition.getBytes(StandardCharsets.UTF_8),
                    StandardCharsets.ISO_8859_1));
            reader.checkWhole();
            return new Layout(reader);
        } catch (Refusal refusal) {
            throw new IllegalArgumentException("invalid layout: \"" + definition + "\"\nDetail: "
                    + refusal.getMessage() + "\nHint: " + refusal.hint);
        }
    }

    /** The names of the presets, with their definitions. */
    static Map<String, String> presets() {
        return Collections.unmodifiableMap(PRESETS);
    }

    /** All parts spelled out, as the server writes them: equal layouts have equal ones. */
    public String definition() {
        StringBuilder text = new StringBuilder();
        long tick = tickMicros;
        String unit = "us";

        for (int field : order) {
            text.append(FIELDS[field]).append(' ').append(bits[field]).append(", ");
        }
        if (tick % SECOND == 0) {
            tick /= SECOND;
            unit = "s";
        } else if (tick % 1000 == 0) {
            tick /= 1000;
            unit = "ms";
        }
        return text.append("tick ").append(tick).append(unit).append(", epoch ")
                .append(writeEpoch(epochMicros)).toString();
    }

    /** The definition. */
    @Override
    public String toString() {
        return definition();
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Layout && definition().equals(((Layout) other).definition());
    }

    @Override
    public int hashCode() {
        return definition().hashCode();
    }

    /** Whether ids can be issued with it, not only parsed. */
    boolean isIssuable() {
        return bits[WORKER] > 0 && tickMicros <= MAX_ISSUE_TICK;
    }

    /** When tick 0 begins. */
    long epochMicros() {
        return epochMicros;
    }

    long tickMicros() {
        return tickMicros;
    }

    int timestampBits() {
        return bits[TIMESTAMP];
    }

    int sequenceBits() {
        return bits[SEQUENCE];
    }

    /**
     * The last tick: all bits of the timestamp set, or the last one whose end timestamptz can show
     * if that comes earlier.
     */
    long maxTick() {
        return maxTick;
    }

    /** The greatest node number.  It is reserved: no node leases it. */
    long maxNodeNumber() {
        return lowBits(bits[DATACENTER] + bits[WORKER] + bits[CLOCK]);
    }

    /** The greatest number that can be leased; the first one is 0.  A registry has no more to choose from. */
    long lastNumber() {
        return Math.min(maxNodeNumber() - 1, (1L << 32) - 1);
    }

    long maxSequence() {
        return lowBits(bits[SEQUENCE]);
    }

    /** The greatest id. */
    long maxId() {
        return maxTick << shift[TIMESTAMP] | lowBits(shift[TIMESTAMP]);
    }

    /** Whether it is an id of this layout: 0 to {@link #maxId}. */
    boolean contains(long id) {
        return id >= 0 && id <= maxId();
    }

    /** When a tick begins, or Long.MAX_VALUE if a long cannot say it. */
    long tickBegin(long tick) {
        long begin = epochMicros + tick * tickMicros;

        return Math.multiplyHigh(tick, tickMicros) != 0 || tick * tickMicros < 0
                || begin < epochMicros ? Long.MAX_VALUE : begin;
    }

    /**
     * The tick that contains a time, which must not be before the epoch.  May be above
     * {@link #maxTick}.
     */
    long tickAt(long micros) {
        return Long.divideUnsigned(micros - epochMicros, tickMicros);
    }

    /** The first tick that begins at or after a time; 0 for times before the epoch. */
    long tickFrom(long micros) {
        if (micros <= epochMicros) {
            return 0;
        }
        long tick = tickAt(micros);
        return tickBegin(tick) == micros ? tick : tick + 1;
    }

    /** The id of a tick, node number and sequence, each within its width. */
    long compose(long tick, long nodeNumber, long sequence) {
        return tick << shift[TIMESTAMP] | placeNode(nodeNumber) | sequence << shift[SEQUENCE];
    }

    /** The bits of a node number at their places in an id. */
    private long placeNode(long node) {
        long clock = node & lowBits(bits[CLOCK]);
        long worker = node >>> bits[CLOCK] & lowBits(bits[WORKER]);
        long datacenter = node >>> bits[CLOCK] + bits[WORKER];

        return clock << shift[CLOCK] | worker << shift[WORKER] | datacenter << shift[DATACENTER];
    }

    long tick(long id) {
        return field(id, TIMESTAMP);
    }

    long nodeNumber(long id) {
        return (field(id, DATACENTER) << bits[WORKER] | field(id, WORKER)) << bits[CLOCK]
                | field(id, CLOCK);
    }

    long sequence(long id) {
        return field(id, SEQUENCE);
    }

    private long field(long id, int field) {
        return id >>> shift[field] & lowBits(bits[field]);
    }

    /**
     * The parts of an id.
     *
     * @throws IllegalArgumentException if it is not an id of this layout
     */
    public Parts parts(long id) {
        if (!contains(id)) {
            throw new IllegalArgumentException("id " + id + " is outside layout \"" + definition()
                    + "\"\nDetail: Its ids are from 0 to " + maxId() + ".");
        }
        return new Parts(this, id);
    }

    /** The parts of an id.  Absent fields are 0. */
    public static final class Parts {
        private final Layout layout;
        private final long id;

        private Parts(Layout layout, long id) {
            this.layout = layout;
            this.id = id;
        }

        /** When the tick of the id begins. */
        public Instant timestamp() {
            long micros = tick() * layout.tickMicros;

            return Instant.EPOCH
                    .plusSeconds(Math.floorDiv(layout.epochMicros, SECOND))
                    .plusSeconds(Long.divideUnsigned(micros, SECOND))
                    .plusNanos(1000 * (Math.floorMod(layout.epochMicros, SECOND)
                            + Long.remainderUnsigned(micros, SECOND)));
        }

        /** The tick, counted from the layout's epoch. */
        public long tick() {
            return layout.field(id, TIMESTAMP);
        }

        /** The field {@code datacenter}; 0 if the layout has none. */
        public int datacenterId() {
            return (int) layout.field(id, DATACENTER);
        }

        /** The field {@code worker}; 0 if the layout has none. */
        public int workerId() {
            return (int) layout.field(id, WORKER);
        }

        /** The field {@code clock}; 0 if the layout has none. */
        public int clock() {
            return (int) layout.field(id, CLOCK);
        }

        /** The field {@code sequence}. */
        public int sequence() {
            return (int) layout.field(id, SEQUENCE);
        }

        /** The node number: the fields {@code datacenter}, {@code worker} and {@code clock}, from high to low. */
        public long nodeNumber() {
            return layout.nodeNumber(id);
        }

        @Override
        public String toString() {
            StringBuilder text = new StringBuilder("timestamp ").append(timestamp());

            for (int field : layout.order) {
                if (field != TIMESTAMP) {
                    text.append(", ").append(FIELDS[field]).append(' ')
                            .append(layout.field(id, field));
                }
            }
            return text.toString();
        }
    }

    /** All bits of a width set; width at most 63. */
    private static long lowBits(int width) {
        return (1L << width) - 1;
    }

    /** In UTC, with the digits of the fraction that it needs. */
    private static String writeEpoch(long micros) {
        int fraction = (int) Math.floorMod(micros, SECOND);
        LocalDateTime time = LocalDateTime.ofEpochSecond(Math.floorDiv(micros, SECOND), 0,
                ZoneOffset.UTC);
        String text = String.format(Locale.ROOT, "%04d-%02d-%02dT%02d:%02d:%02d", time.getYear(),
                time.getMonthValue(), time.getDayOfMonth(), time.getHour(), time.getMinute(),
                time.getSecond());

        if (fraction % 1000 != 0) {
            text += String.format(Locale.ROOT, ".%06d", fraction);
        } else if (fraction != 0) {
            text += String.format(Locale.ROOT, ".%03d", fraction / 1000);
        }
        return text + "Z";
    }

    /** Why a definition is not accepted: what is wrong with which bound, and what to do. */
    private static final class Refusal extends Exception {
        private static final long serialVersionUID = 1;

        final String hint;

        Refusal(String hint, String detail, Object... values) {
            super(String.format(Locale.ROOT, detail, values), null, false, false);
            this.hint = hint;
        }
    }

    /** Reads one definition. */
    private static final class Reader {
        /** ISO 8601 with an explicit zone; a blank for the T is accepted. */
        private static final Pattern EPOCH = Pattern.compile(
                "(\\d{4})-(\\d\\d)-(\\d\\d)[Tt ](\\d\\d):(\\d\\d):(\\d\\d)(?:\\.(\\d{1,6}))?"
                + "(?:[Zz]|([+-])(\\d\\d)(?::?(\\d\\d))?)");
        private static final Pattern TICK = Pattern.compile("(\\d{1,9}) *([A-Za-z]+)");

        final int[] bits = new int[FIELDS.length];
        final List<Integer> order = new ArrayList<>();
        long tickMicros = 1000;
        long epochMicros;

        /** The part being read. */
        private String part;
        /** Whether the first part named a preset. */
        private boolean fromPreset;
        private boolean[] seen = new boolean[FIELDS.length];
        private boolean seenTick;
        private boolean seenEpoch;

        /** All parts of a definition, separated by commas. */
        void readDefinition(String definition) throws Refusal {
            boolean first = true;

            for (String text : definition.split(",", -1)) {
                takePart(text);
                readPart(first);
                first = false;
            }
        }

        /**
         * Takes a part, without the blanks around it.  Bytes that are not printable ASCII occur in
         * no valid part; they are shown as question marks.
         */
        private void takePart(String text) throws Refusal {
            part = text.replaceAll("[ \\t\\n\\x0B\\f\\r]", " ").replaceAll("^ +| +$", "")
                    .replaceAll("[^ -~]", "?");
            if (part.length() > MAX_PART_LENGTH) {
                throw new Refusal("Separate the parts by commas, and leave out needless blanks.",
                        "\"%s...\" is longer than %d characters.",
                        part.substring(0, MAX_PART_LENGTH), MAX_PART_LENGTH);
            }
        }

        private void readPart(boolean first) throws Refusal {
            String[] words = part.split(" +", 2);
            String value = words.length > 1 ? words[1] : "";

            for (int field = 0; field < FIELDS.length; field++) {
                if (words[0].equalsIgnoreCase(FIELDS[field])) {
                    readWidth(field, value);
                    return;
                }
            }
            if (words[0].equalsIgnoreCase("tick")) {
                readTick(value);
            } else if (words[0].equalsIgnoreCase("epoch")) {
                readEpoch(value);
            } else if (PRESETS.containsKey(part.toLowerCase(Locale.ROOT))) {
                readPreset(first);
            } else {
                throw new Refusal("A layout is the name of a preset (see snowflake_layouts()), or"
                        + " parts such as \"timestamp 41, worker 10, sequence 12, tick 1ms,"
                        + " epoch 2024-01-01T00:00:00Z\".",
                        "\"%s\" is neither a preset nor one of timestamp, datacenter, worker,"
                        + " clock, sequence, tick and epoch.", part);
            }
        }

        /** Takes over a preset: its layout and the order of its fields. */
        private void readPreset(boolean first) throws Refusal {
            if (!first) {
                throw new Refusal("Name the preset first, then what is different.",
                        "The preset \"%s\" must be the first part.", part);
            }
            readDefinition(PRESETS.get(part.toLowerCase(Locale.ROOT)));
            seen = new boolean[FIELDS.length];
            seenTick = false;
            seenEpoch = false;
            fromPreset = true;
        }

        /** The width of a field: 1 to 31 bits, of the timestamp 1 to 62. */
        private void readWidth(int field, String value) throws Refusal {
            int max = field == TIMESTAMP ? MAX_BITS - 1 : MAX_FIELD_BITS;
            int width = value.matches("\\d{1,9}") ? Integer.parseInt(value) : 0;

            if (seen[field]) {
                throw new Refusal("Give each field once.", "\"%s\" repeats the field %s.", part,
                        FIELDS[field]);
            }
            seen[field] = true;
            if (width < 1 || width > max) {
                throw new Refusal("Give a field's width as a number of bits, as in"
                        + " \"sequence 12\".", "\"%s\" must give the %s field 1 to %d bits.",
                        part, FIELDS[field], max);
            }
            if (fromPreset && bits[field] == 0) {
                throw new Refusal("Spell out the whole layout, with its fields in order.",
                        "\"%s\" changes a field that the preset does not have.", part);
            }
            if (!fromPreset) {
                order.add(field);
            }
            bits[field] = width;
            if (order.get(0) != TIMESTAMP) {
                throw new Refusal("Ids sort by time only if the timestamp has the highest bits.",
                        "\"%s\" stands before the timestamp, which must be the first field.",
                        part);
            }
        }

        /** The length of a tick: 1us to a day. */
        private void readTick(String value) throws Refusal {
            Matcher match = TICK.matcher(value);
            long unit = 0;
            long number = 0;

            if (seenTick) {
                throw new Refusal("Give the tick once.", "\"%s\" repeats the tick.", part);
            }
            seenTick = true;
            if (match.matches()) {
                number = Long.parseLong(match.group(1));
                unit = match.group(2).equalsIgnoreCase("us") ? 1
                        : match.group(2).equalsIgnoreCase("ms") ? 1000
                        : match.group(2).equalsIgnoreCase("s") ? SECOND : 0;
            }
            if (unit == 0 || number < 1 || number > MAX_TICK / unit) {
                throw new Refusal("Give the length of a tick as a number with the unit us, ms or"
                        + " s, as in \"tick 1ms\".",
                        "\"%s\" must give a tick from 1us to 86400s.", part);
            }
            tickMicros = number * unit;
        }

        private void readEpoch(String value) throws Refusal {
            if (seenEpoch) {
                throw new Refusal("Give the epoch once.", "\"%s\" repeats the epoch.", part);
            }
            seenEpoch = true;
            try {
                epochMicros = parseEpoch(value);
            } catch (DateTimeException notATime) {
                throw new Refusal("Write the epoch as in \"epoch 2024-01-01T00:00:00Z\" or"
                        + " \"epoch 2016-09-20T00:00:00+08:00\".", "\"%s\" must give an ISO 8601"
                        + " time with a zone, in the years 0001 to 9999.", part);
            }
        }

        private static long parseEpoch(String value) {
            Matcher match = EPOCH.matcher(value);

            if (!match.matches()) {
                throw new DateTimeException(value);
            }
            int hours = number(match, 9);
            int minutes = number(match, 10);
            if (hours > 15 || minutes > 59) {
                throw new DateTimeException(value);
            }
            long zone = (hours * 60 + minutes) * 60L * ("-".equals(match.group(8)) ? -1 : 1);
            long second = LocalDateTime.of(number(match, 1), number(match, 2), number(match, 3),
                    number(match, 4), number(match, 5), number(match, 6))
                    .toEpochSecond(ZoneOffset.UTC) - zone;
            if (number(match, 1) < 1 || second < FIRST_EPOCH || second >= END_EPOCH) {
                throw new DateTimeException(value);
            }
            String fraction = match.group(7) == null ? "" : match.group(7);
            return second * SECOND + Integer.parseInt((fraction + "000000").substring(0, 6));
        }

        /** A group of digits; 0 if it is missing. */
        private static int number(Matcher match, int group) {
            return match.group(group) == null ? 0 : Integer.parseInt(match.group(group));
        }

        /** What can only be said of the whole: needed fields, sum of widths. */
        void checkWhole() throws Refusal {
            int sum = 0;

            if (bits[TIMESTAMP] == 0 || bits[SEQUENCE] == 0) {
                throw new Refusal("Add the field, as in \"timestamp 41, worker 10, sequence 12\".",
                        "A layout needs at least 1 bit of %s.",
                        bits[TIMESTAMP] == 0 ? "timestamp" : "sequence");
            }
            for (int field : order) {
                sum += bits[field];
            }
            if (sum > MAX_BITS) {
                throw new Refusal("Make a field narrower; ids are never negative, so the top bit"
                        + " of a bigint is not used.",
                        "The widths add up to %d bits, more than %d (last part \"%s\").", sum,
                        MAX_BITS, part);
            }
        }
    }
}
