/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * How long programs take for a packet, from the first one's beginning to the last one's verdict (`BPFProfiling`). Bytes are those
 * that Calico's tool prints. Where nobody asked, the verifier takes all of this out: the constant is frozen.
 */
#ifndef PROFILE_H
#define PROFILE_H

#include "packet.h"

struct profile_key {
	u32 ifindex;
	u32 kind; /* 0 and 1: ingress, 2 and 3: egress; odd: of a flow that was known */
};

struct profile {
	u64 time;
	u64 samples;
};
ASSERT_SIZE(struct profile, 16);

MAP(cali_profiling2, MAP_PERCPU_HASH, struct profile_key, struct profile, 20000, NO_PREALLOC);

INLINE void begin_profile(struct packet *packet)
{
	if (!options.profiles)
		return;
	packet->began = time_ns();
	/* Until more is known of it. */
	packet->connection = CONNECTION_NEW;
}

/* The verdict, noted. */
INLINE int profiled(struct __sk_buff *buffer, int verdict)
{
	if (!options.profiles)
		return verdict;
	struct packet *packet = this_packet();
	if (!packet || !packet->began)
		return verdict;
	u64 time = time_ns() - packet->began;
	packet->began = 0;
	/* As policy names directions: what a workload gets, and what comes in to the host. */
	int is_ingress = settings.is_workload == settings.is_leaving;
	struct profile_key key = {
		.ifindex = buffer->ifindex,
		.kind = (is_ingress ? 0 : 2) + (packet->connection == CONNECTION_NEW ? 0 : 1),
	};
	struct profile *profile = map_lookup(&cali_profiling2, &key);
	if (profile) {
		profile->time += time;
		profile->samples++;
		return verdict;
	}
	struct profile first = {.time = time, .samples = 1};
	map_update(&cali_profiling2, &key, &first, NO_EXIST);
	return verdict;
}

/* A program that ends a packet's way, or hands it to another one. */
#define PROFILED(program)                                                                                                    \
	INLINE int program##_body(struct __sk_buff *buffer);                                                                 \
	SECTION("classifier") int program(struct __sk_buff *buffer)                                                          \
	{                                                                                                                    \
		return profiled(buffer, program##_body(buffer));                                                             \
	}                                                                                                                    \
	INLINE int program##_body(struct __sk_buff *buffer)

#endif
