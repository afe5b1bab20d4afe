/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Where addresses are, and ports of this host that work whatever policy says. */
#ifndef ROUTES_H
#define ROUTES_H

#include "packet.h"

enum route_flags {
	ROUTE_WORKLOAD = 0x4,
	ROUTE_LOCAL = 0x8,
	ROUTE_HOST = 0x10,
	ROUTE_BLACKHOLE_DROP = 0x100,
	ROUTE_BLACKHOLE_REJECT = 0x200,
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

struct failsafe_key {
	u32 prefix;
	u16 port;
	u8 protocol;
	u8 is_out;
	struct address address;
};
ASSERT_SIZE(struct failsafe_key, 8 + WORDS * 4);

MAP(NAME(routes), MAP_LPM, struct route_key, struct route, 262144, NO_PREALLOC);
MAP(NAME(fsafes2), MAP_LPM, struct failsafe_key, u32, 65536, NO_PREALLOC);

INLINE struct route *find_route(const struct address *address)
{
	struct route_key key = {.prefix = ADDRESS_BITS, .address = *address};
	return map_lookup(&NAME(routes), &key);
}

INLINE int has_flags(const struct route *route, u32 flags)
{
	return route && (route->flags & flags) == flags;
}

INLINE int is_this_host(const struct address *address)
{
	return has_flags(find_route(address), ROUTE_LOCAL | ROUTE_HOST);
}

/* Whether a workload of this node has the address, and this interface. */
INLINE int is_source_of(const struct address *address, u32 ifindex)
{
	struct route *route = find_route(address);
	return has_flags(route, ROUTE_LOCAL | ROUTE_WORKLOAD) && route->ifindex == ifindex;
}

INLINE int is_failsafe(u8 protocol, be16 port, u8 is_out, const struct address *other_side)
{
	struct failsafe_key key = {
		.prefix = 32 + ADDRESS_BITS,
		.port = HOST16(port),
		.protocol = protocol,
		.is_out = is_out,
		.address = *other_side,
	};
	return map_lookup(&NAME(fsafes2), &key) != NULL;
}

#endif
