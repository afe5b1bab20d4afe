//! Prefixes in an UPDATE.

use super::Reader;
use crate::{Cause, Family, Nlri, Notification, PathId, UpdateFault};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Appends prefixes to a list. Returns how many were left out because no host can have such an address.
///
/// # Errors
/// When a prefix is too long or truncated: the start of the next one is unknown, and the session has to end (RFC 7606,
/// 5.3).
pub(super) fn prefixes(
    bytes: &[u8],
    family: Family,
    with_path: bool,
    list: &mut Vec<Nlri>,
) -> Result<usize, Notification> {
    let malformed = || Notification::from(Cause::Update(UpdateFault::NetworkField));
    let mut reader = Reader::new(bytes);
    let mut left_out = 0;
    // Most prefixes take four bytes or more; for shorter ones the list grows.
    list.reserve(bytes.len() / if with_path { 8 } else { 4 });
    while !reader.is_empty() {
        let path = if with_path { PathId(reader.u32().ok_or_else(malformed)?) } else { PathId::default() };
        let bits = reader.u8().ok_or_else(malformed)?;
        let address = reader.take(usize::from(bits).div_ceil(8)).ok_or_else(malformed)?;
        let prefix = match family {
            Family::Ipv4 => {
                let mut octets = [0; 4];
                octets.get_mut(..address.len()).ok_or_else(malformed)?.copy_from_slice(address);
                IpNet::V4(Ipv4Net::new(Ipv4Addr::from(octets), bits).map_err(|_| malformed())?.trunc())
            }
            Family::Ipv6 => {
                let mut octets = [0; 16];
                octets.get_mut(..address.len()).ok_or_else(malformed)?.copy_from_slice(address);
                IpNet::V6(Ipv6Net::new(Ipv6Addr::from(octets), bits).map_err(|_| malformed())?.trunc())
            }
        };
        if is_usable(&prefix) {
            list.push(Nlri { prefix, path });
        } else {
            left_out += 1;
        }
    }
    Ok(left_out)
}

/// Whether hosts elsewhere can have addresses of a prefix: excludes loopback, link-local and multicast.
fn is_usable(prefix: &IpNet) -> bool {
    match prefix {
        IpNet::V4(prefix) => {
            let first = prefix.addr().octets()[0];
            prefix.prefix_len() == 0
                || (first < 224 && first != 127 && !(first == 0 && prefix.prefix_len() >= 8))
        }
        IpNet::V6(prefix) => {
            let address = prefix.addr();
            let of_host = prefix.prefix_len() == 128 && (address.is_loopback() || address.is_unspecified());
            !(address.is_multicast() || address.is_unicast_link_local() || of_host)
        }
    }
}
