/*
 * tables.pml
 *	  Where the tables come from and go to, as a model: DROP and CREATE EXTENSION, a
 *	  dump restored, a copy of the database, a change of registry cut off and
 *	  repeated.  Checked over all interleavings by test/t/014_model.pl.
 *
 * Property: no tick of the node number is used by two leases.
 *
 * What the model stands for
 *	  until[table]	the greatest leased_until of all rows, of all incarnations
 *	  incarnation, created, leased
 *					the row of snowflake.registry; whether the number was leased in
 *					this incarnation
 *	  uses, uses_of	the row of snowflake.cluster of each node, in its own table
 *	  dump			what a dump of a table has kept
 *	  state, table, starts, limit, last, known
 *					a node's lease and known_until, in shared memory
 *
 * Tables: OWN is node 0's own one, B and C are registries.  There is one number, and
 * one node, or two that use B, and change to C (TWO).
 *
 * What it allows the world to do
 *	  Clocks give any value at each reading, but as assumed below.  Settings change at
 *	  any time.  Node 0 crashes at any time, also in the middle of
 *	  snowflake_change_registry(), which may be called again, or not.  Once, a table is
 *	  dropped and created; a dump of any time before that may be restored into it,
 *	  before the first lease or after it.  COPY: instead, a copy of the database of any
 *	  time before takes its place.
 *
 * What is assumed (README)
 *	  At DROP EXTENSION, and when a copy takes a registry's place, no node has a lease
 *	  there that may issue ids, and no id issued is later than the creation + max_ahead
 *	  (which is 0 here; the tick that contains that time is one of the past).
 *	  Or (DROPPED_OPEN): a lease goes on, and its server does not crash afterwards; or
 *	  (LIMITS) it ends before that time.
 *	  Or (RESTORED): the clock may be anywhere, and the dump was made after the last
 *	  id and is restored before the first lease.
 *	  Before the first node changes from a registry to another, all others of it have
 *	  ended their leases, and take none there any more.
 *
 *	  The extension is not dropped in the own database to leave a registry that others
 *	  use, and a registry named before there is one again.
 *
 * What is abstracted
 *	  Rows of one lease (registry.pml), the word (lease.pml): a row is raised or not, and
 *	  closed at its leased_until.
 *
 * Each rule can be removed by a -D switch; then the property fails:
 *
 *	  NO_CREATED		a new table's leases start at any time
 *	  CREATED_IF_EMPTY	the same where the number has rows, restored ones
 *	  NO_TICK			they start in the tick that contains created_at + max_ahead
 *	  NO_KNOWN			known_until is not told to a new table (with DROPPED_OPEN)
 *	  RAISE_OLD			a row of an earlier incarnation is raised (with LIMITS)
 *	  COPY_KEEPS		a copy of the database keeps incarnation and created_at
 *	  NO_GUARD			the settings alone decide where leases come from
 *	  GUARD_KIND		own or another is compared, not the incarnation
 *	  GUARD_LATE		what is used is recorded after the first id
 *	  USES_FIRST		a change records the new registry before the ends are handed over
 *	  NO_SEAL			a change hands over the ends before it ends the lease
 *	  NO_HAND_OVER		a change only records the new registry
 *	  FLOOR_STAYS		a change hands over the ends of rows, not the time that the old
 *						table's leases start at or after (created_at + max_ahead)
 *	  JOIN_EARLY		a node whose own tables have no record takes its first lease from
 *						a registry without regard to when they were made
 *	  HAND_OVER_MINE	a change hands over the ends of this cluster's leases, not all
 */
#define NODES		2
#define TABLES		3
#define OWN			0
#define B			1
#define C			2
#ifndef TICKS
#define TICKS		3
#endif
#ifndef LEASES
#define LEASES		3
#endif
#ifndef SETS
#define SETS		2
#endif
#ifndef DROPS
#define DROPS		0
#endif
#ifndef CRASHES
#define CRASHES		1			/* of node 0 */
#endif

#define MAX(a, b)		((a) > (b) -> (a) : (b))

/* The tables. */
byte	until[TABLES];
byte	incarnation[TABLES];	/* different from all others: table and count */
byte	created[TABLES];		/* the tick after created_at + max_ahead; 0: long ago */
byte	floor[TABLES];			/* leases start at or after; handed over */
bool	leased[TABLES];
byte	open_of[TABLES];		/* the number of the lease whose row is open; 0: none */
byte	open_in[TABLES];		/* its incarnation */
byte	mine[NODES * TABLES];	/* the greatest leased_until of each node's rows */
#define MINE(n, k)	mine[(n) * TABLES + (k)]

/* The dump. */
bool	dumped;
byte	dump_table;
byte	dump_until;
byte	dump_open_of;
byte	dump_open_in;
byte	dump_uses;				/* its record: node 0's, if it is the own table */
byte	dump_uses_of;
bool	restored;
bool	must_restore;

/* The record of each node: 1 + table; 0: none.  It is in the own table. */
byte	uses[NODES];
byte	uses_of[NODES];

/* The settings and shared memory of each node. */
#define NONE	0
#define GRANTED	1
#define OPEN	2
#define CHANGING	3			/* sealed */
#define HANDED	4				/* the first part of the change is durable */
byte	setting[NODES];
byte	state[NODES];
byte	lease[NODES];			/* its number; 0: none */
byte	table[NODES];
byte	starts[NODES];
byte	limit[NODES];
byte	last[NODES];
byte	known[NODES];
#ifdef NO_SEAL
bool	handed[NODES];
#endif

byte	leases;
byte	sets;
byte	drops;
byte	crashes;
bool	moved[TABLES];			/* a node has changed from here to another */

byte	issued;					/* one tick that was used, 1 + tick; 0: none yet */
byte	issued_by;				/* its lease */
byte	greatest;				/* 1 + the last tick of all ids */

#define HAS(n, k)		((state[n] == OPEN || state[n] == GRANTED) && table[n] == (k))

/* The end of the lease, as far as the node knows. */
inline end_lease(n)
{
	known[n] = MAX(known[n], last[n]);
	open_of[table[n]] = (open_of[table[n]] == lease[n] -> 0 : open_of[table[n]]);
	lease[n] = 0; starts[n] = 0; limit[n] = 0; last[n] = 0; table[n] = 0
}

/* Whether the record lets a node take leases from a table. */
#ifdef NO_GUARD
#define MAY_USE(n, k)	true
#else
#ifdef GUARD_KIND
#define MAY_USE(n, k)	(uses[n] == 0 || (uses[n] == 1 + OWN) == ((k) == OWN))
#else
#define MAY_USE(n, k)	(uses[n] == 0 || \
						 (uses[n] == 1 + (k) && ((k) == OWN || uses_of[n] == incarnation[k])))
#endif
#endif

inline acquire(n, k)
{
	t = MAX(until[k], floor[k]);
#ifndef NO_CREATED
	if
#ifdef CREATED_IF_EMPTY
	:: !leased[k] && until[k] == 0 ->
#else
	:: !leased[k] ->
#endif
		t = MAX(t, created[k])
	:: else
	fi;
#endif
#ifndef NO_KNOWN
	t = (!leased[k] -> MAX(t, known[n]) : t);
#endif
#ifndef JOIN_EARLY
	if
	:: uses[n] == 0 && k != OWN -> t = MAX(t, MAX(floor[OWN], created[OWN]))
	:: else
	fi;
#endif
	if
	:: t < TICKS ->
		leases++;
		lease[n] = leases;
		table[n] = k;
		starts[n] = t;
		limit[n] = t + 1;
		do
		:: limit[n] < TICKS -> limit[n]++
		:: break
		od;
		until[k] = limit[n];
		MINE(n, k) = limit[n];
		leased[k] = true;
		open_of[k] = leases;
		open_in[k] = incarnation[k];
		if
		:: k == OWN -> uses[n] = 1 + OWN; uses_of[n] = 0
		:: else
		fi;
#if defined(NO_GUARD) || defined(GUARD_LATE)
		state[n] = OPEN
#else
		state[n] = (k == OWN || uses[n] != 0 -> OPEN : GRANTED)
#endif
	:: else
	fi;
	t = 0
}

inline issue(n)
{
	t = MAX(starts[n], (last[n] > 0 -> last[n] - 1 : 0));
	if
	:: t < limit[n] ->
		do
		:: t + 1 < limit[n] -> t++
		:: break
		od;
		last[n] = t + 1;
		greatest = MAX(greatest, last[n]);
		assert(issued != last[n] || issued_by == lease[n]);
		if
		:: issued == 0 -> issued = last[n]; issued_by = lease[n]
		:: true
		fi
	:: else
	fi;
	t = 0
}

/* The ends that the table of a setting is told.  The old registry is the one used. */
inline hand_over(n)
{
	k = setting[n];
#ifndef NO_HAND_OVER
#ifdef HAND_OVER_MINE
	t = MINE(n, uses[n] - 1);
#else
	t = until[uses[n] - 1];
#endif
	until[k] = MAX(until[k], t);
	MINE(n, k) = MAX(MINE(n, k), t);
#ifndef FLOOR_STAYS
	t = MAX(floor[uses[n] - 1], created[uses[n] - 1]);
	floor[k] = MAX(floor[k], t);
#endif
#endif
	k = 0; t = 0
}

inline record(n)
{
	uses[n] = 1 + setting[n];
	uses_of[n] = (setting[n] == OWN -> 0 : incarnation[setting[n]])
}

proctype node(byte n)
{
	byte	t, k;

	do
	:: atomic {
#ifdef NO_SEAL
		sets < SETS && !handed[n] ->
#else
		sets < SETS && state[n] == NONE ->
#endif
		sets++;
		if
#ifndef TWO
		:: setting[n] = OWN
#endif
		:: setting[n] = B
		:: setting[n] = C
		fi
	}
	:: atomic {
		state[n] == NONE && leases < LEASES && MAY_USE(n, setting[n]) && !moved[setting[n]] &&
		!must_restore ->
		acquire(n, setting[n])
	}
	:: atomic { state[n] == GRANTED -> record(n); state[n] = OPEN }
#ifdef GUARD_LATE
	:: atomic { state[n] == OPEN && uses[n] == 0 && last[n] > 0 -> record(n) }
#endif
	:: atomic { state[n] == OPEN -> issue(n) }
	:: atomic {
		state[n] == OPEN && limit[n] < TICKS ->
		k = table[n];
		if
#ifdef RAISE_OLD
		:: open_of[k] == lease[n] ->
#else
		:: open_of[k] == lease[n] && open_in[k] == incarnation[k] ->
#endif
			limit[n]++;
			until[k] = MAX(until[k], limit[n]);
			MINE(n, k) = MAX(MINE(n, k), limit[n])
		:: else -> end_lease(n); state[n] = NONE
		fi;
		k = 0
	}
	:: atomic { state[n] == OPEN || state[n] == GRANTED -> end_lease(n); state[n] = NONE }

	/* snowflake_change_registry(): seal, hand over, record */
	:: atomic {
#ifdef NO_SEAL
		(state[n] == NONE || state[n] == OPEN) && !handed[n] &&
#else
		state[n] == NONE &&
#endif
		uses[n] != 0 &&
		(uses[n] != 1 + setting[n] || (setting[n] != OWN && uses_of[n] != incarnation[setting[n]])) &&
		!HAS(1 - n, uses[n] - 1) && state[1 - n] != CHANGING && state[1 - n] != HANDED &&
		!moved[setting[n]] && !must_restore ->
#ifdef TWO
		moved[uses[n] - 1] = uses[n] != 1 + setting[n];
#endif
#ifdef USES_FIRST
		known[n] = uses[n];		/* where the ends are, in this variant */
		record(n);
#endif
#ifdef NO_SEAL
		hand_over(n);
		handed[n] = true
#else
		state[n] = CHANGING
#endif
	}
#ifdef NO_SEAL
	:: atomic {
		handed[n] ->
		if
		:: state[n] == OPEN -> end_lease(n)
		:: else
		fi;
		handed[n] = false;
		state[n] = HANDED
	}
#endif
#ifdef USES_FIRST
	:: atomic {
		state[n] == CHANGING ->
		until[setting[n]] = MAX(until[setting[n]], until[known[n] - 1]);
		known[n] = 0;
		state[n] = NONE
	}
#else
	:: atomic { state[n] == CHANGING -> hand_over(n); state[n] = HANDED }
	:: atomic { state[n] == HANDED -> record(n); state[n] = NONE }
#endif
	od
}

/* What happens to node 0 and to one of the tables. */
proctype world()
{
	byte	k, i;

	do
	:: atomic {
		crashes < CRASHES ->
		crashes++;
		state[0] = NONE; lease[0] = 0; table[0] = 0; starts[0] = 0; limit[0] = 0;
		last[0] = 0; known[0] = 0
	}
#if DROPS > 0
	:: atomic {
		!dumped && drops == 0 ->
		dumped = true;
		select(k : OWN .. B);
		dump_table = k;
		dump_until = until[k];
		dump_open_of = open_of[k];
		dump_open_in = open_in[k];
		dump_uses = (k == OWN -> uses[0] : 0);
		dump_uses_of = (k == OWN -> uses_of[0] : 0);
		k = 0
	}
	:: atomic {
		dumped && drops < DROPS &&
#ifndef DROPPED_OPEN
		!HAS(0, dump_table) && !HAS(1, dump_table) &&
#endif
		state[0] < CHANGING && state[1] < CHANGING &&
#ifdef RESTORED
		dump_until == until[dump_table] ->
#else
		greatest <= TICKS ->
#endif
		drops++;
		k = dump_table;
#ifdef NO_TICK
		created[k] = (greatest > 0 -> greatest - 1 : 0);
#else
		created[k] = greatest;
#endif
#ifdef LIMITS
		created[k] = MAX(created[k], MAX(limit[0], limit[1]));
#endif
#ifdef RESTORED
		created[k] = 0;
		must_restore = true;
#endif
		leased[k] = false;
		incarnation[k] = incarnation[k] + TABLES;
		MINE(0, k) = 0;
		MINE(1, k) = 0;
#ifdef COPY
		until[k] = dump_until;
		open_of[k] = dump_open_of;
		open_in[k] = dump_open_in;
		restored = true;
#ifdef COPY_KEEPS
		leased[k] = true;
		incarnation[k] = incarnation[k] - TABLES;
#endif
#else
		until[k] = 0;
		open_of[k] = 0;
		open_in[k] = 0;
		uses[0] = (k == OWN -> 0 : uses[0]);
#endif
		k = 0
	}
	:: atomic {
		drops > 0 && !restored ->
		restored = true;
		must_restore = false;
		k = dump_table;
		until[k] = MAX(until[k], dump_until);
		open_of[k] = (open_of[k] == 0 -> dump_open_of : open_of[k]);
		open_in[k] = (open_of[k] == dump_open_of -> dump_open_in : open_in[k]);
		uses_of[0] = (uses[0] == 0 -> dump_uses_of : uses_of[0]);
		uses[0] = (uses[0] == 0 -> dump_uses : uses[0]);
		k = 0
	}
#endif
	od
}

init
{
	atomic {
		incarnation[OWN] = 1;
		incarnation[B] = 2;
		incarnation[C] = 3;
		run node(0);
#ifdef TWO
		setting[0] = B;
		setting[1] = B;
		uses[0] = 1 + B;
		uses[1] = 1 + B;
		uses_of[0] = incarnation[B];
		uses_of[1] = incarnation[B];
		run node(1);
#endif
		run world()
	}
}
