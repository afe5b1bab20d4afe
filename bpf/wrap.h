/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Envelopes of clients' packets to services, as Calico's programs make and open them: VXLAN with a network of its own, between the
 * addresses of two nodes, around the packet as the client sent it. The backend's node opens it, and changes the destination
 * itself; what it answers comes back the same way, changed already.
 *
 * A packet that would not fit into the wire is refused, and its sender told how much does.
 */
#ifndef WRAP_H
#define WRAP_H

#include "packet.h"
#include "conntrack.h"
#include "errors.h"
#include "forward.h"
#include "translate.h"
#include "tunnels.h"

struct wrap_headers {
#if FAMILY == 4
	struct ipv4_header ip;
#else
	struct ipv6_header ip;
#endif
	be16 source_port;
	be16 destination_port;
	be16 length;
	u16 checksum;
	be32 flags;
	be32 network;
	u8 addresses[12];
	be16 type;
} __attribute__((packed));
ASSERT_SIZE(struct wrap_headers, IP_HEADER + 30);
#define WRAP_SIZE (IP_HEADER + 30)

/* This node, as others know it. */
struct node {
	struct address address; /* 0: not known, and there are no envelopes */
	u32 room;               /* for a packet in an envelope */
};

MAP(POLICY_NAME(node), MAP_ARRAY, u32, struct node, 1, 0);

INLINE const struct node *this_node(void)
{
	u32 zero = 0;
	const struct node *node = map_lookup(&POLICY_NAME(node), &zero);
	return node && !is_zero(&node->address) ? node : NULL;
}

/* The size of one packet on the wire. TCP's parts are made smaller with the envelope. */
INLINE u32 length_of(const struct __sk_buff *buffer, const struct packet *packet)
{
	u32 headers = packet->transport - settings.link_header;
	if (!buffer->gso_size)
		return buffer->len - settings.link_header;
	return packet->tuple.protocol == PROTOCOL_TCP ? 0 : headers + 8 + buffer->gso_size;
}

/* Tells the sender. Answers the verdict. */
FUNCTION int refuse_size(struct __sk_buff *buffer, u32 room)
{
	struct packet *packet = this_packet();
	if (!packet)
		return TC_DROP;
	packet->error = ERROR_TOO_BIG;
	packet->error_rest = NETWORK32(room);
	int verdict = send_error(buffer, packet);
	return verdict == TC_REDIRECT ? verdict : TC_DROP;
}

INLINE void fill_wrap(struct wrap_headers *headers, const struct ends *ends, u32 length)
{
	__builtin_memset(headers, 0, sizeof *headers);
#if FAMILY == 4
	headers->ip.version_length = 0x45;
	headers->ip.total_length = NETWORK16(length + WRAP_SIZE);
	headers->ip.fragment = NETWORK16(0x4000); /* whole, or not at all */
	headers->ip.ttl = 64;
	headers->ip.protocol = PROTOCOL_UDP;
	headers->ip.source = ends->source.words[0];
	headers->ip.destination = ends->destination.words[0];
	headers->ip.checksum = folded(checksum_difference(NULL, 0, &headers->ip, sizeof headers->ip, 0));
#else
	headers->ip.version = NETWORK32(0x60000000);
	headers->ip.payload_length = NETWORK16(length + WRAP_SIZE - IP_HEADER);
	headers->ip.next = PROTOCOL_UDP;
	headers->ip.hop_limit = 64;
	__builtin_memcpy(headers->ip.source, &ends->source, sizeof headers->ip.source);
	__builtin_memcpy(headers->ip.destination, &ends->destination, sizeof headers->ip.destination);
#endif
	headers->source_port = ends->source_port;
	headers->destination_port = ends->destination_port;
	headers->length = NETWORK16(length + WRAP_SIZE - IP_HEADER);
	headers->flags = NETWORK32(0x08000000);
	headers->network = NETWORK32(SERVICES_NETWORK << 8);
	headers->type = NETWORK16(OWN_ETHERNET);
}

/* Sends the packet to the node `tunnel`: changed first, if it is an answer. The verdict. */
FUNCTION int wrap(struct __sk_buff *buffer)
{
	struct packet *packet = this_packet();
	const struct node *node = this_node();
	if (!packet || !node)
		return TC_DROP;
	struct ends ends = {
		.source = node->address,
		.destination = packet->tunnel,
		/* Flows of one node to another take different ways by it. */
		.source_port = packet->wire.source_port ^ packet->wire.destination_port,
		.destination_port = NETWORK16(options.vxlan_port),
	};
	u32 room = node->room;
	if (room && length_of(buffer, packet) > room)
		return refuse_size(buffer, room);
	if (packet->flags & PACKET_NAT && !(packet->entry_flags & ENTRY_FORWARDED) && translate(buffer))
		return TC_DROP;
	if (take_hop(buffer, packet->network))
		return TC_DROP;
	u64 flags = ROOM_UDP | ROOM_ETHERNET(14) | (FAMILY == 4 ? ROOM_IPV4 : ROOM_IPV6);
	if (packet->tuple.protocol != PROTOCOL_TCP)
		flags |= ROOM_KEEPS_PARTS;
	u32 length = buffer->len - settings.link_header;
	if (adjust_room(buffer, WRAP_SIZE, ROOM_BEHIND_ETHERNET, flags))
		return TC_DROP;
	struct wrap_headers headers;
	fill_wrap(&headers, &ends, length);
	if (store_bytes(buffer, settings.link_header, &headers, sizeof headers, 0))
		return TC_DROP;
	set_mark(buffer, MARK_BYPASS_FORWARD);
	int verdict = to_neighbour_of(buffer, packet, &ends, PROTOCOL_UDP);
	return verdict == TC_REDIRECT ? verdict : TC_DROP;
}

/* Opens an envelope, whose node is in `tunnel`. 0, or it is broken. */
INLINE int unwrap(struct __sk_buff *buffer)
{
	be16 type;
	if (load_bytes(buffer, settings.link_header + WRAP_SIZE - sizeof type, &type, sizeof type) ||
	    type != NETWORK16(OWN_ETHERNET))
		return -1;
	return adjust_room(buffer, -WRAP_SIZE, ROOM_BEHIND_ETHERNET, ROOM_KEEPS_PARTS);
}

#endif
