/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Programs at the drivers of the host's devices: policy that is asked before connections are looked at, for packets that come
 * in. What it denies costs no more than this. `cali_xdp_main` is attached; one of the others, compiled once for each IP version
 * (FAMILY), is reached from it by tail call.
 *
 * It decides only where the programs at traffic control would decide the same, and leaves everything else to them: fragments,
 * envelopes between nodes, neighbour discovery, ports that always work, what cannot be read. They judge on their own where this
 * program is missing.
 */
#define AT_DRIVER
#include "kernel.h"
#include "packet.h"
#include "counters.h"
#include "parse.h"
#include "failsafes.h"
#include "note.h"
#include "policy.h"

char licence[] SECTION("license") = "GPL";

/* `crates/bpf/src/xdp.rs` has the same order. */
enum program {
	PROGRAM_V4,
	PROGRAM_V6,
	PROGRAMS,
};

struct {
	MEMBER_NUMBER(type, MAP_PROGRAMS);
	MEMBER_NUMBER(max_entries, PROGRAMS);
	MEMBER_NUMBER(key_size, sizeof(u32));
	MEMBER_NUMBER(value_size, sizeof(u32));
} cali_xdp_progs SECTION(".maps");

SECTION("xdp") int cali_xdp_main(struct xdp_md *buffer)
{
	be16 type;
	if (load_bytes(buffer, 12, &type, sizeof type))
		return XDP_PASS;
	if (type == NETWORK16(ETHERNET_IPV4))
		tail_call(buffer, &cali_xdp_progs, PROGRAM_V4);
	else if (type == NETWORK16(ETHERNET_IPV6))
		tail_call(buffer, &cali_xdp_progs, PROGRAM_V6);
	return XDP_PASS;
}

/* Whether it may be an envelope between nodes, which passes whatever policy says. */
INLINE int may_be_envelope(const struct tuple *tuple)
{
	if (FAMILY == 4 && tuple->protocol == PROTOCOL_IPIP)
		return 1;
	u32 port = HOST16(tuple->destination_port);
	return tuple->protocol == PROTOCOL_UDP && port && (port == options.vxlan_port || port == options.wireguard_port);
}

/* The packet's ends; or not 0 if it is not for this program to judge. */
INLINE int read(struct xdp_md *buffer, struct tuple *tuple)
{
	struct headers headers;
	if (parse_network(buffer, settings.link_header, tuple, &headers))
		return -1;
	if (tuple->is_later_fragment || headers.is_first_fragment)
		return -1;
	if (parse_transport(buffer, headers.transport, tuple))
		return -1;
	return is_discovery(tuple) || may_be_envelope(tuple);
}

SECTION("xdp") int cali_xdp_policy(struct xdp_md *buffer)
{
	struct packet *packet = this_packet();
	if (!packet)
		return XDP_PASS;
	struct tuple *tuple = &packet->tuple;
	packet->flags = 0;
	packet->hit_count = 0;
	packet->log = 0;
	count(buffer, REASON_TOTAL);
	struct lists_key key = {.ifindex = device_of(buffer), .family = FAMILY};
	struct lists *lists = map_lookup(&bpfp_lists, &key);
	u64 list = lists ? lists->ids[LIST_UNTRACKED_INGRESS] : 0;
	if (!list || read(buffer, tuple))
		return XDP_PASS;
	packet->flags = PACKET_READ;
	/* Those of this host, and answers from those of others. */
	if (is_failsafe(tuple->protocol, tuple->destination_port, 0, &tuple->source) ||
	    is_failsafe(tuple->protocol, tuple->source_port, 1, &tuple->source)) {
		count(buffer, REASON_FAILSAFE);
		return XDP_PASS;
	}
	enum verdict verdict = evaluate(buffer, list);
	/* Without a note the packet is judged again, and counted there. */
	if (verdict != VERDICT_DENY && leave_note(buffer, verdict == VERDICT_ALLOW ? NOTE_ALLOWED : NOTE_NO_OPINION))
		return XDP_PASS;
	count_hits(buffer, 0, 0);
	if (packet->log)
		tell(buffer, verdict == VERDICT_DENY ? REASON_DENIED : REASON_ALLOWED,
		     verdict == VERDICT_DENY ? EVENT_LOGGED_DENIED : EVENT_LOGGED_ALLOWED);
	if (verdict == VERDICT_DENY)
		return drop(buffer, REASON_DENIED);
	if (verdict == VERDICT_ALLOW)
		count(buffer, REASON_ALLOWED);
	return XDP_PASS;
}
