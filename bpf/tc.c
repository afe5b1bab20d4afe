/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Programs at traffic control, of workloads' and the host's interfaces, in and out. `cali_tc_main` is attached; what it does not
 * know goes to `cali_tc_policy`, by tail call. Compiled once for each IP version (FAMILY).
 *
 * main: read headers → known flow: pass → else policy: lists of this interface → remember the flow, pass; or drop
 *
 * No program has both tail calls and functions: arm64 kernels before 6.0 refuse that.
 */
#include "kernel.h"
#include "packet.h"
#include "counters.h"
#include "parse.h"
#include "conntrack.h"
#include "policy.h"
#include "routes.h"

char licence[] SECTION("license") = "GPL";

enum program {
	PROGRAM_POLICY,
	PROGRAMS,
};

struct {
	MEMBER_NUMBER(type, MAP_PROGRAMS);
	MEMBER_NUMBER(max_entries, PROGRAMS);
	MEMBER_NUMBER(key_size, sizeof(u32));
	MEMBER_NUMBER(value_size, sizeof(u32));
} cali_programs SECTION(".maps");

/* The packet goes on: to programs behind this one, and then to where it wants to. */
INLINE int pass(struct __sk_buff *buffer, u32 mark)
{
	if (!settings.is_leaving)
		set_mark(buffer, mark);
	return TC_NEXT;
}

INLINE int other_ethernet(struct __sk_buff *buffer)
{
	be16 type = buffer->protocol;
	if (type == NETWORK16(ETHERNET_ARP))
		return TC_NEXT;
	if (type == NETWORK16(OTHER_ETHERNET) && settings.has_both)
		return TC_NEXT;
	/* A workload sends and gets what policy can judge, and nothing else. */
	return settings.is_workload ? TC_DROP : TC_NEXT;
}

SECTION("classifier") int cali_tc_main(struct __sk_buff *buffer)
{
	if (buffer->protocol != NETWORK16(OWN_ETHERNET))
		return other_ethernet(buffer);
	count(buffer, REASON_TOTAL);
	if (settings.is_leaving && (buffer->mark & MARK_BYPASS) == MARK_BYPASS) {
		count(buffer, REASON_BYPASS);
		return TC_NEXT;
	}
	struct packet *packet = this_packet();
	if (!packet)
		return TC_DROP;
	struct tuple *tuple = &packet->tuple;
	struct headers headers;
	int reason = parse(buffer, tuple, &headers);
	if (reason)
		return drop(buffer, reason);
	if (is_discovery(tuple))
		return pass(buffer, MARK_SEEN);
	if (settings.checks_source && !is_source_of(&tuple->source, buffer->ifindex))
		return drop(buffer, REASON_SOURCE);

	enum connection connection =
		is_icmp_error(tuple) ? track_related(buffer, tuple, headers.transport + 8) : track(buffer, tuple);
	packet->connection = connection;
	switch (connection) {
	case CONNECTION_CONFIRMED:
		return pass(buffer, MARK_BYPASS);
	case CONNECTION_KNOWN:
	case CONNECTION_RELATED:
		return pass(buffer, MARK_SEEN);
	case CONNECTION_INVALID:
		return drop(buffer, REASON_DENIED);
	case CONNECTION_MIDDLE:
		/* Netfilter may know it: a connection from before this program. */
		if (!settings.is_leaving)
			return pass(buffer, MARK_FALL_THROUGH);
		if (settings.is_workload)
			return drop(buffer, REASON_DENIED);
		break;
	case CONNECTION_NEW:
		break;
	}
	tail_call(buffer, &cali_programs, PROGRAM_POLICY);
	/* Without policy nothing new passes. */
	return drop(buffer, REASON_DENIED);
}

/* What policy says where a list is missing: a workload's is closed, the host's open. */
INLINE enum verdict evaluate_or(struct __sk_buff *buffer, struct packet *packet, u64 list, enum verdict missing)
{
	return list ? evaluate(buffer, packet, list) : missing;
}

INLINE enum verdict judge(struct __sk_buff *buffer, struct packet *packet, int is_host)
{
	struct lists_key key = {.ifindex = buffer->ifindex, .family = FAMILY};
	struct lists *lists = map_lookup(&bpfp_lists, &key);
	if (!lists)
		return settings.is_workload ? VERDICT_DENY : VERDICT_ALLOW;
	if (settings.is_workload)
		return evaluate_or(buffer, packet, lists->ids[settings.is_leaving ? LIST_INGRESS : LIST_EGRESS], VERDICT_DENY);

	if (!settings.is_leaving) {
		enum verdict before = evaluate_or(buffer, packet, lists->ids[LIST_BEFORE_DNAT], VERDICT_NONE);
		if (before != VERDICT_NONE)
			return before;
	}
	u32 own = settings.is_leaving ? LIST_EGRESS : LIST_INGRESS;
	u32 forward = settings.is_leaving ? LIST_FORWARD_EGRESS : LIST_FORWARD_INGRESS;
	enum verdict verdict = evaluate_or(buffer, packet, is_host ? lists->ids[own] : lists->ids[forward], VERDICT_ALLOW);
	return verdict == VERDICT_NONE ? VERDICT_ALLOW : verdict;
}

SECTION("classifier") int cali_tc_policy(struct __sk_buff *buffer)
{
	struct packet *packet = this_packet();
	if (!packet)
		return TC_DROP;
	struct tuple *tuple = &packet->tuple;
	packet->hit_count = 0;
	packet->log = 0;

	int is_host = 0;
	if (!settings.is_workload) {
		is_host = is_this_host(settings.is_leaving ? &tuple->source : &tuple->destination);
		const struct address *other_side = settings.is_leaving ? &tuple->destination : &tuple->source;
		if (is_host && is_failsafe(tuple->protocol, tuple->destination_port, settings.is_leaving, other_side)) {
			count(buffer, REASON_FAILSAFE);
			goto allow;
		}
	}
	enum verdict verdict = judge(buffer, packet, is_host);
	for (u32 i = 0; i < MOST_HITS; i++) {
		if (i >= packet->hit_count)
			break;
		count_rule(packet->hits[i]);
	}
	if (verdict != VERDICT_ALLOW)
		return drop(buffer, REASON_DENIED);
	count(buffer, REASON_ALLOWED);
allow:
	/* A packet in the middle of what is not known is let out of the host, if policy wants, and not taken for a beginning. */
	if (packet->connection == CONNECTION_NEW && remember(buffer, tuple) && !is_host)
		return drop(buffer, REASON_NOT_TRACKED);
	return pass(buffer, MARK_SEEN);
}
