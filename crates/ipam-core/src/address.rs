//! Addresses as numbers: ordinals within a block, sizes of ranges.

use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The maximum number of parts of a split range: each part becomes an object in a datastore.
const MAX_PARTS: usize = 1 << 16;

/// The address as a number. IPv4 and IPv6 numbers are not comparable with each other.
#[must_use]
pub fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The number of addresses of a range; one too low for the range of all IPv6 addresses.
#[must_use]
pub fn size(range: &IpNet) -> u128 {
    let bits = u32::from(range.max_prefix_len() - range.prefix_len());
    1_u128.checked_shl(bits).unwrap_or(u128::MAX)
}

/// The ordinal of an address in a range; `None` when it is outside.
#[must_use]
pub fn ordinal(range: &IpNet, address: IpAddr) -> Option<usize> {
    if !range.contains(&address) {
        return None;
    }
    usize::try_from(number(address) - number(range.network())).ok()
}

/// The address at an ordinal of a range; `None` when the range is shorter.
#[must_use]
pub fn at(range: &IpNet, ordinal: usize) -> Option<IpAddr> {
    let offset = ordinal as u128;
    if offset >= size(range) {
        return None;
    }
    from_number(number(range.network()) + offset, range)
}

/// The address with a number, of the IP version of `like`; `None` when the number is too large.
#[must_use]
pub fn from_number(number: u128, like: &IpNet) -> Option<IpAddr> {
    Some(match like {
        IpNet::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(number).ok()?)),
        IpNet::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(number)),
    })
}

/// The block of this prefix length that contains an address; `None` for an impossible length.
#[must_use]
pub fn block_of(address: IpAddr, prefix_length: i64) -> Option<IpNet> {
    IpNet::new(address, u8::try_from(prefix_length).ok()?).ok().map(|net| net.trunc())
}

/// Whether two ranges share an address.
#[must_use]
pub fn overlap(one: &IpNet, other: &IpNet) -> bool {
    one.contains(&other.network()) || other.contains(&one.network())
}

/// Splits `range` into `parts` child ranges, a power of two.
///
/// # Errors
/// An explanation in Calico's words.
pub fn split(range: &IpNet, parts: usize) -> Result<Vec<IpNet>, String> {
    if parts < 2 || !parts.is_power_of_two() {
        return Err(format!("number to split CIDR into is not a valid power of 2: {parts}"));
    }
    let length = u32::from(range.prefix_len()) + parts.ilog2();
    let children = u8::try_from(length).ok().and_then(|length| range.subnets(length).ok());
    let Some(children) = children else {
        return Err(format!("the CIDR {range} is not large enough to be split into {parts} parts"));
    };
    if parts > MAX_PARTS {
        return Err(format!("the CIDR {range} cannot be split into more than {MAX_PARTS} parts at once"));
    }
    Ok(children.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_addresses_are_inverse() {
        for (range, place, address) in [
            ("10.0.0.0/26", 0, "10.0.0.0"),
            ("10.0.0.64/26", 63, "10.0.0.127"),
            ("255.255.255.255/32", 0, "255.255.255.255"),
            ("0.0.0.0/0", 16_909_060, "1.2.3.4"),
            ("fd00:1::/122", 63, "fd00:1::3f"),
            ("::/0", 7, "::7"),
        ] {
            let range: IpNet = range.parse().expect("a range");
            let address: IpAddr = address.parse().expect("an address");
            assert_eq!(at(&range, place), Some(address));
            assert_eq!(ordinal(&range, address), Some(place));
        }
        let range: IpNet = "10.0.0.64/26".parse().expect("a range");
        assert_eq!(at(&range, 64), None);
        for outside in ["10.0.0.63", "10.0.0.128", "fd00::1", "::ffff:10.0.0.64"] {
            assert_eq!(ordinal(&range, outside.parse().expect("an address")), None, "{outside}");
        }
        assert_eq!(size(&"0.0.0.0/0".parse().expect("a range")), 1 << 32);
        assert_eq!(size(&"::/0".parse().expect("a range")), u128::MAX);
        assert_eq!(size(&"::/1".parse().expect("a range")), 1 << 127);
    }

    #[test]
    fn ranges_split_into_powers_of_two() {
        let range: IpNet = "10.0.0.0/24".parse().expect("a range");
        let parts = split(&range, 4).expect("four parts");
        let texts: Vec<String> = parts.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["10.0.0.0/26", "10.0.0.64/26", "10.0.0.128/26", "10.0.0.192/26"]);
        for (parts, message) in [
            (0, "number to split CIDR into is not a valid power of 2: 0"),
            (1, "number to split CIDR into is not a valid power of 2: 1"),
            (3, "number to split CIDR into is not a valid power of 2: 3"),
            (512, "the CIDR 10.0.0.0/24 is not large enough to be split into 512 parts"),
            (1 << 62, "the CIDR 10.0.0.0/24 is not large enough to be split into 4611686018427387904 parts"),
        ] {
            assert_eq!(split(&range, parts), Err(message.to_owned()));
        }
        let large: IpNet = "fd00::/48".parse().expect("a range");
        assert_eq!(split(&large, MAX_PARTS).expect("parts").len(), MAX_PARTS);
        assert!(
            split(&large, 2 * MAX_PARTS).expect_err("too many").ends_with("more than 65536 parts at once")
        );
    }
}
