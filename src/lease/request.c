/*
 * request.c
 *	  The number request: which node numbers the settings ask for, and where.
 *
 * A node number is split as in the server's layout: datacenter, worker and,
 * where the layout has one, clock, from high to low.  It must be below the
 * greatest number of every layout in use: the greatest is reserved for ids of
 * old rows.  What does not fit is refused, never cut.
 *
 *	  fixed		the numbers of one worker id: as many as the clock field has
 *				values, one at a time
 *	  auto		all numbers that fit, or those of snowflake.datacenter_id
 *
 * For the lease worker; reads settings, the host name and network interfaces.
 * What the settings do not give is an error, which becomes the problem of the
 * request.
 */
#include "postgres.h"

#include <ifaddrs.h>
#ifdef __linux__
#include <linux/if_packet.h>
#endif
#include <sys/socket.h>

#include "utils/timestamp.h"

#include "guc.h"
#include "ids/wait.h"
#include "ids/word.h"
#include "lease/request.h"
#include "shmem.h"

#define MAC_BYTES		6
/* That a registry chooses from; it refuses more. */
#define MOST_NUMBERS	(UINT64CONST(1) << 32)

/*
 * The address of the first network interface that has one, but for the
 * loopback.
 */
static bool
host_mac(uint64 *mac)
{
	int			first = 0;

	*mac = 0;
#ifdef __linux__
	{
		struct ifaddrs *all;

		if (getifaddrs(&all) != 0)
			return false;
		for (struct ifaddrs *i = all; i != NULL; i = i->ifa_next)
		{
			const struct sockaddr_ll *link =
			(const struct sockaddr_ll *) i->ifa_addr;
			uint64		value = 0;

			if (link == NULL || link->sll_family != AF_PACKET ||
				link->sll_halen != MAC_BYTES)
				continue;
			for (int byte = 0; byte < MAC_BYTES; byte++)
				value = value << 8 | link->sll_addr[byte];
			if (value == 0 || (first != 0 && link->sll_ifindex > first))
				continue;
			first = link->sll_ifindex;
			*mac = value;
		}
		freeifaddrs(all);
	}
#endif
	return first != 0;
}

/* A number must fit its field. */
static void
check_field(const SnowflakeLayout *layout, SnowflakeField field, uint64 value,
			const char *setting)
{
	uint64		max = snowflake_field_max(layout, field);

	if (value > max)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("%s " UINT64_FORMAT " does not fit the layout",
						setting, value),
				 layout->bits[field] == 0 ?
				 errdetail("snowflake.layout has no %s field.",
						   snowflake_field_name(field)) :
				 errdetail("The %s field has %d bits, for numbers from 0 to " UINT64_FORMAT ".",
						   snowflake_field_name(field), layout->bits[field],
						   max),
				 errhint("Choose a number within the field, or a layout with a wider one.")));
}

/*
 * The digits after the last hyphen of the first label of the host name, as
 * Kubernetes names the pods of a StatefulSet: pg-7.example -> 7.
 */
static uint64
hostname_worker_id(void)
{
	char		name[SNOWFLAKE_HOST_NAME_SIZE];
	const char *digits;

	snowflake_host_name(name);
	name[strcspn(name, ".")] = '\0';
	digits = strrchr(name, '-');
	if (digits != NULL && digits[1] != '\0' && strlen(digits + 1) <= 9 &&
		strspn(digits + 1, "0123456789") == strlen(digits + 1))
		return strtoul(digits + 1, NULL, 10);
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("no worker id in the host name"),
			 errdetail("The host name \"%.64s\" does not end in a hyphen and one to nine digits.", name),
			 errhint("Name the host as in \"pg-7\", or set snowflake.worker_id to a number. The name is read again every second.")));
	return 0;					/* not reached */
}

/*
 * The low bits of the MAC address, as many as the datacenter (unless that is
 * given) and the worker field have.
 */
static uint64
mac_worker_id(const SnowflakeLayout *layout,
			  const SnowflakeNumberRequest *request, uint64 *datacenter)
{
	uint64		mac;

	if (request->registry[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("snowflake.worker_id \"mac\" needs a registry"),
				 errdetail("The low bits of two MAC addresses can be the same, which only a registry notices."),
				 errhint("Set snowflake.registry to a connection string, or set snowflake.worker_id to auto or a number.")));
	if (!host_mac(&mac))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("no worker id in a MAC address"),
				 errdetail("No network interface with a MAC address was found."),
				 errhint("Set snowflake.worker_id to auto or a number. The interfaces are read again every second.")));
	if (snowflake_datacenter_id < 0)
		*datacenter = mac >> layout->bits[SNOWFLAKE_WORKER] &
			snowflake_field_max(layout, SNOWFLAKE_DATACENTER);
	return mac & snowflake_field_max(layout, SNOWFLAKE_WORKER);
}

/* The layout in use that has the fewest node numbers. */
static const SnowflakeSlot *
narrowest_slot(void)
{
	const SnowflakeSlot *narrowest = &snowflake_shared->slots[0];

	for (int i = 1; i < snowflake_shared->num_slots; i++)
		if (snowflake_node_max(&snowflake_shared->slots[i].layout) < snowflake_node_max(&narrowest->layout))
			narrowest = &snowflake_shared->slots[i];
	return narrowest;
}

/* A number must fit all layouts in use, whose greatest is reserved. */
static void
check_fits(uint64 node)
{
	const SnowflakeSlot *slot = narrowest_slot();
	uint64		reserved = snowflake_node_max(&slot->layout);

	if (node >= reserved)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 node == reserved ?
				 errmsg("node number " UINT64_FORMAT " is reserved", node) :
				 errmsg("node number " UINT64_FORMAT " does not fit layout \"%.128s\"", node, slot->name),
				 node == reserved ?
				 errdetail("It is the greatest of the layout \"%.64s\".",
						   slot->name) :
				 errdetail("Its ids are issued with the numbers from 0 to " UINT64_FORMAT ".", reserved - 1),
				 errhint("Choose another snowflake.worker_id or snowflake.datacenter_id, or layouts with more bits for them.")));
}

/*
 * Not inlined: in 32 bits gcc warns that a longjmp past the caller's PG_TRY
 * could change the variables here.
 */
static pg_noinline void
read_fixed(const SnowflakeLayout *layout, SnowflakeNumberRequest *request)
{
	uint64		datacenter = Max(snowflake_datacenter_id, 0);
	uint64		worker;

	if (strcmp(snowflake_worker_id, "mac") == 0)
		worker = mac_worker_id(layout, request, &datacenter);
	else if (strcmp(snowflake_worker_id, "hostname") == 0)
		worker = hostname_worker_id();
	else
		worker = strtoull(snowflake_worker_id, NULL, 10);
	check_field(layout, SNOWFLAKE_WORKER, worker, "worker id");
	check_field(layout, SNOWFLAKE_DATACENTER, datacenter,
				"snowflake.datacenter_id");
	request->fixed = true;
	request->first = snowflake_node_join(layout, datacenter, worker, 0);
	request->last =
		Min(request->first + snowflake_field_max(layout, SNOWFLAKE_CLOCK),
			snowflake_node_max(&narrowest_slot()->layout) - 1);
	check_fits(request->first);
}

static void
read_auto(const SnowflakeLayout *layout, SnowflakeNumberRequest *request)
{
	uint64		greatest = snowflake_node_max(&narrowest_slot()->layout);

	request->first = 0;
	request->last = greatest - 1;
	if (snowflake_datacenter_id >= 0)
	{
		uint64		datacenter = (uint64) snowflake_datacenter_id;

		check_field(layout, SNOWFLAKE_DATACENTER, datacenter,
					"snowflake.datacenter_id");
		request->first = snowflake_node_join(layout, datacenter, 0, 0);
		request->last = Min(request->last,
							snowflake_node_join(layout, datacenter,
												snowflake_field_max(layout,
																	SNOWFLAKE_WORKER),
												snowflake_field_max(layout,
																	SNOWFLAKE_CLOCK)));
		check_fits(request->first);
	}
	request->last = Min(request->last, request->first + MOST_NUMBERS - 1);

	/*
	 * one bit tells the generations of a registry apart; the greatest is
	 * reserved
	 */
	if (greatest < 3 || request->last == request->first)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the layout has too few node numbers"),
				 errdetail("Automatic numbers need two bits for datacenter, worker and clock in every layout in use: one of them tells a promoted registry from the one before it."),
				 errhint("Set snowflake.worker_id to a number, or choose layouts with more worker bits.")));
}

/*
 * Every layout in use must be one that ids can be issued with, and have begun.
 * With the clock past the end of the server's own layout no lease is asked
 * for: perhaps it is wrong, and a fixed number would be leased until then.
 */
static void
check_layouts(void)
{
	for (int i = 0; i < snowflake_shared->num_slots; i++)
	{
		const SnowflakeSlot *slot = &snowflake_shared->slots[i];

		if (!snowflake_layout_is_issuable(&slot->layout))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the layout \"%.128s\" is for parsing only",
							slot->name),
					 errdetail("Ids are issued with a worker field and a tick of at most 1s."),
					 errhint("Choose another snowflake.layout and restart the server.")));
		if (slot->layout.epoch > snowflake_id_clock() +
			SNOWFLAKE_SETTING(max_ahead))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the epoch of layout \"%.128s\" is to come",
							slot->name),
					 errdetail("It begins at %s.",
							   timestamptz_to_str(slot->layout.epoch)),
					 errhint("Correct the clock, or choose a layout whose epoch is past and restart the server.")));
		if (i == 0 && snowflake_layout_is_over(&slot->layout))
			snowflake_report_full(slot);
	}
}

/* The tables of each server of a Citus cluster would lease the same numbers. */
static void
check_citus(void)
{
	if (snowflake_preloads_citus && snowflake_registry[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a server with Citus needs snowflake.registry"),
				 errdetail("Citus is in shared_preload_libraries, and the servers of its cluster need node numbers from one registry."),
				 errhint("Set snowflake.registry to the coordinator's connection string, or to \"own\" on the coordinator: see \"Setting it up\" in doc/citus.md.")));
}

/* The number request of the settings as they are now. */
void
snowflake_request_read(SnowflakeNumberRequest *request)
{
	const SnowflakeLayout *layout = &snowflake_shared->slots[0].layout;
	MemoryContext context = CurrentMemoryContext;

	memset(request, 0, sizeof(*request));
	if (strcmp(snowflake_registry, SNOWFLAKE_OWN_REGISTRY) != 0)
		strlcpy(request->registry, snowflake_registry,
				sizeof(request->registry));
	PG_TRY();
	{
		check_citus();
		check_layouts();
		if (strcmp(snowflake_worker_id, "auto") == 0)
			read_auto(layout, request);
		else
			read_fixed(layout, request);
		request->valid = true;
	}
	PG_CATCH();
	{
		/*
		 * what is raised here, and snowflake_report_full(); not a bug, nor
		 * lack of memory
		 */
		if (geterrcode() != ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE &&
			geterrcode() != ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED)
			PG_RE_THROW();
		snowflake_problem_catch(&request->problem, context);
		request->fixed = false;
		request->first = request->last = 0;
	}
	PG_END_TRY();
}
