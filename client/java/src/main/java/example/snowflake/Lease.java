package example.snowflake;

import java.util.UUID;

/**
 * A lease that was granted: a node number for a span of id time.  It is written by the lease
 * machine alone.  Times are microseconds since 1970-01-01 UTC.
 */
final class Lease {
    /** Number of the call that granted it. */
    final long grantedBy;
    final UUID token;
    /** Of the registry, and its generation then. */
    final UUID incarnation;
    final long generation;
    final long nodeNumber;
    /** Its ids are of ticks that begin at or after this. */
    final long startsAt;
    /** They end at or before this; durable in the registry. */
    long leasedUntil;
    /** Of its last id, once it is sealed; null before. */
    Long end;
    /** How long the last call has asked for, after the later of its clock and the start; in microseconds, as the next two. */
    long asked;
    /** What it has got: less, if the registry's limit for ends has cut it. */
    long window;
    /** It is renewed when so much of the window is used, which differs from node to node. */
    long renewAfter;

    Lease(long grantedBy, UUID token, UUID incarnation, long generation, long nodeNumber,
            long startsAt, long leasedUntil) {
        this.grantedBy = grantedBy;
        this.token = token;
        this.incarnation = incarnation;
        this.generation = generation;
        this.nodeNumber = nodeNumber;
        this.startsAt = startsAt;
        this.leasedUntil = leasedUntil;
    }

    /** As it is now, for a call that names it. */
    Lease(Lease named) {
        this(named.grantedBy, named.token, named.incarnation, named.generation, named.nodeNumber,
                named.startsAt, named.leasedUntil);
        end = named.end;
    }
}
