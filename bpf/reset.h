/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * A RST in the place of a TCP packet, back by the interface that it came in by: its connection's workload is gone, which the sweep
 * of connections notes in the entry. A RST gets none.
 */
#ifndef RESET_H
#define RESET_H

#include "packet.h"
#include "parse.h"
#include "errors.h"

struct reset_headers {
#if FAMILY == 4
	struct ipv4_header ip;
#else
	struct ipv6_header ip;
#endif
	struct tcp_header tcp;
};
ASSERT_SIZE(struct reset_headers, IP_HEADER + 20);

INLINE void fill_reset(const struct packet *packet, struct reset_headers *headers)
{
	const struct tuple *tuple = &packet->tuple;
	const struct ends *wire = &packet->wire;
	__builtin_memset(headers, 0, sizeof *headers);
#if FAMILY == 4
	headers->ip.version_length = 0x45;
	headers->ip.total_length = NETWORK16(sizeof *headers);
	headers->ip.ttl = 64;
	headers->ip.protocol = PROTOCOL_TCP;
	headers->ip.source = wire->destination.words[0];
	headers->ip.destination = wire->source.words[0];
	headers->ip.checksum = folded(checksum_difference(NULL, 0, &headers->ip, sizeof headers->ip, 0));
#else
	headers->ip.version = NETWORK32(0x60000000);
	headers->ip.payload_length = NETWORK16(sizeof headers->tcp);
	headers->ip.next = PROTOCOL_TCP;
	headers->ip.hop_limit = 64;
	__builtin_memcpy(headers->ip.source, &wire->destination, sizeof headers->ip.source);
	__builtin_memcpy(headers->ip.destination, &wire->source, sizeof headers->ip.destination);
#endif
	headers->tcp.source = wire->destination_port;
	headers->tcp.destination = wire->source_port;
	headers->tcp.offset = 5 << 4;
	/* What the other side expects next makes it believe; one that expects nothing yet wants its own acknowledged. */
	if (tuple->tcp_flags & TCP_ACK) {
		headers->tcp.sequence = tuple->acknowledgement;
		headers->tcp.flags = TCP_RST;
	} else {
		headers->tcp.acknowledgement = NETWORK32(HOST32(tuple->sequence) + 1);
		headers->tcp.flags = TCP_RST | TCP_ACK;
	}
	be32 imagined[2] = {NETWORK32(sizeof headers->tcp), NETWORK32(PROTOCOL_TCP)};
	u32 sum = checksum_difference(NULL, 0, &wire->source, 2 * sizeof(struct address), 0);
	sum = checksum_difference(NULL, 0, imagined, sizeof imagined, sum);
	headers->tcp.checksum = folded(checksum_difference(NULL, 0, &headers->tcp, sizeof headers->tcp, sum));
}

/* Answers the verdict about the RST, or -1 where none can be made. */
INLINE int send_reset(struct __sk_buff *buffer, struct packet *packet)
{
	struct reset_headers headers;
	if (!settings.link_header || packet->tuple.tcp_flags & TCP_RST || packet->tuple.is_later_fragment)
		return -1;
	fill_reset(packet, &headers);
	if (change_tail(buffer, settings.link_header + sizeof headers, 0) ||
	    store_bytes(buffer, settings.link_header, &headers, sizeof headers, 0) || swap_ethernet(buffer))
		return -1;
	/* In the place of the workload that it would have gone to. */
	if (settings.is_leaving) {
		set_mark(buffer, 0);
		return redirect(buffer->ifindex, REDIRECT_IN);
	}
	set_mark(buffer, MARK_BYPASS);
	return redirect(buffer->ifindex, 0);
}

#endif
