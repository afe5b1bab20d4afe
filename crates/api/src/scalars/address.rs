//! Addresses and networks as text: kept as written, parsed on request by Go's rules.
//!
//! Go's rules differ from Rust's in one place that matters: an IPv4-mapped IPv6 address (`::ffff:10.0.0.1`) counts as
//! IPv4.

use crate::text::text_newtype;
use ipnet::IpNet;
use std::net::IpAddr;

text_newtype! {
    /// An IP address.
    Ip => IpAddr, parse_ip, {"type": "string"}
}

text_newtype! {
    /// A network such as `10.0.0.0/8`; the address part need not be the network's first address.
    Cidr => Network, parse_cidr, {"type": "string"}
}

text_newtype! {
    /// A network, or a lone address that stands for the network of only itself.
    IpOrCidr => Network, parse_ip_or_cidr, {"type": "string"}
}

text_newtype! {
    /// A hardware address such as `ee:ee:ee:ee:ee:ee`.
    MacAddr => Vec<u8>, parse_mac, {"type": "string"}
}

/// A network together with the address that it was written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    written: IpNet,
}

impl Network {
    /// The address as it was written, host bits included.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.written.addr()
    }

    /// The network: host bits cleared.
    #[must_use]
    pub fn masked(&self) -> IpNet {
        self.written.trunc()
    }

    /// The network as it was written, host bits included.
    #[must_use]
    pub fn as_written(&self) -> IpNet {
        self.written
    }

    /// Whether no host bits were set.
    #[must_use]
    pub fn is_strictly_masked(&self) -> bool {
        self.masked().addr() == self.written.addr()
    }

    /// 4 or 6.
    #[must_use]
    pub fn ip_version(&self) -> u8 {
        match self.written {
            IpNet::V4(_) => 4,
            IpNet::V6(_) => 6,
        }
    }

    /// Whether this is the network of all addresses.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.written.prefix_len() == 0
    }
}

impl IpOrCidr {
    /// Parses the network, which must be written without host bits.
    ///
    /// # Errors
    /// A sentence saying what is wrong with the text.
    pub fn parse_strict(&self) -> Result<Network, String> {
        strict(self.parse()?)
    }
}

impl Cidr {
    /// Parses the network, which must be written without host bits.
    ///
    /// # Errors
    /// A sentence saying what is wrong with the text.
    pub fn parse_strict(&self) -> Result<Network, String> {
        strict(self.parse()?)
    }
}

fn strict(network: Network) -> Result<Network, String> {
    if network.is_strictly_masked() {
        Ok(network)
    } else {
        Err(format!("has host bits set: did you mean {}?", network.masked()))
    }
}

fn parse_ip(text: &str) -> Result<IpAddr, String> {
    text.parse::<IpAddr>().map(|ip| ip.to_canonical()).map_err(|_| format!("'{text}' is not an IP address"))
}

fn parse_cidr(text: &str) -> Result<Network, String> {
    let wrong = || format!("'{text}' is not a CIDR such as 10.0.0.0/8");
    let (address, length) = text.split_once('/').ok_or_else(wrong)?;
    let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    // Go refuses a length with a leading zero only by its limit on digits; Rust's parser needs this check.
    if !digits || length.len() > 3 {
        return Err(wrong());
    }
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let length: u8 = length.parse().map_err(|_| wrong())?;
    let written = match address {
        // The network of a mapped address is an IPv4 one if the length covers the fixed part.
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() && (96..=128).contains(&length) => {
            IpNet::new(address.to_canonical(), length - 96)
        }
        _ => IpNet::new(address, length),
    };
    written.map(|written| Network { written }).map_err(|_| wrong())
}

fn parse_ip_or_cidr(text: &str) -> Result<Network, String> {
    if text.contains('/') {
        return parse_cidr(text);
    }
    parse_ip(text)
        .map(|ip| Network { written: IpNet::from(ip) })
        .map_err(|_| format!("'{text}' is neither an IP address nor a CIDR"))
}

/// Six, eight or twenty bytes in hex: pairs joined by `:` or `-`, or groups of four joined by `.`.
fn parse_mac(text: &str) -> Result<Vec<u8>, String> {
    let wrong = || format!("'{text}' is not a MAC address");
    let (separator, width) = match text.bytes().find(|byte| matches!(byte, b':' | b'-' | b'.')) {
        Some(b'.') => ('.', 4),
        Some(b'-') => ('-', 2),
        Some(_) => (':', 2),
        None => return Err(wrong()),
    };
    let mut bytes = Vec::with_capacity(20);
    for group in text.split(separator) {
        if group.len() != width || !group.bytes().all(|byte| byte.is_ascii_hexdigit()) || bytes.len() >= 20 {
            return Err(wrong());
        }
        for pair in 0..width / 2 {
            let digits = group.get(2 * pair..2 * pair + 2).ok_or_else(wrong)?;
            bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        }
    }
    if matches!(bytes.len(), 6 | 8 | 20) { Ok(bytes) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks() {
        // Text, accepted as CIDR, accepted as CIDR or IP, strictly masked.
        for (text, cidr, ip_or_cidr, masked) in [
            ("10.0.0.0/8", true, true, true),
            ("10.0.0.1/8", true, true, false),
            ("10.0.0.1", false, true, true),
            ("::/0", true, true, true),
            ("fe80::1/64", true, true, false),
            ("fe80::1", false, true, true),
            ("10.0.0.0/33", false, false, false),
            ("10.0.0/8", false, false, false),
            ("010.0.0.0/8", false, false, false),
            ("10.0.0.0/", false, false, false),
            ("10.0.0.0/+8", false, false, false),
            ("fe80::1%eth0", false, false, false),
            ("", false, false, false),
        ] {
            assert_eq!(Cidr::from(text).parse().is_ok(), cidr, "{text}");
            assert_eq!(IpOrCidr::from(text).parse().is_ok(), ip_or_cidr, "{text}");
            assert_eq!(IpOrCidr::from(text).parse_strict().is_ok(), masked, "{text}");
        }
        let mapped = IpOrCidr::from("::ffff:10.0.0.1").parse().unwrap();
        assert_eq!((mapped.ip_version(), mapped.masked().to_string().as_str()), (4, "10.0.0.1/32"));
    }

    #[test]
    fn mac_addresses() {
        for (text, length) in [
            ("ee:ee:ee:ee:ee:ee", Some(6)),
            ("EE-EE-EE-EE-EE-EE", Some(6)),
            ("0000.5e00.5301", Some(6)),
            ("02:00:5e:10:00:00:00:01", Some(8)),
            ("ee:ee:ee:ee:ee", None),
            ("ee:ee:ee:ee:ee:eé", None),
            ("ee:ee:ee:ee:ee-ee", None),
            ("eeeeeeeeeeee", None),
            ("", None),
        ] {
            assert_eq!(MacAddr::from(text).parse().ok().map(|bytes| bytes.len()), length, "{text}");
        }
    }
}
