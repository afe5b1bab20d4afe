/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Maglev: a service's backend by a hash of the flow, from a table that is the same on every node. Whichever node a packet comes
 * to, it goes to the same backend; a node that takes over from another one finds it in the middle of a connection.
 *
 * The hash is Bob Jenkins' of words (lookup3, public domain), over the words and with the beginning that Calico uses.
 */
#ifndef MAGLEV_H
#define MAGLEV_H

#include "packet.h"
#include "services.h"

#define MAGLEV_SEED 0xca71c0
#define MAGLEV_WORDS (WORDS * 2 + 3)

MAP(NAME(mglv2), MAP_HASH, struct backend_key, struct backend, 50300, NO_PREALLOC);

INLINE u32 rotated(u32 word, u32 by)
{
	return word << by | word >> (32 - by);
}

/* Three words in the middle of the hash, and at its end. */
struct mixed {
	u32 a, b, c;
};

INLINE void mix(struct mixed *mixed)
{
	static const u8 turns[2][3] = {{4, 6, 8}, {16, 19, 4}};
#pragma unroll
	for (int i = 0; i < 2; i++) {
		mixed->a = (mixed->a - mixed->c) ^ rotated(mixed->c, turns[i][0]);
		mixed->c += mixed->b;
		mixed->b = (mixed->b - mixed->a) ^ rotated(mixed->a, turns[i][1]);
		mixed->a += mixed->c;
		mixed->c = (mixed->c - mixed->b) ^ rotated(mixed->b, turns[i][2]);
		mixed->b += mixed->a;
	}
}

INLINE u32 mixed_last(struct mixed *mixed)
{
	mixed->c = (mixed->c ^ mixed->b) - rotated(mixed->b, 14);
	mixed->a = (mixed->a ^ mixed->c) - rotated(mixed->c, 11);
	mixed->b = (mixed->b ^ mixed->a) - rotated(mixed->a, 25);
	mixed->c = (mixed->c ^ mixed->b) - rotated(mixed->b, 16);
	mixed->a = (mixed->a ^ mixed->c) - rotated(mixed->c, 4);
	mixed->b = (mixed->b ^ mixed->a) - rotated(mixed->a, 14);
	return (mixed->c ^ mixed->b) - rotated(mixed->b, 24);
}

/* Addresses as packets have them, ports as the processor does. Calico's order of the last three differs by IP version. */
INLINE u32 maglev_hash(const struct tuple *tuple)
{
	u32 words[MAGLEV_WORDS + 1] = {};
	u32 source_port = HOST16(tuple->source_port);
	u32 destination_port = HOST16(tuple->destination_port);
	for (int i = 0; i < WORDS; i++) {
		words[i] = tuple->source.words[i];
		words[WORDS + i] = tuple->destination.words[i];
	}
#if FAMILY == 4
	words[WORDS * 2] = source_port;
	words[WORDS * 2 + 1] = destination_port;
	words[WORDS * 2 + 2] = tuple->protocol;
#else
	words[WORDS * 2] = tuple->protocol;
	words[WORDS * 2 + 1] = source_port;
	words[WORDS * 2 + 2] = destination_port;
#endif
	u32 start = 0xdeadbeef + MAGLEV_WORDS * 4 + MAGLEV_SEED;
	struct mixed mixed = {start, start, start};
	/* 5 words or 11: the last two stay for the end. */
#pragma unroll
	for (int i = 0; i + 3 < MAGLEV_WORDS; i += 3) {
		mixed.a += words[i];
		mixed.b += words[i + 1];
		mixed.c += words[i + 2];
		mix(&mixed);
	}
	mixed.a += words[MAGLEV_WORDS - 2];
	mixed.b += words[MAGLEV_WORDS - 1];
	return mixed_last(&mixed);
}

/* Only packets that come in by the host's own interfaces and tunnels: everybody else has no other node to be taken over by. */
INLINE int has_tables(void)
{
	return options.maglev_places && !settings.is_workload && !settings.is_leaving &&
	       (options.kind == KIND_PLAIN || options.kind == KIND_TUNNEL);
}

INLINE int is_by_table(const struct frontend *frontend)
{
	return has_tables() && (frontend->flags & (FRONTEND_MAGLEV | FRONTEND_EXCLUDED)) == FRONTEND_MAGLEV &&
	       frontend->count != FRONTEND_DROPS;
}

INLINE enum service choose_by_table(const struct tuple *tuple, u32 id, struct backend *backend)
{
	struct backend_key key = {.id = id, .ordinal = maglev_hash(tuple) % options.maglev_places};
	struct backend *found = map_lookup(&NAME(mglv2), &key);
	if (!found)
		return SERVICE_EMPTY;
	*backend = *found;
	return SERVICE_FOUND;
}

#endif
