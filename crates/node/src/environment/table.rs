//! The table of variables, and the page that is made from it.

use std::fmt::Write as _;

/// One variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What holds when it is not set; empty for nothing.
    pub default: &'static str,
    /// What it means, in one sentence.
    pub doc: &'static str,
}

const fn variable(name: &'static str, default: &'static str, doc: &'static str) -> Variable {
    Variable { name, default, doc }
}

/// Every variable that a node's own agent reads, by name. Where the datastore is, is the client's table.
pub const VARIABLES: &[Variable] = &[
    variable("AS", "", "The node's AS number; the cluster's unless set."),
    variable("AUTODETECT_POLL_INTERVAL", "60s", "How often the node's addresses are looked at again."),
    variable(
        "CALICO_CNI_SERVICE_ACCOUNT",
        "calico-cni-plugin",
        "The service account whose tokens the CNI plugin's kubeconfig holds.",
    ),
    variable("CALICO_DISABLE_FELIX", "", "Anything: Felix runs elsewhere and is not started."),
    variable("CALICO_DISABLE_FILE_LOGGING", "", "`true`: no folder for log files is made."),
    variable(
        "CALICO_IPV4POOL_BLOCK_SIZE",
        "26",
        "The prefix length of the IPv4 default pool's blocks, 20 to 32.",
    ),
    variable(
        "CALICO_IPV4POOL_CIDR",
        "",
        "The range of the IPv4 default pool, or `none`. Unless set: kubeadm's, or 192.168.0.0/16, or one of \
         172.16.0.0/16 to 172.31.0.0/16 where the host has an address in the former.",
    ),
    variable(
        "CALICO_IPV4POOL_DISABLE_BGP_EXPORT",
        "false",
        "Whether routes of the IPv4 default pool stay out of BGP.",
    ),
    variable(
        "CALICO_IPV4POOL_IPIP",
        "never",
        "IPIP in the IPv4 default pool: `never`, `always` or `cross-subnet`.",
    ),
    variable(
        "CALICO_IPV4POOL_NAT_OUTGOING",
        "true",
        "Whether traffic that leaves the IPv4 default pool is masqueraded.",
    ),
    variable(
        "CALICO_IPV4POOL_NODE_SELECTOR",
        "",
        "The nodes that may use the IPv4 default pool; all unless set.",
    ),
    variable(
        "CALICO_IPV4POOL_VXLAN",
        "never",
        "VXLAN in the IPv4 default pool: `never`, `always` or `cross-subnet`.",
    ),
    variable(
        "CALICO_IPV6POOL_BLOCK_SIZE",
        "122",
        "The prefix length of the IPv6 default pool's blocks, 116 to 128.",
    ),
    variable(
        "CALICO_IPV6POOL_CIDR",
        "",
        "The range of the IPv6 default pool, or `none`. Unless set: kubeadm's, or a random range of fd00::/8.",
    ),
    variable(
        "CALICO_IPV6POOL_DISABLE_BGP_EXPORT",
        "false",
        "Whether routes of the IPv6 default pool stay out of BGP.",
    ),
    variable(
        "CALICO_IPV6POOL_NAT_OUTGOING",
        "false",
        "Whether traffic that leaves the IPv6 default pool is masqueraded.",
    ),
    variable(
        "CALICO_IPV6POOL_NODE_SELECTOR",
        "",
        "The nodes that may use the IPv6 default pool; all unless set.",
    ),
    variable(
        "CALICO_IPV6POOL_VXLAN",
        "never",
        "VXLAN in the IPv6 default pool: `never`, `always` or `cross-subnet`.",
    ),
    variable("CALICO_K8S_NODE_REF", "", "Kubernetes' name of this node, where it is not the node's name."),
    variable("CALICO_MANAGE_CNI", "true", "`false`: the CNI plugin's kubeconfig is not kept fresh."),
    variable("CALICO_NETWORKING", "", "Deprecated: `false` stands for CALICO_NETWORKING_BACKEND=none."),
    variable(
        "CALICO_NETWORKING_BACKEND",
        "bird",
        "Who carries routes between nodes: `bird`, `vxlan`, or `none` where Calico only enforces policy.",
    ),
    variable("CALICO_NODENAME_FILE", "/var/lib/calico/nodename", "Where the node's name is kept."),
    variable(
        "CALICO_SHUTDOWN_TIMESTAMP_FILE",
        "/var/lib/calico/shutdownTS",
        "Where the time of the last shutdown is kept.",
    ),
    variable("CALICO_STARTUP_LOGLEVEL", "info", "The least severe message that is told."),
    variable("CLUSTER_TYPE", "", "Words about the cluster, separated by commas."),
    variable(
        "CNI_TOKEN_REFRESH_INTERVAL",
        "",
        "How often the CNI plugin's token is renewed; by its lifetime unless set.",
    ),
    variable("DISABLE_NODE_IP_CHECK", "", "`true`: two nodes may have the same address."),
    variable("FELIX_HEALTHENABLED", "", "`true`: Felix serves its health, and the node waits for it."),
    variable("FELIX_HEALTHHOST", "localhost", "Where Felix serves its health."),
    variable("FELIX_HEALTHPORT", "9099", "Where Felix serves its health."),
    variable(
        "FELIX_IPV6SUPPORT",
        "true",
        "Whether Felix handles IPv6; without, no IPv6 default pool is made.",
    ),
    variable(
        "FELIX_WIREGUARDHOSTENCRYPTIONENABLED",
        "false",
        "Whether WireGuard's device uses the node's own address and needs none of a pool.",
    ),
    variable("HOSTNAME", "", "The node's name where NODENAME and the file say nothing."),
    variable(
        "IP",
        "",
        "The node's IPv4 address, `autodetect`, or `none` to leave what is stored. Unless set: detected once.",
    ),
    variable("IP6", "", "The node's IPv6 address, `autodetect`, or `none` to leave what is stored."),
    variable(
        "IP6_AUTODETECTION_METHOD",
        "first-found",
        "How the IPv6 address is found; as IP_AUTODETECTION_METHOD.",
    ),
    variable(
        "IP_AUTODETECTION_METHOD",
        "first-found",
        "How the IPv4 address is found: `first-found`, `interface=REGEX,...`, `skip-interface=REGEX,...`, `can-reach=HOST`, \
         `cidr=RANGE,...` or `kubernetes-internal-ip`.",
    ),
    variable("NODENAME", "", "The node's name."),
    variable("NODE_USER_ID", "1000", "Who owns the folders of a node that does not run as root."),
    variable("NO_DEFAULT_POOLS", "", "`true`: no default pools are made."),
    variable("WAIT_FOR_DATASTORE", "", "`true`: wait until the datastore answers."),
];

/// The reference page of the table, as Markdown.
#[must_use]
pub fn reference_page() -> String {
    let mut page = String::from("| Variable | Default | Meaning |\n| --- | --- | --- |\n");
    for variable in VARIABLES {
        let default =
            if variable.default.is_empty() { String::new() } else { format!("`{}`", variable.default) };
        // Writing to a String cannot fail.
        let _ = writeln!(page, "| `{}` | {default} | {} |", variable.name, variable.doc);
    }
    page
}
