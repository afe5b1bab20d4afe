//! Kernel settings for the host's end of workload interfaces, as a list of values to write. The CNI plugin applies them
//! before the interface is up, and Felix keeps them.

use crate::Family;

/// A setting below `/proc/sys`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The path below `/proc/sys`.
    pub path: String,
    /// The value.
    pub value: String,
    /// Whether the interface does not work without it.
    pub is_needed: bool,
}

impl Setting {
    /// A setting that the interface needs in order to work.
    pub fn needed(path: impl Into<String>, value: &str) -> Self {
        Self { path: path.into(), value: value.to_owned(), is_needed: true }
    }

    /// A setting that the interface can do without.
    pub fn optional(path: impl Into<String>, value: &str) -> Self {
        Self { path: path.into(), value: value.to_owned(), is_needed: false }
    }
}

/// Returns the settings of a workload's interface, in the order in which they are written.
///
/// The name must be a valid interface name.
#[must_use]
pub fn workload_settings(interface: &str, families: &[Family]) -> Vec<Setting> {
    // Router advertisements from a workload must be ignored, even where we do nothing else about IPv6.
    let mut settings = vec![Setting::optional(format!("net/ipv6/conf/{interface}/accept_ra"), "0")];
    if families.contains(&Family::V4) {
        let v4 = |name: &str| format!("net/ipv4/conf/{interface}/{name}");
        settings.extend([
            // Allows NAT to the host itself.
            Setting::needed(v4("route_localnet"), "1"),
            // The host answers for every address, at once.
            Setting::optional(format!("net/ipv4/neigh/{interface}/proxy_delay"), "0"),
            Setting::needed(v4("proxy_arp"), "1"),
            Setting::needed(v4("forwarding"), "1"),
        ]);
    }
    if families.contains(&Family::V6) {
        let v6 = |name: &str| format!("net/ipv6/conf/{interface}/{name}");
        settings.extend([Setting::needed(v6("proxy_ndp"), "1"), Setting::needed(v6("forwarding"), "1")]);
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::workload_settings;
    use crate::Family;

    #[test]
    fn settings_match_calicos() {
        let texts = |families: &[Family]| {
            let settings = workload_settings("cali1", families);
            settings.iter().map(|one| format!("{}={}", one.path, one.value)).collect::<Vec<_>>()
        };
        assert_eq!(
            texts(&[Family::V4]),
            [
                "net/ipv6/conf/cali1/accept_ra=0",
                "net/ipv4/conf/cali1/route_localnet=1",
                "net/ipv4/neigh/cali1/proxy_delay=0",
                "net/ipv4/conf/cali1/proxy_arp=1",
                "net/ipv4/conf/cali1/forwarding=1",
            ]
        );
        let both = texts(&[Family::V4, Family::V6]);
        assert_eq!(both.last().map(String::as_str), Some("net/ipv6/conf/cali1/forwarding=1"));
        assert_eq!(both.len(), 7);
    }
}
