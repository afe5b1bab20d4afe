/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * What the kernel promises to programs: numbers, structures and helpers, as far as they are used here. Written out, so that a
 * build needs no headers of the machine it runs on, and two machines build the same bytes.
 */
#ifndef KERNEL_H
#define KERNEL_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef u16 be16; /* in network order */
typedef u32 be32;

#define NULL ((void *)0)
#define SECTION(name) __attribute__((section(name), used))
#define INLINE static __attribute__((always_inline)) inline
/* Verified once and apart from its callers: its cost does not multiply. It may take the context and numbers only (5.10). */
#define FUNCTION __attribute__((noinline))
/* Keep the compiler from making branches of arithmetic; and from finding out that a function does not use its context, and passing anything. */
#define HIDE(value) asm volatile("" : "+r"(value))
#define USES(value) asm volatile("" ::"r"(value))
#define ASSERT_SIZE(type, size) _Static_assert(sizeof(type) == (size), #type " has another size")

#define NETWORK16(number) ((be16)__builtin_bswap16(number))
#define HOST16(number) ((u16)__builtin_bswap16(number))
#define HOST32(number) ((u32)__builtin_bswap32(number))
#define NETWORK32(number) ((be32)__builtin_bswap32(number))

/* A map's definition, as loaders read it from the types of its members. */
#define MEMBER_NUMBER(name, value) int(*name)[value]
#define MEMBER_TYPE(name, type) typeof(type) *name
#define MAP(map, map_type, key_type, value_type, entries, how)                                                                \
	struct {                                                                                                              \
		MEMBER_NUMBER(type, map_type);                                                                                \
		MEMBER_NUMBER(max_entries, entries);                                                                          \
		MEMBER_NUMBER(map_flags, how);                                                                                \
		MEMBER_TYPE(key, key_type);                                                                                   \
		MEMBER_TYPE(value, value_type);                                                                               \
	} map SECTION(".maps")

enum map_type {
	MAP_HASH = 1,
	MAP_ARRAY = 2,
	MAP_PROGRAMS = 3,
	MAP_PERCPU_HASH = 5,
	MAP_PERCPU_ARRAY = 6,
	MAP_LRU_HASH = 9,
	MAP_LPM = 11,
};
#define NO_PREALLOC 1
#define NO_EXIST 1

/* Up to what is used. The name says to the verifier that a function takes the context. */
struct __sk_buff {
	u32 len;
	u32 pkt_type;
	u32 mark;
	u32 queue_mapping;
	u32 protocol; /* network order */
	u32 vlan_present;
	u32 vlan_tci;
	u32 vlan_proto;
	u32 priority;
	u32 ingress_ifindex;
	u32 ifindex;
	u32 tc_index;
	u32 cb[5];
	u32 hash;
	u32 tc_classid;
	u32 data;
	u32 data_end;
};

/* Verdicts of a classifier. The first one leaves the decision to those after us; if there is none, the packet passes. */
enum tc_verdict {
	TC_NEXT = -1,
	TC_DROP = 2,
};

enum {
	ETHERNET_IPV4 = 0x0800,
	ETHERNET_ARP = 0x0806,
	ETHERNET_IPV6 = 0x86dd,
};

enum protocol {
	PROTOCOL_ICMP = 1,
	PROTOCOL_TCP = 6,
	PROTOCOL_UDP = 17,
	PROTOCOL_ICMP6 = 58,
	PROTOCOL_SCTP = 132,
};

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const map_delete)(void *map, const void *key) = (void *)3;
static u64 (*const time_ns)(void) = (void *)5;
static long (*const tail_call)(void *context, void *programs, u32 index) = (void *)12;
static long (*const load_bytes)(const void *buffer, u32 offset, void *to, u32 length) = (void *)26;

#endif
