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
	MAP_QUEUE = 22,
};
#define NO_PREALLOC 1
#define NO_EXIST 1
/* Of a full queue: the oldest element makes room. */
#define REPLACE 2

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
	u32 napi_id;
	u32 family;
	u32 remote_ip4;
	u32 local_ip4;
	u32 remote_ip6[4];
	u32 local_ip6[4];
	u32 remote_port;
	u32 local_port;
	u32 data_meta;
	u64 flow_keys;
	u64 tstamp;
	u32 wire_len;
	u32 gso_segs;
	u64 sk;
	u32 gso_size; /* of the parts that a packet is cut into; 0: it is not */
};

/* At a device's driver. */
struct xdp_md {
	u32 data;
	u32 data_end;
	u32 data_meta;
	u32 ingress_ifindex;
	u32 rx_queue_index;
};

enum xdp_verdict {
	XDP_DROP = 1,
	XDP_PASS = 2,
};

/* What a program is told a packet by, and the place that its counters and events are under. */
#ifdef AT_DRIVER
#define BUFFER struct xdp_md
#define HOOK 2
#define DROPPED XDP_DROP
#else
#define BUFFER struct __sk_buff
#define HOOK settings.is_leaving
#define DROPPED TC_DROP
#endif

INLINE u32 device_of(const BUFFER *buffer)
{
#ifdef AT_DRIVER
	return buffer->ingress_ifindex;
#else
	return buffer->ifindex;
#endif
}

INLINE u32 frame_length(const BUFFER *buffer)
{
#ifdef AT_DRIVER
	return (const char *)(long)buffer->data_end - (const char *)(long)buffer->data;
#else
	return buffer->len;
#endif
}

/* A system call that names an address. */
struct bpf_sock_addr {
	u32 user_family;
	be32 user_ip4;
	be32 user_ip6[4];
	u32 user_port; /* network order, in the first two bytes */
	u32 family;
	u32 type;
	u32 protocol;
};

/* Verdicts of a classifier. The first one leaves the decision to those after us; if there is none, the packet passes. */
enum tc_verdict {
	TC_NEXT = -1,
	TC_DROP = 2,
	TC_REDIRECT = 7,
};

/* A question to the kernel's routes, and its answer in the same place. */
struct fib_lookup {
	u8 family;
	u8 protocol;
	be16 source_port;
	be16 destination_port;
	u16 length;
	u32 ifindex;
	u32 flow;
	u32 source[4]; /* IPv4: the first */
	u32 destination[4];
	u32 vlan;
	u8 addresses[12];
};
ASSERT_SIZE(struct fib_lookup, 64);

/* Answers of the kernel's routes. */
enum fib_answer {
	FIB_FOUND = 0,
	FIB_NOT_FORWARDED = 4,
	FIB_NO_NEIGHBOUR = 7,
	FIB_TOO_BIG = 8,
};
#define FIB_SKIP_NEIGHBOUR 4

struct next_hop {
	u32 family;
	u32 address[4];
};
ASSERT_SIZE(struct next_hop, 20);

/* Bits of checksum helpers. */
enum checksum_flag {
	CHECKSUM_PSEUDO = 1 << 4,      /* the difference is in the header that the checksum only imagines */
	CHECKSUM_KEEPS_ZERO = 1 << 5,  /* of UDP: zero means that there is none */
};

enum {
	ETHERNET_IPV4 = 0x0800,
	ETHERNET_ARP = 0x0806,
	ETHERNET_IPV6 = 0x86dd,
};

/* Families of addresses as sockets have them. */
enum {
	SOCKETS_IPV4 = 2,
	SOCKETS_IPV6 = 10,
};

enum protocol {
	PROTOCOL_ICMP = 1,
	PROTOCOL_IPIP = 4,
	PROTOCOL_TCP = 6,
	PROTOCOL_UDP = 17,
	PROTOCOL_ICMP6 = 58,
	PROTOCOL_SCTP = 132,
};

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const map_delete)(void *map, const void *key) = (void *)3;
static u64 (*const time_ns)(void) = (void *)5;
static u32 (*const random32)(void) = (void *)7;
/* Of bytes that are stored: a sum over the packet, if the device made one, follows. */
#define STORE_CHECKSUM 1
static long (*const store_bytes)(struct __sk_buff *buffer, u32 offset, const void *from, u32 length, u64 flags) = (void *)9;
static long (*const replace_l3_checksum)(struct __sk_buff *buffer, u32 offset, u64 from, u64 to, u64 flags) = (void *)10;
static long (*const replace_l4_checksum)(struct __sk_buff *buffer, u32 offset, u64 from, u64 to, u64 flags) = (void *)11;
static long (*const tail_call)(void *context, void *programs, u32 index) = (void *)12;
#ifdef AT_DRIVER
/* The helper is there since 5.18 only. Headers are nowhere behind the last of these bytes. */
#define MOST_HEADERS 2047
INLINE long load_bytes(const BUFFER *buffer, u64 offset, void *to, u32 length)
{
	HIDE(offset);
	if (offset > MOST_HEADERS)
		return -1;
	const char *from = (const char *)(long)buffer->data + offset;
	if (from + length > (const char *)(long)buffer->data_end)
		return -1;
	__builtin_memcpy(to, __builtin_assume_aligned(from, 4), length);
	return 0;
}
#else
static long (*const load_bytes)(const void *buffer, u32 offset, void *to, u32 length) = (void *)26;
#endif
static long long (*const checksum_difference)(const void *from, u32 from_size, const void *to, u32 to_size, u32 seed) =
	(void *)28;
static long (*const clone_redirect)(struct __sk_buff *buffer, u32 ifindex, u64 flags) = (void *)13;
static long (*const redirect)(u32 ifindex, u64 flags) = (void *)23;
static long (*const change_tail)(struct __sk_buff *buffer, u32 length, u64 flags) = (void *)38;
static u64 (*const socket_cookie)(void *context) = (void *)46;
static long (*const adjust_room)(struct __sk_buff *buffer, int difference, u32 mode, u64 flags) = (void *)50;
#define ROOM_BEHIND_ETHERNET 1
/* What the room is for. */
enum room_flag {
	ROOM_KEEPS_PARTS = 1 << 0, /* the size of a packet's parts */
	ROOM_IPV4 = 1 << 1,
	ROOM_IPV6 = 1 << 2,
	ROOM_UDP = 1 << 4,
};
#define ROOM_ETHERNET(length) ((u64)(length) << 56)
#define REDIRECT_IN 1
static long (*const adjust_note)(struct xdp_md *buffer, int difference) = (void *)54;
static long (*const look_up_fib)(void *context, struct fib_lookup *lookup, int length, u32 flags) = (void *)69;

static long (*const map_push)(void *map, const void *value, u64 flags) = (void *)87;
static long (*const redirect_neighbour)(u32 ifindex, struct next_hop *next, int length, u64 flags) = (void *)152;
static long (*const redirect_peer)(u32 ifindex, u64 flags) = (void *)155;
static int (*const set_answer)(int answer) = (void *)187;

#endif
