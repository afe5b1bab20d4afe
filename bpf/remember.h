/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Makes the entries of flows that policy allowed, or approves this interface's leg of those that are there.
 *
 * Behind NAT two flows can look alike: a client may use one port for a service and for the backend itself. The later one gets
 * another source port then.
 */
#ifndef REMEMBER_H
#define REMEMBER_H

#include "packet.h"
#include "conntrack.h"
#include "counters.h"

#define MOST_PORTS_TRIED 4

/* This interface's end allows the flow of an entry. */
INLINE void approve(struct __sk_buff *buffer, const struct packet *packet, struct connection_value *value, int is_a_to_b)
{
	const struct tuple *tuple = &packet->tuple;
	u32 limits = packet->entry_flags & (ENTRY_LIMIT_TO | ENTRY_LIMIT_FROM | ENTRY_LIMIT_REFUSED);
	if (options.has_limits && limits)
		value->flags3 |= limits >> 16;
	struct leg *own = is_a_to_b ? &value->a_to_b : &value->b_to_a;
	struct leg *other = is_a_to_b ? &value->b_to_a : &value->a_to_b;
	add_bits(is_source_side() ? own : other, LEG_APPROVED | (settings.is_workload ? LEG_WORKLOAD : 0));
	value->last_seen = time_ns();
	/* There was no room to keep it: from this SYN on it is Linux's. */
	if (is_source_side() && value->flags & ENTRY_DIRECT && !(packet->entry_flags & ENTRY_DIRECT))
		value->flags &= ~ENTRY_DIRECT;
	if (is_opening(tuple)) {
		own->sequence = tuple->sequence;
		add_bits(own, LEG_SYN);
	}
	count_packet(buffer, own, flags_of(value));
}

/* An entry with state of a flow that has just begun. */
INLINE void begin(struct __sk_buff *buffer, const struct packet *packet, struct connection_value *fresh, int is_a_to_b)
{
	const struct tuple *tuple = &packet->tuple;
	u32 approval = LEG_APPROVED | (settings.is_workload ? LEG_WORKLOAD : 0);
	u32 flags = packet->entry_flags & ~ENTRY_SOURCE_IS_B;
	__builtin_memset(fresh, 0, sizeof *fresh);
	fresh->last_seen = time_ns();
	struct leg *own = is_a_to_b ? &fresh->a_to_b : &fresh->b_to_a;
	struct leg *other = is_a_to_b ? &fresh->b_to_a : &fresh->a_to_b;
	own->bytes = buffer->len;
	own->packets = 1;
	own->sequence = tuple->sequence;
	own->bits = LEG_OPENER | (is_source_side() ? approval : 0);
	fresh->tunnel = packet->tunnel;
	/* The backend's own policy is asked on its node. */
	if (flags & ENTRY_FORWARDED)
		other->bits = LEG_APPROVED;
	if (tuple->tcp_flags & TCP_SYN)
		own->bits |= LEG_SYN;
	/* Taken over in the middle: both sides have greeted each other elsewhere. */
	if (flags & ENTRY_MAGLEV && tuple->protocol == PROTOCOL_TCP && !is_opening(tuple)) {
		own->bits |= LEG_SYN | LEG_ACK;
		other->bits |= LEG_SYN | LEG_ACK;
	}
	if (!is_source_side())
		other->bits |= approval;
	else if (!settings.is_leaving)
		own->ifindex = buffer->ifindex;
	if (!is_a_to_b)
		flags |= ENTRY_SOURCE_IS_B;
	fresh->flags = flags;
	fresh->flags2 = flags >> 8;
	fresh->flags3 = flags >> 16;
	if (packet->flags & PACKET_NAT) {
		fresh->type = TYPE_NAT_REVERSE;
		fresh->original = packet->wire.destination;
		fresh->original_port = HOST16(packet->wire.destination_port);
		fresh->original_source = packet->wire.source;
		fresh->original_source_port = HOST16(packet->wire.source_port);
	}
}

/* Whether an entry is that of the same flow: its stub was forgotten, or another processor is about to write it. */
INLINE int is_same_flow(const struct packet *packet, const struct connection_value *value)
{
	return value->type == TYPE_NAT_REVERSE && address_equal(&value->original, &packet->wire.destination) &&
	       address_equal(&value->original_source, &packet->wire.source) &&
	       value->original_port == HOST16(packet->wire.destination_port) &&
	       value->original_source_port == HOST16(packet->wire.source_port);
}

INLINE int remember_plain(struct __sk_buff *buffer, struct packet *packet)
{
	const struct tuple *tuple = &packet->tuple;
	int is_a_to_b = connection_key(&packet->key, tuple->protocol, &packet->wire);
	struct connection_value *value = map_lookup(CONNECTIONS, &packet->key);
	if (value && !has_state(value))
		return -1;
	if (!value) {
		struct connection_value fresh;
		begin(buffer, packet, &fresh, is_a_to_b);
		if (!map_update(CONNECTIONS, &packet->key, &fresh, NO_EXIST))
			return 0;
		/* Another processor was first, most likely for the other leg. */
		value = map_lookup(CONNECTIONS, &packet->key);
		if (!has_state(value))
			return -1;
	}
	if (!is_source_side() && packet->entry_flags & ENTRY_DIRECT && is_opening(tuple) &&
	    !(packet->entry_flags & ENTRY_LIMIT_REFUSED)) {
		u32 limits = packet->entry_flags & (ENTRY_LIMIT_TO | ENTRY_LIMIT_FROM);
		mark_direct(&packet->key, (is_a_to_b ? DIRECT_B_APPROVED : DIRECT_A_APPROVED) | limits >> 16 << DIRECT_FLAGS3);
	}
	approve(buffer, packet, value, is_a_to_b);
	return 0;
}

INLINE int remember_nat(struct __sk_buff *buffer, struct packet *packet)
{
	const struct tuple *tuple = &packet->tuple;
	struct found found = find_connection(packet, tuple->protocol, &packet->wire);
	if (found.value) {
		/* A SYN once more, say. Where it goes was decided before. */
		approve(buffer, packet, found.value, found.is_a_to_b);
		return 0;
	}
	packet->stub = packet->key;
	struct connection_value fresh;
	int is_made = 0;
	for (int i = 0; i < MOST_PORTS_TRIED; i++) {
		int is_a_to_b = connection_key(&packet->key, tuple->protocol, &packet->target);
		begin(buffer, packet, &fresh, is_a_to_b);
		is_made = !map_update(CONNECTIONS, &packet->key, &fresh, NO_EXIST);
		if (is_made)
			break;
		struct connection_value *value = map_lookup(CONNECTIONS, &packet->key);
		if (!value)
			return -1;
		if (is_same_flow(packet, value)) {
			approve(buffer, packet, value, is_a_to_b);
			is_made = 1;
			break;
		}
		count(buffer, REASON_COLLISION);
		/* The checksum of SCTP cannot follow. */
		if (tuple->protocol == PROTOCOL_SCTP || !options.ports)
			break;
		packet->target.source_port = NETWORK16(options.first_port + random32() % options.ports);
	}
	if (!is_made) {
		count(buffer, REASON_COLLISION_FAILED);
		return -1;
	}
	__builtin_memset(&fresh, 0, sizeof fresh);
	fresh.last_seen = time_ns();
	fresh.type = TYPE_NAT_FORWARD;
	fresh.reverse = packet->key;
	if (packet->target.source_port != packet->wire.source_port)
		fresh.nat_source_port = HOST16(packet->target.source_port);
	return map_update(CONNECTIONS, &packet->stub, &fresh, 0) ? -1 : 0;
}

/* 0, or not done. */
FUNCTION int remember(struct __sk_buff *buffer)
{
	struct packet *packet = this_packet();
	if (!packet)
		return -1;
	/* Where a flow leaves, it has its final addresses, and so has its entry. */
	if ((packet->flags & PACKET_NAT) && is_source_side())
		return remember_nat(buffer, packet);
	return remember_plain(buffer, packet);
}

#endif
