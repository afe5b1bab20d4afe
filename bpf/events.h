/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * What is told about single packets: those that are dropped, if somebody wants to know, and those that met a rule that logs.
 * A queue in which the oldest make room: nobody has to read it.
 */
#ifndef EVENTS_H
#define EVENTS_H

#include "packet.h"

enum event_kind {
	EVENT_DROPPED = 1,
	EVENT_LOGGED_ALLOWED = 2,
	EVENT_LOGGED_DENIED = 3,
};

/* `crates/bpf/src/layout/event.rs` has the same fields. */
struct event {
	u64 time; /* of the clock that only goes forward */
	u64 rule; /* the last one that was hit; 0: none */
	u32 ifindex;
	u32 reason; /* enum reason */
	u32 length;
	u8 hook;
	u8 family;
	u8 protocol; /* 0 with all that follows: the packet could not be read */
	u8 kind;     /* enum event_kind */
	be32 source[4]; /* IPv4: the first */
	be32 destination[4];
	be16 source_port;
	be16 destination_port; /* behind DNAT */
	u32 mark;
};
ASSERT_SIZE(struct event, 72);

struct {
	MEMBER_NUMBER(type, MAP_QUEUE);
	MEMBER_NUMBER(max_entries, 4096);
	MEMBER_NUMBER(key_size, 0);
	MEMBER_TYPE(value, struct event);
} bpfp_events SECTION(".maps");

INLINE void tell(struct __sk_buff *buffer, u32 reason, enum event_kind kind)
{
	struct packet *packet = this_packet();
	if (!packet)
		return;
	const struct tuple *tuple = &packet->tuple;
	struct event event = {
		.time = time_ns(),
		.ifindex = buffer->ifindex,
		.reason = reason,
		.length = buffer->len,
		.hook = settings.is_leaving,
		.family = FAMILY,
		.kind = kind,
		.mark = buffer->mark,
	};
	if (packet->flags & PACKET_READ) {
		event.protocol = tuple->protocol;
		for (int i = 0; i < WORDS; i++) {
			event.source[i] = tuple->source.words[i];
			event.destination[i] = tuple->destination.words[i];
		}
		event.source_port = tuple->source_port;
		event.destination_port = tuple->destination_port;
		u32 hits = packet->hit_count;
		if (hits)
			event.rule = packet->hits[(hits - 1) & (MOST_HITS - 1)];
	}
	map_push(&bpfp_events, &event, REPLACE);
}

#endif
