/*
 * node_number.c
 *	  From snowflake.worker_id and snowflake.datacenter_id to the node numbers
 *	  that this server may have.
 *
 * A node number is split as in the server's layout: datacenter, worker and,
 * where the layout has one, clock, from high to low.  What does not fit is
 * refused, never cut.  The greatest number of a layout is never used: it is
 * reserved for ids that are made up for old rows.
 *
 *	  fixed		the numbers of one worker id: as many as the clock field has
 *				values, at most one at a time
 *	  auto		all numbers, or those of snowflake.datacenter_id.  Without a
 *				registry only half of them, by the timeline: a primary that was
 *				left behind and a standby that was promoted share none
 */
#include "postgres.h"

#include "miscadmin.h"

#include "guc.h"
#include "host.h"
#include "node_number.h"

/* Fills a problem; always false, for the caller to return. */
static bool
refuse(SnowflakeProblem *problem, const char *message, const char *detail, const char *hint)
{
	memset(problem, 0, sizeof(*problem));
	problem->sqlerrcode = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
	strlcpy(problem->message, message, sizeof(problem->message));
	strlcpy(problem->detail, detail, sizeof(problem->detail));
	strlcpy(problem->hint, hint, sizeof(problem->hint));
	return false;
}

/* A number must fit its field. */
static bool
check_field(const SnowflakeLayout *layout, SnowflakeField field, uint64 value,
			const char *setting, SnowflakeProblem *problem)
{
	uint64		max = snowflake_field_max(layout, field);
	char		message[128];
	char		detail[128];

	if (value <= max)
		return true;
	snprintf(message, sizeof(message), "%s " UINT64_FORMAT " does not fit the layout",
			 setting, value);
	if (layout->bits[field] == 0)
		snprintf(detail, sizeof(detail), "snowflake.layout has no %s field.",
				 snowflake_field_name(field));
	else
		snprintf(detail, sizeof(detail), "The %s field has %d bits, for numbers from 0 to " UINT64_FORMAT ".",
				 snowflake_field_name(field), layout->bits[field], max);
	return refuse(problem, message, detail,
				  "Choose a number within the field, or a layout with a wider one.");
}

/*
 * The digits after the last hyphen of the first label of the host name, as
 * Kubernetes names the pods of a StatefulSet: pg-7.example -> 7.
 */
static bool
hostname_worker_id(uint64 *worker, SnowflakeProblem *problem)
{
	char		name[SNOWFLAKE_HOST_NAME_SIZE];
	char		detail[128];
	const char *digits;

	snowflake_host_name(name);
	name[strcspn(name, ".")] = '\0';
	digits = strrchr(name, '-');
	if (digits != NULL && digits[1] != '\0' && strlen(digits + 1) <= 9 &&
		strspn(digits + 1, "0123456789") == strlen(digits + 1))
	{
		*worker = strtoul(digits + 1, NULL, 10);
		return true;
	}
	snprintf(detail, sizeof(detail), "The host name \"%.64s\" does not end in a hyphen and one to nine digits.", name);
	return refuse(problem, "no worker id in the host name", detail,
				  "Name the host as in \"pg-7\", or set snowflake.worker_id to a number.");
}

/*
 * The low bits of the MAC address, as many as the datacenter (unless that is
 * given) and the worker field have.
 */
static bool
mac_worker_id(const SnowflakeLayout *layout, uint64 *datacenter, uint64 *worker,
			  SnowflakeProblem *problem)
{
	uint64		mac;

	if (snowflake_registry[0] == '\0')
		return refuse(problem, "this server has no worker id",
					  "snowflake.worker_id is \"mac\"; the low bits of two MAC addresses can be the same, which only a registry notices.",
					  "Set snowflake.registry, or set snowflake.worker_id to auto or a number.");
	if (!snowflake_host_mac(&mac))
		return refuse(problem, "no worker id in a MAC address",
					  "No network interface with a MAC address was found.",
					  "Set snowflake.worker_id to auto or a number.");
	*worker = mac & snowflake_field_max(layout, SNOWFLAKE_WORKER);
	if (snowflake_datacenter_id < 0)
		*datacenter = mac >> layout->bits[SNOWFLAKE_WORKER] &
			snowflake_field_max(layout, SNOWFLAKE_DATACENTER);
	return true;
}

/* A worker id that is not chosen by the registry, with its datacenter. */
static bool
find_fixed(const SnowflakeLayout *layout, uint64 *datacenter, uint64 *worker,
		   SnowflakeSource *source, SnowflakeProblem *problem)
{
	*datacenter = Max(snowflake_datacenter_id, 0);
	if (strcmp(snowflake_worker_id, "mac") == 0)
	{
		*source = SNOWFLAKE_SOURCE_MAC;
		return mac_worker_id(layout, datacenter, worker, problem);
	}
	if (strcmp(snowflake_worker_id, "hostname") == 0)
	{
		*source = SNOWFLAKE_SOURCE_HOSTNAME;
		return hostname_worker_id(worker, problem);
	}
	*source = SNOWFLAKE_SOURCE_FIXED;
	*worker = strtoul(snowflake_worker_id, NULL, 10);
	return true;
}

static bool
fixed_numbers(const SnowflakeLayout *layout, SnowflakeWish *wish, SnowflakeProblem *problem)
{
	uint64		greatest = snowflake_node_max(layout);
	uint64		datacenter,
				worker;
	char		message[128];

	if (!find_fixed(layout, &datacenter, &worker, &wish->source, problem) ||
		!check_field(layout, SNOWFLAKE_WORKER, worker, "worker id", problem) ||
		!check_field(layout, SNOWFLAKE_DATACENTER, datacenter, "snowflake.datacenter_id", problem))
		return false;
	wish->exclusive = true;
	wish->allowed.first = snowflake_node_join(layout, datacenter, worker, 0);
	wish->allowed.last = Min(wish->allowed.first + snowflake_field_max(layout, SNOWFLAKE_CLOCK), greatest - 1);
	wish->fitting = wish->allowed;
	if (wish->allowed.first < greatest)
		return true;
	snprintf(message, sizeof(message), "node number " UINT64_FORMAT " is reserved", wish->allowed.first);
	return refuse(problem, message, "It is the greatest of the layout, and never issued from.",
				  "Choose another snowflake.worker_id or snowflake.datacenter_id.");
}

/* The first number from a number on that is in the ring of a wish. */
static uint64
ring_from(const SnowflakeWish *wish, uint64 node)
{
	if ((node & wish->ring_mask) == wish->ring_bits)
		return node;
	if (wish->ring_bits == 0)
		return (node | (wish->ring_mask - 1)) + 1;
	return (node | wish->ring_mask) & ~(wish->ring_mask - 1);
}

/*
 * Halves a ring for a timeline: the first, third, ... of its history has the lower
 * half, the others the upper.
 *
 * The halves have to differ also if only one of two servers has
 * snowflake.datacenter_id set, so one bit differs in all of their numbers.
 */
static void
take_half(const SnowflakeLayout *layout, SnowflakeWish *wish, uint32 generation)
{
	uint64		middle = wish->allowed.first + (wish->allowed.last - wish->allowed.first) / 2;
	bool		lower = generation % 2 == 1;

	if (lower)
		wish->allowed.last = middle;
	else
		wish->allowed.first = middle + 1;
	wish->ring_mask = snowflake_timeline_bit(layout);
	wish->ring_bits = lower ? 0 : wish->ring_mask;
}

static bool
automatic_numbers(const SnowflakeLayout *layout, uint32 generation, SnowflakeWish *wish,
				  SnowflakeProblem *problem)
{
	uint64		greatest = snowflake_node_max(layout);
	uint64		datacenter = Max(snowflake_datacenter_id, 0);
	SnowflakeNumbers *allowed = &wish->allowed;

	wish->source = SNOWFLAKE_SOURCE_WORKER_NODE;
	if (!IsUnderPostmaster)
		return refuse(problem, "this server has no worker id",
					  "In single-user mode there is nobody to take a node number from the table worker_node.",
					  "Start it with -c snowflake.worker_id set to a number that no other server uses.");
	if (!check_field(layout, SNOWFLAKE_DATACENTER, datacenter, "snowflake.datacenter_id", problem))
		return false;
	allowed->last = greatest;
	if (snowflake_datacenter_id >= 0)
	{
		allowed->first = snowflake_node_join(layout, datacenter, 0, 0);
		allowed->last = snowflake_node_join(layout, datacenter, snowflake_field_max(layout, SNOWFLAKE_WORKER),
											snowflake_field_max(layout, SNOWFLAKE_CLOCK));
	}
	wish->least = allowed->first;
	if (!wish->remote)
		take_half(layout, wish, generation);
	allowed->first = ring_from(wish, allowed->first);
	allowed->last = Min(allowed->last, greatest - 1);
	wish->fitting = *allowed;
	if (allowed->first <= allowed->last)
		return true;
	return refuse(problem, "the layout has too few node numbers",
				  "Without a registry, a bit of the number tells the timelines of a cluster apart; the layout, or the datacenter, has none for this one.",
				  "Set snowflake.registry, set snowflake.worker_id to a number, or choose a layout with more worker bits.");
}

/*
 * The node numbers this server may have.  generation: the how-manieth timeline of
 * the cluster this is; it matters only without a registry.  False, with *problem
 * filled, if the settings do not give any; wish->source is set in any case.
 */
bool
snowflake_node_numbers(const SnowflakeLayout *layout, uint32 generation,
					   SnowflakeWish *wish, SnowflakeProblem *problem)
{
	memset(wish, 0, sizeof(*wish));
	wish->source = SNOWFLAKE_SOURCE_FIXED;
	strlcpy(wish->registry, snowflake_registry, sizeof(wish->registry));
	wish->remote = wish->registry[0] != '\0';
	if (wish->remote && !IsUnderPostmaster)
		return refuse(problem, "no ids are issued in single-user mode with a registry",
					  "There is nobody to ask it.",
					  "Start the server, and draw ids there.");
	if (layout->bits[SNOWFLAKE_WORKER] == 0)
		return refuse(problem, "the layout is for parsing only",
					  "snowflake.layout has no worker field.",
					  "Choose a layout with a worker field and restart the server.");
	if (layout->tick_us > SNOWFLAKE_MAX_ISSUE_TICK_US)
		return refuse(problem, "the layout is for parsing only",
					  "The tick of snowflake.layout is longer than 1s.",
					  "Choose a layout with a tick of at most 1s and restart the server.");
	if (strcmp(snowflake_worker_id, "auto") == 0)
		return automatic_numbers(layout, generation, wish, problem);
	return fixed_numbers(layout, wish, problem);
}

/*
 * Leaves of the fitting numbers those that fit another layout as well, if there are
 * any: with the layout's greatest, which is reserved, too.  Fixed numbers are what
 * they are.
 *
 * If the layouts tell timelines apart by different bits, numbers below both have neither
 * set; of those that have both, we need not make use.
 */
void
snowflake_numbers_narrow(SnowflakeWish *wish, const SnowflakeLayout *layout)
{
	uint64		bit = snowflake_timeline_bit(layout);
	uint64		first = ring_from(wish, wish->least);
	uint64		last = snowflake_node_max(layout) - 1;

	if (wish->exclusive)
		return;
	if (wish->ring_mask != 0 && wish->ring_mask != bit)
	{
		if (wish->ring_bits != 0)
			return;
		last = Min(last, bit - 1);
	}
	if (last >= wish->fitting.last || first > last)
		return;
	wish->fitting.first = first;
	wish->fitting.last = last;
}

/*
 * Whether ids of a layout (name: as messages call it) can be issued with a number, or,
 * if it is one of several, with another one of the wish.  If not, fills the problem.
 */
bool
snowflake_number_fits(const SnowflakeLayout *layout, const char *name, uint64 node,
					  const SnowflakeWish *wish, SnowflakeProblem *problem)
{
	uint64		least = wish->exclusive ? node : wish->fitting.first;
	char		message[256];
	char		detail[256];

	if (snowflake_number_suits(wish, layout, node) || snowflake_number_suits(wish, layout, least))
		return true;
	snprintf(message, sizeof(message), "node number " UINT64_FORMAT " does not fit layout \"%s\"", least, name);
	if (least < snowflake_node_max(layout))
		strlcpy(detail, "Without a registry one bit of the number tells timelines apart; in layouts with fewer than 4 bits of it that is another bit than in the server's.",
				sizeof(detail));
	else
		snprintf(detail, sizeof(detail), "Its ids are issued with the numbers from 0 to " UINT64_FORMAT "; %s " UINT64_FORMAT ".",
				 snowflake_node_max(layout) - 1,
				 wish->exclusive ? "this server has" : "the least that this server may have is", least);
	return refuse(problem, message, detail, wish->ring_bits != 0 ?
				  "Choose a layout with more bits for workers, or set snowflake.registry." :
				  "Choose a layout with more bits for datacenter and worker, or another snowflake.worker_id or snowflake.datacenter_id.");
}
