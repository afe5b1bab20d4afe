/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Addresses of the IP version that a program is compiled for (FAMILY), and the names of its maps. */
#ifndef ADDRESS_H
#define ADDRESS_H

#include "kernel.h"

#ifndef FAMILY
#error "FAMILY is 4 or 6"
#endif

#if FAMILY == 6
#define WORDS 4
#define OWN_ETHERNET ETHERNET_IPV6
#define OTHER_ETHERNET ETHERNET_IPV4
#define OWN_ICMP PROTOCOL_ICMP6
#define NAME(name) cali_v6_##name
#define POLICY_NAME(name) bpfp_v6_##name
#else
#define WORDS 1
#define OWN_ETHERNET ETHERNET_IPV4
#define OTHER_ETHERNET ETHERNET_IPV6
#define OWN_ICMP PROTOCOL_ICMP
#define NAME(name) cali_v4_##name
#define POLICY_NAME(name) bpfp_v4_##name
#endif
#define ADDRESS_BITS (WORDS * 32)

/* As packets have it. */
struct address {
	be32 words[WORDS];
};

INLINE int is_zero(const struct address *address)
{
	u32 bits = 0;
	for (int i = 0; i < WORDS; i++)
		bits |= address->words[i];
	return !bits;
}

INLINE int address_equal(const struct address *left, const struct address *right)
{
	int equal = 1;
	for (int i = 0; i < WORDS; i++)
		equal &= left->words[i] == right->words[i];
	return equal;
}

#endif
