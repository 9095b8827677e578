/*
 * registry.pml
 *	  The registry's rows and the calls that change them, as a model: calls that are
 *	  executed late, without a result, or twice.  Checked over all interleavings by
 *	  test/t/014_model.pl.
 *
 * Properties: no tick of a node number is used by two leases; a server issues the ids of a
 * number in increasing order of ticks; no start of a server has two open rows.
 *
 * What the model stands for
 *	  row_*[token]	worker_node: durable, changed by one transaction at a time
 *	  kind, token, starts, until, last, end, calls
 *					a server's lease and the number of its last call, in shared memory
 *	  late_*		calls on their way: executed at any time, or never, or twice
 *
 * Why they hold
 *	  A row's leased_until is at or after the end of all ids of its lease.  A row rises
 *	  only while it is open, it is open only while it is the last of its number, and a
 *	  lease starts at the greatest end of all rows.  An end is lowered only to what
 *	  the server that has sealed its words says, or to the start of a lease that the
 *	  server cannot have opened: it names one that was granted before.  A call
 *	  that comes late cannot do that to the lease that is open: its number is not
 *	  greater than that of the call that granted the lease.
 *
 * What it allows the world to do
 *	  Clocks are not modelled: a lease may be granted up to any tick after its start,
 *	  and any number may be granted to any server at any time, whether its last
 *	  lease has expired or not.  That covers every choice for automatic and for fixed
 *	  numbers, at all clocks of the server and of the registry: uniqueness does not
 *	  depend on it.
 *	  Server 0 may crash at any time, and comes back as another start.  A call, new or
 *	  late, may be executed with its result lost, executed later, or both.  A server may
 *	  forget a lease that is over without an end having been told (a change of
 *	  registry and back).
 *
 * What is abstracted
 *	  The word, limit and seal are in lease.pml: here an open lease issues any tick
 *	  from its last one to its limit.
 *
 * Each rule can be removed by a -D switch; then one of them fails:
 *
 *	  PUBLISH_FIRST		the limit is raised before the row is
 *	  NO_SEAL			an end is told and ids are issued after it
 *	  FORGET_HISTORY	a lease starts at the clock instead of the greatest end
 *	  LEFT_OPEN			granting a number leaves its open rows open
 *	  RENEW_CLOSED		a closed row is raised
 *	  NO_TOKEN			a renewal raises the open row of the number, also of another
 *	  REOPEN			a lease is used again after its end may have been sent
 *	  NO_CALL_NUMBER	a call is executed after a later one
 *	  NONE_AT_START		a call that names no lease closes the start's rows where they
 *						started, not at their ends
 *	  CRASH_AT_START	a new start of a server closes the row of its last one where it
 *						started
 *	  LATE_RESULT		the result of a call that was given up on is taken
 *	  OTHERS_STAY		a call leaves other open rows of its start open
 *
 *	  GRANT_ONLY is no removal: call numbers count only where a lease is granted
 *	  (granted_by), not where one is renewed or released (last_call).  The properties hold.
 */
#ifndef NODES
#define NODES		2
#endif
#ifndef NUMBERS
#define NUMBERS		1
#endif
#ifndef TICKS
#define TICKS		3
#endif
#ifndef LEASES
#define LEASES		3			/* granted in all */
#endif
#ifndef CALLS
#define CALLS		4			/* of each start */
#endif
#ifndef CRASHES
#define CRASHES		0			/* of server 0 */
#endif
#ifndef LATES
#define LATES		1			/* calls on their way at one time */
#endif

#define MAX(a, b)		((a) > (b) -> (a) : (b))
#define MIN(a, b)		((a) < (b) -> (a) : (b))

/* The rows, by token; token 0 is none. */
byte	rows;
byte	row_number[LEASES + 1];
byte	row_starts[LEASES + 1];
byte	row_until[LEASES + 1];
bool	row_open[LEASES + 1];
byte	row_start[LEASES + 1];	/* which start of which server */
byte	row_granted[LEASES + 1];	/* by the call of this number */
byte	row_call[LEASES + 1];	/* the last call that changed it */

/* Shared memory of each server. */
#define NONE	0
#define OPEN	1
#define OVER	2				/* sealed; the end may have been sent */
byte	state[NODES];
byte	token[NODES];
byte	starts[NODES];
byte	until[NODES];
byte	last[NODES];			/* 1 + the last tick issued; 0: none */
byte	end[NODES];
byte	calls[NODES];
#ifdef LATE_RESULT
byte	missed[NODES];			/* a lease granted without a result */
#endif

byte	crashes;

/* Calls on their way; 0: none. */
#define ACQUIRE	1
#define RENEW	2
#define RELEASE	3
byte	late_kind[LATES];
byte	late_node[LATES];
byte	late_start[LATES];
byte	late_call[LATES];
byte	late_token[LATES];
byte	late_until[LATES];

/* One of the ticks that were used, whichever: 0: none yet. */
byte	used;					/* 1 + tick */
byte	used_number;
byte	used_by;				/* lease */
byte	used_on;

#define THIS_START(n)	((n) + NODES * ((n) == 0 -> crashes : 0))

inline close_row(t, at)
{
	row_until[t] = MIN(row_until[t], at);
	row_open[t] = false
}

/* Closes the open rows of the start other than the one that is named. */
inline close_others(s, call, named)
{
	for (i : 1 .. rows) {
		if
#ifndef OTHERS_STAY
		:: row_start[i] == s && row_open[i] && i != named ->
#ifdef NONE_AT_START
			if
			:: named == 0 || row_granted[i] > row_granted[named] -> close_row(i, row_starts[i])
#else
			if
			:: named != 0 && row_granted[i] > row_granted[named] -> close_row(i, row_starts[i])
#endif
			:: else -> row_open[i] = false
			fi;
			row_call[i] = call
#endif
		:: else
		fi
	}
	i = 0
}

/* Any number, at any clock. */
inline grant(n, s, call)
{
	w = 0;
#if NUMBERS > 1
	if
	:: true
	:: w = 1
	fi;
#endif
	for (i : 1 .. rows) {
		if
		:: row_number[i] == w ->
#ifdef CRASH_AT_START
			if
			:: row_open[i] && row_start[i] % NODES == n -> close_row(i, row_starts[i])
			:: else
			fi;
#endif
			begin = MAX(begin, row_until[i]);
#ifndef LEFT_OPEN
			row_open[i] = false
#endif
		:: else
		fi
	}
	i = 0;
#ifdef FORGET_HISTORY
	begin = 0;
#endif
	rows++;
	got = rows;
	row_number[got] = w;
	row_starts[got] = begin;
	row_until[got] = MIN(begin + 1, TICKS);
	do
	:: row_until[got] < TICKS -> row_until[got]++
	:: break
	od;
	row_open[got] = true;
	row_start[got] = s;
	row_granted[got] = call;
	row_call[got] = call;
	begin = 0; w = 0
}

/*
 * A call, executed.  The result: got is the lease that was granted, or the one that
 * was renewed or released; 0: refused, or closed.  told: false if it was refused.
 */
inline execute(what, n, s, call, named, at)
{
	got = 0;
	told = true;
#ifndef NO_CALL_NUMBER
	for (i : 1 .. rows) {
#ifdef GRANT_ONLY
		told = told && !(row_start[i] == s && row_granted[i] >= call)
#else
		told = told && !(row_start[i] == s && row_call[i] >= call)
#endif
	}
	i = 0;
#endif
	if
	:: told && (what != ACQUIRE || rows < LEASES) ->
		close_others(s, call, named);
		if
		:: what == ACQUIRE ->
			if
			:: named != 0 && row_open[named] ->
				close_row(named, at);
				row_call[named] = call
			:: else
			fi;
			grant(n, s, call)
		:: what == RENEW ->
			got = named;
#ifdef NO_TOKEN
			got = rows;
			do
			:: got > 0 && (!row_open[got] || row_number[got] != row_number[named]) -> got--
			:: else -> break
			od;
#endif
			if
#ifdef RENEW_CLOSED
			:: true ->
#else
			:: row_open[got] ->
#endif
				row_until[got] = MAX(row_until[got], at);
				row_call[got] = call
#ifndef RENEW_CLOSED
			:: else -> got = 0
#endif
			fi
		:: what == RELEASE ->
			if
			:: row_open[named] -> close_row(named, at)
			:: else
			fi;
			got = named;
			row_call[named] = call
		fi;
		for (i : 1 .. rows) {
			told = told && (!row_open[i] || row_start[i] != s || i == rows || !row_open[rows] || row_start[rows] != s)
		}
		i = 0;
		assert(told)
	:: else -> told = false
	fi
}

/*
 * Sends a call.  It is kept to be executed later, or it is executed now; if so, it may
 * be kept as well, and the result may be lost.  heard: there is a result.
 */
inline send(what, n, at)
{
	calls[n]++;
	heard = false;
	if
	:: true
	:: i = 0;
		do
		:: i < LATES && late_kind[i] != 0 -> i++
		:: else -> break
		od;
		if
		:: i < LATES ->
			late_kind[i] = what;
			late_node[i] = n;
			late_start[i] = THIS_START(n);
			late_call[i] = calls[n];
			late_token[i] = token[n];
			late_until[i] = at
		:: else
		fi;
		i = 0
	fi;
	if
	:: me = THIS_START(n);
		call = calls[n];
		named = token[n];
		execute(what, n, me, call, named, at);
		if
		:: heard = told
		:: true
#ifdef LATE_RESULT
			-> missed[n] = (what == ACQUIRE -> got : missed[n])
#endif
		fi;
		me = 0; call = 0; named = 0
	:: true
	fi
}

/* The lease that was granted is open. */
inline take(n, t)
{
	token[n] = t;
	starts[n] = row_starts[t];
	until[n] = row_until[t];
	last[n] = 0;
	end[n] = 0;
	state[n] = OPEN
}

proctype server(byte n)
{
	byte	i, w, t, begin, got, me, call, named, at;
	bool	told, heard;

	do
	:: atomic {
		state[n] != OPEN && calls[n] < CALLS && rows < LEASES ->
		at = end[n];
		send(ACQUIRE, n, at);
		if
		:: heard && got != 0 -> take(n, got)
		:: else
		fi;
		got = 0; at = 0; told = false; heard = false
	}
#ifdef LATE_RESULT
	:: atomic { state[n] != OPEN && missed[n] != 0 -> take(n, missed[n]); missed[n] = 0 }
#endif
	:: atomic {
		state[n] == OPEN && calls[n] < CALLS && until[n] < TICKS ->
#ifdef PUBLISH_FIRST
		until[n]++;
		at = until[n];
#else
		at = until[n] + 1;
#endif
		send(RENEW, n, at);
		if
		:: heard && got != 0 -> until[n] = MAX(until[n], row_until[got])
		:: heard && got == 0 ->
			state[n] = OVER;
			end[n] = MAX(starts[n], last[n])
		:: else
		fi;
		got = 0; at = 0; told = false; heard = false
	}
	/* the end of the lease: of its last tick, or where it started */
	:: atomic {
		state[n] == OPEN ->
		state[n] = OVER;
		end[n] = MAX(starts[n], last[n])
	}
	:: atomic {
		state[n] == OVER && token[n] != 0 && calls[n] < CALLS ->
		at = end[n];
		send(RELEASE, n, at);
		if
		:: heard -> token[n] = 0; end[n] = 0; state[n] = NONE
		:: else
		fi;
		got = 0; at = 0; told = false; heard = false
	}
	:: atomic { state[n] == OVER -> token[n] = 0; end[n] = 0; state[n] = NONE }
#ifdef REOPEN
	:: atomic { state[n] == OVER && token[n] != 0 -> state[n] = OPEN }
#endif
	/* an id */
	:: atomic {
#ifdef NO_SEAL
		(state[n] == OPEN || (state[n] == OVER && token[n] != 0)) ->
#else
		state[n] == OPEN ->
#endif
		t = MAX(starts[n], (last[n] > 0 -> last[n] - 1 : 0));
		if
		:: t < until[n] ->
			do
			:: t + 1 < until[n] -> t++
			:: break
			od;
			last[n] = t + 1;
			w = row_number[token[n]];
			assert(used != t + 1 || used_number != w || used_by == token[n]);
			assert(used == 0 || used_number != w || used_on != n || t + 1 >= used);
			if
			:: used == 0 -> used = t + 1; used_number = w; used_by = token[n]; used_on = n
			:: true
			fi
		:: else
		fi;
		t = 0; w = 0
	}
	od
}

/* Calls whose result is not waited for; each may be executed once more. */
proctype network()
{
	byte	i, w, begin, got, j, n, me, call, named, at;
	bool	told;

	do
	:: atomic {
		late_kind[0] != 0 ->
		select(j : 0 .. LATES - 1);
		if
		:: late_kind[j] != 0 ->
			n = late_node[j];
			me = late_start[j];
			call = late_call[j];
			named = late_token[j];
			at = late_until[j];
			execute(late_kind[j], n, me, call, named, at);
#ifdef LATE_RESULT
			missed[late_node[j]] = (late_kind[j] == ACQUIRE && told && late_start[j] == THIS_START(late_node[j]) ->
									got : missed[late_node[j]]);
#endif
			if
			:: true
			:: late_kind[j] = 0; late_node[j] = 0; late_start[j] = 0; late_call[j] = 0;
				late_token[j] = 0; late_until[j] = 0
			fi
		:: else
		fi;
		got = 0; told = false; j = 0; n = 0; me = 0; call = 0; named = 0; at = 0
	}
	od
}

/* Shared memory is lost, rows are not.  Calls may be on their way still. */
proctype crash()
{
	do
	:: atomic {
		crashes < CRASHES ->
		crashes++;
		state[0] = NONE; token[0] = 0; starts[0] = 0; until[0] = 0; last[0] = 0; end[0] = 0;
		calls[0] = 0
#ifdef LATE_RESULT
		; missed[0] = 0
#endif
	}
	od
}

init
{
	byte	n;

	atomic {
		for (n : 0 .. NODES - 1) {
			run server(n)
		}
		n = 0;
		run network();
		run crash()
	}
}
