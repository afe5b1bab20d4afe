/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * What is told about single packets: those that are dropped, if somebody wants to know; those that met a rule that logs; and, for
 * flow logs, the rules that the first packets of flows hit. Queues in which the oldest make room: nobody has to read them.
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

/* Dropped packets. */
struct {
	MEMBER_NUMBER(type, MAP_QUEUE);
	MEMBER_NUMBER(max_entries, 4096);
	MEMBER_NUMBER(key_size, 0);
	MEMBER_TYPE(value, struct event);
} bpfp_events SECTION(".maps");

/* Those that met a rule that logs. */
struct {
	MEMBER_NUMBER(type, MAP_QUEUE);
	MEMBER_NUMBER(max_entries, 1024);
	MEMBER_NUMBER(key_size, 0);
	MEMBER_TYPE(value, struct event);
} bpfp_logs SECTION(".maps");

/* Packets that policy judged, with what it found. */
struct {
	MEMBER_NUMBER(type, MAP_QUEUE);
	MEMBER_NUMBER(max_entries, 16384);
	MEMBER_NUMBER(key_size, 0);
	MEMBER_TYPE(value, struct judged);
} bpfp_flows SECTION(".maps");

/* What rules are called that programs know by numbers: written and read by others only. */
struct rule_name {
	char text[64];
};
MAP(bpfp_names, MAP_HASH, u64, struct rule_name, 262144, NO_PREALLOC);

/* Until when somebody watches dropped packets, by the clock that only goes forward. */
MAP(bpfp_watched, MAP_ARRAY, u32, u64, 1, 0);

INLINE int is_watched(void)
{
	u32 zero = 0;
	u64 *until = map_lookup(&bpfp_watched, &zero);
	return until && *until && time_ns() < *until;
}

INLINE void tell(BUFFER *buffer, u32 reason, enum event_kind kind)
{
	struct packet *packet = this_packet();
	if (!packet)
		return;
	const struct tuple *tuple = &packet->tuple;
	struct event event = {
		.time = time_ns(),
		.ifindex = device_of(buffer),
		.reason = reason,
		.length = frame_length(buffer),
		.hook = HOOK,
		.family = FAMILY,
		.kind = kind,
	};
#ifndef AT_DRIVER
	event.mark = buffer->mark;
#endif
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
	if (kind == EVENT_DROPPED)
		map_push(&bpfp_events, &event, REPLACE);
	else
		map_push(&bpfp_logs, &event, REPLACE);
}

#ifndef AT_DRIVER
INLINE int is_echo(u32 type)
{
#if FAMILY == 4
	return type == 8 || type == 0;
#else
	return type == 128 || type == 129;
#endif
}

/* Tells what policy found about a packet. Answers 0. */
FUNCTION int tell_judged(struct __sk_buff *buffer)
{
	struct packet *packet = this_packet();
	if (!packet || !packet->hit_count)
		return 0;
	const struct tuple *tuple = &packet->tuple;
	struct judged *judged = &packet->judged;
	u8 protocol = tuple->protocol;
	int has_ports = protocol == PROTOCOL_TCP || protocol == PROTOCOL_UDP || protocol == PROTOCOL_SCTP;
	judged->time = time_ns();
	judged->length = buffer->len - settings.link_header;
	judged->hook = settings.is_leaving;
	judged->family = FAMILY;
	judged->protocol = protocol;
	judged->hit_count = packet->hit_count;
	for (int i = 0; i < WORDS; i++) {
		judged->source[i] = tuple->source.words[i];
		judged->destination[i] = tuple->destination.words[i];
		judged->original[i] = packet->wire.destination.words[i];
	}
	judged->source_port = has_ports ? tuple->source_port : 0;
	judged->destination_port = has_ports || protocol == OWN_ICMP ? tuple->destination_port : 0;
	judged->original_port = has_ports ? packet->wire.destination_port : judged->destination_port;
	/* Linux knows flows of ICMP by their ids. */
	if (protocol == OWN_ICMP && is_echo(HOST16(tuple->destination_port) >> 8))
		load_bytes(buffer, packet->transport + 4, &judged->source_port, sizeof judged->source_port);
	for (int i = 0; i < JUDGED_HITS; i++)
		judged->hits[i] = packet->hits[i];
	map_push(&bpfp_flows, judged, REPLACE);
	return 0;
}
#endif

#endif
