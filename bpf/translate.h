/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Changes a packet's addresses and ports, from `wire` to `target`; or those of the packet that an ICMP error is about, and the
 * error's own with them. Checksums change by the difference. That of SCTP cannot: its ports stay.
 */
#ifndef TRANSLATE_H
#define TRANSLATE_H

#include "packet.h"
#include "parse.h"

#if FAMILY == 4
#define ADDRESSES_AT 12
#else
#define ADDRESSES_AT 8
#endif
#define IPV4_CHECKSUM_AT 10
#define ICMP_CHECKSUM_AT 2
#define ICMP_HEADER 8

/* Where the checksum is behind the beginning of the header; 0 for protocols without one that covers addresses. */
INLINE u32 checksum_place(u8 protocol)
{
	switch (protocol) {
	case PROTOCOL_TCP:
		return 16;
	case PROTOCOL_UDP:
		return 6;
#if FAMILY == 6
	case PROTOCOL_ICMP6:
		return ICMP_CHECKSUM_AT;
#endif
	}
	return 0;
}

INLINE u32 both_ports(const struct ends *ends)
{
	return ends->source_port | (u32)ends->destination_port << 16;
}

/* Writes both addresses of an IP header and its checksum. Answers 0 or -1. */
INLINE int write_addresses(struct __sk_buff *buffer, u32 network, const struct ends *target, u32 difference)
{
	if (store_bytes(buffer, network + ADDRESSES_AT, &target->source, 2 * sizeof(struct address), 0))
		return -1;
#if FAMILY == 4
	if (replace_l3_checksum(buffer, network + IPV4_CHECKSUM_AT, 0, difference, 0))
		return -1;
#endif
	return 0;
}

INLINE u32 difference_of(const struct ends *from, const struct ends *to)
{
	return checksum_difference(&from->source, 2 * sizeof(struct address), &to->source, 2 * sizeof(struct address), 0);
}

/* 0, or the packet is broken now. */
FUNCTION int translate(struct __sk_buff *buffer)
{
	struct packet *packet = this_packet();
	if (!packet)
		return -1;
	u32 transport = packet->transport;
	u8 protocol = packet->tuple.protocol;
	u32 difference = difference_of(&packet->wire, &packet->target);
	if (write_addresses(buffer, packet->network, &packet->target, difference))
		return -1;
	if (packet->tuple.is_later_fragment)
		return 0;
	u32 from = both_ports(&packet->wire);
	u32 to = both_ports(&packet->target);
	u32 place = checksum_place(protocol);
	if (place) {
		u64 flags = protocol == PROTOCOL_UDP ? CHECKSUM_KEEPS_ZERO : 0;
		if (replace_l4_checksum(buffer, transport + place, 0, difference, CHECKSUM_PSEUDO | flags))
			return -1;
		if (from != to && protocol != OWN_ICMP &&
		    replace_l4_checksum(buffer, transport + place, from, to, flags | sizeof from))
			return -1;
	}
	if (from == to || protocol == OWN_ICMP)
		return 0;
	if (protocol == PROTOCOL_SCTP)
		return -1;
	return store_bytes(buffer, transport, &packet->target.source_port, sizeof from, 0) ? -1 : 0;
}

/* The same for what an ICMP error is about. Its own checksum covers that too; the one of IPv4 inside makes up for the addresses
 * that changed with it. */
FUNCTION int translate_error(struct __sk_buff *buffer)
{
	struct packet *packet = this_packet();
	if (!packet)
		return -1;
	u32 icmp = packet->transport;
	u32 network = icmp + ICMP_HEADER;
	struct tuple inner;
	struct headers headers;
	if (parse_network(buffer, network, &inner, &headers))
		return -1;
	u32 difference = difference_of(&packet->wire, &packet->target);
	if (write_addresses(buffer, network, &packet->target, difference))
		return -1;
#if FAMILY == 6
	if (replace_l4_checksum(buffer, icmp + ICMP_CHECKSUM_AT, 0, difference, 0))
		return -1;
#endif
	u32 from = both_ports(&packet->wire);
	u32 to = both_ports(&packet->target);
	if (from != to && (inner.protocol == PROTOCOL_TCP || inner.protocol == PROTOCOL_UDP)) {
		if (store_bytes(buffer, headers.transport, &packet->target.source_port, sizeof from, 0))
			return -1;
		if (replace_l4_checksum(buffer, icmp + ICMP_CHECKSUM_AT, from, to, sizeof from))
			return -1;
	}
	/* The error goes to the one who sent that packet, and comes from its other end, or from someone on the way. */
	struct ends outer, next;
	outer.source = next.source = packet->tuple.source;
	outer.destination = packet->tuple.destination;
	next.destination = packet->target.source;
	if (address_equal(&outer.source, &packet->wire.destination))
		next.source = packet->target.destination;
	difference = difference_of(&outer, &next);
	if (write_addresses(buffer, packet->network, &next, difference))
		return -1;
#if FAMILY == 6
	if (replace_l4_checksum(buffer, icmp + ICMP_CHECKSUM_AT, 0, difference, CHECKSUM_PSEUDO))
		return -1;
#endif
	return 0;
}

#endif
