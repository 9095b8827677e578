package example.snowflake;

import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;

/**
 * Layouts against published descriptions and ids, and against the server.
 *
 * <p>Arguments: the folder test/data; and a JDBC URL of a database with the extension snowflake, if
 * the same random definitions are to be read by the server.
 */
public final class LayoutTest {

    private static final int DEFINITIONS = 3000;

    private static final DateTimeFormatter TIME = DateTimeFormatter.ofPattern(
            "uuuu-MM-dd HH:mm:ss.SSSSSS").withZone(ZoneOffset.UTC);

    private static int checks;

    public static void main(String[] args) throws Exception {
        Path data = Path.of(args[0]);

        presetsAreThePublishedLayouts(data);
        passed("presets are the published layouts");
        idsHaveThePublishedParts(data);
        passed("published ids have the published parts");
        definitionsAreReadInAnyForm();
        passed("definitions are read in any form");
        lastTicksEndWhereTheServersDo();
        passed("the last ticks end where the server's do");
        ticksAndTimes();
        passed("ticks and times");
        wrongDefinitionsAreRefused();
        wrongEpochsAreRefused();
        passed("what is no layout is refused, with the reason");
        if (args.length > 1) {
            sameAsTheServer(args[1], args.length > 2 ? Long.parseLong(args[2]) : System.nanoTime());
            passed(DEFINITIONS + " random definitions are read as the server reads them");
        }
    }

    private static void passed(String what) {
        System.out.println("ok - " + what + " (" + checks + " checks so far)");
    }

    private static void check(Object got, Object wanted, String what) {
        if (!got.equals(wanted)) {
            throw new AssertionError(what + ":\n" + got + "\nshould be:\n" + wanted);
        }
        checks++;
    }

    /** The rows of a file, without its head; no comma stands in one of the first columns. */
    private static List<String[]> rows(Path file) throws Exception {
        List<String[]> rows = new ArrayList<>();

        for (String line : Files.readAllLines(file)) {
            rows.add(line.split(",", 9));
        }
        return rows.subList(1, rows.size());
    }

    /** What a row of layouts.csv describes; one of 64 bits without the top bit. */
    private static String definitionOf(String[] row) {
        StringBuilder text = new StringBuilder();

        for (String field : row[2].split(" ")) {
            String name = field.replaceAll("\\d", "");
            int bits = Integer.parseInt(field.replaceAll("\\D", ""));

            text.append(name.equals("t") ? "timestamp" : name.equals("dc") ? "datacenter"
                    : name.equals("w") ? "worker" : "sequence").append(' ')
                    .append(name.equals("t") && row[3].equals("64") ? bits - 1 : bits).append(", ");
        }
        return text + "tick " + row[6] + "ms, epoch "
                + Instant.ofEpochMilli(Long.parseLong(row[4]));
    }

    private static void presetsAreThePublishedLayouts(Path data) throws Exception {
        Set<String> published = new HashSet<>();

        for (String[] row : rows(data.resolve("layouts.csv"))) {
            if (row[0].isEmpty()) {
                continue;
            }
            Layout layout = Layout.of(row[0]);
            published.add(row[0]);
            check(layout, Layout.of(definitionOf(row)), row[0]);
            if (!row[3].equals("64") && !row[7].startsWith(">")) {
                check(Instant.ofEpochSecond(0, 1000 * layout.tickBegin(layout.maxTick() + 1)),
                        Instant.parse(row[7].replace("Z", "") + "Z"), "the end of " + row[0]);
            }
        }
        published.add("js53");
        check(Layout.presets().keySet(), published, "presets");
    }

    private static void idsHaveThePublishedParts(Path data) throws Exception {
        Map<String, String> definitions = new HashMap<>();

        for (String[] row : rows(data.resolve("layouts.csv"))) {
            definitions.put(row[1], definitionOf(row));
        }
        for (String[] row : rows(data.resolve("vectors.csv"))) {
            if (row[0].startsWith("seata")) {
                refused(definitions.get(row[0]), "stands before the timestamp");
                continue;
            }
            Layout layout = Layout.of(definitions.get(row[0]));
            long id = Long.parseLong(row[1]);
            Layout.Parts parts = layout.parts(id);
            check(parts.timestamp(), Instant.ofEpochMilli(Long.parseLong(row[2])), "id " + id);
            check(parts.datacenterId(), number(row[3]), "datacenter of " + id);
            check(parts.workerId(), number(row[4]), "worker of " + id);
            check(parts.sequence(), number(row[5]), "sequence of " + id);
            check(layout.compose(layout.tick(id), layout.nodeNumber(id), layout.sequence(id)), id,
                    "composed");
        }
        Layout mixed = Layout.of("timestamp 40, clock 2, sequence 6, datacenter 3, worker 4");
        long id = mixed.compose(5, (6 << 4 | 9) << 2 | 3, 33);
        check(mixed.parts(id).toString(), "timestamp 1970-01-01T00:00:00.005Z, clock 3,"
                + " sequence 33, datacenter 6, worker 9", "parts in another order");
        check(mixed.nodeNumber(id), (6L << 4 | 9) << 2 | 3, "node number");
        check(mixed.maxNodeNumber(), 511L, "greatest node number");
    }

    private static int number(String text) {
        return text.isEmpty() ? 0 : Integer.parseInt(text);
    }

    private static void definitionsAreReadInAnyForm() {
        String twitter = "timestamp 41, datacenter 5, worker 5, sequence 12, tick 1ms,"
                + " epoch 2010-11-04T01:42:54.657Z";

        for (String text : new String[] {"twitter", "  TWITTER\t", "\n twitter,tick 1 MS",
            "Twitter, epoch 2010-11-04 01:42:54.657+00", twitter.toUpperCase(), "twitter"
            + " ".repeat(1000)}) {
            check(Layout.of(text).definition(), twitter, text);
        }
        same("timestamp 41, worker 1, sequence 1, epoch 2016-09-20T00:00:00.123456+0830",
                "epoch 2016-09-19T15:30:00.123456Z");
        same("timestamp 41, worker 1, sequence 1, epoch 1999-12-31T23:59:59.5Z",
                "epoch 1999-12-31T23:59:59.500Z");
        same("timestamp 41, worker 1, sequence 1, tick 1000us", "tick 1ms,"
                + " epoch 1970-01-01T00:00:00Z");
        same("timestamp 41, worker 1, sequence 1, tick 60000ms", "tick 60s,"
                + " epoch 1970-01-01T00:00:00Z");
        check(Layout.of("mastodon").isIssuable(), false, "mastodon has no worker");
        check(Layout.of("leaf, tick 2s").isIssuable(), false, "a tick of 2s");
        check(Layout.of("leaf, tick 1s").isIssuable(), true, "a tick of 1s");
    }

    private static void same(String text, String end) {
        String definition = Layout.of(text).definition();

        check(definition.endsWith(", " + end), true, text + " is " + definition);
        check(Layout.of(definition).definition(), definition, "read again");
    }

    private static void lastTicksEndWhereTheServersDo() {
        Layout days = Layout.of("timestamp 62, sequence 1, tick 86400s");

        check(days.parts(days.maxId()).timestamp(), Instant.parse("+294276-12-30T00:00:00Z"),
                "the last day whose end timestamptz shows");
        days = Layout.of("timestamp 62, sequence 1, tick 86400s, epoch 1970-01-01T12:00:00Z");
        check(days.parts(days.maxId()).timestamp(), Instant.parse("+294276-12-30T12:00:00Z"),
                "the same with days from noon");
        try {
            days.parts(days.maxId() + 1);
            throw new AssertionError("an id after the end has parts");
        } catch (IllegalArgumentException outside) {
            check(outside.getMessage().contains("Its ids are from 0 to " + days.maxId()), true,
                    outside.getMessage());
        }
    }

    private static void ticksAndTimes() {
        Layout layout = Layout.of("leaf, tick 10ms, epoch 2000-01-01T00:00:00Z");
        long epoch = layout.epochMicros();

        check(layout.tickAt(epoch + 9_999), 0L, "tick at");
        check(layout.tickAt(epoch + 10_000), 1L, "tick at");
        check(layout.tickFrom(epoch - 1), 0L, "tick from before the epoch");
        check(layout.tickFrom(epoch), 0L, "tick from the epoch");
        check(layout.tickFrom(epoch + 1), 1L, "tick from");
        check(layout.tickFrom(epoch + 10_000), 1L, "tick from");
        check(layout.tickFrom(epoch + 10_001), 2L, "tick from");
        check(layout.tickBegin(2), epoch + 20_000, "tick begin");
        Layout late = Layout.of("timestamp 62, sequence 1, tick 86400s");
        check(late.tickBegin(late.maxTick() + 1), Long.MAX_VALUE, "too late for a long");
    }

    private static void refused(String definition, String detail) {
        try {
            throw new AssertionError("accepted: " + definition + " as " + Layout.of(definition));
        } catch (IllegalArgumentException refused) {
            check(refused.getMessage().contains(detail), true, refused.getMessage());
            check(refused.getMessage().contains("\nHint: "), true, refused.getMessage());
        }
    }

    private static void wrongDefinitionsAreRefused() {
        refused("", "\"\" is neither a preset nor one of timestamp");
        refused("tweeter", "\"tweeter\" is neither");
        refused("timestamp 41, machine 10, sequence 12", "\"machine 10\" is neither");
        refused("timestamp 41, worker 10, worker 10, sequence 2", "repeats the field worker");
        refused("timestamp 41, worker 10, sequence 13", "add up to 64 bits, more than 63");
        refused("timestamp 30, worker 32, sequence 1", "the worker field 1 to 31 bits");
        refused("timestamp 63, sequence 1", "the timestamp field 1 to 62 bits");
        refused("timestamp 41, worker 10.5, sequence 12", "\"worker 10.5\" must give");
        refused("timestamp 99999999999999999999, sequence 12", "1 to 62 bits");
        refused("timestamp 41, worker, sequence 12", "\"worker\" must give");
        refused("timestamp 41, worker 10", "at least 1 bit of sequence");
        refused("tick 1ms", "at least 1 bit of timestamp");
        refused("worker 10, timestamp 41, sequence 12", "\"worker 10\" stands before");
        refused("leaf, datacenter 5", "changes a field that the preset does not have");
        refused("twitter, leaf", "The preset \"leaf\" must be the first part");
        refused("twitter,", "\"\" is neither");
        refused("twitter, tick 1ms, tick 2ms", "\"tick 2ms\" repeats the tick");
        refused("twitter, tick 0ms", "from 1us to 86400s");
        refused("twitter, tick 86401s", "from 1us to 86400s");
        refused("twitter, tick 1min", "from 1us to 86400s");
        refused("twitter, epoch 2024-01-01T00:00:00Z, epoch 2024-01-01T00:00:00Z", "repeats the");
        refused("x".repeat(1000), "\"" + "x".repeat(127) + "...\" is longer than 127 characters");
        refused("twitter, w\u00f6rker 5", "\"w??rker 5\" is neither");
    }

    private static void wrongEpochsAreRefused() {
        for (String epoch : new String[] {"now", "", "2024-01-01", "2024-01-01T00:00:00",
            "2023-02-29T00:00:00Z", "2024-13-01T00:00:00Z", "2024-01-00T00:00:00Z",
            "0000-01-01T00:00:00Z", "24-01-01T00:00:00Z", "2024-01-01T24:00:00Z",
            "2024-01-01T00:60:00Z", "2024-01-01T00:00:60Z", "2024-01-01T00:00:00.Z",
            "2024-01-01T00:00:00.1234567Z", "2024-01-01T00:00:00+16", "2024-01-01T00:00:00+08:60",
            "2024-01-01T00:00:00+8", "0001-01-01T00:00:00+01", "9999-12-31T23:00:00-01",
            "2024-01-01T00:00:00 Europe/Berlin", "2024-01-01T00:00:00Zx"}) {
            refused("twitter, epoch " + epoch, "must give an ISO 8601 time with a zone");
        }
    }

    /** Random definitions, right and wrong ones: the server reads the same, or says the same. */
    private static void sameAsTheServer(String url, long seed) throws SQLException {
        Random random = new Random(seed);

        System.out.println("LayoutTest: seed " + seed);
        try (Connection connection = DriverManager.getConnection(url);
                PreparedStatement layout = connection.prepareStatement(
                        "SELECT definition FROM snowflake_layout(?)");
                PreparedStatement parse = connection.prepareStatement(
                        "SELECT to_char(\"timestamp\" AT TIME ZONE 'UTC',"
                        + " 'YYYY-MM-DD HH24:MI:SS.US'), coalesce(datacenter_id, 0),"
                        + " coalesce(worker_id, 0),"
                        + " coalesce(clock, 0), sequence FROM snowflake_parse(?, ?)")) {
            int accepted = 0;

            for (int i = 0; i < DEFINITIONS; i++) {
                String text = randomDefinition(random);
                String ours;
                try {
                    Layout read = Layout.of(text);
                    ours = read.definition();
                    accepted++;
                    sameParts(parse, read, random.nextLong() >>> 1 + random.nextInt(40));
                    sameParts(parse, read, read.maxId());
                } catch (IllegalArgumentException refused) {
                    ours = refused.getMessage();
                }
                check(ours, serverSays(layout, text), text);
            }
            check(accepted > DEFINITIONS / 4 && accepted < DEFINITIONS * 3 / 4, true,
                    accepted + " of " + DEFINITIONS + " accepted");
        }
    }

    private static String serverSays(PreparedStatement layout, String text) throws SQLException {
        layout.setString(1, text);
        try (ResultSet row = layout.executeQuery()) {
            row.next();
            return row.getString(1);
        } catch (SQLException error) {
            check(error.getSQLState(), "22023", error.getMessage());
            return error.getMessage().replaceFirst("^ERROR: ", "")
                    .replaceFirst("\n  Detail: ", "\nDetail: ")
                    .replaceFirst("\n  Hint: ", "\nHint: ");
        }
    }

    private static void sameParts(PreparedStatement parse, Layout layout, long id)
            throws SQLException {
        if (!layout.contains(id)) {
            return;
        }
        Layout.Parts parts = layout.parts(id);
        parse.setLong(1, id);
        parse.setString(2, layout.definition());
        try (ResultSet row = parse.executeQuery()) {
            row.next();
            check(TIME.format(parts.timestamp()).replace("+", ""), row.getString(1),
                    layout + ": time of " + id);
            check(List.of(parts.datacenterId(), parts.workerId(), parts.clock(), parts.sequence()),
                    List.of(row.getInt(2), row.getInt(3), row.getInt(4), row.getInt(5)),
                    layout + ": parts of " + id);
        }
    }

    /** Half of them valid or nearly, the others with a character or a part changed. */
    private static String randomDefinition(Random random) {
        List<String> parts = new ArrayList<>();
        List<String> fields = new ArrayList<>(List.of("datacenter", "worker", "clock", "sequence"));
        String[] ticks = {"1ms", "10MS", "100us", "1s", "7us", "90000ms", "86400s", "999999999us",
            "86400000001us"};

        if (random.nextInt(4) == 0) {
            List<String> names = new ArrayList<>(Layout.presets().keySet());
            parts.add(names.get(random.nextInt(names.size())));
            if (random.nextBoolean()) {
                parts.add(fields.get(random.nextInt(4)) + " " + (1 + random.nextInt(14)));
            }
        } else {
            int left = 63;
            int bits = 20 + random.nextInt(30);
            parts.add("timestamp " + bits);
            Collections.shuffle(fields, random);
            for (String field : fields) {
                left -= bits;
                bits = left > 1 ? 1 + random.nextInt(Math.min(left - 1, 20)) : 1;
                if (field.equals("sequence") || random.nextBoolean()) {
                    parts.add(field + " " + bits);
                } else {
                    bits = 0;
                }
            }
        }
        if (random.nextBoolean()) {
            parts.add("tick " + ticks[random.nextInt(ticks.length)]);
        }
        if (random.nextBoolean()) {
            parts.add("epoch " + randomEpoch(random));
        }
        return changed(String.join(random.nextBoolean() ? ", " : ",", parts), random);
    }

    private static String randomEpoch(Random random) {
        long first = Instant.parse("0001-01-01T00:00:00Z").getEpochSecond();
        long end = Instant.parse("9999-12-31T23:59:59Z").getEpochSecond();
        String[] zones = {"Z", "z", "+08", "-0330", "+05:45", "+15:59"};

        return Instant.ofEpochSecond(first + (long) (random.nextDouble() * (end - first)),
                random.nextInt(3) * 120_300_000L + random.nextInt(2) * 4_000L).toString()
                .replace("T", random.nextInt(9) == 0 ? " " : "T").replaceFirst("Z$",
                        zones[random.nextInt(zones.length)]).replaceFirst("(\\.\\d{6})000", "$1");
    }

    private static String changed(String text, Random random) {
        StringBuilder changed = new StringBuilder(text);
        String characters = " ,0123456789abcdefghimnoprstuwyzTZ+-:.\t\u00e4\u20ac";

        for (int n = random.nextInt(4) - 1; n > 0; n--) {
            int at = random.nextInt(changed.length());
            char other = characters.charAt(random.nextInt(characters.length()));

            switch (random.nextInt(3)) {
                case 0:
                    changed.setCharAt(at, other);
                    break;
                case 1:
                    changed.insert(at, other);
                    break;
                default:
                    changed.deleteCharAt(at);
                    break;
            }
        }
        return changed.toString();
    }
}
