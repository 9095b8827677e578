/*
 * generator_name.c
 *	  From the name of a generator to the word of its layout.
 *
 * Generators are the rows of the table snowflake.generator of the database.  A trigger
 * on it sends a relcache invalidation of the table for each row that changes: to all
 * sessions when the transaction commits, through the WAL to standbys, and to its own
 * session also when it rolls back.  So what was found out about a name holds until the
 * count of these messages changes.
 *
 * For any backend, parallel workers and standbys included.  The table is read with a
 * snapshot of now, as catalogs are, by whoever draws: the names are no secret.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "floor.h"
#include "generator_name.h"
#include "guc.h"
#include "node_number.h"
#include "parts.h"
#include "shmem.h"
#include "words.h"

PG_FUNCTION_INFO_V1(snowflake_generator_changed);
PG_FUNCTION_INFO_V1(snowflake_generator_layout);

uint32		snowflake_generator_changes = 0;

/* The table as last found. */
static Oid	table_oid = InvalidOid;

static void
note_change(Datum arg, Oid relid)
{
	if (relid == InvalidOid || relid == table_oid)
		snowflake_generator_changes++;
}

/* The table, InvalidOid if there is none.  From here on its changes are noted. */
static Oid
find_table(void)
{
	static bool registered = false;
	Oid			schema = get_namespace_oid("snowflake", true);

	if (!registered)
		CacheRegisterRelcacheCallback(note_change, (Datum) 0);
	registered = true;
	table_oid = OidIsValid(schema) ? get_relname_relid("generator", schema) : InvalidOid;
	return table_oid;
}

/* A column of a row of the table; NULL if it is null. */
static text *
column(Relation table, HeapTuple row, const char *name)
{
	bool		null;
	Datum		value = heap_getattr(row, get_attnum(RelationGetRelid(table), name),
									 RelationGetDescr(table), &null);

	return null ? NULL : DatumGetTextPP(value);
}

/* The layout of a generator, as the table has it; NULL if there is no such generator. */
static char *
read_definition(const text *name)
{
	char	   *definition = NULL;
	Relation	table;
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple	row;

	if (!OidIsValid(find_table()))
		return NULL;
	table = table_open(table_oid, AccessShareLock);
	ScanKeyInit(&key, get_attnum(table_oid, "name"), BTEqualStrategyNumber, F_TEXTEQ, PointerGetDatum(name));
	key.sk_collation = C_COLLATION_OID;
	scan = systable_beginscan(table, InvalidOid, false, NULL, 1, &key);
	row = systable_getnext(scan);
	if (HeapTupleIsValid(row))
	{
		text	   *layout = column(table, row, "layout");

		definition = layout != NULL ? text_to_cstring(layout) : NULL;
	}
	systable_endscan(scan);
	table_close(table, AccessShareLock);
	return definition;
}

/*
 * What ids are drawn with under a name.  It stays valid; that the name means it, for as
 * long as snowflake_generator_changes is what it was before the call.  Raises 42704 if
 * there is no such generator, and the errors of snowflake_generator_of.
 */
SnowflakeGenerator *
snowflake_generator_named(const text *name)
{
	char	   *definition;
	SnowflakeLayout layout;

	snowflake_require_preload();
	definition = read_definition(name);
	if (definition == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("generator \"%s\" does not exist", text_to_cstring(name)),
				 errhint("See the table snowflake.generator of this database, and snowflake_create_generator().")));
	snowflake_layout_parse(definition, &layout);
	snowflake_check_issuable(&layout);
	pfree(definition);
	return snowflake_generator_of(&layout);
}

/* All generators of this database, in no certain order; without those that cannot be read. */
List *
snowflake_generators_read(void)
{
	List	   *generators = NIL;
	Relation	table;
	SysScanDesc scan;
	HeapTuple	row;

	if (!OidIsValid(find_table()))
		return NIL;
	table = table_open(table_oid, AccessShareLock);
	scan = systable_beginscan(table, InvalidOid, false, NULL, 0, NULL);
	while (HeapTupleIsValid(row = systable_getnext(scan)))
	{
		text	   *name = column(table, row, "name");
		text	   *definition = column(table, row, "layout");
		SnowflakeNamedLayout *generator = palloc(sizeof(*generator));
		SnowflakeLayoutError error;

		if (name == NULL || definition == NULL ||
			!snowflake_layout_read(text_to_cstring(definition), &generator->layout, &error))
			continue;
		generator->name = DatumGetTextPCopy(PointerGetDatum(name));
		generators = lappend(generators, generator);
	}
	systable_endscan(scan);
	table_close(table, AccessShareLock);
	return generators;
}

/* The names of those that have a layout, as text[]. */
ArrayType *
snowflake_generator_names(const List *generators, const SnowflakeLayout *layout)
{
	ArrayBuildState *names = initArrayResult(TEXTOID, CurrentMemoryContext, false);
	ListCell   *cell;

	foreach(cell, generators)
	{
		SnowflakeNamedLayout *generator = lfirst(cell);

		if (snowflake_layout_same_ids(&generator->layout, layout))
			names = accumArrayResult(names, PointerGetDatum(generator->name), false, TEXTOID, CurrentMemoryContext);
	}
	return DatumGetArrayTypeP(makeArrayResult(names, CurrentMemoryContext));
}

/* The trigger of the table: what sessions know of generators is to be found out anew. */
Datum
snowflake_generator_changed(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("snowflake.generator_changed() is a trigger function")));
	CacheInvalidateRelcache(trigger->tg_relation);
	return PointerGetDatum(NULL);
}

/* A server whose number is fixed must be able to draw with a layout, or 55000. */
static void
check_number(const SnowflakeLayout *layout, const char *name)
{
	uint32		generation = snowflake_registry[0] == '\0' ? snowflake_floor_generation() : 0;
	SnowflakeWish wish;
	SnowflakeProblem problem;

	if (snowflake_node_numbers(snowflake_server_layout(), generation, &wish, &problem) &&
		!snowflake_number_fits(layout, name, wish.allowed.first, &wish, &problem))
		snowflake_report_problem(ERROR, &problem);
}

/* A layout must have begun by the server's clock, or 22023. */
static void
check_epoch(const SnowflakeLayout *layout, const char *name)
{
	if (snowflake_layout_early(layout) <= 0)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("layout \"%s\" has not begun", name),
			 errdetail("It begins at %s; the clock is at %s.",
					   pstrdup(timestamptz_to_str(snowflake_tick_begin(layout, 1))),
					   pstrdup(timestamptz_to_str(snowflake_id_clock()))),
			 errhint("Choose an epoch that is over.")));
}

/*
 * What the table keeps of a generator's layout: the name of the preset or the canonical
 * definition.  Raises 22023 if no ids can be issued with it; and, where the library is
 * preloaded, 55000 if not by this server, 53400 if all slots are in use.
 */
Datum
snowflake_generator_layout(PG_FUNCTION_ARGS)
{
	SnowflakeLayout layout;
	const char *name;

	snowflake_layout_parse(text_to_cstring(PG_GETARG_TEXT_PP(0)), &layout);
	snowflake_check_issuable(&layout);
	name = snowflake_layout_label(&layout);
	if (snowflake_shared != NULL && !snowflake_shared->refused)
	{
		check_epoch(&layout, name);
		check_number(&layout, name);
		if (!snowflake_slot_is_left(&layout))
			snowflake_report_no_slot();
	}
	PG_RETURN_TEXT_P(cstring_to_text(name));
}
