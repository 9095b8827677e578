/*
 * owner.c
 *	  What is done to a table is done as its owner.
 *
 * A statement about a table can run code of its owner: the functions of its
 * indexes, constraints, defaults, triggers and policies, some of them as soon as
 * the statement is planned.  Here such a statement runs with the rights of the
 * owner, so the owner gains nothing from that of a superuser, as in PostgreSQL's
 * own VACUUM, REINDEX and the like.  Unless the owner itself is logged in, and
 * calls no function that has other rights, it runs in a security-restricted
 * operation, too, in which no code can go back to the rights of the session;
 * what it sets is undone.
 *
 * These functions are for everybody: they give a caller no rights that SET ROLE
 * does not.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "compat.h"

PG_FUNCTION_INFO_V1(snowflake_execute_as_owner);
PG_FUNCTION_INFO_V1(snowflake_execute_as_role);
PG_FUNCTION_INFO_V1(snowflake_look_as_owner);

/* What owner_begin() changed. */
typedef struct SavedUser
{
	Oid			user;
	int			context;
	int			settings;		/* nest level */
} SavedUser;

/* Raises 42P01. */
static Oid
owner_of(Oid relation)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relation)));
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

/* An error needs no owner_end(): the end of the (sub)transaction does the same. */
static void
owner_begin(Oid owner, SavedUser *saved)
{
	int			context;

	GetUserIdAndSecContext(&saved->user, &saved->context);
	context = saved->context;
	if (owner != GetAuthenticatedUserId() ||
		(context & SECURITY_LOCAL_USERID_CHANGE))
		context |= SECURITY_RESTRICTED_OPERATION;
	SetUserIdAndSecContext(owner, context);
	saved->settings = NewGUCNestLevel();
	(void) SPI_connect();		/* always SPI_OK_CONNECT */
}

static void
owner_end(const SavedUser *saved)
{
	SPI_finish();
	AtEOXact_GUC(false, saved->settings);
	SetUserIdAndSecContext(saved->user, saved->context);
}

static void
execute_as(Oid role, const char *statement)
{
	SavedUser	saved;
	int			result;

	if (InSecurityRestrictedOperation() && role != GetUserId())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("you may not act as role \"%s\"",
						GetUserNameFromId(role, false)),
				 errdetail("SET ROLE is not allowed within a security-restricted operation, either."),
				 errhint("Call the function as a role that can SET ROLE to \"%s\".",
						 GetUserNameFromId(role, false))));
	owner_begin(role, &saved);
	result = SPI_execute(statement, false, 0);
	if (result < 0)
		elog(ERROR, "could not execute \"%s\": %s", statement,
			 SPI_result_code_string(result));
	owner_end(&saved);
}

/* For a message; no lock keeps the relation. */
static const char *
name_of(Oid relation)
{
	const char *name = get_rel_name(relation);

	return name == NULL ? psprintf("%u", relation) :
		quote_qualified_identifier(get_namespace_name(get_rel_namespace(relation)),
								   name);
}

/*
 * Executes a statement as the owner of a relation.  Raises 42501 if the caller
 * may not SET ROLE to that role.
 */
Datum
snowflake_execute_as_owner(PG_FUNCTION_ARGS)
{
	Oid			relation = PG_GETARG_OID(0);
	Oid			owner = owner_of(relation);

	if (!snowflake_can_become(GetUserId(), owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of table %s", name_of(relation)),
				 errdetail("Its owner is \"%s\", and what is done to a table is done as its owner.",
						   GetUserNameFromId(owner, false)),
				 errhint("Let a role do it that owns the table, or may SET ROLE to its owner.")));

	execute_as(owner, text_to_cstring(PG_GETARG_TEXT_PP(1)));
	PG_RETURN_VOID();
}

/*
 * The same as a role, for what is made again and so has no owner yet.
 */
Datum
snowflake_execute_as_role(PG_FUNCTION_ARGS)
{
	Oid			role = PG_GETARG_OID(0);

	(void) GetUserNameFromId(role, false);
	if (!snowflake_can_become(GetUserId(), role))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("you may not act as role \"%s\"",
						GetUserNameFromId(role, false)),
				 errdetail("What is done to a view is done as its owner, and what a role granted is granted as that role."),
				 errhint("Call the function as a role that can SET ROLE to \"%s\".",
						 GetUserNameFromId(role, false))));

	execute_as(role, text_to_cstring(PG_GETARG_TEXT_PP(1)));
	PG_RETURN_VOID();
}

/*
 * What a query of one jsonb value returns as the owner of a relation, by the
 * snapshot of the caller: NULL if there is no row.  A caller who may not act as that role, but may read the
 * relation, looks with the caller's own rights.
 */
Datum
snowflake_look_as_owner(PG_FUNCTION_ARGS)
{
	Oid			owner = owner_of(PG_GETARG_OID(0));
	char	   *query = text_to_cstring(PG_GETARG_TEXT_PP(1));
	SavedUser	saved;
	Datum		value = (Datum) 0;
	bool		is_null = true;
	int			result;

	if (!snowflake_can_become(GetUserId(), owner))
		owner = GetUserId();

	owner_begin(owner, &saved);
	result = SPI_execute(query, true, 1);
	if (result != SPI_OK_SELECT || SPI_tuptable->tupdesc->natts != 1 ||
		SPI_gettypeid(SPI_tuptable->tupdesc, 1) != JSONBOID)
		elog(ERROR, "\"%s\" is not a query of one jsonb value", query);
	if (SPI_processed > 0)
		value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &is_null);
	if (!is_null)
		value = SPI_datumTransfer(value, false, -1);
	owner_end(&saved);
	if (is_null)
		PG_RETURN_NULL();
	PG_RETURN_DATUM(value);
}
