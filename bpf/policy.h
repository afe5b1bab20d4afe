/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The evaluator of policy: one for all interfaces, over the tables of docs/ebpf.md, section "Tables". It is the same
 * algorithm as crates/bpf-policy/src/evaluate.rs; whatever is missing in a table denies.
 */
#ifndef POLICY_H
#define POLICY_H

#include "packet.h"
#include "counters.h"

#define SEGMENT_RULES 1024
#define MOST_TURNS 128

struct net_key {
	u32 prefix;
	struct address address;
};

struct pair_key {
	struct address address;
	be16 port;
	u8 protocol;
	u8 zero;
};

struct port_key {
	u32 prefix;
	u64 list;
	u8 dimension;
	u8 protocol;
	be16 port;
} __attribute__((packed));
ASSERT_SIZE(struct port_key, 16);

struct segment_key {
	u64 list;
	u32 segment;
	u32 zero;
};
ASSERT_SIZE(struct segment_key, 16);

struct segment {
	u16 rules;
	u8 dimensions;
	u8 list_dimensions;
	u8 last;
	u8 zero[3];
	u64 log[ROW_WORDS];
	u64 rest[DIMENSIONS][ROW_WORDS];
};
ASSERT_SIZE(struct segment, 904);

struct row_key {
	u64 list;
	u64 value;
	u16 segment;
	u8 dimension;
	u8 zero[5];
};
ASSERT_SIZE(struct row_key, 24);

struct row {
	u64 words[ROW_WORDS];
};

struct rule_key {
	u64 list;
	u32 rule;
	u32 zero;
};
ASSERT_SIZE(struct rule_key, 16);

struct rule {
	u64 id;
	u32 next;
	u8 action;
	u8 zero[3];
};
ASSERT_SIZE(struct rule, 16);

enum action {
	ACTION_ALLOW = 1,
	ACTION_DENY = 2,
	ACTION_PASS = 3,
	ACTION_NONE = 5,
};

struct lists_key {
	u32 ifindex;
	u32 family;
};

enum list {
	LIST_INGRESS,
	LIST_EGRESS,
	LIST_FORWARD_INGRESS,
	LIST_FORWARD_EGRESS,
	LIST_BEFORE_DNAT,
	LIST_UNTRACKED_INGRESS,
	LIST_UNTRACKED_EGRESS,
	LIST_PENDING_INGRESS,
	LIST_PENDING_EGRESS,
	LISTS,
};

struct lists {
	u64 ids[LISTS];
};
ASSERT_SIZE(struct lists, 72);

/* A hash has its table of buckets from the beginning, 16 bytes for each entry that there is room for. */
MAP(POLICY_NAME(addr), MAP_HASH, struct address, u64, 262144, NO_PREALLOC);
MAP(POLICY_NAME(net), MAP_LPM, struct net_key, u64, 1048576, NO_PREALLOC);
MAP(POLICY_NAME(pair), MAP_HASH, struct pair_key, u64, 65536, NO_PREALLOC);
MAP(bpfp_port, MAP_LPM, struct port_key, u32, 1048576, NO_PREALLOC);
MAP(bpfp_segment, MAP_HASH, struct segment_key, struct segment, 16384, NO_PREALLOC);
MAP(bpfp_row, MAP_HASH, struct row_key, struct row, 262144, NO_PREALLOC);
MAP(bpfp_rule, MAP_HASH, struct rule_key, struct rule, 262144, NO_PREALLOC);
MAP(bpfp_lists, MAP_HASH, struct lists_key, struct lists, 65536, NO_PREALLOC);

INLINE u64 class_of(const struct address *address)
{
	u64 *class = map_lookup(&POLICY_NAME(addr), address);
	if (class)
		return *class;
	struct net_key key = {.prefix = ADDRESS_BITS, .address = *address};
	class = map_lookup(&POLICY_NAME(net), &key);
	return class ? *class : 0;
}

INLINE u64 class_of_pair(const struct address *address, u8 protocol, be16 port)
{
	if (protocol != PROTOCOL_TCP && protocol != PROTOCOL_UDP && protocol != PROTOCOL_SCTP)
		return 0;
	struct pair_key key = {.address = *address, .port = port, .protocol = protocol};
	u64 *class = map_lookup(&POLICY_NAME(pair), &key);
	return class ? *class : 0;
}

INLINE u64 value_of_port(u64 list, u8 dimension, u8 protocol, be16 port)
{
	struct port_key key = {.prefix = 96, .list = list, .dimension = dimension, .protocol = protocol, .port = port};
	u32 *value = map_lookup(&bpfp_port, &key);
	return value ? *value : 0;
}

/* What rows are asked for: once for a list. Answers 0; a number, because functions have to. */
FUNCTION int look_up_values(BUFFER *buffer, u32 dimensions)
{
	USES(buffer);
	struct packet *packet = this_packet();
	if (!packet)
		return 0;
	struct tuple tuple = packet->tuple;
	u64 list = packet->list;
	if (dimensions & 1 << 0)
		packet->values[0] = class_of(&tuple.source);
	if (dimensions & 1 << 1)
		packet->values[1] = class_of(&tuple.destination);
	if (dimensions & 1 << 2)
		packet->values[2] = value_of_port(list, 2, tuple.protocol, tuple.destination_port);
	if (dimensions & 1 << 3)
		packet->values[3] = value_of_port(list, 3, tuple.protocol, tuple.source_port);
	if (dimensions & 1 << 4)
		packet->values[4] = class_of_pair(&tuple.destination, tuple.protocol, tuple.destination_port);
	if (dimensions & 1 << 5)
		packet->values[5] = class_of_pair(&tuple.source, tuple.protocol, tuple.source_port);
	return 0;
}

/* The bits of a word that are at or behind a rule; `rule` is counted from the word's first bit and may be below 0 or beyond
 * its last. Without branches: the verifier would look at what follows once for each way. */
INLINE u64 bits_from(long long rule)
{
	long long below = rule >> 63;
	HIDE(below);
	long long inside = rule & ~below;
	long long beyond = (63 - inside) >> 63;
	HIDE(beyond);
	return ~0ull << (inside & 63) & ~beyond;
}

/* The place of the only bit of a word: multiplied with this number, each has other bits at the top (de Bruijn). The
 * processor has an instruction for it, programs do not. */
static const u8 places[64] = {
	0, 1, 48, 2, 57, 49, 28, 3, 61, 58, 50, 42, 38, 29, 17, 4,
	62, 55, 59, 36, 53, 51, 43, 22, 45, 39, 33, 30, 24, 18, 12, 5,
	63, 47, 56, 27, 60, 41, 37, 16, 54, 35, 52, 21, 44, 32, 23, 11,
	46, 26, 40, 15, 34, 20, 31, 10, 25, 14, 19, 9, 13, 8, 7, 6,
};

INLINE u32 place_of(u64 bit)
{
	return places[(bit * 0x03f79d71b4cb0a89ull) >> 58];
}

/* One segment, or the part of it behind a rule that passes. Answers whether there is a verdict. */
FUNCTION int evaluate_turn(BUFFER *buffer)
{
	USES(buffer);
	struct packet *packet = this_packet();
	if (!packet)
		return 1;
	u64 list = packet->list;
	u32 number = packet->segment;
	struct segment_key key = {.list = list, .segment = number};
	struct segment *segment = map_lookup(&bpfp_segment, &key);
	packet->verdict = VERDICT_DENY;
	if (!segment)
		return 1;
	if (number == 0 && packet->start == 0 && segment->list_dimensions)
		look_up_values(buffer, segment->list_dimensions);

	u64 *matches = packet->matches;
	long long start = packet->start & (SEGMENT_RULES - 1);
	long long rules = segment->rules;
	for (int i = 0; i < ROW_WORDS; i++)
		matches[i] = bits_from(start - i * 64) & ~bits_from(rules - i * 64);
#pragma unroll
	for (int d = 0; d < DIMENSIONS; d++) {
		if (!(segment->dimensions & 1 << d))
			continue;
		u64 *words = segment->rest[d];
		if (packet->values[d]) {
			struct row_key row_key = {.list = list, .value = packet->values[d], .segment = number, .dimension = d};
			struct row *row = map_lookup(&bpfp_row, &row_key);
			if (row)
				words = row->words;
		}
		for (int i = 0; i < ROW_WORDS; i++)
			matches[i] &= words[i];
	}

	u32 found = SEGMENT_RULES;
	u32 logs = 0;
	for (int i = 0; i < ROW_WORDS; i++) {
		u64 decides = matches[i] & ~segment->log[i];
		u64 writes = matches[i] & segment->log[i];
		if (decides) {
			/* Of those that write, only the ones in front. */
			u64 first = decides & -decides;
			logs |= (writes & (first - 1)) != 0;
			found = i * 64 + place_of(first);
			break;
		}
		logs |= writes != 0;
	}
	packet->log |= logs;
	if (found >= SEGMENT_RULES) {
		if (segment->last)
			return 1;
		packet->segment = number + 1;
		packet->start = 0;
		return 0;
	}
	struct rule_key rule_key = {.list = list, .rule = number * SEGMENT_RULES + found};
	struct rule *rule = map_lookup(&bpfp_rule, &rule_key);
	if (!rule)
		return 1;
	if (rule->id) {
		u32 hit = packet->hit_count;
		if (hit < MOST_HITS) {
			packet->hits[hit & (MOST_HITS - 1)] = rule->id;
			packet->hit_count = hit + 1;
		}
	}
	switch (rule->action) {
	case ACTION_ALLOW:
		packet->verdict = VERDICT_ALLOW;
		return 1;
	case ACTION_NONE:
		packet->verdict = VERDICT_NONE;
		return 1;
	case ACTION_PASS:
		packet->segment = rule->next / SEGMENT_RULES;
		packet->start = rule->next % SEGMENT_RULES;
		return 0;
	default:
		return 1;
	}
}

/* What a list says (enum verdict); the rules that were hit and the log flag are added to the packet's. */
FUNCTION int evaluate(BUFFER *buffer, u64 list)
{
	struct packet *packet = this_packet();
	if (!packet)
		return VERDICT_DENY;
	packet->list = list;
	packet->segment = 0;
	packet->start = 0;
	for (int d = 0; d < DIMENSIONS; d++)
		packet->values[d] = 0;
	for (int i = 0; i < MOST_TURNS; i++) {
		if (evaluate_turn(buffer))
			return packet->verdict;
	}
	return VERDICT_DENY;
}

/* Counts the rules that were hit, from the first of some on. Those of a pending list are counted under the complement of their
 * names: it has enforced rules, too. Answers 0. */
FUNCTION int count_hits(BUFFER *buffer, u32 first, u32 is_pending)
{
	USES(buffer);
	struct packet *packet = this_packet();
	if (!packet)
		return 0;
	for (u32 i = 0; i < MOST_HITS; i++) {
		if (i >= packet->hit_count)
			break;
		if (i >= first)
			count_rule(is_pending ? ~packet->hits[i] : packet->hits[i]);
	}
	return 0;
}

#endif
