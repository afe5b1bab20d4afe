/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Programs at traffic control, of workloads', the host's and tunnels' interfaces, in and out. `cali_tc_main` is attached; the
 * others are reached from it by tail call. Compiled once for each IP version (FAMILY).
 *
 * main: read headers → known flow: pass, or change addresses → else look for a service → policy: lists of this interface →
 * remember the flow, change addresses, pass; or drop
 *
 * No program has both tail calls and functions: arm64 kernels before 6.0 refuse that.
 */
#include "kernel.h"
#include "packet.h"
#include "counters.h"
#include "parse.h"
#include "fragments.h"
#include "routes.h"
#include "failsafes.h"
#include "paths.h"
#include "tunnels.h"
#include "services.h"
#include "maglev.h"
#include "conntrack.h"
#include "remember.h"
#include "translate.h"
#include "errors.h"
#include "forward.h"
#include "wrap.h"
#include "reset.h"
#include "note.h"
#include "profile.h"
#include "policy.h"

char licence[] SECTION("license") = "GPL";

/* `crates/bpf/src/interface.rs` has the same order. */
enum program {
	PROGRAM_POLICY,
	PROGRAM_TRANSLATE,
	PROGRAM_ERROR,
	PROGRAM_RESET,
	PROGRAM_UNWRAP,
	PROGRAM_FRAGMENT,
	PROGRAM_MAIN,
	PROGRAM_OTHER_VERSION,
	PROGRAMS,
};

struct {
	MEMBER_NUMBER(type, MAP_PROGRAMS);
	MEMBER_NUMBER(max_entries, PROGRAMS);
	MEMBER_NUMBER(key_size, sizeof(u32));
	MEMBER_NUMBER(value_size, sizeof(u32));
} cali_programs SECTION(".maps");

/* Envelopes of clients' packets come to the host's own interfaces. */
INLINE int may_unwrap(void)
{
	return !settings.is_workload && !settings.is_leaving && settings.link_header && options.kind == KIND_PLAIN;
}

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
	if (type == NETWORK16(OTHER_ETHERNET) && settings.has_both) {
		/* Reached from here, or attached behind this one. */
		tail_call(buffer, &cali_programs, PROGRAM_OTHER_VERSION);
		return TC_NEXT;
	}
	/* A workload sends and gets what policy can judge, and nothing else. */
	return settings.is_workload ? TC_DROP : TC_NEXT;
}

/* What a packet of a flow is marked with: what happens to its source later, or what other programs need not look at. */
INLINE u32 mark_of(u32 flags, int is_confirmed)
{
	if (flags & ENTRY_MASQUERADE)
		return MARK_MASQUERADE;
	if (settings.is_workload && (flags & ENTRY_NAT_OUTGOING))
		return MARK_NAT_OUTGOING;
	/* Linux must see every packet of what it alone can lead on. */
	if (is_confirmed && !(options.bypasses_tracking && flags & ENTRY_SKIP_FIB))
		return MARK_BYPASS;
	if (settings.is_workload && flags & ENTRY_DIRECT)
		return MARK_NO_TRACKING;
	return flags & ENTRY_SKIP_FIB ? MARK_SKIP_FIB : MARK_SEEN;
}

/* The same of a flow that is known. An answer that changes where it leaves must be seen there. */
INLINE u32 mark_of_known(const struct packet *packet)
{
	return mark_of(packet->entry_flags, packet->connection == CONNECTION_CONFIRMED && !(packet->flags & PACKET_ANSWER));
}

/* A packet in the middle of what is not known. A verdict, or 0: policy decides, and nothing is remembered. */
INLINE int unknown(struct __sk_buff *buffer, struct packet *packet)
{
	/* Netfilter may know: a connection from before this program. */
	if (!settings.is_leaving && (packet->connection == CONNECTION_MIDDLE || !settings.is_workload))
		return pass(buffer, MARK_FALL_THROUGH);
	/* Of a flow that came in without being tracked, only this side is known. */
	int is_half_known = options.asks_untracked && is_seen(buffer);
	if (settings.is_workload || (packet->connection == CONNECTION_INVALID && !is_half_known))
		return drop(buffer, REASON_DENIED);
	packet->flags |= PACKET_UNTRACKED;
	return 0;
}

/* Looks whether a new flow is to a service, and where it then goes. */
INLINE enum service find_service(struct packet *packet)
{
	struct tuple *tuple = &packet->tuple;
	u8 protocol = tuple->protocol;
	if (protocol != PROTOCOL_TCP && protocol != PROTOCOL_UDP && protocol != PROTOCOL_SCTP)
		return SERVICE_NONE;
	struct question question = {
		.client = tuple->source,
		.address = tuple->destination,
		.port = HOST16(tuple->destination_port),
		.protocol = protocol,
		.is_inside = 1,
		.any_node = settings.is_workload || options.kind == KIND_SERVICES || options.kind == KIND_LOOPBACK,
		.is_local = (packet->flags & PACKET_UNWRAPPED) != 0,
	};
	if (!settings.is_workload && options.kind != KIND_SERVICES && options.kind != KIND_LOOPBACK)
		question.is_inside = (route_flags(&tuple->source) & (ROUTE_HOST | ROUTE_WORKLOAD)) != 0;
	struct frontend_key key;
	struct backend backend = {};
	const struct frontend *frontend = find_frontend(&question, &key);
	if (!frontend)
		return SERVICE_NONE;
	enum service service;
	if (is_by_table(frontend)) {
		service = choose_by_table(tuple, frontend->id, &backend);
		packet->entry_flags |= ENTRY_MAGLEV;
	} else {
		/* In the middle of a connection it is too late to choose. */
		service = packet->connection == CONNECTION_MIDDLE ? SERVICE_NONE
								   : choose_backend(&question, frontend, &backend);
	}
	if (service != SERVICE_FOUND)
		return service;
	/* Another node has other backends under the port of this one. */
	if (frontend->flags & FRONTEND_INTERNAL_LOCAL)
		packet->flags |= PACKET_STAYS;
	tuple->destination = backend.address;
	tuple->destination_port = NETWORK16(backend.port);
	packet->target.destination = tuple->destination;
	packet->target.destination_port = tuple->destination_port;
	packet->flags |= PACKET_NAT;
	return service;
}

/* The middle of something that no table leads anywhere: as without tables. */
INLINE int left_alone(struct __sk_buff *buffer, struct packet *packet)
{
	if (!options.asks_untracked)
		return unknown(buffer, packet);
	tail_call(buffer, &cali_programs, PROGRAM_POLICY);
	return drop(buffer, REASON_DENIED);
}

/* Beginnings that come in: services, and addresses that nobody has. Answers a verdict, or 0 to go on. */
INLINE int arrive(struct __sk_buff *buffer, struct packet *packet)
{
	/* Known already: a SYN once more. */
	if (packet->flags & PACKET_NAT) {
		packet->tuple.destination = packet->target.destination;
		packet->tuple.destination_port = packet->target.destination_port;
	} else if (!(packet->flags & PACKET_KNOWN)) {
		enum service service = find_service(packet);
		if (has_tables() && packet->connection == CONNECTION_MIDDLE) {
			if (service == SERVICE_NONE)
				return left_alone(buffer, packet);
			packet->connection = CONNECTION_NEW;
		}
		/* Another node sent it here for a backend, and for nothing else. */
		if (packet->flags & PACKET_UNWRAPPED && service != SERVICE_FOUND)
			return drop(buffer, REASON_ENVELOPE);
		/* The host's packets come here to be given a backend: another way would lead them here again. */
		if (options.kind == KIND_SERVICES && service == SERVICE_NONE)
			service = SERVICE_EMPTY;
		switch (service) {
		case SERVICE_DROPS:
			return drop(buffer, REASON_SOURCE);
		case SERVICE_EMPTY:
			packet->error = ERROR_PORT_UNREACHABLE;
			packet->error_rest = 0;
			count(buffer, REASON_NO_BACKEND);
			tail_call(buffer, &cali_programs, PROGRAM_ERROR);
			return TC_DROP;
		case SERVICE_EXCLUDED:
			packet->flags |= PACKET_EXCLUDED;
			break;
		default:
			break;
		}
	}
	if (packet->flags & PACKET_EXCLUDED)
		return 0;
	u32 route = route_flags(&packet->tuple.destination);
	if (route & ROUTE_BLACKHOLE_DROP)
		return drop(buffer, REASON_BLACKHOLE);
	if (route & ROUTE_BLACKHOLE_REJECT) {
		packet->error = ERROR_PORT_UNREACHABLE;
		packet->error_rest = 0;
		count(buffer, REASON_BLACKHOLE);
		tail_call(buffer, &cali_programs, PROGRAM_ERROR);
		return TC_DROP;
	}
	return 0;
}

/* The host to itself: of interest only if it is to a service. */
INLINE int on_loopback(struct __sk_buff *buffer, struct packet *packet)
{
	if (!(packet->flags & PACKET_NAT)) {
		if (packet->flags & PACKET_KNOWN || packet->connection != CONNECTION_NEW || is_seen(buffer))
			return TC_NEXT;
		enum service service = find_service(packet);
		if (service == SERVICE_EMPTY)
			return drop(buffer, REASON_NO_BACKEND);
		if (service != SERVICE_FOUND)
			return TC_NEXT;
	}
	tail_call(buffer, &cali_programs, packet->connection == CONNECTION_NEW ? PROGRAM_POLICY : PROGRAM_TRANSLATE);
	return drop(buffer, REASON_CHECKSUM);
}

PROFILED(cali_tc_main)
{
	if (options.kind == KIND_LOOPBACK && !settings.is_leaving)
		return TC_NEXT;
	if (buffer->protocol != NETWORK16(OWN_ETHERNET))
		return other_ethernet(buffer);
	struct packet *packet = this_packet();
	if (!packet)
		return TC_DROP;
	u32 is_unwrapped = may_unwrap() && packet->is_unwrapped;
	packet->is_unwrapped = 0;
	if (!is_unwrapped) {
		begin_profile(packet);
		count(buffer, REASON_TOTAL);
	}
	if (options.has_limits && exceeds_rate(buffer))
		return drop(buffer, REASON_LIMIT);
	if (settings.is_leaving && (has_mark(buffer, MARK_BYPASS) || has_mark(buffer, MARK_BYPASS_FORWARD))) {
		count(buffer, REASON_BYPASS);
		return TC_NEXT;
	}
	packet->flags = 0;
	packet->hit_count = 0;
	struct tuple *tuple = &packet->tuple;
	struct headers headers;
	int reason = parse(buffer, tuple, &headers);
	if (may_wait() && !is_unwrapped && (reason == REASON_FRAGMENT || headers.is_awaited)) {
		packet->fragment_id = headers.fragment_id;
		tail_call(buffer, &cali_programs, PROGRAM_FRAGMENT);
	}
	if (reason)
		return drop(buffer, reason);
	if (options.is_udp_only && tuple->protocol != PROTOCOL_UDP)
		return TC_NEXT;
	packet->network = settings.link_header;
	packet->transport = headers.transport;
	packet->flags = PACKET_READ | (is_unwrapped ? PACKET_UNWRAPPED : 0);
	if (!is_unwrapped)
		__builtin_memset(&packet->tunnel, 0, sizeof packet->tunnel);
	packet->entry_flags = 0;
	packet->mark = MARK_SEEN;
	packet->peer = 0;
	wire_of(&packet->wire, tuple);
	packet->target = packet->wire;
	/* Where it goes is up to netfilter: no farther than to the host. */
	if (is_discovery(tuple))
		return pass(buffer, MARK_SKIP_FIB);
	switch (is_unwrapped ? ENVELOPE_NONE : envelope(buffer, tuple, headers.transport)) {
	case ENVELOPE_OF_SERVICE:
		if (!may_unwrap())
			return drop(buffer, REASON_ENVELOPE);
		packet->tunnel = tuple->source;
		tail_call(buffer, &cali_programs, PROGRAM_UNWRAP);
		return drop(buffer, REASON_ENVELOPE);
	case ENVELOPE_PASSES:
		return pass(buffer, MARK_SEEN);
	case ENVELOPE_WRONG:
		return drop(buffer, REASON_ENVELOPE);
	case ENVELOPE_NONE:
		break;
	}
	/* What the driver's program has judged already. The rest of what is checked here it leaves to this one. */
	if (options.asks_untracked && !settings.is_leaving && !is_unwrapped) {
		enum note_verdict note = read_note(buffer);
		if (note == NOTE_NO_OPINION)
			packet->flags |= PACKET_ASKED;
		if (note == NOTE_ALLOWED) {
			if (check_path(buffer, packet, tuple) == PATH_WRONG)
				return drop(buffer, REASON_SOURCE);
			count(buffer, REASON_BYPASS);
			return pass(buffer, MARK_SEEN);
		}
	}

	struct leg *leg = NULL;
	enum connection connection = is_icmp_error(tuple)
					     ? track_related(buffer, packet, tuple, headers.transport + 8)
					     : track(buffer, packet, tuple, &leg);
	packet->connection = connection;
	if (packet->flags & PACKET_MISLED)
		return drop(buffer, REASON_SOURCE);
	if (options.kind == KIND_LOOPBACK)
		return on_loopback(buffer, packet);
	/* The path of a flow that is known was checked when it began. */
	if (!settings.is_leaving && !is_unwrapped &&
	    (leg || (connection != CONNECTION_KNOWN && connection != CONNECTION_CONFIRMED))) {
		enum path path = check_path(buffer, packet, tuple);
		if (path == PATH_WRONG)
			return drop(buffer, REASON_SOURCE);
		if (path == PATH_LENT)
			packet->flags |= PACKET_UNTRACKED;
		u32 ifindex = path == PATH_RIGHT ? buffer->ifindex : 0;
		if (leg && leg->ifindex != ifindex)
			leg->ifindex = ifindex;
	}
	/* Maybe another node's, by a table that is the same here: new to this node, and judged as such. */
	int may_be_taken_over = has_tables() && connection == CONNECTION_MIDDLE;
	/* Policy without tracking comes first, whatever is known: the program that can ask it does the rest, too. */
	if (options.asks_untracked && !(packet->flags & PACKET_ASKED) && connection != CONNECTION_NEW &&
	    connection != CONNECTION_GONE && !may_be_taken_over) {
		tail_call(buffer, &cali_programs, PROGRAM_POLICY);
		return drop(buffer, REASON_DENIED);
	}
	switch (connection) {
	case CONNECTION_CONFIRMED:
	case CONNECTION_KNOWN:
	case CONNECTION_RELATED: {
		packet->mark = mark_of_known(packet);
		if (!(packet->flags & (PACKET_NAT | PACKET_WRAP)))
			return forward(buffer, packet);
		tail_call(buffer, &cali_programs, PROGRAM_TRANSLATE);
		return drop(buffer, REASON_CHECKSUM);
	}
	case CONNECTION_GONE:
		tail_call(buffer, &cali_programs, PROGRAM_RESET);
		return drop(buffer, REASON_DENIED);
	case CONNECTION_INVALID:
	case CONNECTION_MIDDLE: {
		if (is_unwrapped && !may_be_taken_over)
			return drop(buffer, REASON_ENVELOPE);
		if (may_be_taken_over)
			break;
		int verdict = unknown(buffer, packet);
		if (verdict)
			return verdict;
		break;
	}
	case CONNECTION_NEW:
		break;
	}
	if (!settings.is_leaving) {
		int verdict = arrive(buffer, packet);
		if (verdict)
			return verdict;
	}
	tail_call(buffer, &cali_programs, PROGRAM_POLICY);
	/* Without policy nothing new passes. */
	return drop(buffer, REASON_DENIED);
}

/* Changes what has to be changed, and lets the packet go on. */
INLINE int send_on(struct __sk_buff *buffer, struct packet *packet)
{
	if (packet->flags & PACKET_WRAP) {
		int verdict = wrap(buffer);
		return verdict == TC_DROP ? drop(buffer, REASON_WRAP) : verdict;
	}
	if (packet->flags & PACKET_NAT && (packet->flags & PACKET_INNER ? translate_error(buffer) : translate(buffer)))
		return drop(buffer, REASON_CHECKSUM);
	return forward(buffer, packet);
}

PROFILED(cali_tc_translate)
{
	struct packet *packet = this_packet();
	if (!packet)
		return TC_DROP;
	return send_on(buffer, packet);
}

/* An envelope with a client's packet: what is in it is a packet like any other, but for where it came from. */
PROFILED(cali_tc_unwrap)
{
	struct packet *packet = this_packet();
	if (!packet || unwrap(buffer))
		return drop(buffer, REASON_ENVELOPE);
	packet->is_unwrapped = 1;
	tail_call(buffer, &cali_programs, PROGRAM_MAIN);
	packet->is_unwrapped = 0;
	return drop(buffer, REASON_ENVELOPE);
}

/* A fragment that came before the first one, or the first one after others. */
PROFILED(cali_tc_fragment)
{
	struct packet *packet = this_packet();
	if (!packet)
		return TC_DROP;
	if (packet->tuple.is_later_fragment) {
		int verdict = wait_for_first(buffer, packet);
		if (verdict)
			return verdict;
	}
	/* In once more, and from now on in order. */
	if (clone_redirect(buffer, buffer->ifindex, REDIRECT_IN))
		return drop(buffer, REASON_FRAGMENT);
	for (u32 place = 0; place < MOST_WAITING; place++)
		release(buffer, place);
	count(buffer, REASON_FRAGMENT_WAITS);
	return TC_DROP;
}

PROFILED(cali_tc_error)
{
	struct packet *packet = this_packet();
	if (!packet)
		return TC_DROP;
	int verdict = send_error(buffer, packet);
	return verdict == TC_REDIRECT ? verdict : TC_DROP;
}

PROFILED(cali_tc_reset)
{
	struct packet *packet = this_packet();
	if (!packet)
		return TC_DROP;
	int verdict = send_reset(buffer, packet);
	return verdict == TC_REDIRECT ? verdict : TC_DROP;
}

/* What policy says where a list is missing: a workload's is closed, the host's open. */
INLINE enum verdict evaluate_or(struct __sk_buff *buffer, u64 list, enum verdict missing)
{
	return list ? (enum verdict)evaluate(buffer, list) : missing;
}

/* The list that decides before a service's address is replaced. */
INLINE enum verdict evaluate_before(struct __sk_buff *buffer, struct packet *packet, u64 list)
{
	if (!list)
		return VERDICT_NONE;
	struct tuple *tuple = &packet->tuple;
	tuple->destination = packet->wire.destination;
	tuple->destination_port = packet->wire.destination_port;
	enum verdict verdict = evaluate(buffer, list);
	tuple->destination = packet->target.destination;
	tuple->destination_port = packet->target.destination_port;
	return verdict;
}

INLINE enum verdict judge(struct __sk_buff *buffer, struct packet *packet, int is_host)
{
	struct lists_key key = {.ifindex = buffer->ifindex, .family = FAMILY};
	struct lists *lists = map_lookup(&bpfp_lists, &key);
	if (!lists)
		return settings.is_workload ? VERDICT_DENY : VERDICT_ALLOW;
	int is_ingress = settings.is_workload == settings.is_leaving;
	if (settings.is_workload) {
		u64 list = lists->ids[is_ingress ? LIST_INGRESS : LIST_EGRESS];
		packet->pending = lists->ids[is_ingress ? LIST_PENDING_INGRESS : LIST_PENDING_EGRESS];
		return evaluate_or(buffer, list, VERDICT_DENY);
	}
	if (is_ingress) {
		enum verdict before = evaluate_before(buffer, packet, lists->ids[LIST_BEFORE_DNAT]);
		if (before != VERDICT_NONE)
			return before;
	}
	if (is_host)
		packet->pending = lists->ids[is_ingress ? LIST_PENDING_INGRESS : LIST_PENDING_EGRESS];
	u32 own = is_ingress ? LIST_INGRESS : LIST_EGRESS;
	u32 forward = is_ingress ? LIST_FORWARD_INGRESS : LIST_FORWARD_EGRESS;
	enum verdict verdict = evaluate_or(buffer, is_host ? lists->ids[own] : lists->ids[forward], VERDICT_ALLOW);
	return verdict == VERDICT_NONE ? VERDICT_ALLOW : verdict;
}

/* Beside what is enforced: nothing that it says counts but the rules that it would hit. */
INLINE void evaluate_pending(struct __sk_buff *buffer, struct packet *packet)
{
	u32 first = packet->hit_count;
	u32 log = packet->log;
	evaluate(buffer, packet->pending);
	count_hits(buffer, first, 1);
	packet->hit_count = first;
	packet->log = log;
}

/* Whether the host itself sends a packet that leaves: nobody saw it come in, or only as one to a service. */
INLINE int is_from_host(struct __sk_buff *buffer, const struct packet *packet)
{
	return (!is_seen(buffer) || (packet->entry_flags & ENTRY_VIA_SERVICES)) && is_this_host(&packet->tuple.source);
}

/* Policy that is asked about every packet, whatever is known of its flow: one that it allows is not tracked, and no other policy is
 * asked. Forwarded packets meet it where they come in, and ports that always work never. A verdict, or 0: the packet is
 * new, and the rest of policy decides. */
INLINE int judge_untracked(struct __sk_buff *buffer, struct packet *packet)
{
	const struct tuple *tuple = &packet->tuple;
	struct lists_key key = {.ifindex = buffer->ifindex, .family = FAMILY};
	struct lists *lists = map_lookup(&bpfp_lists, &key);
	u64 list = lists ? lists->ids[settings.is_leaving ? LIST_UNTRACKED_EGRESS : LIST_UNTRACKED_INGRESS] : 0;
	const struct address *other_side = settings.is_leaving ? &tuple->destination : &tuple->source;
	if (list && !(packet->flags & PACKET_ASKED) && (!settings.is_leaving || is_from_host(buffer, packet)) &&
	    !is_failsafe(tuple->protocol, packet->wire.destination_port, settings.is_leaving, other_side) &&
	    !is_failsafe(tuple->protocol, tuple->source_port, !settings.is_leaving, other_side)) {
		/* The addresses on the wire: where a service leads is of no interest. */
		enum verdict verdict = packet->connection == CONNECTION_NEW ? evaluate_before(buffer, packet, list)
									     : (enum verdict)evaluate(buffer, list);
		count_hits(buffer, 0, 0);
		if (packet->log)
			tell(buffer, verdict == VERDICT_DENY ? REASON_DENIED : REASON_ALLOWED,
			     verdict == VERDICT_DENY ? EVENT_LOGGED_DENIED : EVENT_LOGGED_ALLOWED);
		if (verdict == VERDICT_DENY)
			return drop(buffer, REASON_DENIED);
		if (verdict == VERDICT_ALLOW) {
			count(buffer, REASON_ALLOWED);
			return pass(buffer, MARK_SEEN);
		}
		packet->hit_count = 0;
		packet->log = 0;
	}
	switch (packet->connection) {
	case CONNECTION_NEW:
		return 0;
	case CONNECTION_CONFIRMED:
	case CONNECTION_KNOWN:
	case CONNECTION_RELATED:
		packet->mark = mark_of_known(packet);
		return send_on(buffer, packet);
	default:
		return unknown(buffer, packet);
	}
}

/* The node of a backend elsewhere, for envelopes. Answers the flags of the flow's entry. */
INLINE u32 find_node(struct packet *packet, u32 destination)
{
	if (!settings.link_header || options.kind != KIND_PLAIN || !options.vxlan_port ||
	    !(destination & (ROUTE_WORKLOAD | ROUTE_HOST)) || packet->flags & (PACKET_UNWRAPPED | PACKET_STAYS) || !this_node())
		return ENTRY_MASQUERADE;
	/* The backend's node may have sent it itself, and knows the flow by the same addresses already. */
	if (route_flags(&packet->tuple.source) & ROUTE_HOST)
		return ENTRY_MASQUERADE;
	struct route *route = find_route(&packet->tuple.destination);
	if (!route || is_zero(&route->next_hop))
		return ENTRY_MASQUERADE;
	packet->tunnel = route->next_hop;
	packet->flags |= PACKET_WRAP;
	return ENTRY_FORWARDED | (options.answers_directly && !(packet->entry_flags & ENTRY_ANSWERS_BACK) ? ENTRY_ANSWERED_ELSEWHERE : 0);
}

/* What else is known of a new flow: whether its source is hidden outside, and who looks for its way. */
INLINE void find_way(struct packet *packet, u32 destination)
{
	if (destination & ROUTE_SKIP_REDIRECT)
		packet->entry_flags |= ENTRY_SKIP_PEER;
	if (settings.is_workload) {
		u32 source = route_flags(&packet->tuple.source);
		/* Its answers come back by the same interface. */
		if (source & ROUTE_SKIP_REDIRECT)
			packet->entry_flags |= ENTRY_SKIP_PEER;
		int is_shown = destination & ROUTE_IN_POOL ||
			       (destination & ROUTE_HOST && (options.keeps_host_sources || destination & ROUTE_LOCAL));
		if (source & ROUTE_NAT_OUTGOING && !is_shown)
			packet->entry_flags |= ENTRY_NAT_OUTGOING;
		/* Addresses that another plugin gave. */
		if (source && !(source & ROUTE_IN_POOL) && !(destination & (ROUTE_WORKLOAD | ROUTE_HOST)))
			packet->entry_flags |= ENTRY_SKIP_FIB;
		if (packet->flags & PACKET_NAT && address_equal(&packet->tuple.source, &packet->tuple.destination))
			packet->entry_flags |= ENTRY_MASQUERADE;
		/* Nothing that Linux does to packets is wanted for these, so it need not know them. Flow logs know flows of ICMP as
		 * Linux does, by their ids, which entries do not have. */
		if (options.redirects_to_peer && packet->tuple.protocol != OWN_ICMP && has_flags(destination, ROUTE_LOCAL | ROUTE_WORKLOAD) &&
		    !(packet->flags & (PACKET_NAT | PACKET_UNTRACKED)) &&
		    !(packet->entry_flags & (ENTRY_SKIP_PEER | ENTRY_SKIP_FIB | ENTRY_NAT_OUTGOING)))
			packet->entry_flags |= ENTRY_DIRECT;
		return;
	}
	if (options.kind == KIND_SERVICES || options.kind == KIND_LOOPBACK) {
		packet->entry_flags |= options.kind == KIND_SERVICES ? ENTRY_VIA_SERVICES : ENTRY_NODE_PORT_LOOP;
		/* Into a tunnel the host sends by its address there. */
		if (packet->flags & PACKET_NAT && options.tunnel_address[0] && destination & ROUTE_TUNNELED &&
		    (destination & (ROUTE_WORKLOAD | ROUTE_LOCAL)) == ROUTE_WORKLOAD) {
			for (int i = 0; i < WORDS; i++)
				packet->target.source.words[i] = options.tunnel_address[i];
		}
		return;
	}
	if (packet->flags & PACKET_NAT) {
		if (options.answers_directly && route_flags(&packet->tuple.source) & ROUTE_ANSWERS_BACK)
			packet->entry_flags |= ENTRY_ANSWERS_BACK;
		/* A backend elsewhere is sent the client's packet as it is. If its node is not known, it must answer to this one,
		 * which alone can change the answer back. */
		if (!(destination & ROUTE_LOCAL))
			packet->entry_flags |= find_node(packet, destination);
		else if (destination & ROUTE_WORKLOAD)
			packet->entry_flags |= ENTRY_EXTERNAL_LOCAL;
	} else if (!(destination & ROUTE_LOCAL)) {
		packet->entry_flags |= ENTRY_SKIP_FIB;
	}
}

/* A RST in the place of a connection that is one too many. The verdict. */
FUNCTION int refuse_connection(struct __sk_buff *buffer)
{
	struct packet *packet = this_packet();
	if (!packet)
		return TC_DROP;
	int verdict = send_reset(buffer, packet);
	return verdict == TC_REDIRECT ? verdict : TC_DROP;
}

PROFILED(cali_tc_policy)
{
	struct packet *packet = this_packet();
	if (!packet)
		return TC_DROP;
	struct tuple *tuple = &packet->tuple;
	packet->hit_count = 0;
	packet->log = 0;
	packet->pending = 0;
	if (options.asks_untracked) {
		int verdict = judge_untracked(buffer, packet);
		if (verdict)
			return verdict;
	}

	u32 destination = 0;
	int is_host;
	if (options.kind == KIND_LOOPBACK) {
		/* What lets the host's packets out is asked where they really leave. */
		destination = route_flags(&tuple->destination);
		is_host = 1;
		goto allow;
	}
	if (settings.is_leaving) {
		/* It was for the host, until somebody's rules sent it here: those have to see the answers. */
		if (options.bypasses_tracking && settings.is_workload && (buffer->mark & MARK_SKIP_FIB) == MARK_SKIP_FIB)
			packet->entry_flags |= ENTRY_SKIP_FIB;
		is_host = is_from_host(buffer, packet);
		/* The host reaches its workloads; so does a workload itself by way of a service, hidden behind the host. */
		int is_itself = has_mark(buffer, MARK_MASQUERADE) && buffer->ingress_ifindex == buffer->ifindex;
		if (settings.is_workload && (is_host || is_itself)) {
			if (!is_seen(buffer))
				packet->entry_flags |= ENTRY_SKIP_FIB;
			goto allow;
		}
	} else {
		destination = packet->flags & PACKET_EXCLUDED ? 0 : route_flags(&tuple->destination);
		is_host = has_flags(destination, ROUTE_LOCAL | ROUTE_HOST);
	}
	if (!settings.is_workload && is_host) {
		const struct address *other_side = settings.is_leaving ? &tuple->destination : &tuple->source;
		if (is_failsafe(tuple->protocol, tuple->destination_port, settings.is_leaving, other_side)) {
			count(buffer, REASON_FAILSAFE);
			goto allow;
		}
	}
	enum verdict verdict = judge(buffer, packet, is_host);
	count_hits(buffer, 0, 0);
	if (options.tells_flows)
		tell_judged(buffer);
	if (packet->pending)
		evaluate_pending(buffer, packet);
	if (packet->log)
		tell(buffer, verdict == VERDICT_ALLOW ? REASON_ALLOWED : REASON_DENIED,
		     verdict == VERDICT_ALLOW ? EVENT_LOGGED_ALLOWED : EVENT_LOGGED_DENIED);
	if (verdict != VERDICT_ALLOW)
		return drop(buffer, REASON_DENIED);
	if (settings.is_workload && !settings.is_leaving && options.drops_to_host && is_host)
		return drop(buffer, REASON_DENIED);
	count(buffer, REASON_ALLOWED);
allow:
	if (is_source_side() && packet->connection == CONNECTION_NEW) {
		if (!(packet->flags & PACKET_KNOWN))
			find_way(packet, destination);
		if (packet->flags & PACKET_EXCLUDED)
			packet->entry_flags |= ENTRY_SKIP_FIB;
		if (packet->entry_flags & ENTRY_DIRECT && is_opening(tuple) &&
		    keep_direct(&packet->key, connection_key(&packet->key, tuple->protocol, &packet->wire)))
			packet->entry_flags &= ~ENTRY_DIRECT;
		packet->mark = mark_of(packet->entry_flags, 0);
	}
	/* One that a workload does not take is refused in its name, so there is an entry by which the RST finds its way. */
	int is_refused = options.has_limits && packet->connection == CONNECTION_NEW && count_connection(buffer, packet);
	if (is_refused) {
		count(buffer, REASON_LIMIT);
		if (!settings.is_leaving)
			return refuse_connection(buffer);
		packet->entry_flags |= ENTRY_LIMIT_REFUSED;
	}
	/* The host is never cut off because there is no more room for flows. One with NAT cannot do without its entry. */
	if ((packet->flags & (PACKET_UNTRACKED | PACKET_NAT)) != PACKET_UNTRACKED && remember(buffer) &&
	    (!is_host || packet->flags & PACKET_NAT))
		return drop(buffer, REASON_NOT_TRACKED);
	if (is_refused)
		return refuse_connection(buffer);
	return send_on(buffer, packet);
}
