/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * From bytes to a tuple. Options of IPv4 and up to eight extension headers of IPv6 are passed over. Ports are in the first
 * fragment only; `fragments.h` has those of the others.
 *
 * A packet whose headers cannot be read in full is dropped, never taken for one without ports.
 */
#ifndef PARSE_H
#define PARSE_H

#include "packet.h"
#include "counters.h"

#define MOST_EXTENSIONS 8

struct ipv4_header {
	u8 version_length;
	u8 service;
	be16 total_length;
	be16 id;
	be16 fragment;
	u8 ttl;
	u8 protocol;
	u16 checksum;
	be32 source;
	be32 destination;
};
ASSERT_SIZE(struct ipv4_header, 20);
#define IPV4_MORE 0x2000
#define IPV4_OFFSET 0x1fff

struct ipv6_header {
	be32 version;
	be16 payload_length;
	u8 next;
	u8 hop_limit;
	be32 source[4];
	be32 destination[4];
};
ASSERT_SIZE(struct ipv6_header, 40);

/* The beginning of every extension header; the fragment's is 8 bytes of this. */
struct extension {
	u8 next;
	u8 length;
	be16 fragment; /* of a fragment header: offset in units of 8 bytes, 2 bits, more */
	be32 id;
};
ASSERT_SIZE(struct extension, 8);
#define IPV6_MORE 0x0001
#define IPV6_OFFSET 0xfff8

enum extension_type {
	EXTENSION_HOP_BY_HOP = 0,
	EXTENSION_ROUTING = 43,
	EXTENSION_FRAGMENT = 44,
	EXTENSION_AUTHENTICATION = 51,
	EXTENSION_DESTINATION = 60,
	EXTENSION_MOBILITY = 135,
};

struct tcp_header {
	be16 source;
	be16 destination;
	be32 sequence;
	be32 acknowledgement;
	u8 offset;
	u8 flags;
	be16 window;
	u16 checksum;
	u16 urgent;
};
ASSERT_SIZE(struct tcp_header, 20);

struct headers {
	u32 transport; /* where the header behind IP begins */
	be32 fragment_id;
	u32 is_first_fragment;
	u32 is_awaited; /* others have come before it */
};

/* The IP header(s) at an offset. Answers 0, or why the packet is dropped. */
INLINE int parse_network(BUFFER *buffer, u32 offset, struct tuple *tuple, struct headers *headers)
{
	headers->fragment_id = 0;
	headers->is_first_fragment = 0;
	tuple->is_later_fragment = 0;
#if FAMILY == 4
	struct ipv4_header ip;
	if (load_bytes(buffer, offset, &ip, sizeof ip))
		return REASON_SHORT;
	u32 length = (ip.version_length & 0xf) * 4;
	if ((ip.version_length >> 4) != 4 || length < sizeof ip || HOST16(ip.total_length) < length)
		return REASON_MALFORMED;
	tuple->source.words[0] = ip.source;
	tuple->destination.words[0] = ip.destination;
	tuple->protocol = ip.protocol;
	u16 fragment = HOST16(ip.fragment);
	if (fragment & IPV4_OFFSET)
		tuple->is_later_fragment = 1;
	else if (fragment & IPV4_MORE)
		headers->is_first_fragment = 1;
	headers->fragment_id = ip.id;
	headers->transport = offset + length;
	return 0;
#else
	struct ipv6_header ip;
	if (load_bytes(buffer, offset, &ip, sizeof ip))
		return REASON_SHORT;
	if ((HOST32(ip.version) >> 28) != 6)
		return REASON_MALFORMED;
	__builtin_memcpy(&tuple->source, ip.source, sizeof tuple->source);
	__builtin_memcpy(&tuple->destination, ip.destination, sizeof tuple->destination);
	u8 next = ip.next;
	offset += sizeof ip;
	/* As a loop it may end up with its end in front of its beginning, and kernels up to 6.1 refuse that. */
#pragma clang loop unroll(full)
	for (int i = 0; i <= MOST_EXTENSIONS; i++) {
		int is_extension = next == EXTENSION_HOP_BY_HOP || next == EXTENSION_ROUTING || next == EXTENSION_FRAGMENT ||
				   next == EXTENSION_AUTHENTICATION || next == EXTENSION_DESTINATION ||
				   next == EXTENSION_MOBILITY;
		if (!is_extension) {
			tuple->protocol = next;
			headers->transport = offset;
			return 0;
		}
		struct extension extension;
		if (i == MOST_EXTENSIONS)
			return REASON_MALFORMED;
		if (load_bytes(buffer, offset, &extension, sizeof extension))
			return REASON_SHORT;
		if (next == EXTENSION_FRAGMENT) {
			u16 fragment = HOST16(extension.fragment);
			headers->fragment_id = extension.id;
			offset += sizeof extension;
			if (fragment & IPV6_OFFSET) {
				/* What follows is data, whatever its first byte looks like. */
				tuple->is_later_fragment = 1;
				tuple->protocol = extension.next;
				headers->transport = offset;
				return 0;
			}
			if (fragment & IPV6_MORE)
				headers->is_first_fragment = 1;
		} else if (next == EXTENSION_AUTHENTICATION) {
			offset += (extension.length + 2) * 4;
		} else {
			offset += (extension.length + 1) * 8;
		}
		next = extension.next;
	}
	return REASON_MALFORMED;
#endif
}

/* The header behind IP. Answers 0, or why the packet is dropped. */
INLINE int parse_transport(BUFFER *buffer, u32 offset, struct tuple *tuple)
{
	tuple->source_port = 0;
	tuple->destination_port = 0;
	tuple->tcp_flags = 0;
	tuple->sequence = 0;
	tuple->acknowledgement = 0;
	switch (tuple->protocol) {
	case PROTOCOL_TCP: {
		struct tcp_header tcp;
		if (load_bytes(buffer, offset, &tcp, sizeof tcp))
			return REASON_SHORT;
		tuple->source_port = tcp.source;
		tuple->destination_port = tcp.destination;
		tuple->tcp_flags = tcp.flags;
		tuple->sequence = tcp.sequence;
		tuple->acknowledgement = tcp.acknowledgement;
		return 0;
	}
	case PROTOCOL_UDP:
	case PROTOCOL_SCTP: {
		be16 ports[4];
		if (load_bytes(buffer, offset, ports, sizeof ports))
			return REASON_SHORT;
		tuple->source_port = ports[0];
		tuple->destination_port = ports[1];
		return 0;
	}
	case OWN_ICMP: {
		be16 words[4];
		if (load_bytes(buffer, offset, words, sizeof words))
			return REASON_SHORT;
		tuple->destination_port = words[0];
		return 0;
	}
	}
	return 0;
}

INLINE u8 icmp_type(const struct tuple *tuple)
{
	return HOST16(tuple->destination_port) >> 8;
}

INLINE int is_icmp_error(const struct tuple *tuple)
{
	u8 type = icmp_type(tuple);
	if (tuple->protocol != OWN_ICMP || tuple->is_later_fragment)
		return 0;
#if FAMILY == 4
	return type == 3 || type == 4 || type == 5 || type == 11 || type == 12;
#else
	return type >= 1 && type <= 4;
#endif
}

/* Who is where on this wire: without it nothing else works, so policy has no say. */
INLINE int is_discovery(const struct tuple *tuple)
{
#if FAMILY == 4
	return 0;
#else
	u8 type = icmp_type(tuple);
	return tuple->protocol == OWN_ICMP && ((type >= 130 && type <= 133) || type == 135 || type == 136);
#endif
}

#endif
