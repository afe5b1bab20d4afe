/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Connections that are known, in the bytes that Calico's programs and tools use: either can go on with what the other left.
 * remember.h makes them.
 *
 * Each end's policy approves its own leg: the program that a packet comes in by the source's, the one that it leaves by the
 * destination's. A packet of a flow passes without policy where its leg is approved.
 *
 * A flow with NAT has its state under the addresses behind NAT, and a stub under those in front of it. Destinations change where
 * the first side's packets come in, and change back where answers leave to it: in between, all that the host's stack sees is
 * behind NAT.
 */
#ifndef CONNTRACK_H
#define CONNTRACK_H

#include "packet.h"
#include "parse.h"
#include "direct.h"

enum leg_bits {
	LEG_SYN = 1 << 0,
	LEG_ACK = 1 << 1,
	LEG_FIN = 1 << 2,
	LEG_RST = 1 << 3,
	LEG_APPROVED = 1 << 4,
	LEG_OPENER = 1 << 5,
	LEG_WORKLOAD = 1 << 6,
};

struct leg {
	u64 bytes;
	u32 packets;
	be32 sequence; /* of the SYN */
	u32 bits;      /* enum leg_bits */
	u32 ifindex;   /* by which packets came in; 0: from the host itself, or not known */
};
ASSERT_SIZE(struct leg, 24);

enum connection_type {
	TYPE_NORMAL = 0,
	TYPE_NAT_FORWARD = 1,
	TYPE_NAT_REVERSE = 2,
};

enum entry_flag {
	ENTRY_NAT_OUTGOING = 0x1,
	ENTRY_ANSWERED_ELSEWHERE = 0x2, /* by the backend's node: packets of one side only come here */
	ENTRY_FORWARDED = 0x4,          /* to the backend's node, in envelopes: nothing changes here */
	ENTRY_SKIP_FIB = 0x8,
	ENTRY_DIRECT = 0x20, /* between two workloads of this node, and Linux does not track it; Calico's programs ignore it */
	ENTRY_EXTERNAL_LOCAL = 0x40,
	ENTRY_VIA_SERVICES = 0x80,
	ENTRY_SOURCE_IS_B = 0x100,
	ENTRY_HOST_PORT_CHANGED = 0x200,
	ENTRY_MASQUERADE = 0x400,
	ENTRY_NODE_PORT_LOOP = 0x800,
	ENTRY_NODE_PORT_REMOTE = 0x1000,
	ENTRY_ANSWERS_BACK = 0x2000, /* its client does not take answers from another node */
	ENTRY_SKIP_PEER = 0x4000,
	ENTRY_MAGLEV = 0x10000, /* its backend follows from its addresses: any node can go on with it, policy permitting */
	ENTRY_GONE = 0x20000,
	ENTRY_LIMIT_TO = 0x40000,      /* counted as a connection to its workload */
	ENTRY_LIMIT_REFUSED = 0x80000, /* one too many */
	ENTRY_LIMIT_FROM = 0x100000,   /* counted as one from its workload */
	ENTRY_LIMIT_ENDED = 0x200000,  /* counted no more */
	/* The host itself is the first side: answers change back where they come in. */
	ENTRY_OF_HOST = ENTRY_VIA_SERVICES | ENTRY_HOST_PORT_CHANGED | ENTRY_NODE_PORT_LOOP | ENTRY_NODE_PORT_REMOTE,
};

struct connection_value {
	u64 rst_seen;
	u64 last_seen;
	u8 type;
	u8 flags; /* bits 0-7 */
	u8 flags3;
	u8 flags4;
	u8 zero[3];
	u8 flags2; /* bits 8-15 */
	union {
		struct {
			struct leg a_to_b;
			struct leg b_to_a;
			struct address tunnel;
			struct address original;
			u16 original_port;
			u16 original_source_port;
			struct address original_source;
		};
		struct {
			struct connection_key reverse;
			u16 nat_source_port;
		};
	};
};

#if FAMILY == 4
ASSERT_SIZE(struct connection_key, 16);
ASSERT_SIZE(struct connection_value, 88);
#else
ASSERT_SIZE(struct connection_key, 40);
ASSERT_SIZE(struct connection_value, 128);
#endif

MAP(NAME(ct4), MAP_LRU_HASH, struct connection_key, struct connection_value, 512000, 0);
#define CONNECTIONS (&NAME(ct4))

/* A RST that is followed by this much more traffic was none of the connection's. */
#define RST_FORGOTTEN (120ull * 1000000000ull)

/* Fills the key; answers whether the source is the end A. */
INLINE int connection_key(struct connection_key *key, u8 protocol, const struct ends *ends)
{
	u16 source_port = HOST16(ends->source_port);
	u16 destination_port = HOST16(ends->destination_port);
	int order = 0;
	if (protocol == OWN_ICMP)
		source_port = destination_port = 0;
	for (int i = WORDS - 1; i >= 0; i--) {
		if (ends->source.words[i] != ends->destination.words[i])
			order = ends->source.words[i] < ends->destination.words[i] ? -1 : 1;
	}
	if (!order)
		order = source_port < destination_port ? -1 : 1;
	key->protocol = protocol;
	if (order < 0) {
		key->a = ends->source;
		key->b = ends->destination;
		key->port_a = source_port;
		key->port_b = destination_port;
		return 1;
	}
	key->a = ends->destination;
	key->b = ends->source;
	key->port_a = destination_port;
	key->port_b = source_port;
	return 0;
}

INLINE int has_state(const struct connection_value *value)
{
	return value && (value->type == TYPE_NORMAL || value->type == TYPE_NAT_REVERSE);
}

INLINE u32 flags_of(const struct connection_value *value)
{
	return value->flags | (u32)value->flags2 << 8 | (u32)value->flags3 << 16;
}

/* How a flow was found. */
struct found {
	struct connection_value *value; /* the entry that has its state, or none */
	int is_a_to_b;                  /* the packet's direction in it */
	int by_stub;                    /* the packet has the addresses in front of NAT */
};

/* The keys go to `packet`: of the entry with the state, and of the stub. */
INLINE struct found find_connection(struct packet *packet, u8 protocol, const struct ends *ends)
{
	struct found found = {};
	found.is_a_to_b = connection_key(&packet->key, protocol, ends);
	struct connection_value *value = map_lookup(CONNECTIONS, &packet->key);
	if (has_state(value))
		found.value = value;
	if (!value || value->type != TYPE_NAT_FORWARD)
		return found;
	packet->stub = packet->key;
	packet->key = value->reverse;
	struct connection_value *tracking = map_lookup(CONNECTIONS, &packet->key);
	if (!tracking || tracking->type != TYPE_NAT_REVERSE) {
		/* The entry with the state was forgotten: what is left is of no use. */
		map_delete(CONNECTIONS, &packet->stub);
		return found;
	}
	found.value = tracking;
	found.by_stub = 1;
	found.is_a_to_b = !(flags_of(tracking) & ENTRY_SOURCE_IS_B);
	return found;
}

/* What a packet of the first side becomes: the ends of the key. */
INLINE void behind_nat(struct ends *target, const struct connection_key *key, u32 flags)
{
	if (flags & ENTRY_SOURCE_IS_B) {
		target->source = key->b;
		target->source_port = NETWORK16(key->port_b);
		target->destination = key->a;
		target->destination_port = NETWORK16(key->port_a);
	} else {
		target->source = key->a;
		target->source_port = NETWORK16(key->port_a);
		target->destination = key->b;
		target->destination_port = NETWORK16(key->port_b);
	}
}

/* What an answer to it becomes. */
INLINE void in_front_of_nat(struct ends *target, const struct connection_value *value)
{
	target->source = value->original;
	target->source_port = NETWORK16(value->original_port);
	target->destination = value->original_source;
	target->destination_port = NETWORK16(value->original_source_port);
}

/* Whether a packet with the addresses in front of NAT is the first side's. A key has no direction: the service's own address may
 * be that of a host which sends something else by it. */
INLINE int is_first_side(const struct connection_value *value, const struct ends *ends)
{
	return address_equal(&ends->source, &value->original_source) &&
	       HOST16(ends->source_port) == value->original_source_port;
}

/* Whether packets of a direction change here. */
INLINE int changes_here(const struct found *found, int is_answer)
{
	if (found->value->type != TYPE_NAT_REVERSE)
		return 0;
	if (found->by_stub)
		return is_source_side();
	return is_answer && (settings.is_leaving || (flags_of(found->value) & ENTRY_OF_HOST));
}

/* Only what changes is written: most packets of a flow leave the line as it is in other processors' caches. */
INLINE void add_bits(struct leg *leg, u32 bits)
{
	if ((leg->bits & bits) != bits)
		leg->bits |= bits;
}

INLINE void track_tcp(struct connection_value *value, struct leg *own, struct leg *other, const struct tuple *tuple, u64 now)
{
	u8 flags = tuple->tcp_flags;
	if (flags & TCP_RST) {
		add_bits(own, LEG_RST);
		value->rst_seen = now;
	} else if (value->rst_seen && now - value->rst_seen > RST_FORGOTTEN) {
		value->rst_seen = 0;
		own->bits &= ~LEG_RST;
		other->bits &= ~LEG_RST;
	}
	if (flags & TCP_FIN)
		add_bits(own, LEG_FIN);
	/* An acknowledgement of the other side's SYN. */
	int answers = (flags & TCP_ACK) && (other->bits & LEG_SYN) &&
		      tuple->acknowledgement == NETWORK32(HOST32(other->sequence) + 1);
	if ((flags & (TCP_SYN | TCP_ACK)) == (TCP_SYN | TCP_ACK)) {
		if (answers) {
			own->sequence = tuple->sequence;
			add_bits(own, LEG_SYN | LEG_ACK);
		}
	} else if (answers && (own->bits & (LEG_SYN | LEG_ACK)) == LEG_SYN) {
		add_bits(own, LEG_ACK);
	}
}

/* A SYN on an entry that both sides have closed opens another connection. */
INLINE int is_closed(const struct connection_value *value)
{
	return (value->a_to_b.bits & (LEG_FIN | LEG_RST)) && (value->b_to_a.bits & (LEG_FIN | LEG_RST));
}

/* Counted where it is seen first. What comes out of a tunnel was seen in its envelope; a flow whose source is hidden later
 * has an entry of its own on either side of that. */
INLINE void count_packet(struct __sk_buff *buffer, struct leg *leg, u32 flags)
{
	if (is_seen(buffer) && !(options.kind == KIND_TUNNEL && !settings.is_leaving) && !(flags & ENTRY_NAT_OUTGOING))
		return;
	leg->packets++;
	leg->bytes += buffer->len;
}

/* Packets of a flow come from the node that its first one came from. Another one can only go on with a flow of Maglev's. */
INLINE void check_envelope(struct packet *packet, struct connection_value *value, u32 flags)
{
	if (address_equal(&packet->tunnel, &value->tunnel))
		return;
	if (flags & ENTRY_MAGLEV && !(flags & ENTRY_FORWARDED))
		value->tunnel = packet->tunnel;
	else if (!is_zero(&value->tunnel))
		packet->flags |= PACKET_MISLED;
}

/* Whether a packet of a flow with NAT goes on in an envelope: a request to the backend's node, or an answer to the one that the
 * client asked. On a device without Ethernet headers there are none, and an answer leaves by itself. */
INLINE int goes_in_envelope(const struct connection_value *value, u32 flags, int is_request)
{
	if (!settings.link_header || is_zero(&value->tunnel))
		return 0;
	if (is_request)
		return (flags & ENTRY_FORWARDED) != 0;
	return !(flags & ENTRY_FORWARDED) && (!options.answers_directly || flags & ENTRY_ANSWERS_BACK);
}

/* Needs entries, and is needed by what follows. */
#include "limits.h"

/* The entry of a connection that only workloads and direct.h know, made again after the map forgot it: both ends' policy allowed it
 * when it began. By which devices its packets come in is found out, and checked, with the next one from each side. */
INLINE struct connection_value *recall_direct(const struct connection_key *key)
{
	struct direct *kept = map_lookup(DIRECT, key);
	if (!kept || (kept->bits & DIRECT_APPROVED) != DIRECT_APPROVED)
		return NULL;
	struct connection_value fresh;
	__builtin_memset(&fresh, 0, sizeof fresh);
	fresh.last_seen = time_ns();
	fresh.flags = ENTRY_DIRECT;
	fresh.flags3 = kept->bits >> DIRECT_FLAGS3;
	fresh.a_to_b.bits = fresh.b_to_a.bits = LEG_SYN | LEG_ACK | LEG_APPROVED | LEG_WORKLOAD;
	if (kept->bits & DIRECT_OPENED_BY_B) {
		fresh.flags2 = ENTRY_SOURCE_IS_B >> 8;
		fresh.b_to_a.bits |= LEG_OPENER;
	} else {
		fresh.a_to_b.bits |= LEG_OPENER;
	}
	kept->bits |= DIRECT_ESTABLISHED;
	/* Another processor may be first. */
	map_update(CONNECTIONS, key, &fresh, NO_EXIST);
	struct connection_value *value = map_lookup(CONNECTIONS, key);
	return has_state(value) ? value : NULL;
}

/* What direct.h has to know of a packet that added bits to its leg. */
INLINE void follow_direct(const struct packet *packet, const struct connection_value *value, const struct leg *own, u32 added)
{
	/* Over: nobody needs to know it if its entry is forgotten. */
	if (added & LEG_RST || (added & LEG_FIN && is_closed(value)))
		map_delete(DIRECT, &packet->key);
	/* The third packet: the first side's answer to the answer. */
	else if (added & LEG_ACK && own->bits & LEG_OPENER)
		mark_direct(&packet->key, DIRECT_ESTABLISHED);
}

/* Finds the packet's flow, and what it becomes by it. `leg` gets that of the packet's direction if its path must be checked. */
INLINE enum connection track(struct __sk_buff *buffer, struct packet *packet, const struct tuple *tuple, struct leg **leg)
{
	struct found found = find_connection(packet, tuple->protocol, &packet->wire);
	struct connection_value *value = found.value;
	if (value && found.by_stub && !is_first_side(value, &packet->wire)) {
		/* An answer that the backend's node has changed back. */
		if (packet->flags & PACKET_UNWRAPPED && flags_of(value) & ENTRY_FORWARDED) {
			found.is_a_to_b = !found.is_a_to_b;
			packet->flags |= PACKET_RETURNS;
		} else {
			value = NULL;
		}
	}
	/* A later fragment has no flags, and opens nothing. */
	int is_tcp = tuple->protocol == PROTOCOL_TCP;
	if (!value) {
		if (!is_tcp || is_opening(tuple))
			return CONNECTION_NEW;
		if (settings.is_leaving && (buffer->mark & MARK_LINUX_ESTABLISHED))
			return CONNECTION_KNOWN;
		if (settings.is_workload) {
			found.is_a_to_b = connection_key(&packet->key, tuple->protocol, &packet->wire);
			found.by_stub = 0;
			found.value = value = recall_direct(&packet->key);
		}
		if (!value)
			return CONNECTION_MIDDLE;
	}
	if (is_opening(tuple) && is_closed(value)) {
		map_delete(CONNECTIONS, &packet->key);
		if (found.by_stub)
			map_delete(CONNECTIONS, &packet->stub);
		return CONNECTION_NEW;
	}
	struct leg *own = found.is_a_to_b ? &value->a_to_b : &value->b_to_a;
	struct leg *other = found.is_a_to_b ? &value->b_to_a : &value->a_to_b;
	u32 flags = flags_of(value);
	packet->entry_flags = flags;
	packet->flags |= PACKET_KNOWN;
	if (packet->flags & PACKET_UNWRAPPED)
		check_envelope(packet, value, flags);
	else
		packet->tunnel = value->tunnel;
	if (packet->flags & PACKET_RETURNS) {
		/* As it is. */
	} else if (changes_here(&found, !(own->bits & LEG_OPENER))) {
		if (found.by_stub)
			behind_nat(&packet->target, &packet->key, flags);
		else
			in_front_of_nat(&packet->target, value);
		packet->flags |= PACKET_NAT;
		if (goes_in_envelope(value, flags, found.by_stub))
			packet->flags |= PACKET_WRAP;
	} else if (value->type == TYPE_NAT_REVERSE && !(own->bits & LEG_OPENER)) {
		packet->flags |= PACKET_ANSWER;
	}
	u32 approved = is_source_side() ? own->bits : other->bits;
	if (!(approved & LEG_APPROVED))
		return is_tcp && !is_opening(tuple) && !(flags & ENTRY_MAGLEV) ? CONNECTION_INVALID : CONNECTION_NEW;
	/* The SYN meets policy each time: it may have changed since the last one. */
	if (is_tcp && is_opening(tuple))
		return CONNECTION_NEW;
	if (is_tcp && !settings.is_leaving && flags & ENTRY_GONE)
		return CONNECTION_GONE;

	u64 now = time_ns();
	value->last_seen = now;
	if (is_tcp && !tuple->is_later_fragment) {
		u32 before = own->bits;
		track_tcp(value, own, other, tuple, now);
		if (flags & ENTRY_DIRECT)
			follow_direct(packet, value, own, own->bits & ~before);
	}
	if (options.has_limits && is_tcp)
		end_connection(buffer, value, own, flags);
	if (!settings.is_leaving && own->ifindex != buffer->ifindex)
		*leg = own;
	count_packet(buffer, own, flags);
	if (other->bits & LEG_WORKLOAD)
		packet->peer = other->ifindex;
	return (own->bits & other->bits & LEG_APPROVED) ? CONNECTION_CONFIRMED : CONNECTION_KNOWN;
}

/* Whether an ICMP error is about a flow that passes here, and goes to the one who sent the packet that it is about. What
 * becomes of that packet's addresses is in `wire` and `target` afterwards. */
INLINE enum connection track_related(struct __sk_buff *buffer, struct packet *packet, struct tuple *tuple, u32 offset)
{
	struct tuple inner = {};
	struct headers headers;
	if (parse_network(buffer, offset, &inner, &headers) || inner.is_later_fragment)
		return CONNECTION_INVALID;
	/* Old routers send no more than 8 bytes of it: enough for ports. */
	if (inner.protocol == PROTOCOL_TCP || inner.protocol == PROTOCOL_UDP || inner.protocol == PROTOCOL_SCTP) {
		be16 ports[4];
		if (load_bytes(buffer, headers.transport, ports, sizeof ports))
			return CONNECTION_INVALID;
		inner.source_port = ports[0];
		inner.destination_port = ports[1];
	}
	if (!address_equal(&tuple->destination, &inner.source))
		return CONNECTION_INVALID;
	wire_of(&packet->wire, &inner);
	packet->target = packet->wire;
	struct found found = find_connection(packet, inner.protocol, &packet->wire);
	struct connection_value *value = found.value;
	if (!value || !((value->a_to_b.bits | value->b_to_a.bits) & LEG_APPROVED))
		return CONNECTION_INVALID;
	struct leg *own = found.is_a_to_b ? &value->a_to_b : &value->b_to_a;
	/* The error goes against the packet that it is about. A stub says nothing of a direction: the one that the error is
	 * about has the service's address as its source, or it was never changed. */
	int is_answer = found.by_stub ? !address_equal(&inner.destination, &value->original)
				      : (own->bits & LEG_OPENER) != 0;
	u32 flags = flags_of(value);
	packet->entry_flags = flags;
	if (packet->flags & PACKET_UNWRAPPED && !address_equal(&packet->tunnel, &value->tunnel))
		return CONNECTION_INVALID;
	if (flags & ENTRY_FORWARDED) {
		/* The other node knows more. */
		packet->flags |= packet->flags & PACKET_UNWRAPPED ? PACKET_RETURNS : PACKET_WRAP;
		packet->tunnel = value->tunnel;
		return CONNECTION_RELATED;
	}
	if (is_answer && changes_here(&found, is_answer)) {
		if (found.by_stub) {
			struct ends turned;
			behind_nat(&turned, &packet->key, flags);
			packet->target.source = turned.destination;
			packet->target.source_port = turned.destination_port;
			packet->target.destination = turned.source;
			packet->target.destination_port = turned.source_port;
		} else {
			packet->target.source = value->original_source;
			packet->target.source_port = NETWORK16(value->original_source_port);
			packet->target.destination = value->original;
			packet->target.destination_port = NETWORK16(value->original_port);
		}
		packet->flags |= PACKET_NAT | PACKET_INNER;
	}
	return CONNECTION_RELATED;
}

#endif
