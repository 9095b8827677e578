/*
 * floor.c
 *	  What may not be issued again when the holder takes over.
 *
 * The rows of worker_node tell the same, at any distance in time and after any
 * failover, but more coarsely, and not of tables that are gone.  A lease starts
 * behind both.
 *
 * In order of what happened since the state file was written:
 *
 *	  nothing		its bounds hold
 *	  there never was a file: no id was issued in this data directory; what
 *					pg_upgrade left behind is treated as if the file was gone
 *	  file is gone	what was issued before the last checkpoint was issued at
 *					most max_ahead past its time, if the clock was not ahead
 *					before and max_ahead not greater; what was issued since, the
 *					clock is past, if it is right.  Nothing better is known
 *					after a restart of the server; before one, the greatest
 *					bound that was published is
 *	  file is older	than the last one this server has written: somebody put it
 *					there; as above
 *	  other timeline (promotion, point-in-time recovery): the file may be older
 *					than the last ids of the server that was primary before;
 *					start after everything seen of it, and max_ahead and a
 *					second after this clock; not needed where a registry of
 *					another cluster keeps the rows, which has no timeline
 *	  other layout	allowed only if every id to come, of the server's layout, is greater
 *					than every one that can have been issued
 *
 * snowflake_floor_load is for the holder (shmem.h) only, the rest for any process of a
 * running server.
 */
#include "postgres.h"

#include "access/timeline.h"
#include "access/transam.h"
#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "utils/timestamp.h"

#include "floor.h"

#define CONTROL_FILE_TRIES	10

/* Of a cluster that was never promoted or restored. */
#define FIRST_TIMELINE		1

/* Reads the control file as of the last checkpoint; false if that fails. */
static bool
read_checkpoint(CheckPoint *checkpoint, SnowflakeProblem *problem)
{
	for (int try = 0; try < CONTROL_FILE_TRIES; try++)
	{
		bool		crc_ok;
		ControlFileData *control = get_controlfile(".", &crc_ok);

		*checkpoint = control->checkPointCopy;
		pfree(control);
		if (crc_ok)
			return true;
		pg_usleep(10000);		/* caught in the middle of an update */
	}
	memset(problem, 0, sizeof(*problem));
	problem->sqlerrcode = ERRCODE_DATA_CORRUPTED;
	strlcpy(problem->message, "could not read the control file to find a safe time to start at",
			sizeof(problem->message));
	strlcpy(problem->detail, "Its checksum does not match its contents.", sizeof(problem->detail));
	return false;
}

/*
 * The end of all ids that can have been issued before a checkpoint, or before
 * the last one that this server found when it started: that of its recovery may
 * be by a clock that was set back.
 */
static TimestampTz
checkpoint_floor(const CheckPoint *checkpoint)
{
	TimestampTz time = Max(time_t_to_timestamptz(checkpoint->time),
						   snowflake_shared->checkpoint_at_start);

	/* it was cut to seconds; a test's clock may be ahead of it */
	return time + USECS_PER_SEC + SNOWFLAKE_SETTING(max_ahead) +
		Max(SNOWFLAKE_SETTING(clock_offset), 0);
}

/*
 * No file.  If there was one, the last checkpoint stands in for it.  If there
 * never was, this may still be an old cluster after pg_upgrade, so the same is
 * done; but a cluster in which no object was created before its last checkpoint
 * has not issued ids: the function that draws them is an object.
 */
static bool
start_without_file(SnowflakeState *state, bool gone, bool remote, const char *definition,
				   SnowflakeProblem *problem)
{
	CheckPoint	checkpoint;

	memset(state, 0, sizeof(*state));
	state->timeline = FIRST_TIMELINE;
	if (gone && snowflake_started_read(state->layout, problem) == SNOWFLAKE_STATE_BAD)
		return false;
	if (state->layout[0] == '\0')
		strlcpy(state->layout, definition, sizeof(state->layout));
	if (!read_checkpoint(&checkpoint, problem))
		return false;
	state->common_bound = gone || (!remote && checkpoint.nextOid >= FirstNormalObjectId) ?
		checkpoint_floor(&checkpoint) : SNOWFLAKE_NO_BOUND;
	return true;
}

/*
 * The file was written on another timeline: this server was a standby or a
 * backup.
 */
static bool
start_on_timeline(SnowflakeState *state, const SnowflakeLayout *layout,
				  TimestampTz now, SnowflakeProblem *problem)
{
	int64		max_ahead = SNOWFLAKE_SETTING(max_ahead);
	CheckPoint	checkpoint;
	TimestampTz floor;

	if (!read_checkpoint(&checkpoint, problem))
		return false;
	floor = Max(checkpoint_floor(&checkpoint), GetLatestXTime() + max_ahead);
	floor = Max(floor, now + max_ahead + USECS_PER_SEC + layout->tick_us);
	snowflake_state_floor(state, floor);
	return true;
}

/*
 * The file is not the one that this server wrote last: go by the bounds that
 * drawers have seen since the shared memory was made.
 */
static void
start_behind_published(SnowflakeState *state, SnowflakeLease *lease)
{
	snowflake_state_floor(state, (TimestampTz) pg_atomic_read_u64(&lease->highest));
	state->writes = pg_atomic_read_u64(&lease->writes);
}

/*
 * Whether ids from the greatest bound on are greater under the new layout than
 * all ids below it were under the old one.
 */
static bool
layout_change_keeps_order(const SnowflakeLayout *old, const SnowflakeLayout *new, TimestampTz bound)
{
	uint64		past = bound > old->epoch ? snowflake_tick_at(old, bound) : 0;
	uint64		first = snowflake_tick_from(new, bound);

	if (past == 0)
		return true;			/* no tick ended: no id can have been issued */
	return first <= new->max_tick &&
		snowflake_tick_first_id(new, first) >
		snowflake_tick_last_id(old, Min(past - 1, old->max_tick));
}

/* The file was written under another layout. */
static bool
start_with_layout(SnowflakeState *state, const SnowflakeLayout *layout, SnowflakeProblem *problem)
{
	TimestampTz bound = snowflake_state_greatest(state);
	SnowflakeLayout old;
	SnowflakeLayoutError error;

	if (snowflake_layout_read(state->layout, &old, &error) &&
		layout_change_keeps_order(&old, layout, bound))
	{
		snowflake_state_floor(state, bound);
		return true;
	}
	memset(problem, 0, sizeof(*problem));
	problem->sqlerrcode = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
	strlcpy(problem->message, "snowflake.layout is not the one that ids were issued under",
			sizeof(problem->message));
	snprintf(problem->detail, sizeof(problem->detail),
			 "New ids would not be greater than all of the layout \"%s\".", state->layout);
	strlcpy(problem->hint, "Set snowflake.layout back and restart the server.", sizeof(problem->hint));
	return false;
}

/* The timeline this server writes or replays. */
uint32
snowflake_floor_timeline(void)
{
	TimeLineID	timeline;

	if (!RecoveryInProgress())
		return GetWALInsertionTimeLine();
	(void) GetXLogReplayRecPtr(&timeline);
	return timeline;
}

/*
 * The how-manieth timeline of the cluster's history it is, from 1: a promotion adds
 * one, while the timeline's number can grow by more (it is not one that is in the
 * archive, though another server was promoted to that and thrown away).  Those that
 * no history file tells of count by the number of the one that followed.
 */
uint32
snowflake_floor_generation(void)
{
	static uint32 timeline = 0;
	static uint32 generation;

	uint32		now = snowflake_floor_timeline();

	if (timeline != now)
	{
		List	   *history = readTimeLineHistory(now);

		/* the oldest that is known is 1, unless history files are gone */
		generation = list_length(history) - 1 + ((TimeLineHistoryEntry *) llast(history))->tli;
		list_free_deep(history);
		timeline = now;			/* last: the file may not be readable */
	}
	return generation;
}

/* Tells the log what was not as usual, once it is known to be safe. */
static void
log_start(const SnowflakeState *state, bool missing, bool older, bool other_timeline,
		  bool other_layout)
{
	const char *floor = timestamptz_to_str(state->common_bound);

	if (missing)
		ereport(WARNING,
				(errmsg("snowflake: file \"%s\" does not exist; ids begin at %s",
						SNOWFLAKE_STATE_FILE, floor),
				 errdetail("The time of the last checkpoint and snowflake.max_ahead stand in for it."),
				 errhint("Make sure that the clock is not behind the time of the last ids.")));
	if (older)
		ereport(WARNING,
				(errmsg("snowflake: file \"%s\" is not the one that this server wrote; ids begin at %s",
						SNOWFLAKE_STATE_FILE, floor),
				 errhint("Do not remove or replace this file.")));
	if (other_timeline)
		ereport(LOG,
				(errmsg("snowflake: first start on timeline %u; ids begin at %s, or at the bound of their number",
						state->timeline, floor)));
	if (other_layout)
		ereport(LOG,
				(errmsg("snowflake: first start with layout \"%s\"; ids begin at %s",
						state->layout, floor)));
}

/*
 * Loads the bounds to start from, as of now (the clock with its offset).
 * remote: the node number comes from another cluster's registry.  The
 * state returned is to be written before the first id is issued.  False, with
 * *problem filled, if no safe floor is known.  Raises an error if the control
 * file cannot be read.
 */
bool
snowflake_floor_load(SnowflakeState *state, bool remote,
					 TimestampTz now, SnowflakeProblem *problem)
{
	const SnowflakeLayout *layout = &snowflake_shared->slots[0].layout;
	char		definition[SNOWFLAKE_DEFINITION_SIZE] = "";
	SnowflakeStateRead read = snowflake_state_read(state, problem);
	bool		older,
				other_timeline,
				other_layout;

	snowflake_layout_define(layout, definition);
	if (read == SNOWFLAKE_STATE_BAD ||
		(read != SNOWFLAKE_STATE_OK &&
		 !start_without_file(state, read == SNOWFLAKE_STATE_MISSING, remote, definition,
							 problem)))
		return false;

	/* in this order: each step may raise bounds that the next one looks at */
	older = state->writes < pg_atomic_read_u64(&snowflake_shared->lease.writes);
	if (older)
		start_behind_published(state, &snowflake_shared->lease);
	other_timeline = !remote && state->timeline != snowflake_floor_timeline();
	if (other_timeline && !start_on_timeline(state, layout, now, problem))
		return false;
	other_layout = strcmp(state->layout, definition) != 0;
	if (other_layout && !start_with_layout(state, layout, problem))
		return false;

	if (other_timeline)
		memset(&state->token, 0, sizeof(state->token)); /* the old primary's */
	state->timeline = snowflake_floor_timeline();
	memcpy(state->layout, definition, sizeof(state->layout));
	log_start(state, read == SNOWFLAKE_STATE_MISSING, older, other_timeline, other_layout);
	return true;
}
