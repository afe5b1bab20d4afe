//! Kernel settings of workloads' interfaces, as a list of what is to be written.

use rules::tree::IpVersion;

/// A setting below `/proc/sys`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Which: the path below `/proc/sys`.
    pub path: String,
    /// The value.
    pub value: String,
    /// Whether the interface is not in order without it.
    pub is_needed: bool,
}

/// The settings of a workload's interface, in the order in which they are written. `reverse_path` is the filter for sources
/// in the kernel itself; our own rules check sources, so it is what the kernel gives to new interfaces.
///
/// The name must be one that interfaces can have.
#[must_use]
pub fn workload_settings(interface: &str, versions: &[IpVersion], reverse_path: &str) -> Vec<Setting> {
    let setting = |path: String, value: &str, is_needed| Setting { path, value: value.to_owned(), is_needed };
    // Routers that a workload plays must not be believed, even where we do nothing else about IPv6.
    let mut settings = vec![setting(format!("net/ipv6/conf/{interface}/accept_ra"), "0", false)];
    if versions.contains(&IpVersion::V4) {
        let v4 = |name: &str| format!("net/ipv4/conf/{interface}/{name}");
        settings.extend([
            // NAT to the host itself.
            setting(v4("route_localnet"), "1", true),
            // The host answers for everyone, at once.
            setting(format!("net/ipv4/neigh/{interface}/proxy_delay"), "0", false),
            setting(v4("proxy_arp"), "1", true),
            setting(v4("forwarding"), "1", true),
            setting(v4("rp_filter"), reverse_path, true),
        ]);
    }
    if versions.contains(&IpVersion::V6) {
        let v6 = |name: &str| format!("net/ipv6/conf/{interface}/{name}");
        settings.extend([setting(v6("proxy_ndp"), "1", true), setting(v6("forwarding"), "1", true)]);
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::workload_settings;
    use rules::tree::IpVersion;

    #[test]
    fn as_calico_sets_them() {
        let texts = |versions: &[IpVersion], reverse_path: &str| {
            let settings = workload_settings("cali1", versions, reverse_path);
            settings.iter().map(|one| format!("{}={}", one.path, one.value)).collect::<Vec<_>>()
        };
        assert_eq!(
            texts(&[IpVersion::V4], "2"),
            [
                "net/ipv6/conf/cali1/accept_ra=0",
                "net/ipv4/conf/cali1/route_localnet=1",
                "net/ipv4/neigh/cali1/proxy_delay=0",
                "net/ipv4/conf/cali1/proxy_arp=1",
                "net/ipv4/conf/cali1/forwarding=1",
                "net/ipv4/conf/cali1/rp_filter=2",
            ]
        );
        let both = texts(&[IpVersion::V4, IpVersion::V6], "0");
        assert_eq!(both.last().map(String::as_str), Some("net/ipv6/conf/cali1/forwarding=1"));
        assert_eq!(both.len(), 8);
    }
}
