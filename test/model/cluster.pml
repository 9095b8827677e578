/*
 * cluster.pml
 *	  A cluster and its standbys that lease from their own tables: promotion, the
 *	  generation and pg_upgrade, as a model.  Checked over all interleavings by
 *	  test/t/014_model.pl.
 *
 * Property: no tick of a node number is used twice.
 *
 * What the model stands for
 *	  history		the entries of a server's timeline history, a bit for each
 *	  until, generation, counted, floor
 *					its tables: the greatest leased_until of each number, and the row
 *					of snowflake.registry
 *	  started		it has counted since it was started writable: shared memory
 *
 * What it allows the world to do
 *	  Replication is asynchronous: a standby has the tables and the history as they
 *	  were at any time.  A standby is promoted at any time, its primary alive or
 *	  not; it may crash before it has counted, also while others follow it.  A server
 *	  stops, and comes back as it was.  pg_upgrade takes the history away, and keeps
 *	  the tables.  Clocks give any value at each reading.
 *
 * What is assumed (README)
 *	  At most two servers are writable at once, one promotion apart.  A former primary
 *	  is not started again after a server with the same bit was promoted (a sibling, or
 *	  one two promotions later; with fixed numbers any).  At a promotion the
 *	  clock is not behind the last ids of any earlier primary.  A promoted server is put
 *	  through pg_upgrade after it has counted.  With fixed numbers (FIXED) one server
 *	  is writable at a time.
 *
 * What is abstracted
 *	  Leases: an id is a lease of its own, durable before it is issued (lease.pml,
 *	  registry.pml).  Two numbers, told apart by bit 0.  max_ahead is 0.
 *
 * Each rule can be removed by a -D switch; then the property fails:
 *
 *	  NO_BIT			the generation does not restrict the numbers
 *	  NO_FLOOR			the leases of a generation start at any time
 *	  COUNT_AGAIN		what was counted is not kept: each start counts the whole history
 *	  COUNT_ONE			one or more new entries count as one
 *	  ABSOLUTE			the generation is the length of the history
 *	  TIMELINE			the generation is the number of the timeline
 *
 *	  and these assumptions:
 *
 *	  APART				two servers that are two promotions apart are writable
 *	  RETURN			a former primary is started again when a later one has had its bit,
 *						alone, with its clock behind
 *	  UPGRADE_EARLY		a promoted server is put through pg_upgrade before it has counted
 *	  UPGRADE_ALONE		the same when no other server is writable: ids of the old primary
 *						that were not replicated may repeat when the clock is set back
 *	  CLOCK_BEHIND		at a promotion the clock is behind ids of an earlier primary
 */
#define SERVERS		3
#define NUMBERS		2
#ifndef TICKS
#define TICKS		3
#endif
#ifndef PROMOTIONS
#define PROMOTIONS	3
#endif
#ifndef UPGRADES
#define UPGRADES	1
#endif
#ifndef STOPS
#define STOPS		2
#endif

#define MAX(a, b)		((a) > (b) -> (a) : (b))

/* Each server. */
#define STANDBY		0
#define WRITABLE	1
#define DOWN		2
byte	role[SERVERS];
bool	started[SERVERS];
byte	history[SERVERS];
byte	depth[SERVERS];			/* promotions up to it, whatever it knows */

/* Its tables. */
byte	until[SERVERS * NUMBERS];
byte	generation[SERVERS];
byte	counted[SERVERS];
byte	floor[SERVERS];
#define UNTIL(s, w)	until[(s) * NUMBERS + (w)]

byte	promotions;
byte	newest[2];				/* the last server promoted, by the bit of its numbers */
byte	upgrades;
byte	stops;

/* One of the ids that were issued, whichever: 1 + number and tick; 0: none yet. */
byte	issued;
byte	greatest;				/* 1 + the last tick of all ids */

#define ENTRIES(h)	(((h) & 1) + (((h) >> 1) & 1) + (((h) >> 2) & 1))

/* Whether a server may be writable beside those that are. */
#ifdef APART
#define MAY_JOIN(i, s, d)	(role[i] != WRITABLE || i == s || depth[i] != d)
#else
#ifdef FIXED
#define MAY_JOIN(i, s, d)	(role[i] != WRITABLE || i == s)
#else
#define MAY_JOIN(i, s, d)	(role[i] != WRITABLE || i == s || depth[i] + 1 == d || depth[i] == d + 1)
#endif
#endif
/* Whether a server that was down may be started again. */
#ifdef FIXED
#define PARITY(s)			0
#else
#define PARITY(s)			(depth[s] % 2)
#endif
#ifdef RETURN
#define MAY_RETURN(s)		true
#else
#define MAY_RETURN(s)		(newest[PARITY(s)] == s)
#endif
#define ALONE(i, s)			(role[i] != WRITABLE || i == s)
#define ALL_MAY(s, d)		(MAY_JOIN(0, s, d) && MAY_JOIN(1, s, d) && MAY_JOIN(2, s, d) && \
							 (role[0] == WRITABLE) + (role[1] == WRITABLE) + (role[2] == WRITABLE) < 2)
#define ALL_ALONE(s)		(ALONE(0, s) && ALONE(1, s) && ALONE(2, s))

inline count(s)
{
	new = ENTRIES(history[s] & (7 - counted[s]));
#ifdef ABSOLUTE
	new = (1 + ENTRIES(history[s]) > generation[s] -> 1 : 0);
	generation[s] = 1 + ENTRIES(history[s]);
#else
#ifdef TIMELINE
	/* the number of the timeline: of the last switch that any server knows of */
	generation[s] = (history[s] >= 4 -> 4 : (history[s] >= 2 -> 3 : (history[s] >= 1 -> 2 : 1)));
#else
#ifdef COUNT_ONE
	generation[s] = generation[s] + (new > 0 -> 1 : 0);
#else
	generation[s] = generation[s] + new;
#endif
#endif
#endif
#ifndef COUNT_AGAIN
	counted[s] = counted[s] | history[s];
#endif
#ifdef CLOCK_BEHIND
	clock = 0;
#else
	clock = (greatest > 0 -> greatest - 1 : 0);
#endif
	do
	:: clock + 1 < TICKS -> clock++
	:: break
	od;
#ifndef NO_FLOOR
	floor[s] = (new > 0 -> MAX(floor[s], clock + 1) : floor[s]);
#endif
	started[s] = true;
	clock = 0; new = 0
}

/* An id of any number that the generation allows, at any clock. */
inline issue(s)
{
	w = 0;
#if defined(NO_BIT) || defined(FIXED)
	if
	:: true
	:: w = 1
	fi;
#else
	w = (generation[s] % 2 == 1 -> 0 : 1);
#endif
	t = MAX(UNTIL(s, w), floor[s]);
	do
	:: t + 1 < TICKS -> t++
	:: break
	od;
	if
	:: t < TICKS ->
		UNTIL(s, w) = t + 1;
		greatest = MAX(greatest, t + 1);
		assert(issued != 1 + w * TICKS + t);
		if
		:: issued == 0 -> issued = 1 + w * TICKS + t
		:: true
		fi
	:: else
	fi;
	w = 0; t = 0
}

proctype server(byte s)
{
	byte	new, clock, w, t, u;

	do
	/* replication: all that the primary has now, or a new base backup */
	:: atomic {
		role[s] == STANDBY ->
		select(u : 0 .. SERVERS - 1);
		if
		:: u != s && role[u] == WRITABLE && depth[u] >= depth[s] ->
			history[s] = history[u]; depth[s] = depth[u]; counted[s] = counted[u];
			generation[s] = generation[u]; floor[s] = floor[u];
			UNTIL(s, 0) = UNTIL(u, 0); UNTIL(s, 1) = UNTIL(u, 1)
		:: else
		fi;
		u = 0
	}
	:: atomic {
		role[s] == STANDBY && promotions < PROMOTIONS && ALL_MAY(s, depth[s] + 1) ->
		role[s] = WRITABLE;
		history[s] = history[s] | (1 << promotions);
		promotions++;
		depth[s]++;
		newest[PARITY(s)] = s
	}
	:: atomic { role[s] == WRITABLE && !started[s] -> count(s) }
	:: atomic { role[s] == WRITABLE && started[s] -> issue(s) }
	/* a stop or a crash, for some time or for good */
	:: atomic {
		role[s] == WRITABLE && stops < STOPS ->
		stops++;
		role[s] = DOWN;
		started[s] = false
	}
	:: atomic { role[s] == DOWN && ALL_MAY(s, depth[s]) && MAY_RETURN(s) -> role[s] = WRITABLE }
	:: atomic {
		role[s] == WRITABLE && upgrades < UPGRADES &&
#ifdef UPGRADE_EARLY
		true ->
#else
#ifdef UPGRADE_ALONE
		((history[s] & (7 - counted[s])) == 0 || ALL_ALONE(s)) ->
#else
		(history[s] & (7 - counted[s])) == 0 ->
#endif
#endif
		upgrades++;
		started[s] = false;
		history[s] = 0
	}
	od
}

init
{
	byte	s;

	atomic {
		role[0] = WRITABLE;
		for (s : 0 .. SERVERS - 1) {
			generation[s] = 1;
			run server(s)
		}
		s = 0
	}
}
