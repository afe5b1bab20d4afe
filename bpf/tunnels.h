/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Envelopes between nodes. Those of nodes that know each other pass the host's interfaces whatever policy says: it judges what
 * is in them, on the tunnel's own interface. A workload sends none: on another node its envelope would look like this node's.
 */
#ifndef TUNNELS_H
#define TUNNELS_H

#include "packet.h"
#include "routes.h"
#include "counters.h"

/* The network of envelopes with clients' packets to services: Calico's. */
#define SERVICES_NETWORK 0xca11c0

enum envelope {
	ENVELOPE_NONE,
	ENVELOPE_PASSES,
	ENVELOPE_WRONG,
	ENVELOPE_OF_SERVICE, /* to be opened here */
};

/* Between this node and another one, in the packet's direction. */
INLINE int is_between_nodes(const struct tuple *tuple)
{
	if (settings.is_leaving)
		return is_this_host(&tuple->source) && is_other_host(&tuple->destination);
	return is_this_host(&tuple->destination) && is_other_host(&tuple->source);
}

INLINE enum envelope vxlan(struct __sk_buff *buffer, const struct tuple *tuple, u32 transport)
{
	if (settings.is_workload)
		return settings.is_leaving || options.allows_vxlan ? ENVELOPE_NONE : ENVELOPE_WRONG;
	if (!is_between_nodes(tuple))
		return ENVELOPE_NONE;
	if (settings.is_leaving)
		return ENVELOPE_PASSES;
	/* UDP, and behind it: flags, of which one says that there is a network, and the network in 24 bits. */
	be32 words[4];
	if (load_bytes(buffer, transport, words, sizeof words))
		return ENVELOPE_WRONG;
	if (!(HOST32(words[2]) & 0x08000000))
		return ENVELOPE_NONE;
	u32 network = HOST32(words[3]) >> 8;
	/* Programs send them without a checksum. */
	if (network == SERVICES_NETWORK)
		return HOST32(words[1]) & 0xffff || !settings.link_header ? ENVELOPE_WRONG : ENVELOPE_OF_SERVICE;
	return network == options.vxlan_network ? ENVELOPE_PASSES : ENVELOPE_NONE;
}

INLINE enum envelope envelope(struct __sk_buff *buffer, const struct tuple *tuple, u32 transport)
{
	if (options.kind != KIND_PLAIN || tuple->is_later_fragment)
		return ENVELOPE_NONE;
	if (FAMILY == 4 && tuple->protocol == PROTOCOL_IPIP) {
		if (settings.is_workload)
			return settings.is_leaving || options.allows_ipip ? ENVELOPE_NONE : ENVELOPE_WRONG;
		return is_between_nodes(tuple) ? ENVELOPE_PASSES : ENVELOPE_WRONG;
	}
	if (tuple->protocol != PROTOCOL_UDP)
		return ENVELOPE_NONE;
	u32 port = HOST16(tuple->destination_port);
	if (options.vxlan_port && port == options.vxlan_port)
		return vxlan(buffer, tuple, transport);
	if (options.wireguard_port && port == options.wireguard_port && !settings.is_workload &&
	    is_between_nodes(tuple))
		return ENVELOPE_PASSES;
	return ENVELOPE_NONE;
}

#endif
