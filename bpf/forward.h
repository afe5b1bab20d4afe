/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Forwarding past the host's stack, for packets of flows that both ends have allowed: into a workload's namespace, or to the
 * neighbour that the kernel's routes name. What netfilter has to see, and what they do not answer, takes the way through the
 * stack; so does a packet that is at the end of its life or too big, which the stack tells its sender.
 */
#ifndef FORWARD_H
#define FORWARD_H

#include "packet.h"
#include "conntrack.h"
#include "counters.h"
#include "routes.h"

#if FAMILY == 4
#define LIFE_AT 8
#else
#define LIFE_AT 7
#endif

/* One hop less. 0, or it was the last. */
INLINE int take_hop(struct __sk_buff *buffer, u32 network)
{
	u8 bytes[2];
	if (load_bytes(buffer, network + LIFE_AT, bytes, sizeof bytes) || bytes[0] <= 1)
		return -1;
	u8 left = bytes[0] - 1;
#if FAMILY == 4
	/* The checksum goes over words: the protocol is the other half of this one. */
	u16 before = bytes[0] | (u16)bytes[1] << 8;
	u16 after = left | (u16)bytes[1] << 8;
	if (replace_l3_checksum(buffer, network + 10, before, after, sizeof before))
		return -1;
#endif
	return store_bytes(buffer, network + LIFE_AT, &left, sizeof left, 0);
}

/* To an address by the kernel's routes. `TC_REDIRECT`, or something else where it has no way or no life left. */
INLINE int to_neighbour_of(struct __sk_buff *buffer, struct packet *packet, const struct ends *ends, u8 protocol)
{
	struct fib_lookup *fib = &packet->fib;
	__builtin_memset(fib, 0, sizeof *fib);
	fib->family = FAMILY == 4 ? SOCKETS_IPV4 : SOCKETS_IPV6;
	fib->ifindex = buffer->ifindex;
	fib->protocol = protocol;
	fib->source_port = ends->source_port;
	fib->destination_port = ends->destination_port;
	for (int i = 0; i < WORDS; i++) {
		fib->source[i] = ends->source.words[i];
		fib->destination[i] = ends->destination.words[i];
	}
	long answer = look_up_fib(buffer, fib, sizeof *fib, FIB_SKIP_NEIGHBOUR);
	if ((answer != FIB_FOUND && answer != FIB_NO_NEIGHBOUR) || take_hop(buffer, packet->network))
		return TC_NEXT;
	struct next_hop next = {.family = fib->family};
	for (int i = 0; i < WORDS; i++)
		next.address[i] = fib->destination[i];
	return redirect_neighbour(fib->ifindex, &next, sizeof next, 0);
}

INLINE int to_neighbour(struct __sk_buff *buffer, struct packet *packet)
{
	return to_neighbour_of(buffer, packet, &packet->target, packet->tuple.protocol);
}

/* The host's own packet to a service, on the interface by which it talks to itself: it leaves for the backend from here, as if
 * it had never been on this one. */
INLINE int leave_loopback(struct __sk_buff *buffer, struct packet *packet)
{
	/* An answer, or a backend that is the host itself. */
	if (is_this_host(&packet->target.destination))
		return TC_NEXT;
	set_mark(buffer, 0);
	int verdict = to_neighbour(buffer, packet);
	if (verdict != TC_REDIRECT)
		return TC_DROP;
	count(buffer, REASON_REDIRECT_NEIGHBOUR);
	return verdict;
}

/* The packet goes on, with its mark: by itself, or through the host's stack. */
INLINE int forward(struct __sk_buff *buffer, struct packet *packet)
{
	if (options.kind == KIND_LOOPBACK && packet->flags & PACKET_NAT)
		return leave_loopback(buffer, packet);
	if (settings.is_leaving)
		return TC_NEXT;
	/* An answer that came in an envelope. Linux has not seen what it answers. */
	if (packet->flags & PACKET_RETURNS) {
		struct ends ends;
		wire_of(&ends, &packet->tuple);
		set_mark(buffer, MARK_BYPASS_FORWARD);
		int verdict = to_neighbour_of(buffer, packet, &ends, packet->tuple.protocol);
		if (verdict == TC_REDIRECT)
			count(buffer, REASON_REDIRECT_NEIGHBOUR);
		return verdict;
	}
	set_mark(buffer, packet->mark);
	if (settings.is_workload && options.service_mark && packet->entry_flags & ENTRY_EXTERNAL_LOCAL)
		buffer->mark |= options.service_mark;
	if (packet->mark != MARK_BYPASS || !settings.link_header || packet->entry_flags & (ENTRY_SKIP_FIB | ENTRY_OF_HOST))
		return TC_NEXT;
	/* Of a flow that Linux tracks it must see every packet, unless all are to pass by it. */
	u32 direct = packet->entry_flags & ENTRY_DIRECT;
	if (options.redirects_to_peer && packet->peer && (direct || options.redirects) &&
	    !(packet->entry_flags & ENTRY_SKIP_PEER)) {
		/* The workload may be gone, and its address another one's. */
		struct route *route = find_route(&packet->target.destination);
		int is_there = route && has_flags(route->flags, ROUTE_LOCAL | ROUTE_WORKLOAD) && route->ifindex == packet->peer;
		if (is_there) {
			/* Older kernels let marks into the workload's namespace. */
			set_mark(buffer, 0);
			count(buffer, REASON_REDIRECT_PEER);
			return redirect_peer(packet->peer, 0);
		}
	}
	if (direct)
		set_mark(buffer, MARK_NO_TRACKING);
	if (options.redirects) {
		int verdict = to_neighbour(buffer, packet);
		if (verdict == TC_REDIRECT) {
			count(buffer, REASON_REDIRECT_NEIGHBOUR);
			return verdict;
		}
	}
	return TC_NEXT;
}

#endif
