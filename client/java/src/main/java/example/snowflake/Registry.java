package example.snowflake;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.SQLWarning;
import java.sql.Statement;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;

/**
 * One call to the registry over JDBC, as doc/protocol.md has it: the request as JSON, the answer
 * checked.  What comes from there is not trusted: it counts as an answer only if every value of it is there
 * and possible, and texts that reach a log or an exception are short and printable.
 *
 * <p>A call is one transaction with one statement.  It has failed if anything but an answer comes: an
 * error, the warning that the commit is perhaps not on a synchronous standby, or nothing for the timeout.
 */
final class Registry {
    static final int PROTOCOL = 1;
    /** Of the reasons for a no the one that somebody must hear of: the tables do not know a lease that they granted. */
    static final String ROLLED_BACK = "rolled back";
    /** Of an answer, in characters. */
    static final int LONGEST_ANSWER = 65_536;
    /** What raises the warning that a commit is perhaps not on a synchronous standby: it has no SQLSTATE of its own. */
    static final String SYNC_REP_ROUTINE = "SyncRepWaitForLSN";
    /** Of each text that it has for people. */
    static final int LONGEST_TEXT = 1_000;
    /** No answer of a registry keeps a node away for longer, in microseconds. */
    static final long LONGEST_REFUSAL = 10_000_000;
    /** The years 1 to 9999, in microseconds since 1970. */
    static final long FIRST_TIME = -62_135_596_800_000_000L;
    static final long END_TIME = 253_402_300_800_000_000L;

    /** Of telling the server that a call is given up on, in microseconds: then its connection is closed all the same. */
    static final long CANCEL_TIMEOUT = 1_000_000;

    /** Longer than any answer is waited for, in milliseconds. */
    private static final int NETWORK_TIMEOUT = (int) (LeaseKeeper.PATIENCE / 1_000) + 15_000;

    private static final Executor HERE = Runnable::run;

    private final ConnectionSource source;
    private final Layout layout;
    private final String name;
    private final String hostName;
    private final long launchedAt;

    /** @param launchedAt microseconds since 1970-01-01 UTC */
    Registry(ConnectionSource source, Layout layout, String name, String hostName, long launchedAt) {
        this.source = source;
        this.layout = layout;
        this.name = name;
        this.hostName = hostName;
        this.launchedAt = launchedAt;
    }

    /** A call that can be given up on. */
    final class Attempt {
        private final LeaseMachine.Request request;
        // below the monitor of ending: they are ended, or somebody else's
        private final Object ending = new Object();
        private Connection connection;
        private Statement statement;
        private boolean givenUp;
        private volatile boolean connected;
        private volatile LeaseMachine.Result result;

        Attempt(LeaseMachine.Request request) {
            this.request = request;
        }

        LeaseMachine.Request request() {
            return request;
        }

        void deliver(LeaseMachine.Result came) {
            result = came;
        }

        /** Null: it has not come. */
        LeaseMachine.Result result() {
            return result;
        }

        /** Whether it has got its connection. */
        boolean isConnected() {
            return connected;
        }

        /** Makes the call.  Returns its result, whatever happens; takes as long as it takes. */
        LeaseMachine.Result make() {
            try (Connection opened = source.getConnection()) {
                connected = true;
                if (!keep(opened)) {
                    return failed("57014", "the call was given up on", null);
                }
                try {
                    return ask(opened);
                } finally {
                    // before it is closed: then it may be somebody else's
                    keep((Connection) null);
                }
            } catch (SQLException e) {
                return failed(e.getSQLState(), describe(e), e);
            } catch (IllegalArgumentException e) {
                return failed("08P01", printable("the registry gave an answer that cannot be read: "
                        + e.getMessage()), e);
            } catch (RuntimeException | LinkageError e) {
                return failed("XX000", printable(e.toString()), e);
            }
        }

        /** What is to be ended if the call is given up on.  False: it was. */
        private boolean keep(Connection opened) {
            synchronized (ending) {
                connection = opened;
                return !givenUp;
            }
        }

        /** The same, of the connection. */
        private boolean keep(Statement made) {
            synchronized (ending) {
                statement = made;
                return !givenUp;
            }
        }

        /**
         * Ends the call, from another thread.  It may have been carried out, or still be.  The server is told:
         * it would go on with a call whose connection is closed, and the calls of others would wait for that.
         */
        void giveUp() {
            synchronized (ending) {
                givenUp = true;
                if (statement != null) {
                    cancel(statement);
                }
                if (connection != null) {
                    try {
                        connection.abort(HERE);
                    } catch (SQLException | RuntimeException | LinkageError e) {
                        // it is given up on
                    }
                }
            }
        }

        /** Takes a connection of its own, so it may hang where the call does: it has CANCEL_TIMEOUT. */
        private void cancel(Statement running) {
            CountDownLatch done = new CountDownLatch(1);
            Runnable task = () -> {
                try {
                    running.cancel();
                } catch (SQLException | RuntimeException | LinkageError e) {
                    // it is given up on
                } finally {
                    done.countDown();
                }
            };

            try {
                if (LeaseKeeper.startThread(task, Thread.currentThread().getName() + ": cancel")) {
                    done.await(CANCEL_TIMEOUT, TimeUnit.MICROSECONDS);
                }
            } catch (InterruptedException e) {
                // nobody has a reason to: go on
            }
        }

        /**
         * The connection may be of a pool: it is given back as it was, but for a transaction that somebody
         * has left open.  One statement that commits itself: a process that is stopped between two would
         * keep the registry locked.
         */
        private LeaseMachine.Result ask(Connection opened) throws SQLException {
            boolean autoCommit = opened.getAutoCommit();
            boolean readOnly = opened.isReadOnly();
            int networkTimeout;
            int isolation;

            // a transaction that was begun in SQL is open even in a connection that commits by itself
            opened.setAutoCommit(false);
            opened.rollback();
            opened.setAutoCommit(true);
            if (!opened.getAutoCommit()) {
                // what was answered could be rolled back
                return failed("25000", "the connection does not commit by itself: take a data source without"
                        + " managed transactions", null);
            }
            opened.setReadOnly(false);
            isolation = opened.getTransactionIsolation();
            if (isolation != Connection.TRANSACTION_READ_COMMITTED) {
                opened.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
            }
            networkTimeout = waitLonger(opened);
            try {
                return askAsIs(opened);
            } finally {
                if (!opened.isClosed()) {
                    if (networkTimeout > 0) {
                        opened.setNetworkTimeout(HERE, networkTimeout);
                    }
                    if (isolation != Connection.TRANSACTION_READ_COMMITTED) {
                        opened.setTransactionIsolation(isolation);
                    }
                    opened.setReadOnly(readOnly);
                    opened.setAutoCommit(autoCommit);
                }
            }
        }

        /**
         * The driver's timeout, which is needed for logins, does not end a call before we do: it would not cancel it.
         * Returns what it was, in milliseconds; 0: it stays.
         */
        private int waitLonger(Connection opened) {
            try {
                int was = opened.getNetworkTimeout();

                if (was > 0 && was < NETWORK_TIMEOUT) {
                    opened.setNetworkTimeout(HERE, NETWORK_TIMEOUT);
                    return was;
                }
            } catch (SQLException | RuntimeException | LinkageError e) {
                // the driver has none that can be changed
            }
            return 0;
        }

        private LeaseMachine.Result askAsIs(Connection opened) throws SQLException {
            opened.clearWarnings();
            try (PreparedStatement statement = opened.prepareStatement(
                    "SELECT snowflake." + function(request.kind) + "(CAST(? AS pg_catalog.jsonb))::pg_catalog.text")) {
                String text;

                statement.setString(1, write(request));
                if (!keep(statement)) {
                    return failed("57014", "the call was given up on", null);
                }
                try (ResultSet rows = statement.executeQuery()) {
                    if (!rows.next() || (text = rows.getString(1)) == null) {
                        return failed("08P01", "the registry gave no answer", null);
                    }
                } finally {
                    keep((Statement) null);
                }
                refuseCancelledWait(statement.getWarnings());
                refuseCancelledWait(opened.getWarnings());
                return read(request, text);
            }
        }
    }

    /** Drivers put notices there, too.  A warning of a driver that does not say what has raised it may be the one that counts. */
    static void refuseCancelledWait(SQLWarning warning) throws SQLException {
        for (SQLWarning w = warning; w != null; w = w.getNextWarning()) {
            String state = w.getSQLState();
            String routine = routine(w);

            // 00000 is a notice
            if ((state == null || !state.startsWith("00")) && (routine == null || routine.equals(SYNC_REP_ROUTINE))) {
                throw new SQLException("the call was committed with a warning: " + w.getMessage(), "08007", w);
            }
        }
    }

    /** Of the server, as PostgreSQL's driver has it, which is no dependency; null: it is not known. */
    private static String routine(SQLWarning warning) {
        try {
            Object message = warning.getClass().getMethod("getServerErrorMessage").invoke(warning);

            return message == null ? null : (String) message.getClass().getMethod("getRoutine").invoke(message);
        } catch (ReflectiveOperationException | ClassCastException e) {
            return null;
        }
    }

    private static String function(LeaseMachine.Call kind) {
        switch (kind) {
            case ACQUIRE:
                return "acquire_lease";
            case RENEW:
                return "renew_lease";
            default:
                return "release_lease";
        }
    }

    //
    // Requests
    //

    /** The JSON of a call. */
    String write(LeaseMachine.Request request) {
        StringBuilder json = new StringBuilder(1024);

        json.append("{\"protocol\": ").append(PROTOCOL);
        put(json, "start", request.start);
        put(json, "call", request.number);
        put(json, "layout", Json.quote(layout.definition()));
        put(json, "lease", request.lease == null ? null : lease(request));
        if (request.kind != LeaseMachine.Call.RELEASE) {
            put(json, "clock", request.clock);
            put(json, "max_ahead", request.maxAhead);
            put(json, "window", request.window);
        }
        if (request.kind == LeaseMachine.Call.ACQUIRE) {
            put(json, "kind", "\"program\"");
            put(json, "name", Json.quote(name));
            put(json, "host_name", Json.quote(hostName));
            put(json, "launched_at", launchedAt);
            put(json, "first_number", 0L);
            put(json, "last_number", layout.lastNumber());
            put(json, "fixed", "false");
            put(json, "uses", request.uses);
            put(json, "ids_end_at", request.idsEndAt);
            put(json, "starts_at", request.startsAt);
        }
        return json.append('}').toString();
    }

    private static String lease(LeaseMachine.Request request) {
        Lease lease = request.lease;
        StringBuilder json = new StringBuilder("{\"token\": \"").append(lease.token).append('"');

        put(json, "node_number", lease.nodeNumber);
        put(json, "granted_by", lease.grantedBy);
        put(json, "incarnation", lease.incarnation);
        put(json, "generation", lease.generation);
        put(json, "leased_until", lease.leasedUntil);
        if (request.kind != LeaseMachine.Call.RENEW) {
            put(json, "ids_end_at", lease.end);
        }
        return json.append('}').toString();
    }

    private static void put(StringBuilder json, String key, Object value) {
        json.append(", \"").append(key).append("\": ");
        if (value instanceof UUID) {
            json.append('"').append(value).append('"');
        } else {
            json.append(value);
        }
    }

    //
    // Results
    //

    private static LeaseMachine.Result failed(String sqlState, String message, Throwable cause) {
        return new LeaseMachine.Result(LeaseMachine.Answer.FAILED,
                new LeaseMachine.Problem(sqlState, message, cause));
    }

    /** What an answer says.  Throws IllegalArgumentException if it is none. */
    LeaseMachine.Result read(LeaseMachine.Request request, String text) {
        if (text.length() > LONGEST_ANSWER) {
            throw new IllegalArgumentException("it has " + text.length() + " characters, more than " + LONGEST_ANSWER);
        }
        Map<String, Object> answer = Json.read(text);

        if (number(answer, "protocol", 1, Long.MAX_VALUE) != PROTOCOL) {
            throw new IllegalArgumentException("protocol is " + answer.get("protocol") + ", not " + PROTOCOL);
        }
        LeaseMachine.Result result = readAnswer(request.kind, answer);

        result.incarnation = uuid(answer, "incarnation");
        result.generation = number(answer, "generation", 1, Integer.MAX_VALUE);
        result.clock = time(answer, "clock");
        if (result.answer == LeaseMachine.Answer.YES && request.kind != LeaseMachine.Call.RELEASE) {
            result.leasedUntil = time(answer, "leased_until");
        }
        if (result.answer == LeaseMachine.Answer.YES && request.kind == LeaseMachine.Call.ACQUIRE) {
            result.token = uuid(answer, "token");
            result.nodeNumber = number(answer, "node_number", 0, Long.MAX_VALUE);
            result.startsAt = time(answer, "starts_at");
        }
        return result;
    }

    /** YES, NO or REFUSED, with what belongs to it. */
    private static LeaseMachine.Result readAnswer(LeaseMachine.Call kind, Map<String, Object> answer) {
        LeaseMachine.Result result;
        long wait;

        switch (text(answer, "answer")) {
            case "yes":
                return new LeaseMachine.Result(LeaseMachine.Answer.YES, null);
            case "no":
                if (kind == LeaseMachine.Call.ACQUIRE) {
                    throw new IllegalArgumentException("answer is no, to acquire_lease");
                }
                result = new LeaseMachine.Result(LeaseMachine.Answer.NO, null);
                result.reason = printable(text(answer, "reason"));
                return result;
            case "refused":
                wait = number(answer, "wait", 0, LONGEST_REFUSAL);
                result = new LeaseMachine.Result(LeaseMachine.Answer.REFUSED, refusal(answer, wait));
                result.wait = wait;
                return result;
            default:
                throw new IllegalArgumentException("answer is neither yes nor no nor refused");
        }
    }

    /** Why the registry grants, renews or releases nothing, in its own words. */
    private static LeaseMachine.Problem refusal(Map<String, Object> answer, long wait) {
        String sqlState = text(answer, "sqlstate");
        String detail = answer.get("detail") == null ? "" : text(answer, "detail");
        String hint = answer.get("hint") == null ? "" : text(answer, "hint");

        // neither success, a warning nor "no data"
        if (!sqlState.matches("[0-9A-Z]{5}") || sqlState.matches("0[0-2].*")) {
            throw new IllegalArgumentException("sqlstate is not that of an error");
        }
        return LeaseMachine.Problem.refusal(sqlState, printable(text(answer, "message"))
                + (detail.isEmpty() ? "" : ".  Detail: " + printable(detail))
                + (hint.isEmpty() ? "" : "  Hint: " + printable(hint)), wait);
    }

    private static String text(Map<String, Object> answer, String key) {
        Object value = answer.get(key);

        if (!(value instanceof String)) {
            throw new IllegalArgumentException(key + " is not a text");
        }
        return (String) value;
    }

    private static long time(Map<String, Object> answer, String key) {
        return number(answer, key, FIRST_TIME, END_TIME - 1);
    }

    private static long number(Map<String, Object> answer, String key, long least, long greatest) {
        Object value = answer.get(key);

        if (!(value instanceof Long) || (Long) value < least || (Long) value > greatest) {
            throw new IllegalArgumentException(key + " is not an integer from " + least + " to " + greatest);
        }
        return (Long) value;
    }

    private static UUID uuid(Map<String, Object> answer, String key) {
        Object value = answer.get(key);

        if (!(value instanceof String)
                || !((String) value).matches("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")) {
            throw new IllegalArgumentException(key + " is not a UUID");
        }
        return UUID.fromString((String) value);
    }

    /** Where in the registry's functions it was raised helps nobody; the exception has it.  A driver translates labels. */
    private static String describe(SQLException e) {
        return printable(String.valueOf(e.getMessage()).replaceFirst("(?s)\\R[^:\\n]*: (?:PL/pgSQL|SQL)\\b.*", "")
                // a driver shows a URL that it cannot read
                .replaceAll("(?i)(password=)[^&;\\s]*", "$1..."));
    }

    /** One line, without control characters, of at most LONGEST_TEXT characters. */
    static String printable(String text) {
        String line = text.replaceAll("[\\p{Cntrl}\\p{Cf}\\u2028\\u2029\\s]+", " ").trim();

        return line.length() <= LONGEST_TEXT ? line : line.substring(0, LONGEST_TEXT) + " ...";
    }
}
