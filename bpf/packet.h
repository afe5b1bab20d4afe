/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What one packet is and what was found out about it; kept per processor between the programs that it passes. */
#ifndef PACKET_H
#define PACKET_H

#include "address.h"

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

enum kind {
	KIND_PLAIN,
	KIND_TUNNEL,   /* between nodes: what comes in was seen on another interface before, in its envelope */
	KIND_LOOPBACK,
	KIND_SERVICES, /* bpfout.cali: the host's own packets to services come in here */
};

enum reverse_path {
	REVERSE_PATH_ANY,
	REVERSE_PATH_LOOSE,
	REVERSE_PATH_STRICT,
};

/* What the node is configured to do, and the rest of what an interface is; frozen like the settings.
 * `crates/bpf/src/interface/options.rs` has the same fields. */
struct options {
	u32 kind;               /* enum kind; of the host's interfaces */
	u32 reverse_path;       /* enum reverse_path: of the host's interfaces; a workload's is always strict */
	u32 drops_to_host;      /* what a workload sends to its own host is dropped, whatever policy says */
	u32 keeps_host_sources; /* a workload's address is shown to all nodes */
	u32 looks_up_sources;   /* workloads have networks that they may also send from */
	u32 allows_ipip;        /* from workloads */
	u32 allows_vxlan;
	u32 vxlan_port;         /* 0: none */
	u32 vxlan_network;      /* VNI */
	u32 wireguard_port;     /* 0: none */
	u32 first_port;         /* of those that replace a source's port which another flow has */
	u32 ports;              /* how many they are */
	u32 is_udp_only;        /* anything else passes */
	u32 tells_drops;        /* as events */
	u32 tells_flows;        /* what policy found, for flow logs */
	u32 asks_untracked;     /* the interface has policy that is asked before connections are looked at */
	u32 redirects;          /* forwards past the host's stack */
	u32 redirects_to_peer;  /* and into a workload's namespace */
	u32 maglev_places;      /* of a service's table; 0: there are no tables */
	u32 answers_directly;   /* backends' nodes answer clients themselves */
	u32 has_limits;         /* of packets or connections: a workload's */
	u32 keeps_fragments;    /* those that come before the first wait for it */
	u32 fragment_seconds;   /* how long the first one's ports count, and others wait */
	u32 service_mark;       /* of workloads' answers to clients outside of a service; 0: none */
	u32 bypasses_tracking;  /* Linux tracks only those packets that have to take its way */
	u32 profiles;           /* notes how long packets take */
	u32 tunnel_address[4];  /* the node's own in its tunnel; IPv4: the first word; 0: none */
};
ASSERT_SIZE(struct options, 120);
const volatile struct options options = {.first_port = 20000, .ports = 10000, .fragment_seconds = 30};

/* Whether a program is at the source's end of a packet's way through this node. The host's own packets to itself have no other. */
INLINE int is_source_side(void)
{
	return !settings.is_leaving || options.kind == KIND_LOOPBACK;
}

/* What connection tracking says. */
enum connection {
	CONNECTION_NEW,
	CONNECTION_KNOWN,     /* and allowed by the policy of this interface's end */
	CONNECTION_CONFIRMED, /* and by that of the other end too */
	CONNECTION_MIDDLE,    /* TCP in the middle of something that is not known */
	CONNECTION_RELATED,   /* an ICMP error about a known one */
	CONNECTION_INVALID,
	CONNECTION_GONE,      /* its workload is: the other side is told by a RST */
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

/* Addresses and ports, one behind the other as headers have them. */
struct ends {
	struct address source;
	struct address destination;
	be16 source_port;
	be16 destination_port;
};

/* The two ends of a connection: its key, in the bytes that Calico uses. */
struct connection_key {
	u32 protocol;
	struct address a; /* the end whose address, as words of this processor, is lower; or else whose port is */
	struct address b;
	u16 port_a; /* as the processor has them */
	u16 port_b;
};

INLINE void wire_of(struct ends *ends, const struct tuple *tuple)
{
	ends->source = tuple->source;
	ends->destination = tuple->destination;
	ends->source_port = tuple->source_port;
	ends->destination_port = tuple->destination_port;
}

enum packet_flag {
	PACKET_NAT = 1 << 0,      /* addresses or ports change: `wire` to `target` */
	PACKET_INNER = 1 << 1,    /* they are those of the packet that an ICMP error is about */
	PACKET_UNTRACKED = 1 << 2, /* no entry is made */
	PACKET_EXCLUDED = 1 << 3,  /* to a service that is left to the host */
	PACKET_ANSWER = 1 << 4,    /* of a flow with NAT, and behind it: to be changed where it leaves */
	PACKET_KNOWN = 1 << 5,     /* there is an entry of its flow */
	PACKET_READ = 1 << 6,      /* `tuple` is this packet's */
	PACKET_WRAP = 1 << 7,      /* goes to the node `tunnel` in an envelope */
	PACKET_UNWRAPPED = 1 << 8, /* came out of one, from there */
	PACKET_RETURNS = 1 << 9,   /* an answer from there: to be sent on to the client */
	PACKET_MISLED = 1 << 10,   /* from another node than its flow's */
	PACKET_STAYS = 1 << 11,    /* of a service whose backends another node would not find */
	PACKET_ASKED = 1 << 12,    /* at the driver, policy without tracking had nothing to say about it */
};

/* What policy found about a packet, as flow logs are told it; `crates/bpf/src/layout/judged.rs` has the same fields. */
#define JUDGED_HITS 16
struct judged {
	u64 time; /* of the clock that only goes forward */
	u32 length;
	u8 hook;
	u8 family;
	u8 protocol;
	u8 hit_count; /* of which the first are told */
	be32 source[4]; /* IPv4: the first */
	be32 destination[4]; /* behind DNAT */
	be32 original[4]; /* in front of it */
	be16 source_port;
	be16 destination_port;
	be16 original_port;
	u16 zero;
	u64 hits[JUDGED_HITS];
};
ASSERT_SIZE(struct judged, 200);

struct packet {
	/* For and from policy; a test reads these. */
	struct tuple tuple; /* as policy sees it: behind DNAT */
	u32 connection;     /* enum connection */
	u32 segment;        /* of the list that is evaluated */
	u32 start;          /* and the first rule of it that counts */
	u32 hit_count;
	u64 list;
	u64 values[DIMENSIONS];
	u64 hits[MOST_HITS];
	u64 matches[ROW_WORDS]; /* rules of the segment; on the stack the verifier would follow each word's history */
	u32 log;
	u32 verdict; /* enum verdict */

	u64 pending;        /* a list that is evaluated beside */
	struct ends wire;   /* as the packet has it */
	struct ends target; /* as it shall have it */
	u32 network;        /* where the IP header is */
	u32 transport;      /* and what is behind it */
	u32 flags;          /* enum packet_flag */
	u32 entry_flags;    /* of the connection's entry, known or to be made */
	u32 mark;           /* that it gets where it comes in */
	u32 peer;           /* the device of the workload that the flow's packets go to; 0: not known, or none */
	u32 error;          /* ICMP type and code of the error that is sent back */
	be32 error_rest;    /* and the word behind the checksum */
	struct connection_key key;  /* of the entry with the state */
	struct connection_key stub; /* of the one that leads to it */
	struct address tunnel;      /* the other node of an envelope; 0: none */
	be32 fragment_id;           /* of a fragment: for the program that keeps and releases them */
	u32 is_unwrapped;           /* for the first program, by the one that calls it again */
	struct fib_lookup fib;
	struct judged judged;
	u64 began;                  /* where that is asked: when the first program began with it; 0 afterwards */
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
	MARK_SKIP_FIB = 0x01100000,
	MARK_NO_TRACKING = 0x01400000, /* seen; Linux need not track it */
	MARK_NAT_OUTGOING = 0x01800000,
	MARK_BYPASS = 0x03000000,
	MARK_BYPASS_FORWARD = 0x03300000,
	MARK_MASQUERADE = 0x03600000,
	MARK_KIND = 0x03f00000, /* the bits that tell the ones above from each other */
	MARK_FALL_THROUGH = 0x05000000,
	MARK_LINUX_ESTABLISHED = 0x08000000,
};

INLINE int is_seen(const struct __sk_buff *buffer)
{
	return buffer->mark & MARK_SEEN;
}

INLINE int has_mark(const struct __sk_buff *buffer, u32 mark)
{
	return (buffer->mark & MARK_KIND) == mark;
}

INLINE void set_mark(struct __sk_buff *buffer, u32 mark)
{
	buffer->mark = (buffer->mark & ~MARK_MASK) | mark;
}

#endif
