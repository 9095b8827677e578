package example.snowflake;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.net.ConnectException;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;

/** Connections to a real registry, between which a test can step. */
final class FaultySource implements ConnectionSource {
    enum Mode {
        /** As it is. */
        HONEST,
        /** No connection. */
        AWAY,
        /** The answer comes when the test has called {@link #deliver}, though the call was given up on. */
        LATE
    }

    private final String url;
    private final Semaphore answers = new Semaphore(0, true);
    private volatile Mode mode = Mode.HONEST;
    /** Calls whose answer is there, but is not delivered yet. */
    final AtomicInteger answered = new AtomicInteger();
    /** Late answers that were delivered. */
    final AtomicInteger delivered = new AtomicInteger();

    FaultySource(String url) {
        this.url = url;
    }

    void set(Mode next) {
        mode = next;
    }

    /** The oldest answer that is not delivered yet. */
    void deliver() {
        answers.release();
    }

    @Override
    public Connection getConnection() throws SQLException {
        if (mode == Mode.AWAY) {
            throw new SQLException("the test has taken the registry away", "08001", new ConnectException());
        }
        Connection connection = DriverManager.getConnection(url);

        return mode == Mode.LATE ? late(connection) : connection;
    }

    private Connection late(Connection connection) {
        return (Connection) Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {Connection.class},
                (proxy, method, arguments) -> {
                    // nor does it hear that it was given up on
                    if (method.getName().equals("abort")) {
                        return null;
                    }
                    Object result = invoke(connection, method, arguments);

                    return result instanceof PreparedStatement ? late((PreparedStatement) result) : result;
                });
    }

    private PreparedStatement late(PreparedStatement statement) {
        return (PreparedStatement) Proxy.newProxyInstance(getClass().getClassLoader(),
                new Class<?>[] {PreparedStatement.class}, (proxy, method, arguments) -> {
                    Object result = invoke(statement, method, arguments);

                    if (method.getName().equals("executeQuery")) {
                        answered.incrementAndGet();
                        answers.acquire();
                    } else if (method.getName().equals("close")) {
                        delivered.incrementAndGet();
                    }
                    return result;
                });
    }

    private static Object invoke(Object object, Method method, Object[] arguments) throws Throwable {
        try {
            return method.invoke(object, arguments);
        } catch (InvocationTargetException e) {
            throw e.getCause();
        }
    }
}
