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
            1_764_000_000_000_000L);

    private RegistryTest() {
    }

    public static void main(String[] args) {
        Check.test("requests are what doc/protocol.md has", RegistryTest::requests);
        Check.test("a grant, a renewal and a release are read", RegistryTest::answers);
        Check.test("a no is one for renewals and releases only", RegistryTest::no);
        Check.test("a refusal is read, in the registry's words", RegistryTest::refused);
        Check.test("an answer that lacks something, or has it impossible, is refused", RegistryTest::broken);
        Check.test("what is no JSON is refused", RegistryTest::notJson);
        Check.test("texts from a registry are short and printable", RegistryTest::texts);
        Check.test("of the warnings only that of a cancelled wait for a standby is a failure", RegistryTest::warnings);
        Check.end();
    }

    private static LeaseMachine.Request request(LeaseMachine.Call kind, long number) {
        LeaseMachine.Request request = new LeaseMachine.Request(kind, number, ID);

        request.clock = 1_764_000_000_123_456L;
        request.maxAhead = 1_001_000;
        request.window = 10_000_000;
        return request;
    }

    private static LeaseMachine.Request withLease(LeaseMachine.Call kind, Long end) {
        LeaseMachine.Request request = request(kind, 7);
        Lease lease = new Lease(5, OTHER, ID, 4, 402, 1_764_000_000_000_000L, 1_764_000_010_000_000L);

        lease.end = end;
        request.lease = new Lease(lease);
        return request;
    }

    private static final String HEAD = "{\"protocol\": 1, \"start\": \"" + ID + "\", \"call\": ";
    private static final String LAYOUT = ", \"layout\": \"timestamp 41, datacenter 5, worker 5, sequence 12, tick 1ms,"
            + " epoch 2010-11-04T01:42:54.657Z\"";
    private static final String LEASE = ", \"lease\": {\"token\": \"" + OTHER + "\", \"node_number\": 402, \"granted_by\": 5,"
            + " \"incarnation\": \"" + ID + "\", \"generation\": 4, \"leased_until\": 1764000010000000";
    private static final String ASKED = ", \"clock\": 1764000000123456, \"max_ahead\": 1001000, \"window\": 10000000";
    private static final String NODE = ", \"kind\": \"program\", \"name\": \"orders \\\"api\\\"\","
            + " \"host_name\": \"app-1\", \"launched_at\": 1764000000000000,"
            + " \"first_number\": 0, \"last_number\": 1022, \"fixed\": false";

    private static void requests() {
        Check.same(REGISTRY.write(request(LeaseMachine.Call.ACQUIRE, 1)),
                HEAD + "1" + LAYOUT + ", \"lease\": null" + ASKED + NODE
                        + ", \"uses\": null, \"ids_end_at\": null, \"starts_at\": null}", "the first acquire_lease");

        LeaseMachine.Request again = withLease(LeaseMachine.Call.ACQUIRE, 11L);
        again.uses = OTHER;
        again.idsEndAt = 12L;
        again.startsAt = 13L;
        Check.same(REGISTRY.write(again), HEAD + "7" + LAYOUT + LEASE + ", \"ids_end_at\": 11}" + ASKED + NODE
                + ", \"uses\": \"" + OTHER + "\", \"ids_end_at\": 12, \"starts_at\": 13}", "another acquire_lease");

        Check.same(REGISTRY.write(withLease(LeaseMachine.Call.RENEW, null)), HEAD + "7" + LAYOUT + LEASE + "}" + ASKED + "}",
                "renew_lease");
        Check.same(REGISTRY.write(withLease(LeaseMachine.Call.RELEASE, 11L)), HEAD + "7" + LAYOUT + LEASE
                + ", \"ids_end_at\": 11}}", "release_lease");
    }

    private static LeaseMachine.Result read(LeaseMachine.Call kind, String answer) {
        return REGISTRY.read(withLease(kind, null), answer);
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
        LeaseMachine.Result renewal = read(LeaseMachine.Call.RENEW, answer("\"leased_until\":-5,\"answer\":\"yes\""));
        Check.same(renewal.leasedUntil, -5L, "end of a renewal");
        Check.same(renewal.generation, 3L, "generation of a renewal");
        Check.same(renewal.incarnation, ID, "incarnation of a renewal");
        Check.same(read(LeaseMachine.Call.RELEASE, answer("\"answer\": \"yes\"")).answer, LeaseMachine.Answer.YES, "release");
    }

    /** With what every answer has. */
    private static String answer(String what) {
        return "{\"protocol\": 1, \"incarnation\": \"" + ID + "\", \"generation\": 3, \"clock\": 17, " + what + "}";
    }

    private static void no() throws Exception {
        String no = answer("\"answer\": \"no\", \"reason\": \"rolled back\"");

        Check.same(read(LeaseMachine.Call.RENEW, no).answer, LeaseMachine.Answer.NO, "renewal");
        Check.same(read(LeaseMachine.Call.RENEW, no).reason, "rolled back", "reason");
        Check.same(read(LeaseMachine.Call.RENEW, no).clock, 17L, "the registry's clock");
        Check.same(read(LeaseMachine.Call.RELEASE, answer("\"answer\": \"no\", \"reason\": \"of a later version\"")).answer,
                LeaseMachine.Answer.NO, "release");
        Check.illegal(() -> read(LeaseMachine.Call.ACQUIRE, no));
        broken(LeaseMachine.Call.RENEW, no, new String[][] {
                {"\"reason\": \"rolled back\"", "null", "5", "{}"},
                {"\"incarnation\": \"" + ID + "\"", "\"\"", "null"},
                {"\"generation\": 3", "0", "null"},
                {"\"clock\": 17", "253402300800000000", "null"},
        });
    }

    private static final String REFUSED = answer("\"answer\": \"refused\", \"sqlstate\": \"53400\","
            + " \"message\": \"no node\\nnumber is free\", \"detail\": \"Of 2 ...\", \"hint\": \"Wait\\u202e.\", \"wait\": 2500000");

    private static void refused() throws Exception {
        for (LeaseMachine.Call kind : new LeaseMachine.Call[] {LeaseMachine.Call.ACQUIRE, LeaseMachine.Call.RENEW,
            LeaseMachine.Call.RELEASE}) {
            LeaseMachine.Result result = read(kind, REFUSED);

            Check.same(result.answer, LeaseMachine.Answer.REFUSED, "answer");
            Check.same(result.problem.sqlState, "53400", "SQLSTATE");
            Check.same(result.problem.message, "no node number is free.  Detail: Of 2 ...  Hint: Wait .", "message");
            Check.holds(result.problem.refused && !result.problem.isLasting(), "threads wait: it is over in 2.5 s");
            Check.holds(read(kind, REFUSED.replace("2500000", "10000000")).problem.isLasting(), "threads hear of it at once");
            Check.same(result.wait, 2_500_000L, "wait");
            Check.same(result.clock, 17L, "the registry's clock");
        }
        Check.same(read(LeaseMachine.Call.RENEW, REFUSED.replace("\"Of 2 ...\"", "null").replace("\"Wait\\u202e.\"", "\"\""))
                .problem.message, "no node number is free", "without detail and hint");
        Check.holds(read(LeaseMachine.Call.RENEW, REFUSED.replace("Of 2", "x".repeat(60_000))).problem.message.length() < 1_200,
                "a long detail");
        Check.same(read(LeaseMachine.Call.RENEW, REFUSED.replace("2500000", "10000000")).wait, 10_000_000L, "the longest wait");
        broken(LeaseMachine.Call.RENEW, REFUSED, new String[][] {
                {"\"answer\": \"refused\"", "\"Refused\"", "\"error\"", "null"},
                {"\"sqlstate\": \"53400\"", "53400", "\"5340\"", "\"534000\"", "\"5340a\"", "\"00000\"", "null"},
                {"\"message\": \"no node\\nnumber is free\"", "null", "7", "{}"},
                {"\"wait\": 2500000", "-1", "10000001", "\"0\"", "1.5", "null"},
                {"\"clock\": 17", "17.5", "null"},
                {"\"incarnation\": \"" + ID + "\"", "null"},
                {"\"generation\": 3", "2147483648"},
        });
        for (String key : new String[] {"detail", "hint"}) {
            Check.illegal(() -> read(LeaseMachine.Call.RENEW, REFUSED.replace("\"" + key + "\": ", "\"" + key + "\": 5, \"x\": ")));
        }
    }

    /** Each value in turn is missing, and is what it cannot be. */
    private static void broken(LeaseMachine.Call kind, String good, String[][] values) throws Exception {
        read(kind, good);
        for (String[] row : values) {
            Check.holds(good.contains(row[0]), row[0]);
            Check.illegal(() -> read(kind, good.replace(row[0], "\"nothing\": 0")));
            for (int i = 1; i < row.length; i++) {
                String other = row[0].substring(0, row[0].indexOf(':') + 2) + row[i];

                Check.illegal(() -> read(kind, good.replace(row[0], other)));
            }
        }
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

        broken(LeaseMachine.Call.ACQUIRE, GRANT, values);
        Check.illegal(() -> read(LeaseMachine.Call.RENEW, answer("\"answer\": \"yes\"")));
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
