/*
 * presets.c
 *	  The layouts of well-known id generators, by name.
 *
 * A released preset never changes its meaning: ids that exist would decode
 * differently.  A new meaning gets a new name.  Systems whose ids have 64 bits
 * are given with one timestamp bit less, since our ids are never negative.
 */
#include "postgres.h"

#include "layout/layout.h"

const SnowflakePreset snowflake_presets[] = {
	{"twitter",
	"timestamp 41, datacenter 5, worker 5, sequence 12, tick 1ms, epoch 2010-11-04T01:42:54.657Z"},
	{"leaf", "timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2010-11-04T01:42:54.657Z"},
	{"discord",
	"timestamp 41, datacenter 5, worker 5, sequence 12, tick 1ms, epoch 2015-01-01T00:00:00Z"},
	{"instagram",
	"timestamp 40, worker 13, sequence 10, tick 1ms, epoch 2011-08-24T21:07:01.721Z"},
	{"mastodon",
	"timestamp 47, sequence 16, tick 1ms, epoch 1970-01-01T00:00:00Z"},
	{"sonyflake",
	"timestamp 39, sequence 8, worker 16, tick 10ms, epoch 2014-09-01T00:00:00Z"},
	{"sonyflake2",
	"timestamp 39, sequence 8, worker 16, tick 10ms, epoch 2025-01-01T00:00:00Z"},
	{"uidgenerator",
	"timestamp 29, worker 21, sequence 13, tick 1s, epoch 2016-09-20T00:00:00+08:00"},
	{"uidgenerator28",
	"timestamp 28, worker 22, sequence 13, tick 1s, epoch 2016-05-20T00:00:00+08:00"},
	{"uidstarter",
	"timestamp 30, worker 16, sequence 7, tick 1s, epoch 2019-02-20T00:00:00+08:00"},
	{"liaoxuefeng",
	"timestamp 32, sequence 16, worker 5, tick 1s, epoch 2000-01-01T00:00:00Z"},
	{"cosid",
	"timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2019-12-25T00:00:00+08:00"},
	{"shardingsphere",
	"timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2016-11-01T00:00:00+08:00"},
	{"pgedge",
	"timestamp 41, worker 10, sequence 12, tick 1ms, epoch 2023-01-01T00:00:00Z"},
	{"pgedge1",
	"timestamp 41, sequence 12, worker 10, tick 1ms, epoch 2023-01-01T00:00:00Z"},
	/* ours: 53 bits, exact in a JavaScript number, full in 2111 */
	{"js53", "timestamp 38, worker 7, sequence 8, tick 10ms, epoch 2024-01-01T00:00:00Z"},
};

const int	snowflake_num_presets = lengthof(snowflake_presets);
