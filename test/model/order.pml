/*
 * order.pml
 *	  The word and the limit on a processor that reorders loads and stores (ARM,
 *	  POWER), as a model.  Checked by test/t/014_model.pl.  What the lease worker does
 *	  and when is in src/lease/machine.c, and in the simulator, whose memory has one
 *	  order.
 *
 * Properties: no id is issued twice, and an id is within the durable end of its number.
 *
 * What the model stands for
 *	  word, limit	shared memory, as all processors agree on it in the end
 *	  stored_*		the store buffer of the lease worker's processor: a store waits
 *					there, and stores to two places leave it in any order.  A write
 *					barrier keeps that order; an atomic operation empties it first
 *	  cached_*		the cache of the backend's processor: a load gives what is
 *					there, or what is in memory.  So a load may be as old as the
 *					last read barrier or atomic operation, whatever was loaded
 *					meanwhile; this is what loads that are executed early see
 *	  row_end		the durable end of each number, in worker_node
 *
 *	  A word is number * PLACES + place; SEALED is added to one that is sealed.  Places
 *	  stand for ticks and sequences.  The place where a word is opened is not issued.
 *
 * Each rule can be removed by a -D switch; then a property fails:
 *
 *	  NO_WRITE_BARRIER	open_word(): limit, word
 *	  NO_READ_BARRIER	try_issue(): word, limit
 *	  NO_ATOMIC_SEAL	the word is read and stored to seal it
 *	  NO_ATOMIC_SWAP	the word is compared and stored to issue an id
 */
#ifndef LEASES
#define LEASES		3
#endif
#ifndef BACKENDS
#define BACKENDS	1
#endif
#define NUMBERS		2
#define PLACES		5
#define SEALED		32

byte word = SEALED;
byte limit = 0;

byte stored_word, stored_limit;
bool has_word = false, has_limit = false;

byte row_end[NUMBERS];
bool issued[NUMBERS * PLACES];

inline issue(id)
{
	assert(!issued[(id)]);
	assert((id) % PLACES < row_end[(id) / PLACES]);
	issued[(id)] = true
}

/* The store buffer, which empties itself at any time in any order. */
active proctype store_buffer()
{
end:
	do
	:: atomic { has_limit -> limit = stored_limit; has_limit = false }
	:: atomic { has_word -> word = stored_word; has_word = false }
	od
}

active proctype lease_worker()
{
	byte number, last, leases;

	do
	:: leases == LEASES -> break
	:: leases < LEASES ->
		leases++;
		select (number : 0 .. NUMBERS - 1);
		if
		:: row_end[number] >= PLACES - 1 -> skip
		:: else ->
			/* granted, for no id (it is extended later) or for two: durable before
			 * anything else */
			last = row_end[number];
			if
			:: row_end[number] = last + 1
			:: last + 3 <= PLACES -> row_end[number] = last + 3
			fi;

			/* open: limit, word */
			atomic { stored_limit = number * PLACES + row_end[number]; has_limit = true };
#ifndef NO_WRITE_BARRIER
			!has_limit;
#endif
			atomic { stored_word = number * PLACES + last; has_word = true };

			/* extend */
			if
			:: row_end[number] < PLACES ->
				row_end[number] = row_end[number] + 1;
				atomic { stored_limit = number * PLACES + row_end[number]; has_limit = true }
			:: skip
			fi;

			/* seal; then the row gets the end of what was issued */
			!has_limit && !has_word;
#ifdef NO_ATOMIC_SEAL
			last = word;
			word = last + SEALED;
#else
			atomic { last = word; word = last + SEALED };
#endif
			row_end[number] = last % PLACES + 1
		fi
	od
}

active [BACKENDS] proctype backend()
{
	byte seen, upto;
	byte cached_word = SEALED;
	byte cached_limit = 0;

end:
	do
	::	/* load the word */
		if
		:: cached_word = word
		:: skip
		fi;
		seen = cached_word;
#ifndef NO_READ_BARRIER
		atomic { cached_word = word; cached_limit = limit };
#endif
		/* load the limit */
		if
		:: cached_limit = limit
		:: skip
		fi;
		upto = cached_limit;
		if
		:: seen >= SEALED || seen + 1 >= upto || (seen + 1) / PLACES != seen / PLACES -> skip
		:: else ->
			/* swap */
#ifdef NO_ATOMIC_SWAP
			if
			:: word == seen -> word = seen + 1; issue(seen + 1)
			:: else -> skip
			fi
#else
			if
			:: atomic { word == seen -> word = seen + 1; issue(seen + 1);
				cached_word = word; cached_limit = limit }
			:: atomic { else -> cached_word = word; cached_limit = limit }
			fi
#endif
		fi
	od
}
