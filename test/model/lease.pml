/*
 * lease.pml
 *	  The lease protocol as a model: two nodes, one or two node numbers, one place
 *	  that keeps the bounds.  Checked exhaustively by test/t/020_model.pl.
 *
 * Claim: no two draws have the same (number, tick, sequence).
 *
 * What the model stands for
 *	  bound[w]		the greatest bound in the whole history of number w, durable:
 *					the state file of a fixed number, the registry's rows of one
 *					that is leased
 *	  word, limit	a node's shared memory (src/shmem.h), lost in a crash
 *	  holder		the process that opens, extends and closes leases (src/lease.c)
 *	  drawer		a backend (src/generator.c): reads the word, reads the limit,
 *					swaps
 *
 * What it allows the world to do
 *	  Clocks are not modelled at all: every reading of a clock gives any value.
 *	  So a claim that holds here holds for clock steps of any size, either way,
 *	  running or stopped.  Every process may pause between any two steps for
 *	  any time; a node may crash between any two steps and forget its shared
 *	  memory; a number may be taken over at any time, its holder alive or not;
 *	  the bounds' keeper may be out of reach at any time, before or after it
 *	  has carried out what it was asked for (a step not taken).
 *
 * Each protective step can be taken out by a -D switch; then the claim fails:
 *
 *	  PUBLISH_FIRST		the limit is raised before the bound is durable
 *	  NO_SEAL			the end of a lease is computed without sealing the word
 *	  FORGET_HISTORY	a lease starts at the clock instead of the greatest bound
 *	  NO_TOKEN			a renewal or a close does not ask whose lease it is
 *	  REUSE_WORD		the first word of a lease may be an earlier one
 *	  LIMIT_FIRST		a drawer reads the limit before the word
 */
#define NODES		2
#ifndef NUMBERS
#define NUMBERS		2
#endif
#define TICKS		3
#define SEQUENCES	2
#define PER_NUMBER	(TICKS * SEQUENCES)

#ifndef LEASES
#define LEASES		4			/* opened in all */
#endif
#ifndef CRASHES
#define CRASHES		1			/* of each node */
#endif

/* As src/word.h: node number | tick | sequence; a sealed word is marked apart. */
#define WORD(w, t, s)	((w) * PER_NUMBER + (t) * SEQUENCES + (s))
#define NUMBER(word)	((word) / PER_NUMBER)
#define TICK(word)		(((word) % PER_NUMBER) / SEQUENCES)

#define MAX(a, b)		((a) > (b) -> (a) : (b))

/* The keeper of the bounds. */
byte	bound[NUMBERS];			/* first tick not covered by any lease so far */
byte	holder_token[NUMBERS];	/* of the lease last opened; 0: closed */
byte	next_token = 1;

/* Shared memory of each node. */
byte	word[NODES];
bool	sealed[NODES];
byte	limit[NODES];			/* a word, with its number */
byte	boot[NODES];			/* how often the node has crashed */

/* What the drawers got. */
bool	issued[NUMBERS * PER_NUMBER];

/* Any reading of any clock. */
inline read_clock(t)
{
	if
	:: t = 0
	:: t = 1
	:: t = 2
	fi
}

/*
 * Opens a lease of number w over a sealed word.  If it is another's, that one's
 * token is worth nothing from here on.
 */
inline open_lease(n, w)
{
	atomic {
		next_token <= LEASES && bound[w] < TICKS ->
		token = next_token;
		next_token++;
		holder_token[w] = token;
		read_clock(now);
#ifdef FORGET_HISTORY
		start = now;
#else
		start = bound[w];
#endif
		until = MAX(start, now + 1);
		bound[w] = MAX(bound[w], until);
		now = 0
	}
	limit[n] = WORD(w, until, 0);
	/*
	 * The first word is not issued.  As (start, 0) it is greater than every word
	 * of this number that was ever published.
	 */
	atomic {
#ifdef REUSE_WORD
		word[n] = MAX(WORD(w, start, 0), WORD(w, 0, 0) + 1) - 1;
#else
		word[n] = WORD(w, start, 0);
#endif
		sealed[n] = false;
		start = 0;
		until = 0
	}
}

/* Raises the bound, then the limit. */
inline extend_lease(n)
{
	atomic {
		read_clock(now);
		mine = NUMBER(word[n]);
		until = now + 1;
		now = 0
	}
	if
	:: WORD(mine, until, 0) > limit[n] ->
#ifdef PUBLISH_FIRST
		limit[n] = WORD(mine, until, 0);
#endif
		atomic {
			if
#ifdef NO_TOKEN
			:: true ->
#else
			:: holder_token[mine] == token ->
#endif
				bound[mine] = MAX(bound[mine], until);
				ours = true
#ifndef NO_TOKEN
			:: else
#endif
			fi
		}
		atomic {
			if
			:: ours -> limit[n] = WORD(mine, until, 0)
			:: else -> sealed[n] = true
			fi;
			ours = false
		}
	:: else
	fi;
	atomic {
		mine = 0;
		until = 0
	}
}

/* Seals the word and records the true end of the lease. */
inline close_lease(n)
{
	atomic {
		mine = word[n];
#ifndef NO_SEAL
		sealed[n] = true
#endif
	}
	atomic {
		if
#ifdef NO_TOKEN
		:: true ->
#else
		:: holder_token[NUMBER(mine)] == token ->
#endif
			bound[NUMBER(mine)] = TICK(mine) + 1;
			holder_token[NUMBER(mine)] = 0
#ifndef NO_TOKEN
		:: else
#endif
		fi;
		mine = 0;
		token = 0;
		sealed[n] = true
	}
}

/*
 * Publishes a word below the limit that was read, if the word that was read
 * still stands.  The sequence of a fresh tick may start anywhere.
 */
inline draw(n)
{
#ifdef LIMIT_FIRST
	upto = limit[n];
	mine = word[n];
#else
	mine = word[n];
	upto = limit[n];
#endif
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
			assert(!issued[next]);
			issued[next] = true
		:: else
		fi;
		now = 0;
		next = 0;
		mine = 0;
		upto = 0
	}
}

/* A crash ends both processes of a node wherever they are; they start anew. */
proctype holder(byte n)
{
	byte	token, start, until, now, mine, born;
	bool	ours;

again:
	atomic {
		born = boot[n];
		token = 0;
		start = 0;
		until = 0;
		now = 0;
		mine = 0;
		ours = false
	}
	do
	:: sealed[n] -> open_lease(n, 0)
	:: sealed[n] -> open_lease(n, NUMBERS - 1)
	:: !sealed[n] -> extend_lease(n)
	:: !sealed[n] -> close_lease(n)
	od unless {
		boot[n] != born -> goto again
	}
}

proctype drawer(byte n)
{
	byte	upto, now, mine, next, born;

again:
	atomic {
		born = boot[n];
		upto = 0;
		now = 0;
		mine = 0;
		next = 0
	}
	do
	:: !sealed[n] -> draw(n)
	od unless {
		boot[n] != born -> goto again
	}
}

/* Shared memory is lost, the bounds are not. */
proctype crasher(byte n)
{
	do
	:: atomic {
		boot[n] < CRASHES ->
		boot[n]++;
		sealed[n] = true;
		word[n] = 0;
		limit[n] = 0
	}
	od
}

init
{
	atomic {
		sealed[0] = true;
		sealed[1] = true;
		run holder(0);
		run drawer(0);
		run crasher(0);
		run holder(1);
		run drawer(1)
	}
}
