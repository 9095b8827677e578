/*
 * guc.c
 *	  Definition and checks of the settings.
 *
 * A check hook looks at its own value, and in a running server at the layouts
 * in use, which are fixed: what cannot work is refused at reload, and the old
 * value stays.  What several settings mean together is judged by the lease
 * worker (lease/request.c), which refuses ids and says why; the server always
 * starts.
 */
#include "postgres.h"

#include <limits.h>

#include "access/parallel.h"
#include "libpq-fe.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/varlena.h"

#include "guc.h"
#include "layout/fields.h"
#include "layout/layout.h"
#include "shmem.h"

#define DEFAULT_LEASE_DURATION_MS	(2 * 60 * 1000)
#define MIN_LEASE_DURATION_MS		1000
#define MAX_LEASE_DURATION_MS		(24 * 60 * 60 * 1000)
#define DEFAULT_MAX_AHEAD_MS		1000
#define MAX_MAX_AHEAD_MS			(60 * 60 * 1000)
#define DEFAULT_MAX_WAIT_MS			5000
#define MAX_MAX_WAIT_MS				(24 * 60 * 60 * 1000)
/* a hundred years: enough to come before any epoch and after any end */
#define MAX_CLOCK_OFFSET_MS			(100.0 * 365.25 * 24 * 60 * 60 * 1000)

double		snowflake_clock_offset = 0;
int			snowflake_datacenter_id = -1;
char	   *snowflake_extra_layouts = NULL;
char	   *snowflake_layout_setting = NULL;
int			snowflake_lease_duration = DEFAULT_LEASE_DURATION_MS;
int			snowflake_max_ahead = DEFAULT_MAX_AHEAD_MS;
int			snowflake_max_wait = DEFAULT_MAX_WAIT_MS;
char	   *snowflake_registry = NULL;
int			snowflake_sequence_start = SNOWFLAKE_START_CARRIED;
char	   *snowflake_worker_id = NULL;

bool		snowflake_preloads_citus = false;

/* Beside the server's default layout. */
#define MAX_EXTRA				(SNOWFLAKE_MAX_LAYOUTS - 1)

/* Of a rejected value, this much is shown. */
#define REJECTED_VALUE_SIZE		64

/*
 * The first of the settings that identify this server that was refused while
 * it started, and its value in printable ASCII; NULL if there was no such
 * setting.  PostgreSQL goes on with the default then; issuing ids with it
 * would be a guess.
 */
static const char *rejected_name = NULL;
static char rejected_value[REJECTED_VALUE_SIZE] = "";

/* What snowflake_guc_run() was told. */
static const SnowflakeLayout *running_layout = NULL;

/*
 * The settings that ids are made with, or that guard their node number.  The
 * layout first: if it is rejected, ids cannot even be parsed without naming
 * one.
 */
static const char *const identity_settings[] = {
	"snowflake.layout", "snowflake.extra_layouts", "snowflake.datacenter_id",
	"snowflake.registry",
	"snowflake.worker_id"
};

static const struct config_enum_entry sequence_start_options[] = {
	{"carried", SNOWFLAKE_START_CARRIED, false},
	{"random", SNOWFLAKE_START_RANDOM, false},
	{"zero", SNOWFLAKE_START_ZERO, false},
	{NULL, 0, false}
};

static bool
check_layout(char **newval, void **extra, GucSource source)
{
	SnowflakeLayout layout;
	SnowflakeLayoutError error;

	if (snowflake_layout_read(*newval, &layout, &error))
		return true;

	GUC_check_errdetail("%s", error.detail);
	GUC_check_errhint("%s", error.hint);
	return false;
}

/*
 * The layouts of a list with a semicolon between them; false, with the error
 * filled and *part the part that is wrong, if ids cannot be issued with one of
 * them, or there are too many.
 */
static bool
read_extra(const char *list, SnowflakeLayout layouts[MAX_EXTRA], int *num,
		   char **part, SnowflakeLayoutError *error)
{
	char	   *copy = pstrdup(list);

	*num = 0;
	for (char *next = copy; next != NULL;)
	{
		SnowflakeLayout layout;

		*part = next + strspn(next, " \t\n");
		next = strchr(next, ';');
		if (next != NULL)
			*next++ = '\0';
		if (**part == '\0')
			continue;			/* nothing between two semicolons */
		if (!snowflake_layout_read(*part, &layout, error))
			return false;
		if (!snowflake_layout_is_issuable(&layout))
		{
			strlcpy(error->detail,
					"It is for parsing only: ids are issued with a worker field and a tick of at most 1s.",
					sizeof(error->detail));
			strlcpy(error->hint, "See snowflake_layouts() for the presets.",
					sizeof(error->hint));
			return false;
		}
		if (*num == MAX_EXTRA)
		{
			snprintf(error->detail, sizeof(error->detail),
					 "At most %d layouts can be in use.",
					 SNOWFLAKE_MAX_LAYOUTS);
			strlcpy(error->hint, "Leave out layouts that no default uses.",
					sizeof(error->hint));
			return false;
		}
		layouts[(*num)++] = layout;
	}
	pfree(copy);
	return true;
}

static bool
check_extra_layouts(char **newval, void **extra, GucSource source)
{
	SnowflakeLayout layouts[MAX_EXTRA];
	SnowflakeLayoutError error;
	char	   *part;
	int			num;

	if (read_extra(*newval, layouts, &num, &part, &error))
		return true;
	GUC_check_errdetail("Layout \"%s\": %s", part, error.detail);
	GUC_check_errhint("%s", error.hint);
	return false;
}

/*
 * The layouts in use: the server's default, then the extra ones.  Both
 * settings were checked.
 */
int
snowflake_guc_layouts(SnowflakeLayout layouts[SNOWFLAKE_MAX_LAYOUTS])
{
	SnowflakeLayout extra[MAX_EXTRA];
	SnowflakeLayoutError error;
	char	   *part;
	int			num_extra;
	int			num = 1;

	if (!snowflake_layout_read(snowflake_layout_setting, &layouts[0],
							   &error) ||
		!read_extra(snowflake_extra_layouts, extra, &num_extra, &part, &error))
		elog(ERROR, "invalid layout: %s", error.detail);	/* GCOV_EXCL_LINE */
	for (int i = 0; i < num_extra; i++)
	{
		bool		same = false;

		for (int j = 0; j < num; j++)
			same = same || snowflake_layout_same_ids(&layouts[j], &extra[i]);
		if (!same)
			layouts[num++] = extra[i];
	}
	return num;
}

/*
 * Whether a value is to be checked against the layout: in a running server that
 * is to issue ids, and not where a parallel worker restores what was accepted.
 */
static bool
is_running(void)
{
	return running_layout != NULL && !InitializingParallelWorker;
}

/* A number that a field of the running layout has no room for is refused. */
static bool
check_room(const char *name, SnowflakeField field, int64 value)
{
	uint64		max = snowflake_field_max(running_layout, field);

	if ((uint64) value <= max)
		return true;
	GUC_check_errdetail("The layout \"%s\" has room for numbers from 0 to " UINT64_FORMAT " in the %s field.",
						snowflake_layout_label(running_layout), max,
						snowflake_field_name(field));
	GUC_check_errhint("Choose a %s within the field; another snowflake.layout needs a restart.", name);
	return false;
}

/* auto, hostname, mac, or a number that the layout has room for. */
static bool
check_worker_id(char **newval, void **extra, GucSource source)
{
	const char *value = *newval;
	size_t		digits = strspn(value, "0123456789");

	if (strcmp(value, "auto") == 0 || strcmp(value, "hostname") == 0 ||
		strcmp(value, "mac") == 0)
		return true;
	if (digits > 0 && digits <= 10 && value[digits] == '\0' &&
		atoll(value) <= INT_MAX)
		return !is_running() ||
			check_room("worker id", SNOWFLAKE_WORKER, atoll(value));
	GUC_check_errdetail("snowflake.worker_id must be auto, hostname, mac, or a number from 0 to %d.",
						INT_MAX);
	GUC_check_errhint("A number must also fit the worker field of snowflake.layout.");
	return false;
}

static bool
check_datacenter_id(int *newval, void **extra, GucSource source)
{
	return *newval < 0 || !is_running() ||
		check_room("datacenter id", SNOWFLAKE_DATACENTER, *newval);
}

/* own, or a libpq connection string without a password: reloads log values. */
static bool
check_registry(char **newval, void **extra, GucSource source)
{
	PQconninfoOption *options = NULL;
	char	   *message = NULL;
	bool		password = false;
	bool		other_database = false;

	if (strlen(*newval) >= SNOWFLAKE_REGISTRY_SIZE)
	{
		GUC_check_errmsg("snowflake.registry must be shorter than %d bytes",
						 SNOWFLAKE_REGISTRY_SIZE);
		GUC_check_errhint("Put its options into a service file (service).");
		return false;
	}
	if (strcmp(*newval, SNOWFLAKE_OWN_REGISTRY) == 0)
		return true;

	/*
	 * nothing stands for the own tables, and blanks for neither: libpq would
	 * take the defaults for all options
	 */
	if (**newval == '\0' || (*newval)[strspn(*newval, " \t\n\r\f\v")] != '\0')
		options = PQconninfoParse(*newval, &message);
	if (options == NULL)
	{
		/*
		 * neither libpq's message nor ours quotes the value: it may be a
		 * password
		 */
		PQfreemem(message);
		GUC_check_errmsg("snowflake.registry must be \"own\", or a libpq connection string or URI");
		GUC_check_errhint("For example: host=registry.example user=snowflake.");
		return false;
	}
	for (PQconninfoOption *option = options; option->keyword != NULL; option++)
	{
		if (option->val == NULL)
			continue;
		if (strcmp(option->keyword, "dbname") == 0 &&
			strcmp(option->val, "postgres") != 0)
			other_database = true;
		if (strstr(option->keyword, "password") != NULL ||
			strstr(option->keyword, "secret") != NULL ||
			strstr(option->keyword, "scram_") != NULL)
			password = true;
	}
	PQconninfoFree(options);
	if (other_database)
	{
		GUC_check_errmsg("snowflake.registry must not name a database other than postgres");
		GUC_check_errdetail("The tables that grant leases are always in the database postgres.");
		GUC_check_errhint("Leave out dbname.");
		return false;
	}
	if (!password)
		return true;
	GUC_check_errmsg("snowflake.registry must not contain a password");
	GUC_check_errdetail("The server logs settings that change.");
	GUC_check_errhint("Put the password into a password file (passfile) or a service file (service), and set sslmode=verify-full or channel_binding=require.");
	return false;
}

/* Whether a host of a connection string is this machine. */
static bool
is_local_host(const char *host)
{
	return host[0] == '\0' || host[0] == '/' || host[0] == '@' ||
		strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
		(strncmp(host, "127.", 4) == 0 &&
		 strspn(host, "0123456789.") == strlen(host));
}

/* The same for all hosts of a list; it is cut into pieces. */
static bool
are_local_hosts(char *hosts)
{
	while (hosts != NULL)
	{
		char	   *next = strchr(hosts, ',');

		if (next != NULL)
			*next++ = '\0';
		if (!is_local_host(hosts))
			return false;
		hosts = next;
	}
	return true;
}

/*
 * Whether the password in a file would be given to whoever answers at the
 * address, for all that the connection string says.
 */
static bool
gives_password_away(const char *registry)
{
	PQconninfoOption *options = PQconninfoParse(registry, NULL);
	bool		password = false,
				checked = false;
	char	   *host = NULL,
			   *hostaddr = NULL;
	bool		away;

	for (PQconninfoOption *o = options; o != NULL && o->keyword != NULL; o++)
	{
		if (o->val == NULL)
			continue;
		if (strcmp(o->keyword, "passfile") == 0)
			password = o->val[0] != '\0';
		else if (strcmp(o->keyword, "host") == 0)
			host = o->val;
		else if (strcmp(o->keyword, "hostaddr") == 0)
			hostaddr = o->val;
		else if (strcmp(o->keyword, "sslmode") == 0)
			checked = checked || strcmp(o->val, "verify-ca") == 0 ||
				strcmp(o->val, "verify-full") == 0;
		else if (strcmp(o->keyword, "channel_binding") == 0)
			checked = checked || strcmp(o->val, "require") == 0;
	}
	away = password && !checked &&
		!are_local_hosts(hostaddr != NULL ? hostaddr : host);
	PQconninfoFree(options);
	return away;
}

/* Once for each value, by the postmaster: at the start, or a reload. */
static void
assign_registry(const char *newval, void *extra)
{
	static char seen[SNOWFLAKE_REGISTRY_SIZE] = "";

	if (MyProcPid != PostmasterPid || strcmp(seen, newval) == 0)
		return;
	strlcpy(seen, newval, sizeof(seen));
	if (gives_password_away(newval))
		ereport(WARNING,
				(errmsg("snowflake.registry has a passfile, and nothing that checks the server"),
				 errdetail("A false server at that address can ask for the password in clear text, and gets it."),
				 errhint("Set sslmode=verify-full or channel_binding=require in it.")));
}

static void
assign_clock_offset(double newval, void *extra)
{
	if (newval != 0 && MyProcPid == PostmasterPid)
		ereport(WARNING,
				(errmsg("snowflake.clock_offset is %.15g ms: ids do not carry the time of the server's clock", newval),
				 errhint("This developer option is for tests only.")));
}

/* In alphabetical order. */
static void
define_settings(void)
{
	DefineCustomRealVariable("snowflake.clock_offset",
							 "Added to the clock, to test clock steps.",
							 NULL, &snowflake_clock_offset,
							 0, -MAX_CLOCK_OFFSET_MS, MAX_CLOCK_OFFSET_MS,
							 PGC_SIGHUP, GUC_UNIT_MS | GUC_NOT_IN_SAMPLE,
							 NULL, assign_clock_offset, NULL);
	DefineCustomIntVariable("snowflake.datacenter_id",
							"Datacenter part of the node number.",
							"-1: part of the automatic number or the MAC address, 0 for other worker ids.",
							&snowflake_datacenter_id, -1, -1, INT_MAX,
							PGC_SIGHUP, 0, check_datacenter_id, NULL, NULL);
	DefineCustomStringVariable("snowflake.extra_layouts",
							   "Further layouts in use, with a semicolon between them.",
							   "snowflake_nextval(layout) issues ids of these and of snowflake.layout.",
							   &snowflake_extra_layouts, "",
							   PGC_POSTMASTER, 0, check_extra_layouts, NULL,
							   NULL);
	DefineCustomStringVariable("snowflake.layout",
							   "Bit layout of the ids: a preset, a preset with changes, or a definition.",
							   "See snowflake_layouts() for the presets.",
							   &snowflake_layout_setting, "twitter",
							   PGC_POSTMASTER, 0, check_layout, NULL, NULL);
	DefineCustomIntVariable("snowflake.lease_duration",
							"How far ahead the end of a lease of a node number is set.",
							NULL, &snowflake_lease_duration,
							DEFAULT_LEASE_DURATION_MS, MIN_LEASE_DURATION_MS,
							MAX_LEASE_DURATION_MS,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("snowflake.max_ahead",
							"How far the time in an id may be ahead of the clock.",
							NULL, &snowflake_max_ahead,
							DEFAULT_MAX_AHEAD_MS, 0, MAX_MAX_AHEAD_MS,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("snowflake.max_wait",
							"Longest wait for an id.",
							"0: fail at once.", &snowflake_max_wait,
							DEFAULT_MAX_WAIT_MS, 0, MAX_MAX_WAIT_MS,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomStringVariable("snowflake.registry",
							   "Connection string of the cluster whose tables grant the leases.",
							   "Empty or \"own\": this cluster's own tables.",
							   &snowflake_registry, "",
							   PGC_SIGHUP, GUC_SUPERUSER_ONLY, check_registry,
							   assign_registry, NULL);
	DefineCustomEnumVariable("snowflake.sequence_start",
							 "Sequence of the first id of a tick: carried, random or zero.",
							 NULL, &snowflake_sequence_start,
							 SNOWFLAKE_START_CARRIED, sequence_start_options,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("snowflake.worker_id",
							   "Worker id: auto, a number, hostname or mac.",
							   "A number must not be used by any other running server.",
							   &snowflake_worker_id, "auto",
							   PGC_SIGHUP, 0, check_worker_id, NULL, NULL);
}

/*
 * Notes a setting whose configured value was refused when it was defined just
 * now.  A value that a check hook or the parser refuses is replaced by the
 * default, with a mere WARNING, so it is tried once more here.
 */
static void
note_if_rejected(const char *name, const char *configured)
{
	if (rejected_name != NULL || configured == NULL ||
		set_config_option(name, configured, PGC_POSTMASTER, PGC_S_FILE,
						  GUC_ACTION_SET, false, DEBUG5, false) != 0)
		return;
	rejected_name = name;
	if (strcmp(name, "snowflake.registry") == 0)
		return;					/* may be a password */
	snowflake_copy_printable(rejected_value, configured, strlen(configured),
							 REJECTED_VALUE_SIZE);
}

/* Whether shared_preload_libraries has Citus, by its name or with a path. */
static bool
preloads_citus(void)
{
	List	   *libraries;
	ListCell   *cell;

	/* PostgreSQL loads nothing from a list that cannot be read */
	(void) SplitDirectoriesString(pstrdup(shared_preload_libraries_string),
								  ',', &libraries);
	foreach(cell, libraries)
	{
		const char *name = lfirst(cell);
		const char *slash = last_dir_separator(name);

		name = slash != NULL ? slash + 1 : name;
		if (strcmp(name, "citus") == 0 || strcmp(name, "citus" DLSUFFIX) == 0)
			return true;
	}
	return false;
}

/* Defines all settings; only while the library is preloaded. */
void
snowflake_guc_init(void)
{
	char	   *configured[lengthof(identity_settings)] = {NULL};

	for (size_t i = 0; i < lengthof(identity_settings); i++)
	{
		const char *value = GetConfigOption(identity_settings[i], true, false);

		configured[i] = value != NULL ? pstrdup(value) : NULL;
	}
	snowflake_preloads_citus = preloads_citus();
	define_settings();
	for (size_t i = 0; i < lengthof(identity_settings); i++)
		note_if_rejected(identity_settings[i], configured[i]);
	MarkGUCPrefixReserved("snowflake");
}

/*
 * Whether a setting that identifies this server was refused while it started:
 * then fills the problem, and notes whether that was the default layout.  For
 * the startup hook.
 */
bool
snowflake_guc_rejected(SnowflakeProblem *problem)
{
	if (rejected_name == NULL)
		return false;
	snowflake_shared->invalid_layout = strcmp(rejected_name, "snowflake.layout") == 0;
	snowflake_problem_set(problem, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
						  psprintf("the server was started with an invalid %s: \"%s\"",
								   rejected_name, rejected_value),
						  "No ids are issued with a default in place of what was asked for.",
						  "Correct the setting and restart the server; its log says what is wrong.");
	return true;
}

/*
 * From now on values are checked against this layout, which the caller keeps;
 * NULL: the server issues no ids.  For the startup hook.  The postmaster, which
 * checks values at a reload, so reads no shared memory.
 */
void
snowflake_guc_run(const SnowflakeLayout *layout)
{
	running_layout = layout;
}

/*
 * Makes the settings of this process those of all backends.  For the lease
 * worker, and at start.
 */
void
snowflake_guc_publish(void)
{
	SnowflakeSettings *settings = &snowflake_shared->settings;

	pg_atomic_write_u64(&settings->max_ahead,
						(uint64) snowflake_max_ahead * 1000);
	pg_atomic_write_u64(&settings->clock_offset,
						(uint64) (int64) (snowflake_clock_offset * 1000));
	pg_atomic_write_u64(&settings->max_wait,
						(uint64) snowflake_max_wait * 1000);
	pg_atomic_write_u32(&settings->sequence_start,
						(uint32) snowflake_sequence_start);
}
