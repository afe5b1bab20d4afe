//! The tests of Kubernetes' own that cannot run on the bed, and why: by parts of their names.

use crate::families::Families;
use crate::settings::Proxy;

/// Features that do not exist here.
const MISSING: [(&str, &str); 14] = [
    ("SCTP", "SCTP is a module of the kernel, which the tests load through another image"),
    ("Windows", "nodes are Linux"),
    ("[Disruptive]", "it restarts programs of nodes by ssh"),
    ("[Slow]", "it takes many minutes"),
    ("Internet", "nothing leads out of the bed"),
    ("Feature:LoadBalancer", "there is no cloud"),
    ("Provider:GCE", "there is no cloud"),
    ("Feature:Ingress", "there is no ingress controller"),
    ("Feature:Networking-Performance", "it runs iperf, which is another image"),
    ("Feature:PerformanceDNS", "it makes ten thousand services"),
    ("should set TCP CLOSE_WAIT timeout", "it needs the image distroless-iptables"),
    ("evicted pods", "this kubelet keeps no limits of a pod's storage"),
    ("should drop INVALID conntrack", "it needs another image"),
    ("invalid conntrack state bug", "it needs the image regression-issue-74839"),
];

/// Marks tests that need pods with addresses of both versions.
const BOTH: &str = "[Feature:IPv6DualStack]";

/// Marks tests that query kube-proxy itself.
const PROXY: [&str; 2] = ["kube-proxy", "KubeProxy"];

/// The reason why a test with this name cannot run; `None` if it can.
pub(crate) fn why_missing(name: &str, families: Families, proxy: Proxy) -> Option<&'static str> {
    if proxy == Proxy::None && PROXY.iter().any(|part| name.contains(part)) {
        return Some("kube-proxy does not run");
    }
    if name.contains(BOTH) && families != Families::Dual {
        return Some("pods have addresses of one IP version; TORTIE_E2E_FAMILIES=dual gives them both");
    }
    MISSING.iter().find(|(part, _)| name.contains(part)).map(|(_, why)| *why)
}

#[cfg(test)]
mod tests {
    use super::why_missing;
    use crate::families::Families;
    use crate::settings::Proxy;

    #[test]
    fn a_part_of_the_name_decides() {
        let why = |name| why_missing(name, Families::V4, Proxy::Nftables);
        assert!(why("[sig-network] Networking should allow creating a Pod with an SCTP HostPort").is_some());
        assert_eq!(why("[sig-network] Services should serve a basic endpoint from pods [Conformance]"), None);
        let both = "[sig-network] [Feature:IPv6DualStack] should have ipv4 and ipv6 internal node ip";
        assert!(why(both).is_some());
        assert_eq!(why_missing(both, Families::Dual, Proxy::None), None);
        let proxy = "[sig-network] Networking should check kube-proxy urls";
        assert_eq!(why(proxy), None);
        assert!(why_missing(proxy, Families::V4, Proxy::None).is_some());
    }
}
