/*
 * lease.pml
 *	  The word, the limit, the seal, and the lease worker that may be killed, as a
 *	  model.  Checked over all interleavings by test/t/014_model.pl.
 *
 * Properties: no id (node number, tick, sequence) is issued twice; and a server issues
 * the ids of a number in increasing order, also over a crash.
 *
 * What the model stands for
 *	  row_*[token]	the rows of worker_node: durable, changed by one transaction at
 *					a time.  Nothing else outlives a crash
 *	  state, token, starts, until, end
 *					the lease machine of each server, in shared memory
 *	  word, sealed, opened, limit
 *					the word of a layout, in shared memory
 *	  step, seen, upto
 *					a backend that issues ids: it reads the word, reads the limit,
 *					swaps
 *
 * What it allows the world to do
 *	  Clocks are not modelled: each reading of a clock gives any value.  So what
 *	  holds here holds for clock steps of any size, either way, and for any number
 *	  that the registry may choose.  Every process may pause between any two steps
 *	  for any time.  Server 0 may crash between any two steps.  A lease worker may be
 *	  killed between any two steps; the next one goes on from shared memory, which
 *	  is all that this model has, so it repeats the step that was not completed.  A
 *	  call may be lost before it is executed, or its result is.  A number may be
 *	  granted to another server at any time, its lease expired or not.
 *
 * What is abstracted
 *	  One layout and one backend for each server.  Calls that are executed late are
 *	  in registry.pml; where the tables come from, in cluster.pml and tables.pml.
 *
 * Each rule can be removed by a -D switch; then one of them fails:
 *
 *	  PUBLISH_FIRST		the limit is raised before the row is
 *	  NO_SEAL			the end of a lease is computed before its word is sealed
 *	  SEAL_FORGETS		a word that was sealed already counts as not issued from: so
 *						thinks a lease worker whose predecessor was killed after it
 *						had sealed
 *	  WORD_FIRST		the word is opened before the limit is set
 *	  OPEN_AGAIN		the next lease worker opens a word that is open already
 *	  REOPEN			a lease is opened again after its end may have been sent
 *	  FORGET_HISTORY	a lease starts at the clock instead of the greatest end
 *	  RENEW_CLOSED		a row that is closed is raised
 *	  NO_TOKEN			a renewal raises the open row of the number, also of another
 *	  RELEASE_ANY		a release closes the open row of the number, also of another
 *	  LIMIT_FIRST		a backend reads the limit before the word
 *	  IDLE_AGAIN		a word is opened at the start of its lease, with sequence 0.  A lease
 *						that issued nothing is closed where it started, so the next one of
 *						the number has the same first word; then a backend that slept
 *						swaps under the limit of the first time
 *	  IDLE_IN_WORD		a word is opened after its own last tick, but always with sequence 0.
 *						Not enough: with another number between (NUMBERS=2) that tick is
 *						forgotten
 *
 *	  The sequence of a first word is the number of openings, as far as it fits.  With
 *	  SEQUENCES=2 and NUMBERS=2 it does not fit, and a property fails: a backend that sleeps
 *	  for as many openings as a tick has sequences is not protected.
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
#ifndef SEQUENCES
#define SEQUENCES	2
#endif
#define PER_NUMBER	(TICKS * SEQUENCES)

#ifndef LEASES
#define LEASES		3			/* granted in all */
#endif
#ifndef CRASHES
#define CRASHES		0			/* of server 0 */
#endif

/* As src/word.h: node number | tick | sequence; the seal is apart.  0 is no word. */
#define WORD(w, t, s)	(1 + (w) * PER_NUMBER + (t) * SEQUENCES + (s))
#define NUMBER(word)	(((word) - 1) / PER_NUMBER)
#define TICK(word)		((((word) - 1) % PER_NUMBER) / SEQUENCES)

#define MAX(a, b)		((a) > (b) -> (a) : (b))
#define MIN(a, b)		((a) < (b) -> (a) : (b))

/* The rows, by token; token 0 is none. */
byte	rows;
byte	row_number[LEASES + 1];
byte	row_starts[LEASES + 1];
byte	row_until[LEASES + 1];
bool	row_open[LEASES + 1];

/* The lease machine.  OPEN: the word is open, or is to be opened. */
#define NONE	0
#define OPEN	1
#define SEALING	2
#define ENDING	3
byte	state[NODES];
byte	token[NODES];			/* the lease, or the last one; 0: none */
byte	starts[NODES];
byte	until[NODES];			/* of the row, as far as is known */
byte	end[NODES];				/* of its ids, from ENDING on */

/* The word. */
byte	word[NODES];
byte	opened[NODES];			/* what it was opened with last; 0: never */
byte	openings[NODES];		/* how often it was opened, as far as it fits */
byte	limit[NODES];			/* a word, with its number */
bool	sealed[NODES];

/* The backend. */
byte	step[NODES];
byte	seen[NODES];
byte	upto[NODES];

byte	crashes;

/* One of the ids that were issued, whichever; 0: none yet. */
byte	issued;
byte	issued_by;

#define LEASED(n)		row_number[token[n]]

inline read_clock(t)
{
	select(t : 0 .. TICKS - 1)
}

/* Closes a row at the end of its ids. */
inline close_row(t, at)
{
	row_until[t] = MIN(row_until[t], at);
	row_open[t] = false
}

/*
 * A lease is asked for and granted.  The lease before is named, with its end.  The
 * result is taken, or it is lost and the row has no owner.
 */
inline acquire(n, w)
{
	if
	:: token[n] != 0 && row_open[token[n]] -> close_row(token[n], end[n])
	:: else
	fi;
	start = 0;
	for (t : 1 .. rows) {
		if
		:: row_number[t] == w ->
			row_open[t] = false;
			start = MAX(start, row_until[t])
		:: else
		fi
	}
	read_clock(now);
#ifdef FORGET_HISTORY
	start = now;
#endif
	rows++;
	row_number[rows] = w;
	row_starts[rows] = start;
	row_until[rows] = MIN(MAX(start, now) + 1, TICKS);
	row_open[rows] = true;
	if
	:: token[n] = rows;
		starts[n] = start;
		until[n] = row_until[rows];
		end[n] = 0;
		state[n] = OPEN
	:: true
	fi;
	start = 0; now = 0; t = 0
}

/* The row that a renewal or a release of a lease changes. */
inline find_row(n)
{
	t = token[n];
#if defined(NO_TOKEN) || defined(RELEASE_ANY)
	t = rows;
	do
	:: t > 0 && (!row_open[t] || row_number[t] != LEASED(n)) -> t--
	:: else -> break
	od
#endif
}

/* Raises the row; if that is closed, the lease is over.  The result may be lost. */
inline renew(n)
{
#ifdef NO_TOKEN
	find_row(n);
#else
	t = token[n];
#endif
	read_clock(now);
	if
#ifdef RENEW_CLOSED
	:: true ->
#else
	:: row_open[t] ->
#endif
		row_until[t] = MAX(row_until[t], now + 1);
		if
		:: until[n] = MAX(until[n], row_until[t])
		:: true
		fi
#ifndef RENEW_CLOSED
	:: else -> state[n] = SEALING
#endif
	fi;
	now = 0; t = 0
}

inline release(n)
{
#ifdef RELEASE_ANY
	find_row(n);
#else
	t = token[n];
#endif
	if
	:: row_open[t] -> close_row(t, end[n])
	:: else
	fi;
	t = 0
}

/* The tick of the first word of a lease: after the last one of this number. */
inline first_tick(n)
{
	start = starts[n];
#ifndef IDLE_AGAIN
	start = ((opened[n] != 0 && NUMBER(word[n]) == LEASED(n)) ->
			 MAX(start, TICK(word[n]) + 1) : start);
#endif
}

/* The lease worker, one step at a time. */
proctype lease_worker(byte n)
{
	byte	t, start, now, last;

	do
	:: atomic { state[n] == NONE && rows < LEASES -> acquire(n, 0) }
#if NUMBERS > 1
	:: atomic { state[n] == NONE && rows < LEASES -> acquire(n, 1) }
#endif
	/* opening: the limit, then the word */
	:: atomic {
		state[n] == OPEN && sealed[n] &&
#ifdef WORD_FIRST
		false ->
#else
		limit[n] != WORD(LEASED(n), until[n], 0) ->
#endif
		limit[n] = WORD(LEASED(n), until[n], 0)
	}
	:: atomic {
		state[n] == OPEN &&
#ifndef OPEN_AGAIN
		sealed[n] &&
#endif
#ifndef WORD_FIRST
		limit[n] == WORD(LEASED(n), until[n], 0) &&
#endif
		starts[n] < TICKS ->
		first_tick(n);
		if
		:: start < TICKS ->
#if defined(IDLE_AGAIN) || defined(IDLE_IN_WORD)
			opened[n] = WORD(LEASED(n), start, 0);
#else
			opened[n] = WORD(LEASED(n), start, openings[n]);
			openings[n] = (openings[n] + 1) % SEQUENCES;
#endif
			word[n] = opened[n];
			sealed[n] = false
		:: else
		fi;
		start = 0
	}
	/* extending: the row, then the limit */
	:: atomic { state[n] == OPEN && !sealed[n] -> renew(n) }
	:: atomic {
		state[n] == OPEN && !sealed[n] &&
#ifdef WORD_FIRST
		limit[n] != WORD(LEASED(n), until[n], 0) ->
#else
		limit[n] < WORD(LEASED(n), until[n], 0) ->
#endif
		limit[n] = WORD(LEASED(n), until[n], 0)
	}
#ifdef PUBLISH_FIRST
	:: atomic {
		state[n] == OPEN && !sealed[n] && until[n] < TICKS ->
		limit[n] = WORD(LEASED(n), until[n] + 1, 0)
	}
#endif
	/* ending: seal, keep the end, then tell it */
	:: atomic { state[n] == OPEN -> state[n] = SEALING }
	:: atomic {
		state[n] == SEALING ->
		last = starts[n];
		if
#ifdef SEAL_FORGETS
		:: sealed[n]
		:: !sealed[n] &&
#else
		::
#endif
			NUMBER(word[n]) == LEASED(n) && opened[n] != 0 && word[n] != opened[n] ->
			last = MAX(last, TICK(word[n]) + 1)
		:: else
		fi;
#ifndef NO_SEAL
		sealed[n] = true;
#endif
		if
		:: end[n] = last; state[n] = ENDING
		:: true					/* killed: the next one seals again */
		fi;
		last = 0
	}
	:: atomic {
		state[n] == ENDING ->
		release(n);
		if
		:: true					/* no result: once more */
		:: sealed[n] = true; state[n] = NONE
		fi
	}
	/* the release is left to the next call, which names the lease as well */
	:: atomic { state[n] == ENDING -> sealed[n] = true; state[n] = NONE }
#ifdef REOPEN
	:: atomic { state[n] == ENDING && sealed[n] -> state[n] = OPEN; starts[n] = end[n] }
#endif
	od
}

/* The sequence of a fresh tick may start anywhere. */
inline swap(n)
{
	select(now : 0 .. TICKS - 1);
	if
	:: next = WORD(NUMBER(seen[n]), now, 0)
	:: next = WORD(NUMBER(seen[n]), now, 1)
	fi;
	next = MAX(next, seen[n] + 1);
	if
	:: next < upto[n] && NUMBER(next) == NUMBER(seen[n]) && word[n] == seen[n] && !sealed[n] ->
		word[n] = next;
		assert(next != issued);
		assert(issued == 0 || n != issued_by || NUMBER(next) != NUMBER(issued) || next > issued);
		if
		:: issued == 0 -> issued = next; issued_by = n
		:: true
		fi
	:: else
	fi;
	seen[n] = 0; upto[n] = 0; step[n] = 0;
	now = 0; next = 0
}

proctype backend(byte n)
{
	byte	now, next;

	do
#ifdef LIMIT_FIRST
	:: atomic { step[n] == 0 && !sealed[n] -> upto[n] = limit[n]; step[n] = 1 }
	:: atomic { step[n] == 1 && !sealed[n] -> seen[n] = word[n]; step[n] = 2 }
#else
	:: atomic { step[n] == 0 && !sealed[n] -> seen[n] = word[n]; step[n] = 1 }
	:: atomic { step[n] == 1 -> upto[n] = limit[n]; step[n] = 2 }
#endif
	:: atomic { step[n] == 2 -> swap(n) }
	od
}

/* Shared memory is lost, and all processes of the server with it. */
proctype crash()
{
	do
	:: atomic {
		crashes < CRASHES ->
		crashes++;
		state[0] = NONE; token[0] = 0; starts[0] = 0; until[0] = 0; end[0] = 0;
		word[0] = 0; opened[0] = 0; openings[0] = 0; limit[0] = 0; sealed[0] = true;
		step[0] = 0; seen[0] = 0; upto[0] = 0
	}
	od
}

init
{
	byte	n;

	atomic {
		for (n : 0 .. NODES - 1) {
			sealed[n] = true;
			run lease_worker(n);
			run backend(n)
		}
		n = 0;
		run crash()
	}
}
