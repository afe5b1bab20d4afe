/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Where addresses are: of workloads, of nodes, of nobody. */
#ifndef ROUTES_H
#define ROUTES_H

#include "address.h"

enum route_flags {
	ROUTE_IN_POOL = 0x1,
	ROUTE_NAT_OUTGOING = 0x2,
	ROUTE_WORKLOAD = 0x4,
	ROUTE_LOCAL = 0x8,
	ROUTE_HOST = 0x10,
	ROUTE_TUNNELED = 0x40,
	ROUTE_ANSWERS_BACK = 0x80, /* answers take the way of their questions */
	ROUTE_BLACKHOLE_DROP = 0x100,
	ROUTE_BLACKHOLE_REJECT = 0x200,
	ROUTE_SKIP_REDIRECT = 0x800,
};

struct route_key {
	u32 prefix;
	struct address address;
};

struct route {
	u32 flags;
	union {
		struct address next_hop;
		u32 ifindex; /* of a workload of this node */
	};
};
ASSERT_SIZE(struct route, 4 + WORDS * 4);

MAP(NAME(routes), MAP_LPM, struct route_key, struct route, 262144, NO_PREALLOC);

INLINE struct route *find_route(const struct address *address)
{
	struct route_key key = {.prefix = ADDRESS_BITS, .address = *address};
	return map_lookup(&NAME(routes), &key);
}

INLINE u32 route_flags(const struct address *address)
{
	struct route *route = find_route(address);
	return route ? route->flags : 0;
}

INLINE int has_flags(u32 flags, u32 wanted)
{
	return (flags & wanted) == wanted;
}

INLINE int is_this_host(const struct address *address)
{
	return has_flags(route_flags(address), ROUTE_LOCAL | ROUTE_HOST);
}

INLINE int is_other_host(const struct address *address)
{
	return (route_flags(address) & (ROUTE_LOCAL | ROUTE_HOST)) == ROUTE_HOST;
}

#endif
