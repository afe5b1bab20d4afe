/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Connections, in the bytes that Calico's programs and tools use: either can go on with what the other left.
 *
 * Each end's policy approves its own leg: the program that a packet comes in by the source's, the one that it leaves by the
 * destination's. A packet of a flow passes without policy where its leg is approved. Entries with NAT are not written here yet;
 * those of others are followed as far as the tracking goes.
 */
#ifndef CONNTRACK_H
#define CONNTRACK_H

#include "packet.h"
#include "parse.h"

struct connection_key {
	u32 protocol;
	struct address a; /* the end whose address, as words of this processor, is lower; or else whose port is */
	struct address b;
	u16 port_a; /* as the processor has them */
	u16 port_b;
};

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

/* The bits 8-15 of the flags: the source of the first packet is the end B. */
#define FLAGS2_SOURCE_IS_B 0x01

struct connection_value {
	u64 rst_seen;
	u64 last_seen;
	u8 type;
	u8 flags; /* bits 0-7 */
	u8 flags3;
	u8 flags4;
	u8 zero[3];
	u8 flags2;
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
INLINE int connection_key(struct connection_key *key, const struct tuple *tuple)
{
	u16 source_port = HOST16(tuple->source_port);
	u16 destination_port = HOST16(tuple->destination_port);
	int order = 0;
	if (tuple->protocol == OWN_ICMP)
		source_port = destination_port = 0;
	for (int i = WORDS - 1; i >= 0; i--) {
		if (tuple->source.words[i] != tuple->destination.words[i])
			order = tuple->source.words[i] < tuple->destination.words[i] ? -1 : 1;
	}
	if (!order)
		order = source_port < destination_port ? -1 : 1;
	key->protocol = tuple->protocol;
	if (order < 0) {
		key->a = tuple->source;
		key->b = tuple->destination;
		key->port_a = source_port;
		key->port_b = destination_port;
		return 1;
	}
	key->a = tuple->destination;
	key->b = tuple->source;
	key->port_a = destination_port;
	key->port_b = source_port;
	return 0;
}

/* The entry that has the state of a flow, and whether the packet goes from A to B there. */
INLINE struct connection_value *find_connection(const struct tuple *tuple, int *is_a_to_b)
{
	struct connection_key key;
	*is_a_to_b = connection_key(&key, tuple);
	struct connection_value *value = map_lookup(CONNECTIONS, &key);
	if (!value || value->type != TYPE_NAT_FORWARD)
		return value;
	struct connection_key reverse = value->reverse;
	struct connection_value *tracking = map_lookup(CONNECTIONS, &reverse);
	if (!tracking) {
		/* The entry with the state was forgotten: what is left is of no use. */
		map_delete(CONNECTIONS, &key);
		return NULL;
	}
	*is_a_to_b = !(tracking->flags2 & FLAGS2_SOURCE_IS_B);
	return tracking;
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

INLINE enum connection track(struct __sk_buff *buffer, const struct tuple *tuple)
{
	int is_a_to_b;
	struct connection_value *value = find_connection(tuple, &is_a_to_b);
	/* A later fragment has no flags, and opens nothing. */
	int is_tcp = tuple->protocol == PROTOCOL_TCP;
	if (!value || (value->type != TYPE_NORMAL && value->type != TYPE_NAT_REVERSE)) {
		if (!is_tcp || is_opening(tuple))
			return CONNECTION_NEW;
		if (settings.is_leaving && (buffer->mark & MARK_LINUX_ESTABLISHED))
			return CONNECTION_KNOWN;
		return CONNECTION_MIDDLE;
	}
	if (is_opening(tuple) && is_closed(value))
		return CONNECTION_NEW;
	struct leg *own = is_a_to_b ? &value->a_to_b : &value->b_to_a;
	struct leg *other = is_a_to_b ? &value->b_to_a : &value->a_to_b;
	u32 approved = settings.is_leaving ? other->bits : own->bits;
	if (!(approved & LEG_APPROVED))
		return is_tcp && !is_opening(tuple) ? CONNECTION_INVALID : CONNECTION_NEW;
	/* The SYN meets policy each time: it may have changed since the last one. */
	if (is_tcp && is_opening(tuple))
		return CONNECTION_NEW;

	u64 now = time_ns();
	value->last_seen = now;
	if (is_tcp && !tuple->is_later_fragment)
		track_tcp(value, own, other, tuple, now);
	if (!settings.is_leaving && !own->ifindex)
		own->ifindex = buffer->ifindex;
	/* Counted where it is seen first. */
	if (!(buffer->mark & MARK_SEEN)) {
		own->packets++;
		own->bytes += buffer->len;
	}
	return (own->bits & other->bits & LEG_APPROVED) ? CONNECTION_CONFIRMED : CONNECTION_KNOWN;
}

/* Whether an ICMP error is about a flow that passes here, and goes to the one who sent the packet that it is about. */
INLINE enum connection track_related(struct __sk_buff *buffer, const struct tuple *tuple, u32 offset)
{
	struct tuple inner = {};
	struct headers headers;
	int is_a_to_b;
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
	struct connection_value *value = find_connection(&inner, &is_a_to_b);
	if (!value || (value->type != TYPE_NORMAL && value->type != TYPE_NAT_REVERSE))
		return CONNECTION_INVALID;
	if (value->type == TYPE_NORMAL && !address_equal(&tuple->destination, &inner.source))
		return CONNECTION_INVALID;
	return ((value->a_to_b.bits | value->b_to_a.bits) & LEG_APPROVED) ? CONNECTION_RELATED : CONNECTION_INVALID;
}

/* This interface's end allows the flow of an entry. 0, or the entry is none with state. */
INLINE int approve(struct __sk_buff *buffer, const struct tuple *tuple, struct connection_value *value, int is_a_to_b)
{
	struct leg *own = is_a_to_b ? &value->a_to_b : &value->b_to_a;
	struct leg *other = is_a_to_b ? &value->b_to_a : &value->a_to_b;
	if (value->type != TYPE_NORMAL && value->type != TYPE_NAT_REVERSE)
		return -1;
	add_bits(settings.is_leaving ? other : own, LEG_APPROVED | (settings.is_workload ? LEG_WORKLOAD : 0));
	value->last_seen = time_ns();
	if (is_opening(tuple)) {
		own->sequence = tuple->sequence;
		add_bits(own, LEG_SYN);
	}
	if (!(buffer->mark & MARK_SEEN)) {
		own->packets++;
		own->bytes += buffer->len;
	}
	return 0;
}

/* Makes the entry of a flow that policy allowed, or approves this interface's leg of the one that is there. 0, or not done. */
INLINE int remember(struct __sk_buff *buffer, const struct tuple *tuple)
{
	struct connection_key key;
	int is_a_to_b = connection_key(&key, tuple);
	struct connection_value *value = map_lookup(CONNECTIONS, &key);
	if (value && is_opening(tuple) && is_closed(value)) {
		map_delete(CONNECTIONS, &key);
		value = NULL;
	}
	if (value)
		return approve(buffer, tuple, value, is_a_to_b);

	struct connection_value fresh;
	__builtin_memset(&fresh, 0, sizeof fresh);
	fresh.last_seen = time_ns();
	struct leg *own = is_a_to_b ? &fresh.a_to_b : &fresh.b_to_a;
	struct leg *other = is_a_to_b ? &fresh.b_to_a : &fresh.a_to_b;
	u32 approval = LEG_APPROVED | (settings.is_workload ? LEG_WORKLOAD : 0);
	own->bytes = buffer->len;
	own->packets = 1;
	own->sequence = tuple->sequence;
	own->bits = LEG_OPENER | (settings.is_leaving ? 0 : approval);
	if (tuple->tcp_flags & TCP_SYN)
		own->bits |= LEG_SYN;
	if (settings.is_leaving)
		other->bits = approval;
	else
		own->ifindex = buffer->ifindex;
	if (!is_a_to_b)
		fresh.flags2 = FLAGS2_SOURCE_IS_B;
	if (!map_update(CONNECTIONS, &key, &fresh, NO_EXIST))
		return 0;
	/* Another processor was first, most likely for the other leg. */
	value = map_lookup(CONNECTIONS, &key);
	return value ? approve(buffer, tuple, value, is_a_to_b) : -1;
}

#endif
