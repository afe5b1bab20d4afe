/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Counters of interfaces and of rules. Their places and bytes are those that Calico's tool prints. */
#ifndef COUNTERS_H
#define COUNTERS_H

#include "packet.h"
#include "events.h"

enum reason {
	REASON_TOTAL = 0,
	REASON_FAILSAFE = 1,
	REASON_ALLOWED = 2,
	REASON_BYPASS = 3,
	REASON_DENIED = 4,
	REASON_SHORT = 5,
	REASON_CHECKSUM = 6,
	REASON_MALFORMED = 8,
	REASON_WRAP = 9,
	REASON_ENVELOPE = 10, /* of a tunnel that is not ours */
	REASON_SOURCE = 11,
	REASON_NO_BACKEND = 12, /* Calico's tool calls it an unknown route */
	REASON_BLACKHOLE = 13,
	REASON_COLLISION = 14,
	REASON_COLLISION_FAILED = 15,
	REASON_NOT_TRACKED = 16,
	REASON_REDIRECT = 17,
	REASON_REDIRECT_NEIGHBOUR = 18,
	REASON_REDIRECT_PEER = 19,
	REASON_FRAGMENT_WAITS = 20,
	REASON_FRAGMENT = 21, /* before the first one */
	REASON_LIMIT = 23,
	REASONS = 27,
};

struct counter_key {
	u32 ifindex;
	u32 hook; /* 0 coming in, 1 leaving, 2 at the driver */
};

struct counters {
	u64 counts[REASONS];
};
ASSERT_SIZE(struct counters, 216);

MAP(cali_counters6, MAP_PERCPU_HASH, struct counter_key, struct counters, 20000, 0);
MAP(cali_rule_ctrs2, MAP_PERCPU_HASH, u64, u64, 10000, 0);

/* An interface whose counters were not made is not counted. */
INLINE void count(BUFFER *buffer, enum reason reason)
{
	struct counter_key key = {.ifindex = device_of(buffer), .hook = HOOK};
	struct counters *counters = map_lookup(&cali_counters6, &key);
	if (counters)
		counters->counts[reason]++;
}

INLINE int drop(BUFFER *buffer, enum reason reason)
{
	count(buffer, reason);
	if (options.tells_drops || is_watched())
		tell(buffer, reason, EVENT_DROPPED);
	return DROPPED;
}

INLINE void count_rule(u64 id)
{
	u64 *counter = map_lookup(&cali_rule_ctrs2, &id);
	if (counter) {
		(*counter)++;
	} else {
		u64 first = 1;
		map_update(&cali_rule_ctrs2, &id, &first, NO_EXIST);
	}
}

#endif
