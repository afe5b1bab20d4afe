//! MTUs: of the host's interfaces, of tunnels on them, and of pods.

use felix_config::{Config, Pattern, derived::Provider};
use messages::Encapsulation;

/// The MTU assumed when no interface provides one: the smallest among common clouds.
pub(crate) const ASSUMED_MTU: u32 = 1460;
const IPIP_OVERHEAD: u32 = 20;
const VXLAN_OVERHEAD: u32 = 50;
const VXLAN_V6_OVERHEAD: u32 = 70;
const WIREGUARD_OVERHEAD: u32 = 60;
const WIREGUARD_V6_OVERHEAD: u32 = 80;
/// The overhead of the network below an AKS node.
const AKS_OVERHEAD: u32 = 100;

/// The smallest MTU of interfaces that are up and whose names match, if any; `interfaces` are name, up, MTU.
pub(crate) fn host_mtu<'a>(
    pattern: Option<&Pattern>,
    interfaces: impl Iterator<Item = (&'a str, bool, u32)>,
) -> Option<u32> {
    let counts = |name: &str| pattern.is_some_and(|pattern| pattern.is_match(name));
    let least = interfaces.filter(|(name, up, _)| *up && counts(name)).map(|(_, _, mtu)| mtu).min();
    least.filter(|mtu| *mtu > 0)
}

/// The MTUs of tunnels and pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mtus {
    /// The host's interfaces.
    pub(crate) host: u32,
    /// The IP in IP device.
    pub(crate) ipip: u32,
    /// The VXLAN device.
    pub(crate) vxlan: u32,
    /// The IPv6 VXLAN device.
    pub(crate) vxlan_v6: u32,
    /// The WireGuard device.
    pub(crate) wireguard: u32,
    /// The IPv6 WireGuard device.
    pub(crate) wireguard_v6: u32,
    /// Pods.
    pub(crate) pod: u32,
}

impl Mtus {
    /// Computes the MTUs from settings, where given, and the host's MTU.
    #[must_use]
    pub(crate) fn new(config: &Config, encapsulation: &Encapsulation, host: u32) -> Self {
        let chosen = |setting: i64, overhead: u32| match u32::try_from(setting) {
            Ok(mtu) if mtu > 0 => mtu,
            _ => host.saturating_sub(overhead),
        };
        let below = match config.provider() == Provider::Aks && config.wireguard_host_encryption_enabled {
            true => AKS_OVERHEAD,
            false => 0,
        };
        let ipip = chosen(config.ipip_mtu, IPIP_OVERHEAD);
        let vxlan = chosen(config.vxlan_mtu, VXLAN_OVERHEAD);
        let vxlan_v6 = chosen(config.vxlan_mtu_v6, VXLAN_V6_OVERHEAD);
        let wireguard = chosen(config.wireguard_mtu, WIREGUARD_OVERHEAD + below);
        let wireguard_v6 = chosen(config.wireguard_mtu_v6, WIREGUARD_V6_OVERHEAD + below);
        let pod = [
            (encapsulation.ipip, ipip),
            (encapsulation.vxlan, vxlan),
            (encapsulation.vxlan_v6, vxlan_v6),
            (config.wireguard_enabled, wireguard),
            (config.wireguard_enabled_v6, wireguard_v6),
        ]
        .into_iter()
        .filter(|(enabled, mtu)| *enabled && *mtu > 0)
        .map(|(_, mtu)| mtu)
        .min()
        .unwrap_or(host);
        if pod > host {
            tracing::warn!(pod, host, "the MTU of pods is larger than that of the host's interfaces");
        }
        Self { host, ipip, vxlan, vxlan_v6, wireguard, wireguard_v6, pod }
    }
}

#[cfg(test)]
mod tests {
    use super::{Mtus, host_mtu};
    use felix_config::kinds::NoSurroundings;
    use felix_config::{Config, Pattern};
    use messages::Encapsulation;

    #[test]
    fn the_smallest_matching_interface_that_is_up_counts() {
        let pattern = Pattern::new("^eth.*");
        let all = [("eth0", true, 9000), ("eth1", false, 1200), ("lo", true, 65536), ("eth2", true, 1500)];
        assert_eq!(host_mtu(pattern.as_ref(), all.into_iter()), Some(1500));
        assert_eq!(host_mtu(pattern.as_ref(), [("eth1", false, 1200)].into_iter()), None);
        assert_eq!(host_mtu(None, all.into_iter()), None);
    }

    #[test]
    fn pods_get_the_mtu_of_the_tightest_tunnel() {
        let config = Config::with_defaults(&NoSurroundings);
        let none = Encapsulation::default();
        let pod = |config: &Config, need: Encapsulation| Mtus::new(config, &need, 1500).pod;
        assert_eq!(pod(&config, none), 1500);
        assert_eq!(pod(&config, Encapsulation { vxlan: true, ipip: true, ..none }), 1450);
        assert_eq!(pod(&config, Encapsulation { vxlan_v6: true, ..none }), 1430);
        let set = Config { ipip_mtu: 1400, ..config.clone() };
        assert_eq!(pod(&set, Encapsulation { ipip: true, ..none }), 1400);
        let azure = Config {
            cluster_type: "k8s,AKS".into(),
            wireguard_enabled: true,
            wireguard_host_encryption_enabled: true,
            ..config
        };
        assert_eq!(pod(&azure, none), 1340);
    }
}
