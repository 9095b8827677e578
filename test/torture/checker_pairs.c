/*
 * checker_pairs.c
 *	  The checks that compare ids with each other: that no id of a deployment is there
 *	  twice, and that the ids of a server and node number increase from one statement to
 *	  the next.
 *
 * Duplicates are looked for among pieces, not ids: the key of an id is the id with its
 * sequence moved to the lowest bits, so that the ids of a piece have keys that follow
 * each other, in any layout.  Pieces that share an id overlap.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "checker.h"

static NodeSpan *spans;
static size_t nspans;

static uint64_t
low_bits(int bits)
{
	return (UINT64_C(1) << bits) - 1;
}

static uint64_t
key_of(const Deployment *deployment, int64_t id)
{
	int			shift = deployment->sequence_shift;
	int			bits = deployment->sequence_bits;
	uint64_t	high = (uint64_t) id & ~low_bits(shift + bits);
	uint64_t	sequence = ((uint64_t) id >> shift) & low_bits(bits);
	uint64_t	low = (uint64_t) id & low_bits(shift);

	return high | low << bits | sequence;
}

static int64_t
id_of(const Deployment *deployment, uint64_t key)
{
	int			shift = deployment->sequence_shift;
	int			bits = deployment->sequence_bits;
	uint64_t	high = key & ~low_bits(shift + bits);
	uint64_t	low = (key >> bits) & low_bits(shift);
	uint64_t	sequence = key & low_bits(bits);

	return (int64_t) (high | sequence << shift | low);
}

void
add_piece(Deployment *deployment, uint32_t statement, int64_t id, uint32_t count)
{
	Piece		piece = {.key = key_of(deployment, id),.statement = statement,.count = count};

	deployment->pieces = make_room(deployment->pieces, deployment->npieces, sizeof(Piece));
	deployment->pieces[deployment->npieces++] = piece;
}

static int
compare_pieces(const void *a, const void *b)
{
	const Piece *x = a;
	const Piece *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return (x->statement > y->statement) - (x->statement < y->statement);
}

/* That many ids are in both, from the first one of b on. */
static void
report_duplicate(const Deployment *deployment, const Piece *a, const Piece *b, uint64_t count)
{
	int64_t		id = id_of(deployment, b->key);
	int64_t		node = (id >> deployment->node_shift) & low_bits(deployment->node_bits);
	int64_t		received_a = statements[a->statement].record->received_real;
	int64_t		received_b = statements[b->statement].record->received_real;
	bool		in_order = received_a <= received_b;
	uint32_t	first = in_order ? a->statement : b->statement;
	uint32_t	second = in_order ? b->statement : a->statement;

	add_violation(DUPLICATE, in_order ? received_b : received_a, count,
				  describe_id(id, node, statements[second].log->server), first, second,
				  "%" PRIu64 " ids, this one the first, were received before by server=%s",
				  count, statements[first].log->server->name);
}

void
check_duplicates(Deployment *deployment)
{
	const Piece *pieces = deployment->pieces;
	const Piece *furthest;		/* reaching, of those so far */

	if (deployment->npieces == 0)
		return;
	qsort(deployment->pieces, deployment->npieces, sizeof(Piece), compare_pieces);
	furthest = &pieces[0];
	for (size_t i = 1; i < deployment->npieces; i++)
	{
		uint64_t	reached = furthest->key + furthest->count;
		uint64_t	end = pieces[i].key + pieces[i].count;

		if (pieces[i].key < reached)
			report_duplicate(deployment, furthest, &pieces[i],
							 (end < reached ? end : reached) - pieces[i].key);
		if (end > reached)
			furthest = &pieces[i];
	}
}

/* The ids from first to last are next in a statement; statements come in any order. */
void
add_to_order(NodeUse *use, uint32_t statement, int64_t first, int64_t last)
{
	NodeSpan   *span = use->nspans > 0 ? &spans[use->span] : NULL;

	if (span == NULL || span->statement != statement)
	{
		NodeSpan	new = {.least = first,.greatest = last,.statement = statement,.use = use->number};

		spans = make_room(spans, nspans, sizeof(NodeSpan));
		use->nspans++;
		use->span = nspans++;
		spans[use->span] = new;
		use->last_id = last;
		return;
	}
	if (first <= use->last_id)
		add_violation(ORDER, statements[statement].record->received_real, 1,
					  describe_id(first, use->node, use->server), statement, NO_STATEMENT,
					  "it follows %" PRId64 " in the same statement", use->last_id);
	if (first < span->least)
		span->least = first;
	if (last > span->greatest)
		span->greatest = last;
	use->last_id = last;
}

static int64_t
sent(const NodeSpan *span)
{
	return statements[span->statement].record->sent_mono;
}

static int64_t
received(const NodeSpan *span)
{
	return statements[span->statement].record->received_mono;
}

static int
compare_sent(const void *a, const void *b)
{
	const NodeSpan *x = a;
	const NodeSpan *y = b;

	if (x->use != y->use)
		return x->use < y->use ? -1 : 1;
	return (sent(x) > sent(y)) - (sent(x) < sent(y));
}

static int
compare_received(const void *a, const void *b)
{
	const NodeSpan *x = &spans[*(const uint32_t *) a];
	const NodeSpan *y = &spans[*(const uint32_t *) b];

	if (x->use != y->use)
		return x->use < y->use ? -1 : 1;
	return (received(x) > received(y)) - (received(x) < received(y));
}

static void
report_order(const NodeUse *use, const NodeSpan *first, const NodeSpan *second)
{
	add_violation(ORDER, statements[second->statement].record->received_real, 1,
				  describe_id(second->least, use->node, use->server),
				  first->statement, second->statement,
				  "%" PRId64 " had been received when its statement was sent", first->greatest);
}

/*
 * In order of sending, each statement against the greatest id that had been received by
 * then.  by_received has the same spans of each use at the same places.
 */
void
check_order(const NodeUse *const *uses)
{
	uint32_t   *by_received;
	const NodeSpan *greatest = NULL;
	size_t		next = 0;

	if (nspans == 0)
		return;
	by_received = allocate(nspans * sizeof(uint32_t));
	qsort(spans, nspans, sizeof(NodeSpan), compare_sent);
	for (size_t i = 0; i < nspans; i++)
		by_received[i] = i;
	qsort(by_received, nspans, sizeof(uint32_t), compare_received);
	for (size_t i = 0; i < nspans; i++)
	{
		if (i > 0 && spans[i].use != spans[i - 1].use)
		{
			greatest = NULL;
			next = i;
		}
		for (; received(&spans[by_received[next]]) < sent(&spans[i]); next++)
			if (greatest == NULL || spans[by_received[next]].greatest > greatest->greatest)
				greatest = &spans[by_received[next]];
		if (greatest && spans[i].least <= greatest->greatest)
			report_order(uses[spans[i].use], greatest, &spans[i]);
	}
	free(by_received);
}
