//! Addresses in the form of objects and in the form of maps.

use bpf::layout::Family;
use std::net::IpAddr;

/// The address in the form of maps; `None` if it is of the other IP version.
pub(crate) fn bytes<F: Family>(address: IpAddr) -> Option<F::Address> {
    let mut bytes = F::Address::default();
    match (address, F::NUMBER) {
        (IpAddr::V4(address), 4) => bytes.as_mut().copy_from_slice(&address.octets()),
        (IpAddr::V6(address), 6) => bytes.as_mut().copy_from_slice(&address.octets()),
        _ => return None,
    }
    Some(bytes)
}

/// The address in the form of objects.
pub(crate) fn ip<F: Family>(address: &F::Address) -> IpAddr {
    let bytes = address.as_ref();
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return IpAddr::from(bytes);
    }
    IpAddr::from(<[u8; 16]>::try_from(bytes).unwrap_or_default())
}

/// Parses an address; `None` unless it is of this IP version.
pub(crate) fn parse<F: Family>(text: &str) -> Option<F::Address> {
    bytes::<F>(text.trim().parse().ok()?)
}

/// All ones: the wildcard for every node.
pub(crate) fn any_node<F: Family>() -> F::Address {
    let mut address = F::Address::default();
    address.as_mut().fill(0xff);
    address
}
