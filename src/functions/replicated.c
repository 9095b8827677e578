/*
 * replicated.c
 *	  Triggers that keep the tables of schema snowflake this cluster's own.
 *
 * Rows that an apply process brings are left out: they are another cluster's
 * leases, and its updates and deletes would undo ours.  What tells them is the
 * session's replication origin, which every apply process sets before it
 * writes, also for the initial copy; session_replication_role does not, since
 * dumps are restored under it, too.  TRUNCATE, which has no rows to leave out,
 * is refused.
 *
 * The triggers are ENABLE ALWAYS.  They use no shared memory, so they also
 * work in a registry that does not preload the library.
 */
#include "postgres.h"

#include "commands/trigger.h"
#include "fmgr.h"
#include "utils/rel.h"

#include "compat.h"

PG_FUNCTION_INFO_V1(snowflake_leave_out_replicated);
PG_FUNCTION_INFO_V1(snowflake_refuse_truncate);

/* BEFORE INSERT OR UPDATE OR DELETE ... FOR EACH ROW */
Datum
snowflake_leave_out_replicated(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo) ||
		!TRIGGER_FIRED_FOR_ROW(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("leave_out_replicated() must be called as a row trigger")));
	if (snowflake_is_replicated())
		return PointerGetDatum(NULL);
	return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ?
						   trigger->tg_newtuple : trigger->tg_trigtuple);
}

/* BEFORE TRUNCATE ... FOR EACH STATEMENT */
Datum
snowflake_refuse_truncate(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("refuse_truncate() must be called as a trigger")));
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("table \"%s\" cannot be truncated",
					RelationGetRelationName(trigger->tg_relation)),
			 errdetail("Ids stay unique because its rows are kept."),
			 errhint("See \"Starting over\" in doc/operations.md.")));
	PG_RETURN_NULL();			/* not reached */
}
