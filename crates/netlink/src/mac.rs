//! Hardware addresses of Ethernet devices.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// A hardware address of six bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub [u8; 6]);

/// A text that is not a hardware address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a hardware address of six bytes such as ee:ee:ee:ee:ee:ee")]
pub struct InvalidMac(pub String);

impl MacAddress {
    /// An address from the kernel's bytes; `None` for devices whose addresses have another length.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The link-local address that the kernel derives from this one (EUI-64).
    #[must_use]
    pub fn link_local(self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.0;
        let pair = |high: u8, low: u8| u16::from_be_bytes([high, low]);
        Ipv6Addr::new(0xfe80, 0, 0, 0, pair(a ^ 2, b), pair(c, 0xff), pair(0xfe, d), pair(e, f))
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for MacAddress {
    type Err = InvalidMac;

    /// Reads the forms that Go's `ParseMAC` reads for six bytes: `xx:xx:..`, `xx-xx-..` and `xxxx.xxxx.xxxx`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidMac(text.to_owned());
        let (separator, width, count) = match text.len() {
            17 if text.contains(':') => (':', 2, 6),
            17 => ('-', 2, 6),
            14 => ('.', 4, 3),
            _ => return Err(invalid()),
        };
        let groups: Vec<&str> = text.split(separator).collect();
        if groups.len() != count || groups.iter().any(|group| group.len() != width) {
            return Err(invalid());
        }
        let digits = groups.concat();
        let mut bytes = [0; 6];
        for (index, byte) in bytes.iter_mut().enumerate() {
            let pair = digits.get(2 * index..2 * index + 2).ok_or_else(invalid)?;
            if !pair.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(invalid());
            }
            *byte = u8::from_str_radix(pair, 16).map_err(|_| invalid())?;
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::MacAddress;

    #[test]
    fn text_both_ways() {
        for text in ["ee:ee:ee:ee:ee:ee", "EE-EE-EE-EE-EE-EE", "eeee.eeee.eeee"] {
            assert_eq!(text.parse::<MacAddress>().map(|mac| mac.to_string()), Ok("ee:ee:ee:ee:ee:ee".into()));
        }
        for text in [
            "",
            "ee:ee:ee:ee:ee",
            "ee:ee:ee:ee:ee:eg",
            "+e:ee:ee:ee:ee:ee",
            "eéeéeéeéeée",
            "ee:ee-ee:ee:ee:ee",
        ] {
            assert!(text.parse::<MacAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_link_local_address_of_calicos_interfaces() {
        assert_eq!(MacAddress([0xee; 6]).link_local().to_string(), "fe80::ecee:eeff:feee:eeee");
    }
}
