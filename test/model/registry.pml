/*
 * registry.pml
 *	  The lease protocol with a registry as a model: nodes that lease their node
 *	  numbers from one table of rows, by calls that may be lost or late.  Checked
 *	  exhaustively by test/t/020_model.pl.
 *
 * Claim: no two draws have the same (number, tick, sequence).
 *
 * What the model stands for
 *	  row_*[token]	the rows of the registry, one for each lease there ever was:
 *					durable, changed by one transaction at a time
 *	  file_*[node]	the state file of a node: a bound for each number, and the
 *					token of the lease last opened; durable
 *	  word, limit, claim_*
 *					a node's shared memory, lost in a crash
 *	  holder		the process that opens, extends and closes leases; what it
 *					keeps for itself is lost when it ends
 *	  late			calls to the registry that nobody waits for any more
 *	  drawer		a backend: reads the word, reads the limit, swaps
 *
 * Why the claim holds
 *	  A row's bound is above all that was issued under its token, at any time.  A
 *	  row rises only while it is open, it is open only while it is the last of
 *	  its number, and a lease starts at the greatest bound of all rows.  A bound
 *	  is lowered only by one who knows that nothing more is issued under its
 *	  token: the node that has sealed the word, or has crashed and goes by its
 *	  file, which was written before the limit.
 *
 * What it allows the world to do
 *	  Every reading of a clock gives any value, so a number may be taken over at
 *	  any time, its lease expired or not.  Every process may pause between any
 *	  two steps for any time.  Node 0 may crash between any two steps, its holder
 *	  may end and be started anew.  A call may be lost, or its answer; or it is
 *	  executed late, after its holder gave it up, also over a crash.  The registry
 *	  may choose any number, so also the one that is fixed.
 *	  CLONE: node 1 starts, once, with a copy of the file of node 0.
 *	  FORGETFUL: the registry loses all its rows, once.  This is for one node; with
 *	  two the claim fails, as nothing else knows of both.
 *	  OLD_FILE: a crash may bring back an earlier bound in the file.  The claim
 *	  fails: a file that ends a lease must be the one last written.  How that is
 *	  told (src/host.c, src/loose_ends.c) is not part of the model.
 *
 * Each protective step can be taken out by a -D switch; then the claim fails:
 *
 *	  PUBLISH_FIRST		the limit is raised before the row is
 *	  LIMIT_BEFORE_FILE	the limit is raised before the file is written
 *	  NO_SEAL			the end of a lease is computed without sealing the word
 *	  FORGET_HISTORY	a lease starts at the clock instead of the greatest bound
 *	  NO_TOKEN			a renewal or release does not ask whose lease it is
 *	  NO_OPEN			a renewal accepts a closed row
 *	  LEFT_OPEN			a takeover leaves the row of the other lease open
 *	  REOPEN			a lease that was closed is opened again under its token
 *	  REUSE_WORD		the first word of a lease may be an earlier one
 *	  LATE_ANSWER		the answer to an acquire call that was given up is taken,
 *						while its token is still among the unused ones
 *	  TRUST_COPY		a clone ends the lease whose token it finds in its file
 *						(with CLONE)
 *	  FORGET_FILE		a lease does not start behind the file's bound
 *						(with FORGETFUL)
 *	  LOWER_FILE		opening may lower the file's bound below the first tick of
 *						the lease (with FORGETFUL)
 */
#ifndef NODES
#define NODES		2
#endif
#ifndef NUMBERS
#define NUMBERS		1
#endif
#ifndef TICKS
#define TICKS		2
#endif
#define SEQUENCES	2
#define PER_NUMBER	(TICKS * SEQUENCES)

#ifndef LEASES
#define LEASES		3			/* asked for in all */
#endif
#ifndef CRASHES
#define CRASHES		1			/* of node 0 */
#endif
#ifndef ENDS
#define ENDS		0			/* of the holder of node 0 */
#endif
#ifndef LATES
#define LATES		1			/* calls at one time */
#endif

/* As src/word.h: node number | tick | sequence; a sealed word is marked apart. */
#define WORD(w, t, s)	((w) * PER_NUMBER + (t) * SEQUENCES + (s))
#define NUMBER(word)	((word) / PER_NUMBER)
#define TICK(word)		(((word) % PER_NUMBER) / SEQUENCES)

#define MAX(a, b)		((a) > (b) -> (a) : (b))
#define MIN(a, b)		((a) < (b) -> (a) : (b))

/* The registry, by token; token 0 is none. */
#define NONE		0
#define OPEN		1
#define CLOSED		2
byte	row_state[LEASES + 1];
byte	row_number[LEASES + 1];
byte	row_until[LEASES + 1];
byte	next_token = 1;
bool	forgotten;				/* with FORGETFUL */

/* State files. */
#define FILE(n, w)	file_bound[(n) * NUMBERS + (w)]
byte	file_bound[NODES * NUMBERS];
byte	file_token[NODES];		/* 0: none that may be presented */
byte	file_number[NODES];		/* of that token */
#define FILE_END(n)	FILE(n, file_number[n])

/* Shared memory of each node. */
byte	word[NODES];
bool	sealed[NODES];
byte	limit[NODES];			/* a word, with its number */
byte	claim_token[NODES];
byte	claim_until[NODES];		/* bound of the row, as far as the node knows */
byte	boot[NODES];			/* how often the node has crashed */
byte	ends[NODES];			/* how often its holder has ended */

/*
 * Calls that were given up: what, token, bound wanted or end; with ACQUIRE the
 * end is that of the lease before, then that lease's token, and an unused token.
 */
mtype = { ACQUIRE, RENEW, RELEASE };
chan	late = [LATES] of { mtype, byte, byte, byte, byte };

/* One of the ids that were drawn, whichever; 0: none yet. */
byte	drawn;

/* Any reading of any clock. */
inline read_clock(t)
{
	select(t : 0 .. TICKS - 1)
}

/*
 * The three calls, each one transaction.  Who executes them has the variables w,
 * start and until for the answer (until 0: refused), and t.
 */
inline acquire(mine, spare, before, its_end)
{
	row_state[spare] = NONE;
	row_until[spare] = 0;
	if
	:: before != 0 && row_state[before] == OPEN ->
		row_until[before] = MIN(row_until[before], its_end);
		row_state[before] = CLOSED
	:: else
	fi;
	if
	:: w = 0
	:: NUMBERS > 1 -> w = NUMBERS - 1
	fi;
	for (t : 1 .. LEASES) {
		if
		:: row_state[t] != NONE && row_number[t] == w ->
			start = MAX(start, row_until[t]);
#ifndef LEFT_OPEN
			row_state[t] = CLOSED
#endif
		:: else
		fi
	}
	read_clock(until);
#ifdef FORGET_HISTORY
	start = until;
#endif
	until = MAX(start, until + 1);
	row_state[mine] = OPEN;
	row_number[mine] = w;
	row_until[mine] = until;
	t = 0
}

/* A renewal or a release, of an open row only; a release closes it. */
inline change_row(what, whose, bound)
{
#ifdef NO_TOKEN
	w = row_number[whose];
	t = LEASES;
	do
	:: t > 0 && (row_state[t] != OPEN || row_number[t] != w) -> t--
	:: else -> break
	od;
	w = 0;
#else
	t = whose;
#endif
	if
#ifdef NO_OPEN
	:: what == RENEW && row_state[t] != NONE ->
#else
	:: what == RENEW && row_state[t] == OPEN ->
#endif
		row_until[t] = MAX(row_until[t], bound);
		until = row_until[t]
	:: what == RELEASE && row_state[t] == OPEN ->
		row_until[t] = MIN(row_until[t], bound);
		row_state[t] = CLOSED
	:: else
	fi;
	t = 0
}

/* Executes calls that were given up, in any order, at any time or never. */
proctype registry()
{
	mtype	what;
	byte	token, bound, before, spare, t, w, start, until;

	do
	:: atomic {
		late?what,token,bound,before,spare ->
		if
		:: what == ACQUIRE -> acquire(token, spare, before, bound)
		:: what != ACQUIRE -> change_row(what, token, bound)
		:: len(late) > 0 -> late!what,token,bound,before,spare
		fi;
		what = 0; token = 0; bound = 0; before = 0; spare = 0;
		w = 0; start = 0; until = 0
	}
#ifdef FORGETFUL
	:: atomic {
		!forgotten -> forgotten = true;
		for (t : 1 .. LEASES) {
			row_state[t] = NONE; row_number[t] = 0; row_until[t] = 0
		}
		t = 0
	}
#endif
	od
}

/*
 * Asks without waiting for the answer.  If there are too many such calls, one of
 * them is never executed.
 */
inline ask_in_vain(call, whose, bound_or_end, before, spare)
{
	if
	:: nfull(late) -> late!call,whose,bound_or_end,before,spare
	:: full(late) -> late?_,_,_,_,_; late!call,whose,bound_or_end,before,spare
	:: full(late)
	fi
}

/*
 * Opens the lease that was acquired: file, limit, word.  The first word is
 * never issued.  As (start, 0) it is greater than every word of this number
 * that this node ever published.
 */
inline open_lease(n)
{
	atomic {
#ifndef FORGET_FILE
		start = MAX(start, FILE(n, w));
#endif
		claim_until[n] = until;
		if
		:: true								/* up to the row's bound */
		:: start + 1 < until -> until = start + 1
		fi
	}
	if
	:: start < TICKS ->
		atomic {
#ifdef LOWER_FILE
			FILE(n, w) = until;
#else
			FILE(n, w) = MAX(start, until);
#endif
			file_token[n] = claim_token[n];
			file_number[n] = w
		}
		limit[n] = WORD(w, until, 0);
		atomic {
#ifdef REUSE_WORD
			word[n] = MAX(WORD(w, start, 0), WORD(w, 0, 0) + 1) - 1;
#else
			word[n] = WORD(w, start, 0);
#endif
			sealed[n] = false;
			start = 0; until = 0; w = 0
		}
	:: else -> atomic { start = 0; until = 0; w = 0 }
	fi
}

/* Raises the bound in the file, then the limit, as far as the row allows. */
inline extend_lease(n)
{
	atomic {
		w = NUMBER(word[n]);
		until = (limit[n] - WORD(w, 0, 0)) / SEQUENCES + 1;
#ifdef LIMIT_BEFORE_FILE
		limit[n] = WORD(w, until, 0)
#else
		FILE(n, w) = MAX(FILE(n, w), until)
#endif
	}
	atomic {
#ifdef LIMIT_BEFORE_FILE
		FILE(n, w) = MAX(FILE(n, w), until);
#else
		limit[n] = WORD(w, until, 0);
#endif
		until = 0; w = 0
	}
}

/* Has the row's bound raised.  Until then the holder goes by the one it knows. */
inline renew_lease(n)
{
#ifdef PUBLISH_FIRST
	limit[n] = WORD(NUMBER(word[n]), claim_until[n] + 1, 0);
#endif
	atomic {
		if
		:: change_row(RENEW, claim_token[n], claim_until[n] + 1);
			claim_until[n] = MAX(claim_until[n], until)
		:: ask_in_vain(RENEW, claim_token[n], claim_until[n] + 1, 0, 0)
		fi;
		until = 0
	}
}

/*
 * Seals the word and records the exact end of the lease, in the file and then in
 * the row: by a release, or as the previous lease of the next acquire call.
 */
inline close_lease(n)
{
	atomic {
		w = NUMBER(word[n]);
		until = TICK(word[n]) + 1;
#ifndef NO_SEAL
		sealed[n] = true
#endif
	}
	atomic {
		FILE(n, w) = until;
		sealed[n] = true;
		if
		:: ask_in_vain(RELEASE, claim_token[n], until, 0, 0)
		:: true
		fi;
#ifndef REOPEN
		claim_token[n] = 0;
		claim_until[n] = 0;
#endif
		until = 0; w = 0
	}
}

/* With a token that is not its own, a file gives only its bounds. */
inline copy_file(from, n)
{
	atomic {
#ifdef TRUST_COPY
		file_token[n] = file_token[from];
#endif
		FILE(n, 0) = FILE(from, 0)
	}
}

/*
 * A crash ends both processes of a node wherever they are; they start anew.  A
 * holder that ends is started anew too; shared memory tells it of its lease.
 *
 * A call is answered in the step that makes it, or given up: while a holder
 * waits for an answer it does nothing that the call depends on.  If a renewal
 * is refused, the lease is lost.  Here the holder may go on below the bound
 * that it knows, and closes at any time later.
 */
proctype holder(byte n)
{
	byte	unused, token, start, until, w, t, born;

#ifdef CLONE
	if
	:: n == 1 -> copy_file(0, 1)	/* before its first start */
	:: else
	fi;
#endif
again:
	atomic {
		born = boot[n] + ends[n];
		unused = 0; token = 0; start = 0; until = 0; w = 0
	}
	do
	:: atomic {
		sealed[n] && next_token <= LEASES ->
		token = next_token;
		next_token++;
		acquire(token, unused, file_token[n], FILE_END(n));
		claim_token[n] = token;
		unused = 0; token = 0
	}
		open_lease(n)
	:: atomic {
		sealed[n] && next_token <= LEASES ->
		token = next_token;
		next_token++;
		ask_in_vain(ACQUIRE, token, FILE_END(n), file_token[n], unused);
		unused = token;
		token = 0
	}
#ifdef LATE_ANSWER
	:: atomic {
		sealed[n] && unused != 0 && late?[ACQUIRE,eval(unused),_,_,_] ->
		late?_,token,_,_,_;
		acquire(token, 0, file_token[n], FILE_END(n));
		claim_token[n] = token;
		token = 0
	}
		open_lease(n)
#endif
#ifdef REOPEN
	:: atomic {
		sealed[n] && claim_token[n] != 0 && FILE(n, NUMBER(word[n])) < claim_until[n] ->
		w = NUMBER(word[n]);
		until = claim_until[n]
	}
		open_lease(n)
#endif
	:: !sealed[n] && claim_until[n] < TICKS -> renew_lease(n)
	:: !sealed[n] && limit[n] < WORD(NUMBER(word[n]), claim_until[n], 0) -> extend_lease(n)
	:: !sealed[n] -> close_lease(n)
	od unless {
		boot[n] + ends[n] != born -> goto again
	}
}

/*
 * Publishes a word below the limit that was read, if the word that was read
 * still stands.  The sequence of a fresh tick may start anywhere.
 */
inline draw(n)
{
	upto = limit[n];
	atomic {
		read_clock(now);
		if
		:: next = WORD(NUMBER(mine), now, 0)
		:: next = WORD(NUMBER(mine), now, 1)
		fi;
		next = MAX(next, mine + 1);
		if
		:: next < upto && NUMBER(next) == NUMBER(mine) && word[n] == mine && !sealed[n] ->
			word[n] = next;
			assert(next != drawn);
			if
			:: drawn == 0 -> drawn = next
			:: true
			fi
		:: else
		fi;
		now = 0; next = 0; mine = 0; upto = 0
	}
}

proctype drawer(byte n)
{
	byte	upto, now, mine, next, born;

again:
	atomic {
		born = boot[n];
		now = 0; next = 0; mine = 0; upto = 0
	}
	do
	:: atomic { !sealed[n] -> mine = word[n] };
		draw(n)
	od unless {
		boot[n] != born -> goto again
	}
}

/* Shared memory is lost, rows and files are not.  Calls may be under way still. */
proctype crasher(byte n)
{
	do
	:: atomic {
		boot[n] < CRASHES ->
		boot[n]++;
		sealed[n] = true; word[n] = 0; limit[n] = 0;
		claim_token[n] = 0; claim_until[n] = 0;
#ifdef OLD_FILE
		if
		:: FILE(n, 0) > 1 -> FILE(n, 0) = 1
		:: true
		fi
#endif
	}
	:: ends[n] < ENDS -> ends[n]++
	od
}

init
{
	byte	n;

	atomic {
		for (n : 0 .. NODES - 1) {
			sealed[n] = true;
			run holder(n);
			run drawer(n)
		}
		n = 0;
		run crasher(0);
		run registry()
	}
}
