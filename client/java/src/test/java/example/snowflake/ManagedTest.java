package example.snowflake;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;

/**
 * Programs on a registry that psql has made in a database of an ordinary role.
 *
 * <p>Arguments: the JDBC URL of its server, up to the name of the database, which is "managed".
 */
public final class ManagedTest {
    private static final Layout TWITTER = Layout.of("twitter");
    /** All ids of all tests: no two may be equal. */
    private static final Set<Long> ALL = new HashSet<>();

    private static String server;

    private ManagedTest() {
    }

    public static void main(String[] args) {
        server = args[0];
        Check.test("ids of two programs, over renewals", ManagedTest::ids);
        Check.test("a copy of the database refuses, and says what to do; then it has other ids", ManagedTest::copied);
        Check.end();
    }

    private static String url(String database, String role) {
        return server + database + "?user=" + role;
    }

    private static Snowflake make(String database, String name) {
        return Snowflake.builder(() -> DriverManager.getConnection(url(database, "app"))).name(name)
                .leaseDuration(Duration.ofSeconds(1)).maxWait(Duration.ofMinutes(1)).build();
    }

    private static String asRole(String role, String database, String sql) throws SQLException {
        try (Connection connection = DriverManager.getConnection(url(database, role));
                Statement statement = connection.createStatement()) {
            if (!statement.execute(sql)) {
                return null;
            }
            try (ResultSet rows = statement.getResultSet()) {
                return rows.next() ? rows.getString(1) : null;
            }
        }
    }

    private static void take(Snowflake ids) {
        long[] batch = ids.next(1000);

        Check.holds(Arrays.stream(batch).allMatch(ALL::add), "distinct");
        for (long id : batch) {
            Check.same(TWITTER.nodeNumber(id), ids.state().nodeNumber(), "node number");
        }
    }

    private static void ids() throws Exception {
        try (Snowflake first = make("managed", "first"); Snowflake second = make("managed", "second")) {
            take(first);
            take(second);
            Check.same(asRole("app_owner", "managed", "SELECT string_agg(concat_ws(' ', kind, name), ', ' ORDER BY name)"
                    + " FROM snowflake.nodes"), "program first, program second", "the view");
            Check.waitFor("two renewals", () -> {
                take(first);
                take(second);
                return asRole("app_owner", "managed", "SELECT count(*) FROM snowflake.node_number"
                        + " WHERE last_call > granted_by + 1").equals("2");
            });
        }
        Check.same(asRole("app_owner", "managed", "SELECT count(*) FROM snowflake.node_number WHERE token IS NOT NULL"), "0",
                "leases that are open after close()");
    }

    private static void copied() throws Exception {
        asRole("postgres", "postgres", "CREATE DATABASE copy TEMPLATE managed OWNER app_owner");
        try (Snowflake ids = make("copy", "first"); Snowflake original = make("managed", "second")) {
            SnowflakeException refusal = Check.refusal(ids::next);

            Check.same(refusal.reason(), SnowflakeException.Reason.REFUSED, "the reason");
            Check.holds(refusal.getMessage().contains("the registry was promoted, restored, copied or upgraded")
                    && refusal.getMessage().contains("leases_are_over"), refusal.getMessage());
            take(original);
            asRole("app_owner", "copy", "SELECT snowflake.leases_are_over(copied => true)");
            Check.waitFor("ids", () -> {
                try {
                    take(ids);
                    return true;
                } catch (SnowflakeException e) {
                    return false;
                }
            });
            take(original);
            Check.holds((ids.state().nodeNumber() ^ original.state().nodeNumber()) % 2 != 0, "numbers of other parity");
        }
    }
}
