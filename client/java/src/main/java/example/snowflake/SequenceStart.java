package example.snowflake;

/** Where the sequence of a fresh tick starts. */
public enum SequenceStart {
    /** It goes on from the last one, modulo 16. */
    CARRIED,
    /** 0. */
    ZERO,
    /** At random, below 16. */
    RANDOM
}
