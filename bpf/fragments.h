/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Fragments. Only the first one has ports: it leaves them for the others, as long as the kernel would wait for the rest of a packet.
 *
 * One that comes before the first waits, on interfaces that lead out of the host: in a map that forgets the oldest, so a flood
 * costs nothing but other strangers' patience. When the first one comes, it and those that waited come in once more, by the same
 * interface, in that order, and each is judged like any other. Packets are never put together here: the host's stack does that.
 */
#ifndef FRAGMENTS_H
#define FRAGMENTS_H

#include "packet.h"
#include "counters.h"
#include "parse.h"

/* Of the largest packet, cut to the size of most wires. */
#define MOST_WAITING 48
/* From the IP header on. */
#define FRAGMENT_ROOM 1504
/* A header. Each bound is by itself: two that the compiler makes one of are none to kernels up to 6.1. */
#define FRAGMENT_LEAST 20

struct fragment_key {
	struct address source;
	struct address destination;
	be32 id;
	u32 ifindex;
	u32 protocol;
};

struct fragment {
	u64 time; /* when the first of them came, in whatever order */
	be16 source_port;
	be16 destination_port;
	u32 is_known;   /* the ports are */
	u32 is_awaited; /* some wait for them */
	u32 zero;
};

struct waiting_key {
	struct fragment_key fragment;
	u32 place;
};

struct waiting {
	u64 time; /* that of the fragments it belongs to */
	u32 length;
	u8 data[FRAGMENT_ROOM];
	u32 zero;
};

MAP(cali_fragments, MAP_LRU_HASH, struct fragment_key, struct fragment, 10000, 0);
MAP(cali_waiting, MAP_LRU_HASH, struct waiting_key, struct waiting, 1024, 0);
MAP(cali_spare, MAP_PERCPU_ARRAY, u32, struct waiting, 1, 0);

INLINE void fragment_key(struct __sk_buff *buffer, const struct tuple *tuple, be32 id, struct fragment_key *key)
{
	__builtin_memset(key, 0, sizeof *key);
	key->source = tuple->source;
	key->destination = tuple->destination;
	key->id = id;
	key->ifindex = buffer->ifindex;
	key->protocol = tuple->protocol;
}

/* What is known of the others; nothing, if that is too long ago to be about the same packet. */
INLINE struct fragment *find_fragment(const struct fragment_key *key)
{
	struct fragment *fragment = map_lookup(&cali_fragments, key);
	if (!fragment || time_ns() - fragment->time > options.fragment_seconds * 1000000000ull)
		return NULL;
	return fragment;
}

/* Whether one that comes too soon may wait. */
INLINE int may_wait(void)
{
	return options.keeps_fragments && !settings.is_workload && !settings.is_leaving && settings.link_header &&
	       (options.kind == KIND_PLAIN || options.kind == KIND_TUNNEL);
}

/* Ports of later fragments from those that the first one left. Answers 0, or why it is dropped. */
INLINE int parse_fragment(struct __sk_buff *buffer, struct tuple *tuple, struct headers *headers)
{
	struct fragment_key key;
	fragment_key(buffer, tuple, headers->fragment_id, &key);
	struct fragment *known = find_fragment(&key);
	if (!headers->is_first_fragment) {
		if (!known || !known->is_known)
			return REASON_FRAGMENT;
		tuple->source_port = known->source_port;
		tuple->destination_port = known->destination_port;
		return 0;
	}
	headers->is_awaited = may_wait() && known && known->is_awaited;
	struct fragment first = {
		.time = headers->is_awaited ? known->time : time_ns(),
		.source_port = tuple->source_port,
		.destination_port = tuple->destination_port,
		.is_known = 1,
	};
	return map_update(&cali_fragments, &key, &first, 0) ? REASON_FRAGMENT : 0;
}

INLINE int parse(struct __sk_buff *buffer, struct tuple *tuple, struct headers *headers)
{
	int reason = parse_network(buffer, settings.link_header, tuple, headers);
	headers->is_awaited = 0;
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

/* Puts the packet's fragment where it waits. Answers a verdict; or 0: the first one has come meanwhile, and it need not. */
INLINE int wait_for_first(struct __sk_buff *buffer, struct packet *packet)
{
	u32 zero = 0;
	struct waiting *spare = map_lookup(&cali_spare, &zero);
	u64 length = buffer->len - settings.link_header;
	if (!spare)
		return drop(buffer, REASON_FRAGMENT);
	struct waiting_key key = {};
	fragment_key(buffer, &packet->tuple, packet->fragment_id, &key.fragment);
	struct fragment *known = find_fragment(&key.fragment);
	struct fragment awaited = {.time = known ? known->time : time_ns(), .is_awaited = 1};
	if (known)
		known->is_awaited = 1;
	else if (map_update(&cali_fragments, &key.fragment, &awaited, 0))
		return drop(buffer, REASON_FRAGMENT);
	spare->time = awaited.time;
	spare->length = length;
	HIDE(length);
	if (length < FRAGMENT_LEAST)
		return drop(buffer, REASON_FRAGMENT);
	HIDE(length);
	if (length > FRAGMENT_ROOM || load_bytes(buffer, settings.link_header, spare->data, length))
		return drop(buffer, REASON_FRAGMENT);
	for (u32 place = 0; place < MOST_WAITING; place++) {
		key.place = place;
		struct waiting *other = map_lookup(&cali_waiting, &key);
		/* One of a packet that was never complete makes room. */
		if (other && other->time == awaited.time)
			continue;
		if (map_update(&cali_waiting, &key, spare, other ? 0 : NO_EXIST))
			continue;
		known = find_fragment(&key.fragment);
		if (known && known->is_known) {
			map_delete(&cali_waiting, &key);
			return 0;
		}
		count(buffer, REASON_FRAGMENT_WAITS);
		return TC_DROP;
	}
	return drop(buffer, REASON_FRAGMENT);
}

INLINE void put_back(struct __sk_buff *buffer, const struct waiting *waiting, u64 length)
{
	HIDE(length);
	if (length < FRAGMENT_LEAST)
		return;
	HIDE(length);
	if (length > FRAGMENT_ROOM || store_bytes(buffer, settings.link_header, waiting->data, length, STORE_CHECKSUM))
		return;
	clone_redirect(buffer, buffer->ifindex, REDIRECT_IN);
}

/* The one that waits at a place comes in, in the packet's buffer. Answers 0. */
FUNCTION int release(struct __sk_buff *buffer, u32 place)
{
	struct packet *packet = this_packet();
	if (!packet)
		return 0;
	struct waiting_key key = {.place = place};
	fragment_key(buffer, &packet->tuple, packet->fragment_id, &key.fragment);
	struct waiting *waiting = map_lookup(&cali_waiting, &key);
	if (!waiting)
		return 0;
	struct fragment *known = map_lookup(&cali_fragments, &key.fragment);
	u64 length = waiting->length;
	if (known && known->time == waiting->time && !change_tail(buffer, settings.link_header + length, 0))
		put_back(buffer, waiting, length);
	map_delete(&cali_waiting, &key);
	return 0;
}

#endif
