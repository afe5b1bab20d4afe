/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What one packet is and what was found out about it; kept per processor between the programs that it passes. */
#ifndef PACKET_H
#define PACKET_H

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

INLINE int address_equal(const struct address *left, const struct address *right)
{
	int equal = 1;
	for (int i = 0; i < WORDS; i++)
		equal &= left->words[i] == right->words[i];
	return equal;
}

/* Roles and options of one interface: frozen before the program is verified, so that what they rule out is not even
 * there. `crates/bpf/src/interface.rs` has the same fields. */
struct settings {
	u32 is_workload;    /* else: of the host, or a tunnel */
	u32 is_leaving;     /* the packet leaves the host's namespace by this interface */
	u32 link_header;    /* 14, or 0 for devices without Ethernet headers */
	u32 has_both;       /* a program for the other IP version is attached beside this one */
	u32 checks_source;  /* a workload's packets need a source that is the workload's */
};
const volatile struct settings settings = {.link_header = 14};

/* What connection tracking says. */
enum connection {
	CONNECTION_NEW,
	CONNECTION_KNOWN,     /* and allowed by the policy of this interface's end */
	CONNECTION_CONFIRMED, /* and by that of the other end too */
	CONNECTION_MIDDLE,    /* TCP in the middle of something that is not known */
	CONNECTION_RELATED,   /* an ICMP error about a known one */
	CONNECTION_INVALID,
};

enum verdict {
	VERDICT_NONE,
	VERDICT_ALLOW,
	VERDICT_DENY,
};

#define DIMENSIONS 6
#define MOST_HITS 32
#define ROW_WORDS 16

/* Source and destination, with ports as packets have them. ICMP: the destination "port" is type and code. */
struct tuple {
	struct address source;
	struct address destination;
	be16 source_port;
	be16 destination_port;
	u8 protocol;
	u8 tcp_flags;
	u8 is_later_fragment;
	u8 zero;
	be32 sequence;
	be32 acknowledgement;
};

struct packet {
	struct tuple tuple;
	u32 connection; /* enum connection */
	u32 segment;    /* of the list that is evaluated */
	u32 start;      /* and the first rule of it that counts */
	u32 hit_count;
	u64 list;
	u64 values[DIMENSIONS];
	u64 hits[MOST_HITS];
	u64 matches[ROW_WORDS]; /* rules of the segment; on the stack the verifier would follow each word's history */
	u32 log;
	u32 verdict; /* enum verdict */
};

MAP(cali_packet, MAP_PERCPU_ARRAY, u32, struct packet, 1, 0);

INLINE struct packet *this_packet(void)
{
	u32 zero = 0;
	return map_lookup(&cali_packet, &zero);
}

enum tcp_flag {
	TCP_FIN = 0x01,
	TCP_SYN = 0x02,
	TCP_RST = 0x04,
	TCP_ACK = 0x10,
};

INLINE int is_opening(const struct tuple *tuple)
{
	return tuple->protocol == PROTOCOL_TCP && (tuple->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
}

/* The bits of a packet's mark that are ours. */
enum mark {
	MARK_MASK = 0x1ff00000,
	MARK_SEEN = 0x01000000,
	MARK_BYPASS = 0x03000000,
	MARK_FALL_THROUGH = 0x05000000,
	MARK_LINUX_ESTABLISHED = 0x08000000,
};

INLINE void set_mark(struct __sk_buff *buffer, u32 mark)
{
	buffer->mark = (buffer->mark & ~MARK_MASK) | mark;
}

#endif
