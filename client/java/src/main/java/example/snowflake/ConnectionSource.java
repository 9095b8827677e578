package example.snowflake;

import java.sql.Connection;
import java.sql.SQLException;

/**
 * Where connections to the registry's database come from: usually {@code dataSource::getConnection}.
 * The lease keeper asks for one for each call, from a thread of its own, and closes it.
 */
@FunctionalInterface
public interface ConnectionSource {
    /** A connection that nobody else uses until it is closed.  It must commit by itself, or let itself be told to. */
    Connection getConnection() throws SQLException;
}
