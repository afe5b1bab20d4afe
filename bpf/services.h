/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Services: from an address and port to one of its backends. The maps are Calico's. A service without a backend is told, never
 * passed on: its packets would leave the cluster.
 */
#ifndef SERVICES_H
#define SERVICES_H

#include "address.h"
#include "routes.h"

struct frontend_key {
	u32 prefix;
	struct address address;
	u16 port;
	u8 protocol;
	struct address source;
	u8 zero;
} __attribute__((packed));
ASSERT_SIZE(struct frontend_key, 8 + WORDS * 8);
#define FRONTEND_BITS ((WORDS * 8 + 3) * 8)

enum frontend_flags {
	FRONTEND_EXTERNAL_LOCAL = 0x1,
	FRONTEND_INTERNAL_LOCAL = 0x2,
	FRONTEND_EXCLUDED = 0x4,
	FRONTEND_MAGLEV = 0x8,
};
#define FRONTEND_DROPS 0xffffffff

struct frontend {
	u32 id;
	u32 count;
	u32 local;
	u32 affinity;
	u32 flags;
};
ASSERT_SIZE(struct frontend, 20);

struct backend_key {
	u32 id;
	u32 ordinal;
};

struct backend {
	struct address address;
	u16 port;
	u8 zero[2];
};
ASSERT_SIZE(struct backend, WORDS * 4 + 4);

struct affinity_key {
	struct address address;
	u16 port;
	u8 protocol;
	u8 zero;
	struct address client;
	u32 end;
};
ASSERT_SIZE(struct affinity_key, WORDS * 8 + 8);

struct affinity {
	struct backend backend;
#if FAMILY == 6
	u32 zero;
#endif
	u64 since;
};
#if FAMILY == 4
ASSERT_SIZE(struct affinity, 16);
#else
ASSERT_SIZE(struct affinity, 32);
#endif

MAP(NAME(nat_fe3), MAP_LPM, struct frontend_key, struct frontend, 65536, NO_PREALLOC);
MAP(NAME(nat_be), MAP_HASH, struct backend_key, struct backend, 262144, NO_PREALLOC);
MAP(NAME(nat_aff), MAP_LRU_HASH, struct affinity_key, struct affinity, 65536, 0);

enum service {
	SERVICE_NONE,       /* the address is none of a service */
	SERVICE_FOUND,
	SERVICE_DROPS,      /* not for this source */
	SERVICE_EMPTY,      /* no backend */
	SERVICE_EXCLUDED,   /* left to the host */
};

/* Who asks. */
struct question {
	struct address client; /* zero: a socket of this host, whose address is not known yet */
	struct address address;
	u16 port;
	u8 protocol;
	u8 is_inside;     /* from a workload or host of the cluster */
	u8 any_node;      /* a port of any node is a service's */
	u8 is_local;      /* only backends of this node count; the address may be one of another node that nobody else knows */
	u32 affinity;     /* seconds that the caller wants, whatever the service says */
};

INLINE struct frontend *find_frontend(const struct question *question, struct frontend_key *key)
{
	key->prefix = FRONTEND_BITS;
	key->address = question->address;
	key->port = question->port;
	key->protocol = question->protocol;
	key->source = question->client;
	key->zero = 0;
	struct frontend *frontend = map_lookup(&NAME(nat_fe3), key);
	if (frontend || !(question->any_node || question->is_local))
		return frontend;
	/* A port of another node: taken to a backend from here, without the detour. All ones is every node. */
	if (!question->is_local && !(route_flags(&question->address) & ROUTE_HOST))
		return NULL;
	for (int i = 0; i < WORDS; i++)
		key->address.words[i] = 0xffffffff;
	return map_lookup(&NAME(nat_fe3), key);
}

/* Chooses a backend. */
INLINE enum service choose_backend(const struct question *question, const struct frontend *frontend, struct backend *backend)
{
	u32 count = frontend->count;
	u32 flags = frontend->flags;
	if (count == FRONTEND_DROPS)
		return SERVICE_DROPS;
	if (flags & FRONTEND_EXCLUDED)
		return SERVICE_EXCLUDED;
	if (question->is_local || flags & (question->is_inside ? FRONTEND_INTERNAL_LOCAL : FRONTEND_EXTERNAL_LOCAL))
		count = frontend->local;
	if (!count)
		return SERVICE_EMPTY;

	u32 seconds = frontend->affinity > question->affinity ? frontend->affinity : question->affinity;
	struct affinity_key affinity_key = {};
	u64 now = 0;
	if (seconds) {
		affinity_key.address = question->address;
		affinity_key.port = question->port;
		affinity_key.protocol = question->protocol;
		affinity_key.client = question->client;
		now = time_ns();
		struct affinity *affinity = map_lookup(&NAME(nat_aff), &affinity_key);
		if (affinity && now - affinity->since <= seconds * 1000000000ull) {
			/* A sender without a connection stays as long as it sends. */
			if (question->affinity)
				affinity->since = now;
			*backend = affinity->backend;
			return SERVICE_FOUND;
		}
	}
	struct backend_key backend_key = {.id = frontend->id, .ordinal = random32() % count};
	struct backend *found = map_lookup(&NAME(nat_be), &backend_key);
	if (!found)
		return SERVICE_EMPTY;
	*backend = *found;
	if (seconds) {
		struct affinity affinity = {.backend = *found, .since = now};
		map_update(&NAME(nat_aff), &affinity_key, &affinity, 0);
	}
	return SERVICE_FOUND;
}

#endif
