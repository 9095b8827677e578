package example.snowflake;

/**
 * Why there is no id.  The message says what to do.  Nothing was lost: it is always right to try
 * again later.
 */
public class SnowflakeException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** The reasons of the server, with their SQLSTATEs. */
    public enum Reason {
        /** max_wait is over, and no lease was granted or extended; the message and cause say why not. */
        GAVE_UP("55P03"),
        /** The next id would be too far ahead of the clock, which was set back, or more ids are needed than the layout has. */
        TOO_FAR_AHEAD("55P03"),
        /** The registry refuses, in its own words: somebody must act, or time pass. */
        REFUSED("55000"),
        /** The registry refuses: all node numbers are leased. */
        NO_NUMBER_FREE("53400"),
        /** The timestamp field of the layout is full, or the clock is wrong. */
        FIELD_FULL("2200H"),
        /** The thread was interrupted while it waited; its interrupt flag is set. */
        INTERRUPTED("57014"),
        /** {@link Snowflake#close} was called. */
        CLOSED("55000");

        private final String sqlState;

        Reason(String sqlState) {
            this.sqlState = sqlState;
        }

        /** What the server's error of this kind has. */
        public String sqlState() {
            return sqlState;
        }
    }

    private final Reason reason;

    SnowflakeException(Reason reason, String message, Throwable cause) {
        super(message, cause);
        this.reason = reason;
    }

    /** Why there is no id. */
    public Reason reason() {
        return reason;
    }
}
