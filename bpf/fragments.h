/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Ports of fragments: the first one leaves them for those that follow it; one that comes before it is dropped. */
#ifndef FRAGMENTS_H
#define FRAGMENTS_H

#include "packet.h"
#include "counters.h"
#include "parse.h"

struct fragment_key {
	struct address source;
	struct address destination;
	be32 id;
	u32 ifindex;
	u32 protocol;
};

struct fragment_ports {
	be16 source;
	be16 destination;
};

MAP(cali_fragments, MAP_LRU_HASH, struct fragment_key, struct fragment_ports, 10000, 0);

/* Ports of later fragments from those that the first one left. */
INLINE int parse_fragment(struct __sk_buff *buffer, struct tuple *tuple, struct headers *headers)
{
	struct fragment_key key = {
		.source = tuple->source,
		.destination = tuple->destination,
		.id = headers->fragment_id,
		.ifindex = buffer->ifindex,
		.protocol = tuple->protocol,
	};
	if (headers->is_first_fragment) {
		struct fragment_ports ports = {tuple->source_port, tuple->destination_port};
		return map_update(&cali_fragments, &key, &ports, 0) ? REASON_FRAGMENT : 0;
	}
	struct fragment_ports *ports = map_lookup(&cali_fragments, &key);
	if (!ports)
		return REASON_FRAGMENT;
	tuple->source_port = ports->source;
	tuple->destination_port = ports->destination;
	return 0;
}

INLINE int parse(struct __sk_buff *buffer, struct tuple *tuple, struct headers *headers)
{
	int reason = parse_network(buffer, settings.link_header, tuple, headers);
	if (reason)
		return reason;
	if (tuple->is_later_fragment) {
		tuple->tcp_flags = 0;
		tuple->sequence = 0;
		tuple->acknowledgement = 0;
		return parse_fragment(buffer, tuple, headers);
	}
	reason = parse_transport(buffer, headers->transport, tuple);
	if (reason || !headers->is_first_fragment)
		return reason;
	return parse_fragment(buffer, tuple, headers);
}

#endif
