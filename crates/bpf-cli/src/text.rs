//! Formats and parses values like Go.

use crate::maps::Failure;
use bpf::layout::Family;
use serde_json::Value;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// An address of a map.
pub(crate) fn ip<F: Family>(address: &F::Address) -> IpAddr {
    let bytes = address.as_ref();
    match <[u8; 4]>::try_from(bytes) {
        Ok(bytes) => bytes.into(),
        Err(_) => <[u8; 16]>::try_from(bytes).unwrap_or_default().into(),
    }
}

/// An address with a port; IPv6 addresses have brackets.
pub(crate) fn place<F: Family>(address: &F::Address, port: u16) -> String {
    SocketAddr::new(ip::<F>(address), port).to_string()
}

/// Parses an address of this IP version.
pub(crate) fn bytes<F: Family>(text: &str) -> Result<F::Address, Failure> {
    let wrong = || Failure::Wrong(format!("{text:?} is not an IPv{} address", F::NUMBER));
    let mut address = F::Address::default();
    match (text.parse::<IpAddr>().map_err(|_| wrong())?, F::NUMBER) {
        (IpAddr::V4(ip), 4) => address.as_mut().copy_from_slice(&ip.octets()),
        (IpAddr::V6(ip), 6) => address.as_mut().copy_from_slice(&ip.octets()),
        _ => return Err(wrong()),
    }
    Ok(address)
}

/// Parses a protocol's name or number.
pub(crate) fn protocol(text: &str) -> Result<u8, Failure> {
    match text.to_ascii_lowercase().as_str() {
        "tcp" => Ok(6),
        "udp" => Ok(17),
        "sctp" => Ok(132),
        "icmp" => Ok(1),
        other => number(other).map_err(|_| Failure::Wrong(format!("unknown protocol {text:?}"))),
    }
}

/// Parses a number, decimal or with 0x.
pub(crate) fn number<T: TryFrom<u64>>(text: &str) -> Result<T, Failure> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    let wrong = || Failure::Wrong(format!("{text:?} is not a number in its range"));
    parsed.ok().and_then(|number| T::try_from(number).ok()).ok_or_else(wrong)
}

/// How long ago something was; a time ahead of the clock has a minus.
pub(crate) fn ago(now: u64, then: u64) -> String {
    let text = |nanoseconds| api::scalars::Duration::from_std(Duration::from_nanos(nanoseconds));
    if then > now { format!("-{}", text(then - now)) } else { text(now - then).to_string() }
}

/// Prints JSON like Go's encoder with an indentation of two spaces.
pub(crate) fn json(out: &mut dyn Write, value: &Value) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(std::io::Error::from)?;
    Ok(writeln!(out, "{text}")?)
}

/// The names of the bits that are set.
pub(crate) fn names(bits: u32, table: &[(u32, &'static str)]) -> Vec<&'static str> {
    table.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect()
}

/// Decodes a key or a value of known size.
pub(crate) fn read<T: bpf::Layout>(map: &str, bytes: &[u8]) -> Result<T, Failure> {
    sized(map, bytes, T::SIZE)?;
    Ok(T::read(bytes))
}

/// Checks that bytes have the expected size.
pub(crate) fn sized(map: &str, bytes: &[u8], size: usize) -> Result<(), Failure> {
    if bytes.len() == size {
        return Ok(());
    }
    Err(Failure::Wrong(format!("{map} has keys or values of {} bytes, not {size}", bytes.len())))
}
