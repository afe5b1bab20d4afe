//! Addresses as objects write them and as maps have them.

use bpf::layout::Family;
use std::net::IpAddr;

/// The address as maps of this IP version have it; none if it is of the other version.
pub(crate) fn bytes<F: Family>(address: IpAddr) -> Option<F::Address> {
    let mut bytes = F::Address::default();
    match (address, F::NUMBER) {
        (IpAddr::V4(address), 4) => bytes.as_mut().copy_from_slice(&address.octets()),
        (IpAddr::V6(address), 6) => bytes.as_mut().copy_from_slice(&address.octets()),
        _ => return None,
    }
    Some(bytes)
}

/// The address for people.
pub(crate) fn ip<F: Family>(address: &F::Address) -> IpAddr {
    let bytes = address.as_ref();
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return IpAddr::from(bytes);
    }
    IpAddr::from(<[u8; 16]>::try_from(bytes).unwrap_or_default())
}

/// The first address of a text's that is of this IP version.
pub(crate) fn parse<F: Family>(text: &str) -> Option<F::Address> {
    bytes::<F>(text.trim().parse().ok()?)
}

/// All ones: stands for every node.
pub(crate) fn any_node<F: Family>() -> F::Address {
    let mut address = F::Address::default();
    address.as_mut().fill(0xff);
    address
}
