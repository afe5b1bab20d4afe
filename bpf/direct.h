/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * TCP connections between two workloads of this node that Linux does not track (ENTRY_DIRECT).
 *
 * The map of connections forgets the one that was silent longest when it is full. A connection that Linux tracks goes on then,
 * because netfilter knows it; these are known to nobody else. So what policy decided about them is kept here too, in a map that
 * forgets nothing: where it is full, a new connection is left to Linux from its first packet on.
 */
#ifndef DIRECT_H
#define DIRECT_H

#include "packet.h"

enum direct_bits {
	DIRECT_A_APPROVED = 1 << 0, /* by the policy of the end A */
	DIRECT_B_APPROVED = 1 << 1,
	DIRECT_APPROVED = DIRECT_A_APPROVED | DIRECT_B_APPROVED,
	DIRECT_OPENED_BY_B = 1 << 2,
	DIRECT_ESTABLISHED = 1 << 3, /* both sides have greeted each other: how long it is kept depends on it */
	DIRECT_FLAGS3 = 8, /* where bits 16-23 of the entry's flags are: by whom it is counted */
};

/* `crates/bpf/src/layout/conntrack/direct.rs` has the same fields. */
struct direct {
	u64 time; /* of the SYN */
	u32 bits; /* enum direct_bits */
	u32 zero;
};
ASSERT_SIZE(struct direct, 16);

MAP(POLICY_NAME(direct), MAP_HASH, struct connection_key, struct direct, 512000, NO_PREALLOC);
#define DIRECT (&POLICY_NAME(direct))

/* A connection begins whose first side allows it. 0, or there is no room. */
INLINE int keep_direct(const struct connection_key *key, int is_a_to_b)
{
	struct direct fresh = {
		.time = time_ns(),
		.bits = is_a_to_b ? DIRECT_A_APPROVED : DIRECT_B_APPROVED | DIRECT_OPENED_BY_B,
	};
	return map_update(DIRECT, key, &fresh, 0) ? -1 : 0;
}

/* The other side allows it too, or it is established. */
INLINE void mark_direct(const struct connection_key *key, u32 bits)
{
	struct direct *kept = map_lookup(DIRECT, key);
	if (kept)
		kept->bits |= bits;
}

#endif
