/*
 * node_number.c
 *	  From snowflake.worker_id and snowflake.datacenter_id to a node number.
 *
 * A fixed number is split as in the server's layout: datacenter, worker and,
 * where the layout has one, clock, from high to low.  What does not fit is
 * refused, never cut.
 */
#include "postgres.h"

#include <unistd.h>

#include "guc.h"
#include "node_number.h"

/* RFC 1035: 255 octets; Linux: 64 */
#define HOST_NAME_SIZE	256

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
	char		name[HOST_NAME_SIZE] = "";
	char		detail[128];
	const char *digits;

	if (gethostname(name, sizeof(name) - 1) != 0)
		strlcpy(name, "", sizeof(name));
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

/* The worker id that the setting stands for. */
static bool
find_worker_id(const SnowflakeLayout *layout, uint64 *worker,
			   SnowflakeSource *source, SnowflakeProblem *problem)
{
	char		hint[160];

	if (strcmp(snowflake_worker_id, "hostname") == 0)
	{
		*source = SNOWFLAKE_SOURCE_HOSTNAME;
		return hostname_worker_id(worker, problem);
	}
	if (strcmp(snowflake_worker_id, "auto") != 0 && strcmp(snowflake_worker_id, "mac") != 0)
	{
		*source = SNOWFLAKE_SOURCE_FIXED;
		*worker = strtoul(snowflake_worker_id, NULL, 10);
		return true;
	}

	snprintf(hint, sizeof(hint),
			 "Set snowflake.worker_id to a number from 0 to " UINT64_FORMAT " that no other server uses, and reload.",
			 snowflake_field_max(layout, SNOWFLAKE_WORKER));
	if (strcmp(snowflake_worker_id, "auto") == 0)
	{
		*source = SNOWFLAKE_SOURCE_WORKER_NODE;
		return refuse(problem, "this server has no worker id",
					  "snowflake.worker_id is \"auto\"; this version does not assign numbers by itself.",
					  hint);
	}
	*source = SNOWFLAKE_SOURCE_MAC;
	return refuse(problem, "this server has no worker id",
				  "snowflake.worker_id is \"mac\", which needs a registry to catch clashes; this version has none.",
				  hint);
}

/*
 * The node number for a layout, and where it comes from (set in any case).
 * False, with *problem filled, if the settings do not give one.
 */
bool
snowflake_node_number(const SnowflakeLayout *layout, uint64 *node,
					  SnowflakeSource *source, SnowflakeProblem *problem)
{
	uint64		datacenter = Max(snowflake_datacenter_id, 0);
	uint64		worker;

	*source = SNOWFLAKE_SOURCE_FIXED;
	if (snowflake_registry[0] != '\0')
		return refuse(problem, "snowflake.registry is set, but this version has no registry",
					  "A fixed number that looks guarded by a registry and is not could be used twice.",
					  "Unset snowflake.registry and reload.");
	if (layout->bits[SNOWFLAKE_WORKER] == 0)
		return refuse(problem, "the layout is for parsing only",
					  "snowflake.layout has no worker field.",
					  "Choose a layout with a worker field and restart the server.");
	if (layout->tick_us > SNOWFLAKE_MAX_ISSUE_TICK_US)
		return refuse(problem, "the layout is for parsing only",
					  "The tick of snowflake.layout is longer than 1s.",
					  "Choose a layout with a tick of at most 1s and restart the server.");
	if (!find_worker_id(layout, &worker, source, problem) ||
		!check_field(layout, SNOWFLAKE_WORKER, worker, "worker id", problem) ||
		!check_field(layout, SNOWFLAKE_DATACENTER, datacenter, "snowflake.datacenter_id", problem))
		return false;
	*node = snowflake_node_join(layout, datacenter, worker, 0);
	return true;
}
