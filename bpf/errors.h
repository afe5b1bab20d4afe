/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * ICMP errors of our own: the packet that cannot go on becomes an error about itself, and goes back by the interface that it
 * came in by. It comes from the address that the sender used.
 *
 * Packets with options or extension headers, and those of devices without Ethernet headers, get no answer.
 */
#ifndef ERRORS_H
#define ERRORS_H

#include "packet.h"
#include "parse.h"
#include "translate.h"

#if FAMILY == 4
#define IP_HEADER 20
#define ERROR_PORT_UNREACHABLE 0x0303
#define ERROR_TOO_BIG 0x0304
#else
#define IP_HEADER 40
#define ERROR_PORT_UNREACHABLE 0x0104
#define ERROR_TOO_BIG 0x0200
#endif
/* What of the packet is sent back: its IP header and this much. Less of a TCP header than all of it is not taken: its checksum
 * may not be there yet. */
#define QUOTED_TCP 20
#define QUOTED_OTHER 8

struct error_headers {
#if FAMILY == 4
	struct ipv4_header ip;
#else
	struct ipv6_header ip;
#endif
	u8 type;
	u8 code;
	u16 checksum;
	be32 rest;
};
ASSERT_SIZE(struct error_headers, IP_HEADER + 8);

INLINE u16 folded(u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* Fills the headers in front of what is quoted, whose sum is given. */
INLINE void fill_error(const struct packet *packet, struct error_headers *headers, u32 quoted, u32 sum)
{
	__builtin_memset(headers, 0, sizeof *headers);
	headers->type = packet->error >> 8;
	headers->code = packet->error;
	headers->rest = packet->error_rest;
#if FAMILY == 4
	headers->ip.version_length = 0x45;
	headers->ip.total_length = NETWORK16(IP_HEADER + 8 + quoted);
	headers->ip.ttl = 64;
	headers->ip.protocol = OWN_ICMP;
	headers->ip.source = packet->wire.destination.words[0];
	headers->ip.destination = packet->wire.source.words[0];
	headers->ip.checksum = folded(checksum_difference(NULL, 0, &headers->ip, sizeof headers->ip, 0));
#else
	headers->ip.version = NETWORK32(0x60000000);
	headers->ip.payload_length = NETWORK16(8 + quoted);
	headers->ip.next = OWN_ICMP;
	headers->ip.hop_limit = 64;
	__builtin_memcpy(headers->ip.source, &packet->wire.destination, sizeof headers->ip.source);
	__builtin_memcpy(headers->ip.destination, &packet->wire.source, sizeof headers->ip.destination);
	/* The header that the checksum imagines: addresses, length, protocol. */
	be32 imagined[2] = {NETWORK32(8 + quoted), NETWORK32(OWN_ICMP)};
	sum = checksum_difference(NULL, 0, headers->ip.source, 2 * sizeof(struct address), sum);
	sum = checksum_difference(NULL, 0, imagined, sizeof imagined, sum);
#endif
	headers->checksum = folded(checksum_difference(NULL, 0, &headers->type, 8, sum));
}

INLINE int swap_ethernet(struct __sk_buff *buffer)
{
	u8 addresses[12], swapped[12];
	if (load_bytes(buffer, 0, addresses, sizeof addresses))
		return -1;
	__builtin_memcpy(swapped, addresses + 6, 6);
	__builtin_memcpy(swapped + 6, addresses, 6);
	return store_bytes(buffer, 0, swapped, sizeof swapped, 0);
}

/* Answers the verdict about the error, or -1 where none can be made. */
INLINE int send_error(struct __sk_buff *buffer, struct packet *packet)
{
	struct error_headers headers;
	u8 quote[IP_HEADER + QUOTED_TCP];
	u32 sum;
	u32 quoted = IP_HEADER + QUOTED_OTHER;
	if (!settings.link_header || packet->transport != settings.link_header + IP_HEADER || packet->tuple.is_later_fragment)
		return -1;
	if (packet->tuple.protocol == PROTOCOL_TCP) {
		quoted = IP_HEADER + QUOTED_TCP;
		if (load_bytes(buffer, settings.link_header, quote, IP_HEADER + QUOTED_TCP))
			return -1;
		sum = checksum_difference(NULL, 0, quote, IP_HEADER + QUOTED_TCP, 0);
	} else {
		if (load_bytes(buffer, settings.link_header, quote, IP_HEADER + QUOTED_OTHER))
			return -1;
		sum = checksum_difference(NULL, 0, quote, IP_HEADER + QUOTED_OTHER, 0);
	}
	fill_error(packet, &headers, quoted, sum);
	if (change_tail(buffer, settings.link_header + quoted, 0) ||
	    adjust_room(buffer, sizeof headers, ROOM_BEHIND_ETHERNET, 0) ||
	    store_bytes(buffer, settings.link_header, &headers, sizeof headers, 0) || swap_ethernet(buffer))
		return -1;
	/* The sender of one that leaves is behind this node: the error comes in as if from outside. */
	if (settings.is_leaving) {
		set_mark(buffer, 0);
		return redirect(buffer->ifindex, REDIRECT_IN);
	}
	/* Its way out is not asked about it. */
	set_mark(buffer, MARK_BYPASS);
	return redirect(buffer->ifindex, 0);
}

#endif
