/*
 * states.h
 *	  The states of the lease machine by name, for programs that test it.
 */
#ifndef STATES_H
#define STATES_H

#include "lease/machine.h"

static inline const char *
lease_state_name(SnowflakeLeaseState state)
{
	static const char *const names[] = {
		"standby", "new", "no table", "none", "asking", "granted", "open",
		"sealing", "ending", "stopped"
	};

	return names[state];
}

#endif							/* STATES_H */
