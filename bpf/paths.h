/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Where packets may come from. */
#ifndef PATHS_H
#define PATHS_H

#include "packet.h"
#include "routes.h"

struct source_key {
	u32 prefix;
	u32 ifindex;
	struct address address;
};
ASSERT_SIZE(struct source_key, 8 + WORDS * 4);

MAP(NAME(sprefix), MAP_LPM, struct source_key, u32, 1048576, NO_PREALLOC);

/* Whether a packet may have this source. */
enum path {
	PATH_WRONG,
	PATH_RIGHT,
	PATH_OTHER, /* from there, but answers leave by another interface; or nobody asks */
	PATH_LENT,  /* a workload's right to another's network: no entry is made for it */
};

/* Whether a workload of this node has the address, and this interface. */
INLINE enum path workload_path(const struct address *source, u32 ifindex)
{
	struct route *route = find_route(source);
	if (route && has_flags(route->flags, ROUTE_LOCAL | ROUTE_WORKLOAD) && route->ifindex == ifindex)
		return PATH_RIGHT;
	if (options.looks_up_sources && (!route || route->flags == ROUTE_ANSWERS_BACK)) {
		struct source_key key = {.prefix = 32 + ADDRESS_BITS, .ifindex = ifindex, .address = *source};
		if (map_lookup(&NAME(sprefix), &key))
			return PATH_LENT;
	}
	return PATH_WRONG;
}

INLINE int is_link_local(const struct address *address)
{
#if FAMILY == 4
	return (address->words[0] & NETWORK32(0xffff0000)) == NETWORK32(0xa9fe0000);
#else
	return (address->words[0] & NETWORK32(0xffc00000)) == NETWORK32(0xfe800000);
#endif
}

/* What the kernel would answer to the packet's source: the way back. */
INLINE enum path host_path(struct __sk_buff *buffer, struct packet *packet, const struct tuple *tuple)
{
	if (options.reverse_path == REVERSE_PATH_ANY)
		return PATH_OTHER;
#if FAMILY == 6
	if (tuple->protocol == OWN_ICMP)
		return PATH_OTHER;
#endif
	struct fib_lookup *fib = &packet->fib;
	u32 ifindex = buffer->ifindex;
	__builtin_memset(fib, 0, sizeof *fib);
	fib->family = FAMILY == 4 ? SOCKETS_IPV4 : SOCKETS_IPV6;
	fib->ifindex = ifindex;
	fib->protocol = tuple->protocol;
	fib->source_port = tuple->destination_port;
	fib->destination_port = tuple->source_port;
	for (int i = 0; i < WORDS; i++) {
		fib->source[i] = tuple->destination.words[i];
		fib->destination[i] = tuple->source.words[i];
	}
	long answer = look_up_fib(buffer, fib, sizeof *fib, 0);
	switch (answer) {
	case FIB_FOUND:
	case FIB_NO_NEIGHBOUR:
	case FIB_TOO_BIG:
		if (fib->ifindex == ifindex)
			return PATH_RIGHT;
		return options.reverse_path == REVERSE_PATH_LOOSE && fib->ifindex ? PATH_OTHER : PATH_WRONG;
	case FIB_NOT_FORWARDED:
		/* Nothing is forwarded to addresses of one wire; a neighbour may talk to the host all the same. */
		if (is_link_local(&tuple->source) &&
		    (is_link_local(&tuple->destination) || is_this_host(&tuple->destination)))
			return PATH_RIGHT;
		return PATH_WRONG;
	default:
		return PATH_WRONG;
	}
}

INLINE enum path check_path(struct __sk_buff *buffer, struct packet *packet, const struct tuple *tuple)
{
	if (settings.is_workload)
		return settings.checks_source ? workload_path(&tuple->source, buffer->ifindex) : PATH_RIGHT;
	if (options.kind == KIND_LOOPBACK || options.kind == KIND_SERVICES)
		return PATH_RIGHT;
	return host_path(buffer, packet, tuple);
}

#endif
