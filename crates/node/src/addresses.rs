//! A check of addresses that both start-up and tunnels use.

use std::net::IpAddr;

/// Whether a node can have this address: not a loopback, multicast, link-local, broadcast or unspecified one.
pub(crate) fn is_global_unicast(address: &IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(link_local || address.is_loopback() || address.is_multicast() || address.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_global_unicast_addresses_are_usable() {
        for (text, expected) in [
            ("10.0.0.1", true),
            ("8.8.8.8", true),
            ("fd00::1", true),
            ("127.0.0.1", false),
            ("169.254.1.1", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("0.0.0.0", false),
            ("::1", false),
            ("fe80::1", false),
            ("ff02::1", false),
        ] {
            assert_eq!(is_global_unicast(&text.parse().expect("an address")), expected, "{text}");
        }
    }
}
