package example.snowflake;

import java.sql.SQLException;
import java.sql.SQLWarning;
import java.util.UUID;

/** What is written to the registry, and what of its answers is believed. */
public final class RegistryTest {
    private static final UUID ID = UUID.fromString("6f0c9a54-1f0b-4a57-9c0e-8f5d1f2b6a11");
    private static final UUID OTHER = UUID.fromString("00000000-0000-4000-8000-000000000002");
    private static final String GRANT = "{\"protocol\": 1, \"answer\": \"yes\", \"incarnation\": \"" + ID
            + "\", \"generation\": 3, \"token\": \"" + OTHER + "\", \"node_number\": 402, \"clock\": 17,"
            + " \"starts_at\": 1764000000123456, \"leased_until\": 1764000010123000, \"later\": [{\"a\": 1.5e3}]}";

    private static final Registry REGISTRY = new Registry(null, Layout.of("twitter"), "orders \"api\"", "app-1",
            1_764_000_000_000_000L, 1_000_000);

    private RegistryTest() {
    }

    public static void main(String[] args) {
        Check.test("requests are what doc/protocol.md has", RegistryTest::requests);
        Check.test("a grant, a renewal and a release are read", RegistryTest::answers);
        Check.test("a no is one for renewals and releases only", RegistryTest::no);
        Check.test("an answer that lacks something, or has it impossible, is refused", RegistryTest::broken);
        Check.test("what is no JSON is refused", RegistryTest::notJson);
        Check.test("texts from a registry are short and printable", RegistryTest::texts);
        Check.test("of the warnings only that of a cancelled wait for a standby is a failure", RegistryTest::warnings);
        Check.end();
    }

    private static LeaseMachine.Request request(LeaseMachine.Call kind, long number) {
        LeaseMachine.Request request = new LeaseMachine.Request(kind, number, ID);

        request.clock = 1_764_000_000_123_456L;
        request.window = 10_000_000;
        return request;
    }

    private static LeaseMachine.Request withLease(LeaseMachine.Call kind) {
        LeaseMachine.Request request = request(kind, 7);

        request.token = OTHER;
        request.grantedBy = 5;
        return request;
    }

    private static final String LAYOUT = "\"layout\": {\"definition\": \"" + Layout.of("twitter").definition()
            + "\", \"epoch\": 1288834974657000, \"tick\": 1000, \"fields\": [[\"timestamp\", 41],"
            + " [\"datacenter\", 5], [\"worker\", 5], [\"sequence\", 12]]}";
    private static final String NODE = "\"kind\": \"program\", \"name\": \"orders \\\"api\\\"\","
            + " \"host_name\": \"app-1\", \"launched_at\": 1764000000000000, \"max_ahead\": 1000000, \"tick\": 1000,"
            + " \"first_number\": 0, \"last_number\": 1022, \"fixed\": false, \"layout_set\": true,"
            + " \"clock\": 1764000000123456, \"window\": 10000000, ";

    private static void requests() {
        Check.same(REGISTRY.write(request(LeaseMachine.Call.ACQUIRE, 1)),
                "{\"protocol\": 1, \"start\": \"" + ID + "\", \"call\": 1, " + LAYOUT + ", \"lease\": null, "
                        + NODE + "\"uses\": null, \"ended\": null, \"starts_at\": null}", "the first acquire_lease");

        LeaseMachine.Request again = withLease(LeaseMachine.Call.ACQUIRE);
        again.idsEndAt = 11L;
        again.uses = OTHER;
        again.generation = 4;
        again.endedAt = 12L;
        again.startsAt = 13L;
        Check.same(REGISTRY.write(again), "{\"protocol\": 1, \"start\": \"" + ID + "\", \"call\": 7, " + LAYOUT
                + ", \"lease\": {\"token\": \"" + OTHER + "\", \"granted_by\": 5, \"ids_end_at\": 11}, " + NODE
                + "\"uses\": \"" + OTHER + "\", \"ended\": {\"ids_end_at\": 12, \"incarnation\": \"" + OTHER
                + "\", \"generation\": 4}, \"starts_at\": 13}", "another acquire_lease");

        Check.same(REGISTRY.write(withLease(LeaseMachine.Call.RENEW)), "{\"protocol\": 1, \"start\": \"" + ID
                + "\", \"call\": 7, " + LAYOUT + ", \"lease\": {\"token\": \"" + OTHER + "\", \"granted_by\": 5},"
                + " \"clock\": 1764000000123456, \"window\": 10000000}", "renew_lease");

        LeaseMachine.Request release = withLease(LeaseMachine.Call.RELEASE);
        release.idsEndAt = 11L;
        Check.same(REGISTRY.write(release), "{\"protocol\": 1, \"start\": \"" + ID + "\", \"call\": 7, " + LAYOUT
                + ", \"lease\": {\"token\": \"" + OTHER + "\", \"granted_by\": 5, \"ids_end_at\": 11}}",
                "release_lease");
    }

    private static LeaseMachine.Result read(LeaseMachine.Call kind, String answer) {
        return REGISTRY.read(withLease(kind), answer);
    }

    private static void answers() {
        LeaseMachine.Result grant = read(LeaseMachine.Call.ACQUIRE, GRANT);

        Check.same(grant.answer, LeaseMachine.Answer.YES, "answer");
        Check.same(grant.incarnation, ID, "incarnation");
        Check.same(grant.generation, 3L, "generation");
        Check.same(grant.token, OTHER, "token");
        Check.same(grant.clock, 17L, "the registry's clock");
        Check.same(grant.nodeNumber, 402L, "node number");
        Check.same(grant.startsAt, 1_764_000_000_123_456L, "start");
        Check.same(grant.leasedUntil, 1_764_000_010_123_000L, "end");
        Check.same(read(LeaseMachine.Call.RENEW, "{\"leased_until\":-5,\"clock\":17,\"answer\":\"yes\",\"protocol\":1}").leasedUntil,
                -5L, "end of a renewal");
        Check.same(read(LeaseMachine.Call.RELEASE, "{\"answer\":\"yes\",\"clock\":17,\"protocol\":1}").answer,
                LeaseMachine.Answer.YES, "release");
    }

    private static void no() throws Exception {
        String no = "{\"protocol\": 1, \"answer\": \"no\", \"reason\": \"generation\"}";

        Check.same(read(LeaseMachine.Call.RENEW, no).answer, LeaseMachine.Answer.NO, "renewal");
        Check.same(read(LeaseMachine.Call.RELEASE, no).answer, LeaseMachine.Answer.NO, "release");
        Check.illegal(() -> read(LeaseMachine.Call.ACQUIRE, no));
    }

    /** Each value of a grant in turn is missing, null, of another type or out of its range. */
    private static void broken() throws Exception {
        String[][] values = {
                {"\"protocol\": 1", "2", "0", "\"1\"", "1.0", "null"},
                {"\"answer\": \"yes\"", "\"Yes\"", "true", "null", "\"no\"", "\"\""},
                {"\"incarnation\": \"" + ID + "\"", "\"" + ID + "0\"", "\"6f0c9a541f0b4a579c0e8f5d1f2b6a11\"", "5", "null"},
                {"\"generation\": 3", "0", "-1", "2147483648", "3.0", "\"3\"", "1e0", "null"},
                {"\"token\": \"" + OTHER + "\"", "\"\"", "null", "[]", "\"" + ID + " \""},
                {"\"node_number\": 402", "-1", "402.5", "9223372036854775808", "\"402\"", "null", "NaN"},
                {"\"clock\": 17", "17.5", "\"17\"", "null", "253402300800000000"},
                {"\"starts_at\": 1764000000123456", "253402300800000000", "-62135596800000001", "null", "1e15"},
                {"\"leased_until\": 1764000010123000", "253402300800000000", "-62135596800000001", "null", "true"},
        };

        for (String[] row : values) {
            Check.holds(GRANT.contains(row[0]), row[0]);
            Check.illegal(() -> read(LeaseMachine.Call.ACQUIRE, GRANT.replace(row[0], "\"nothing\": 0")));
            for (int i = 1; i < row.length; i++) {
                String other = row[0].substring(0, row[0].indexOf(':') + 2) + row[i];

                Check.illegal(() -> read(LeaseMachine.Call.ACQUIRE, GRANT.replace(row[0], other)));
            }
        }
        Check.illegal(() -> read(LeaseMachine.Call.RENEW, "{\"protocol\": 1, \"answer\": \"yes\"}"));
        Check.illegal(() -> read(LeaseMachine.Call.ACQUIRE, GRANT.replace("\"later\"", "\"token\"")));
        Check.illegal(() -> read(LeaseMachine.Call.ACQUIRE, GRANT + " ".repeat(Registry.LONGEST_ANSWER)));
    }

    private static void notJson() throws Exception {
        for (String text : new String[] {"", " ", "{", "}", "[]", "null", "{}x", "{\"a\"}", "{\"a\":}", "{\"a\":1,}",
                "{a:1}", "{'a':1}", "{\"a\":01}", "{\"a\":+1}", "{\"a\":1.}", "{\"a\":.5}", "{\"a\":1e}", "{\"a\":-}",
                "{\"a\":tru}", "{\"a\":\"\n\"}", "{\"a\":\"\\x\"}", "{\"a\":\"\\u12\"}", "{\"a\":\"\\u12g4\"}",
                "{\"a\":\"", "{\"a\":\"\\", "{\"a\":[1,]}", "{\"a\":[1 2]}", "{\"a\":{\"b\":1,\"b\":2}}",
                "{\"a\":" + "[".repeat(100) + "]".repeat(100) + "}", "{\"a\":" + "[".repeat(60_000)}) {
            Check.illegal(() -> Json.read(text));
        }
        Check.same(Json.read(" { } ").size(), 0, "an empty object");
        Check.same(Json.read("{\"a\": \"\\u0041\\n\\\"\\\\\\/\", \"b\": -9223372036854775808, \"c\": {\"d\": [1, {}, []]}}")
                .toString().replaceAll("@.*", ""), "{a=A\n\"\\/, b=-9223372036854775808, c=java.lang.Object", "values");
        Check.same(Json.quote("a\"\\\n\u0001é"), "\"a\\\"\\\\\\u000a\\u0001é\"", "a text");
    }

    /** As PostgreSQL's driver has them. */
    public static final class DriverWarning extends SQLWarning {
        private static final long serialVersionUID = 1;

        private final transient Message message;

        DriverWarning(String state, Message message) {
            super("canceling wait for synchronous replication", state);
            this.message = message;
        }

        public Message getServerErrorMessage() {
            return message;
        }
    }

    /** What the server has sent. */
    public static final class Message {
        private final String routine;

        Message(String routine) {
            this.routine = routine;
        }

        public String getRoutine() {
            return routine;
        }
    }

    private static boolean isRefused(SQLWarning... chain) {
        for (int i = 1; i < chain.length; i++) {
            chain[0].setNextWarning(chain[i]);
        }
        try {
            Registry.refuseCancelledWait(chain[0]);
            return false;
        } catch (SQLException e) {
            Check.same(e.getSQLState(), "08007", "the state");
            return true;
        }
    }

    private static void warnings() throws Exception {
        Message wait = new Message("SyncRepWaitForLSN");
        Message other = new Message("log_audit_event");

        Registry.refuseCancelledWait(null);
        Check.holds(isRefused(new DriverWarning("01000", wait)), "cancelled by a user");
        Check.holds(isRefused(new DriverWarning("57P01", wait)), "cancelled by a shutdown");
        Check.holds(isRefused(new DriverWarning("00000", other), new DriverWarning("01000", other),
                new DriverWarning("01000", wait)), "the last of several");
        Check.holds(!isRefused(new DriverWarning("01000", other)), "another warning");
        Check.holds(!isRefused(new DriverWarning("57P01", other)), "another one with the state of a shutdown");
        Check.holds(!isRefused(new SQLWarning("a notice", "00000")), "a notice");
        Check.holds(isRefused(new SQLWarning("a warning", "01000")), "a driver that knows no routine");
        Check.holds(isRefused(new SQLWarning("a warning")), "nor a state");
        Check.holds(isRefused(new DriverWarning("01000", null)), "a warning that the server has not sent");
        Check.holds(isRefused(new DriverWarning("01000", new Message(null))), "a server that does not say the routine");
    }

    private static void texts() {
        Check.same(Registry.printable(" a\n\tb\u001b[31mc\u0000d\u2028e\u202ef "), "a b [31mc d e f", "one line");
        Check.holds(Registry.printable("x".repeat(5000)).length() < 1010, "short");
    }
}
