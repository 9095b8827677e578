/*
 * fields.c
 *	  Ids, times and parts given by users: checks with errors.
 *
 * Every function may be called by any backend, on a standby and without
 * preloading.  Errors: 22023 for layouts and parts, 22003 for ids, 22008 for
 * times.
 */
#include "postgres.h"

#include "utils/guc.h"
#include "utils/timestamp.h"

#include "layout/fields.h"

#define PRESETS_HINT	"See snowflake_layouts() for the presets and snowflake_layout() for the server's layout."
#define ENDS_HINT		"Use -infinity or infinity for the first and last id there can be."

/* How messages call a layout: by its preset's name or its definition. */
const char *
snowflake_layout_label(const SnowflakeLayout *layout)
{
	const char *name = snowflake_layout_name(layout);
	char	   *definition;

	if (name != NULL)
		return name;
	definition = palloc(SNOWFLAKE_DEFINITION_SIZE);
	snowflake_layout_define(layout, definition);
	return definition;
}

/* Reads a layout definition, or raises 22023. */
void
snowflake_layout_parse(const char *definition, SnowflakeLayout *layout)
{
	SnowflakeLayoutError error;

	if (!snowflake_layout_read(definition, layout, &error))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid layout: \"%s\"", definition),
				 errdetail_internal("%s", error.detail),
				 errhint("%s", error.hint)));
}

/*
 * If the library was preloaded: the server's default layout, in shared memory;
 * and why it is not to be used, if the setting is not valid.
 */
static const SnowflakeLayout *server_layout = NULL;
static const SnowflakeProblem *server_problem = NULL;

/*
 * Fixes the default layout of this process, or the error of asking for it.
 * For the startup of shared memory.
 */
void
snowflake_default_layout_fix(const SnowflakeLayout *layout,
							 const SnowflakeProblem *problem)
{
	server_layout = layout;
	server_problem = problem;
}

/*
 * The layout of functions that are not told one: the server's, or without
 * preloading that of the ordinary setting snowflake.layout, else twitter.
 */
const SnowflakeLayout *
snowflake_default_layout(void)
{
	static SnowflakeLayout cached;
	static char cached_setting[256] = "";
	const char *setting;

	if (server_problem != NULL)
		snowflake_report_problem(ERROR, server_problem);
	if (server_layout != NULL)
		return server_layout;

	setting = GetConfigOption("snowflake.layout", true, false);
	if (setting == NULL || setting[0] == '\0')
		setting = "twitter";
	if (strcmp(setting, cached_setting) != 0)
	{
		cached_setting[0] = '\0';
		snowflake_layout_parse(setting, &cached);
		/* one that is too long is not kept */
		if (strlcpy(cached_setting, setting,
					sizeof(cached_setting)) >= sizeof(cached_setting))
			cached_setting[0] = '\0';
	}
	return &cached;
}

/* A layout must be one that ids can be issued with, or 22023. */
void
snowflake_check_issuable(const SnowflakeLayout *layout)
{
	if (snowflake_layout_is_issuable(layout))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("the layout \"%s\" is for parsing only",
					snowflake_layout_label(layout)),
			 errdetail("Ids are issued with a worker field and a tick of at most 1s."),
			 errhint(PRESETS_HINT)));
}

/* An id must be one of the layout, or 22003. */
void
snowflake_check_id(const SnowflakeLayout *layout, int64 id)
{
	if (snowflake_id_in_layout(layout, id))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
			 errmsg("id " INT64_FORMAT " is outside layout \"%s\"", id,
					snowflake_layout_label(layout)),
			 errdetail("Its ids are from 0 to " INT64_FORMAT ".",
					   snowflake_layout_max_id(layout)),
			 errhint(PRESETS_HINT)));
}

/* The tick that contains a time, or 22008 with the hint. */
uint64
snowflake_check_tick(const SnowflakeLayout *layout, TimestampTz at,
					 const char *hint)
{
	TimestampTz end = snowflake_tick_begin(layout, layout->max_tick + 1);

	if (TIMESTAMP_NOT_FINITE(at) || at < layout->epoch || at >= end)
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("time %s is outside layout \"%s\"",
						pstrdup(timestamptz_to_str(at)),
						snowflake_layout_label(layout)),
				 errdetail("Its ids carry times from %s to before %s.",
						   pstrdup(timestamptz_to_str(layout->epoch)),
						   pstrdup(timestamptz_to_str(end))),
				 errhint("%s", hint)));
	return snowflake_tick_at(layout, at);
}

/*
 * First id of the tick that contains a time; infinite times give the ends of
 * all ids.
 */
int64
snowflake_first_id_at(const SnowflakeLayout *layout, TimestampTz at)
{
	if (TIMESTAMP_IS_NOBEGIN(at))
		return 0;
	if (TIMESTAMP_IS_NOEND(at))
		return snowflake_layout_max_id(layout);
	return snowflake_tick_first_id(layout, snowflake_check_tick(layout, at, ENDS_HINT));
}

/* Last id of the tick that contains a time; infinite times as above. */
int64
snowflake_last_id_at(const SnowflakeLayout *layout, TimestampTz at)
{
	if (TIMESTAMP_NOT_FINITE(at))
		return snowflake_first_id_at(layout, at);
	return snowflake_tick_last_id(layout, snowflake_check_tick(layout, at, ENDS_HINT));
}

/* A part must fit its field, or 22023. */
static void
check_part(const SnowflakeLayout *layout, SnowflakeField field, int32 value)
{
	uint64		max = snowflake_field_max(layout, field);

	if (value >= 0 && (uint64) value <= max)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("%s %d does not fit layout \"%s\"",
					snowflake_field_name(field), value,
					snowflake_layout_label(layout)),
			 layout->bits[field] == 0 ?
			 errdetail("The layout has no %s field, so it must be 0.",
					   snowflake_field_name(field)) :
			 errdetail("The field has %d bits, for numbers from 0 to " UINT64_FORMAT ".",
					   layout->bits[field], max),
			 errhint(PRESETS_HINT)));
}

/* The id with these parts, in the tick that contains a time. */
int64
snowflake_compose_id(const SnowflakeLayout *layout, TimestampTz at,
					 int32 datacenter,
					 int32 worker, int32 clock, int32 sequence)
{
	uint64		tick = snowflake_check_tick(layout, at, ENDS_HINT);

	check_part(layout, SNOWFLAKE_DATACENTER, datacenter);
	check_part(layout, SNOWFLAKE_WORKER, worker);
	check_part(layout, SNOWFLAKE_CLOCK, clock);
	check_part(layout, SNOWFLAKE_SEQUENCE, sequence);
	return snowflake_id_pack(layout, tick,
							 snowflake_node_join(layout, datacenter, worker,
												 clock),
							 sequence);
}
