/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Limits of a workload: packets in a second, and connections of TCP at a time, in each direction and IP version. Packets beyond
 * are dropped, connections beyond are refused with a RST.
 *
 * Two processors may count at the same moment and one of them in vain: a packet more passes then. Connections are counted anew by
 * the sweep of connections.
 */
#ifndef LIMITS_H
#define LIMITS_H

#include "packet.h"

struct limit_key {
	u32 ifindex;
	u16 is_to_workload;
	u16 family;
};
ASSERT_SIZE(struct limit_key, 8);

struct rate {
	u64 interval; /* nanoseconds from one packet to the next */
	u64 ahead;    /* that packets may be before their time */
	u64 next;     /* when the next one is due */
};
ASSERT_SIZE(struct rate, 24);

struct limit {
	u32 most;
	u32 count;
};
ASSERT_SIZE(struct limit, 8);

MAP(bpfp_rate, MAP_HASH, struct limit_key, struct rate, 4000, NO_PREALLOC);
MAP(bpfp_limit, MAP_HASH, struct limit_key, struct limit, 4000, NO_PREALLOC);

/* Whether a packet comes too soon. */
INLINE int exceeds_rate(struct __sk_buff *buffer)
{
	struct limit_key key = {.ifindex = buffer->ifindex, .is_to_workload = settings.is_leaving, .family = FAMILY};
	struct rate *rate = map_lookup(&bpfp_rate, &key);
	if (!rate)
		return 0;
	u64 now = time_ns();
	u64 next = rate->next > now ? rate->next : now;
	if (next - now > rate->ahead)
		return 1;
	rate->next = next + rate->interval;
	return 0;
}

INLINE struct limit *find_limit(struct __sk_buff *buffer, int is_to_workload)
{
	struct limit_key key = {.ifindex = buffer->ifindex, .is_to_workload = is_to_workload, .family = FAMILY};
	return map_lookup(&bpfp_limit, &key);
}

/* Counts a connection that begins. 0, or it is one too many. */
INLINE int count_connection(struct __sk_buff *buffer, struct packet *packet)
{
	u32 flag = settings.is_leaving ? ENTRY_LIMIT_TO : ENTRY_LIMIT_FROM;
	if (!is_opening(&packet->tuple) || packet->entry_flags & flag)
		return 0;
	struct limit *limit = find_limit(buffer, settings.is_leaving);
	if (!limit)
		return 0;
	if (limit->count >= limit->most)
		return -1;
	__sync_fetch_and_add(&limit->count, 1);
	packet->entry_flags |= flag;
	return 0;
}

/* A connection that both sides have closed, or one has reset, counts no more. */
INLINE void end_connection(struct __sk_buff *buffer, struct connection_value *value, const struct leg *own, u32 flags)
{
	int is_from = ((own->bits & LEG_OPENER) != 0) != settings.is_leaving;
	u32 both = value->a_to_b.bits & value->b_to_a.bits;
	u32 any = value->a_to_b.bits | value->b_to_a.bits;
	if (!(flags & (is_from ? ENTRY_LIMIT_FROM : ENTRY_LIMIT_TO)) || flags & ENTRY_LIMIT_ENDED ||
	    !(both & LEG_FIN || any & LEG_RST))
		return;
	value->flags3 |= ENTRY_LIMIT_ENDED >> 16;
	struct limit *limit = find_limit(buffer, !is_from);
	if (limit && limit->count)
		__sync_fetch_and_add(&limit->count, -1);
}

#endif
