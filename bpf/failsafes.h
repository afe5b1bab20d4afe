/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Ports of this host, and of others for it, that work whatever policy says. */
#ifndef FAILSAFES_H
#define FAILSAFES_H

#include "address.h"

struct failsafe_key {
	u32 prefix;
	u16 port;
	u8 protocol;
	u8 is_out;
	struct address address;
};
ASSERT_SIZE(struct failsafe_key, 8 + WORDS * 4);

MAP(NAME(fsafes2), MAP_LPM, struct failsafe_key, u32, 65536, NO_PREALLOC);

INLINE int is_failsafe(u8 protocol, be16 port, u8 is_out, const struct address *other_side)
{
	struct failsafe_key key = {
		.prefix = 32 + ADDRESS_BITS,
		.port = HOST16(port),
		.protocol = protocol,
		.is_out = is_out,
		.address = *other_side,
	};
	return map_lookup(&NAME(fsafes2), &key) != NULL;
}

#endif
