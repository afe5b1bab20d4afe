/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Programs at the system calls of a control group's processes: a socket of the host that asks for a service gets a backend
 * before its first packet. Compiled once for each IP version; the one for IPv4 also serves sockets of IPv6 that have addresses of
 * IPv4, beside the one for IPv6.
 *
 * Sockets that are neither TCP nor UDP are left alone.
 */
#include "kernel.h"
#include "address.h"
#include "routes.h"
#include "services.h"

char licence[] SECTION("license") = "GPL";

/* Frozen before the program is verified. `crates/bpf/src/connect.rs` has the same fields. */
struct connecting {
	u32 excludes_udp;
	u32 udp_seconds; /* that a socket without a connection stays with its backend */
	u32 can_answer;  /* the kernel lets a program choose the error */
};
const volatile struct connecting connecting;

#define REFUSED (-111)

/* A socket, and a backend that it was given in the place of a service. Ports are those of `struct bpf_sock_addr`. */
struct socket_key {
	u64 cookie;
	struct address address;
	u32 port;
#if FAMILY == 6
	u32 zero;
#endif
};

struct nat_key {
	u64 cookie;
	struct address address;
	u32 port;
	u8 protocol;
#if FAMILY == 6
	u8 zero[3];
#else
	u8 zero[7];
#endif
};
#if FAMILY == 4
ASSERT_SIZE(struct socket_key, 16);
ASSERT_SIZE(struct nat_key, 24);
#else
ASSERT_SIZE(struct socket_key, 32);
ASSERT_SIZE(struct nat_key, 32);
#endif

struct asked {
	struct address address;
	u32 port;
};

MAP(NAME(srmsg), MAP_LRU_HASH, struct socket_key, struct asked, 510000, 0);
MAP(NAME(ct_nats), MAP_LRU_HASH, struct nat_key, struct asked, 10000, 0);

/* Replaces a service by a backend. 0, or the service has none. */
INLINE int choose(struct bpf_sock_addr *call, u8 protocol, struct address *destination, u32 seconds)
{
	u32 port = call->user_port;
	struct question question = {
		.address = *destination,
		.port = HOST16((u16)port),
		.protocol = protocol,
		.is_inside = 1,
		.any_node = 1,
		.affinity = seconds,
	};
	struct frontend_key key;
	struct backend backend = {};
	const struct frontend *frontend = find_frontend(&question, &key);
	enum service service = frontend ? choose_backend(&question, frontend, &backend) : SERVICE_NONE;
	if (service == SERVICE_EMPTY)
		return -1;
	if (service != SERVICE_FOUND)
		return 0;
	struct asked asked = {.address = *destination, .port = port};
	u64 cookie = socket_cookie(call);
	u32 backend_port = NETWORK16(backend.port);
	struct nat_key nat_key = {
		.cookie = cookie,
		.address = backend.address,
		.port = backend_port,
		.protocol = protocol,
	};
	map_update(&NAME(ct_nats), &nat_key, &asked, 0);
	if (protocol == PROTOCOL_UDP) {
		struct socket_key socket_key = {.cookie = cookie, .address = backend.address, .port = backend_port};
		/* Without it answers would come from a stranger. */
		if (map_update(&NAME(srmsg), &socket_key, &asked, 0))
			return 0;
	}
	*destination = backend.address;
	call->user_port = backend_port;
	return 0;
}

INLINE int refuse(void)
{
	if (connecting.can_answer)
		set_answer(REFUSED);
	return 0;
}

/* Answers what the program does: 1 goes on, 0 refuses. */
INLINE int connect(struct bpf_sock_addr *call, struct address *destination)
{
	u32 protocol = call->protocol;
	if (protocol != PROTOCOL_TCP && (protocol != PROTOCOL_UDP || connecting.excludes_udp))
		return 1;
	return choose(call, protocol, destination, 0) ? refuse() : 1;
}

INLINE int send(struct bpf_sock_addr *call, struct address *destination)
{
	if (call->protocol != PROTOCOL_UDP || connecting.excludes_udp)
		return 1;
	return choose(call, PROTOCOL_UDP, destination, connecting.udp_seconds) ? refuse() : 1;
}

/* Shows the service in the place of the backend that answered. */
INLINE void receive(struct bpf_sock_addr *call, struct address *source)
{
	if (call->protocol != PROTOCOL_UDP || connecting.excludes_udp)
		return;
	struct socket_key key = {.cookie = socket_cookie(call), .address = *source, .port = call->user_port};
	struct asked *asked = map_lookup(&NAME(srmsg), &key);
	if (!asked)
		return;
	*source = asked->address;
	call->user_port = asked->port;
}

/* An address of IPv4 in one of IPv6. */
INLINE int is_mapped(const struct bpf_sock_addr *call)
{
	return call->user_ip6[0] == 0 && call->user_ip6[1] == 0 && call->user_ip6[2] == NETWORK32(0xffff);
}

#if FAMILY == 4

SECTION("cgroup/connect4") int calico_connect_v4(struct bpf_sock_addr *call)
{
	struct address address = {{call->user_ip4}};
	int answer = connect(call, &address);
	call->user_ip4 = address.words[0];
	return answer;
}

SECTION("cgroup/sendmsg4") int calico_sendmsg_v4(struct bpf_sock_addr *call)
{
	struct address address = {{call->user_ip4}};
	int answer = send(call, &address);
	call->user_ip4 = address.words[0];
	return answer;
}

SECTION("cgroup/recvmsg4") int calico_recvmsg_v4(struct bpf_sock_addr *call)
{
	struct address address = {{call->user_ip4}};
	receive(call, &address);
	call->user_ip4 = address.words[0];
	return 1;
}

SECTION("cgroup/connect6") int calico_connect_v46(struct bpf_sock_addr *call)
{
	if (!is_mapped(call))
		return 1;
	struct address address = {{call->user_ip6[3]}};
	int answer = connect(call, &address);
	call->user_ip6[3] = address.words[0];
	return answer;
}

SECTION("cgroup/sendmsg6") int calico_sendmsg_v46(struct bpf_sock_addr *call)
{
	if (!is_mapped(call))
		return 1;
	struct address address = {{call->user_ip6[3]}};
	int answer = send(call, &address);
	call->user_ip6[3] = address.words[0];
	return answer;
}

SECTION("cgroup/recvmsg6") int calico_recvmsg_v46(struct bpf_sock_addr *call)
{
	if (!is_mapped(call))
		return 1;
	struct address address = {{call->user_ip6[3]}};
	receive(call, &address);
	call->user_ip6[3] = address.words[0];
	return 1;
}

#else

INLINE void read_address(const struct bpf_sock_addr *call, struct address *address)
{
	address->words[0] = call->user_ip6[0];
	address->words[1] = call->user_ip6[1];
	address->words[2] = call->user_ip6[2];
	address->words[3] = call->user_ip6[3];
}

INLINE void write_address(struct bpf_sock_addr *call, const struct address *address)
{
	call->user_ip6[0] = address->words[0];
	call->user_ip6[1] = address->words[1];
	call->user_ip6[2] = address->words[2];
	call->user_ip6[3] = address->words[3];
}

SECTION("cgroup/connect6") int calico_connect_v6(struct bpf_sock_addr *call)
{
	if (is_mapped(call))
		return 1;
	struct address address;
	read_address(call, &address);
	int answer = connect(call, &address);
	write_address(call, &address);
	return answer;
}

SECTION("cgroup/sendmsg6") int calico_sendmsg_v6(struct bpf_sock_addr *call)
{
	if (is_mapped(call))
		return 1;
	struct address address;
	read_address(call, &address);
	int answer = send(call, &address);
	write_address(call, &address);
	return answer;
}

SECTION("cgroup/recvmsg6") int calico_recvmsg_v6(struct bpf_sock_addr *call)
{
	if (is_mapped(call))
		return 1;
	struct address address;
	read_address(call, &address);
	receive(call, &address);
	write_address(call, &address);
	return 1;
}

#endif
