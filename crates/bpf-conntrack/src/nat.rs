//! Detects flows to services whose backend is gone. TCP is left alone: it continues while its backend lives, and is
//! reset when the workload is removed. Any other flow would keep sending to a dead backend until it falls idle.

use crate::sweep::Reason;
use bpf::layout::Family;
use bpf::layout::conntrack::{Entry, Key, Value, flags::SOURCE_IS_B};

/// Facts about services.
pub trait Destinations<F: Family> {
    /// Whether flows from this service to this backend may continue. True while services are not known yet.
    fn has_backend(&self, service: (F::Address, u16), backend: (F::Address, u16), protocol: u8) -> bool;

    /// Whether an address is a service's.
    fn is_service(&self, address: F::Address, port: u16, protocol: u8) -> bool;

    /// A number that changes whenever an answer may change: until then, entries need not be checked again.
    fn generation(&self) -> u64;
}

type End<F> = (<F as Family>::Address, u16);

/// The reason why the entry is stale, if it is.
pub(crate) fn stale<F: Family>(
    nat: &impl Destinations<F>,
    key: &Key<F>,
    value: &Value<F>,
    get: impl Fn(&Key<F>) -> Option<Value<F>>,
) -> Option<Reason> {
    let protocol = u8::try_from(key.protocol).unwrap_or(0);
    let (a, b): (End<F>, End<F>) = ((key.address_a, key.port_a), (key.address_b, key.port_b));
    match &value.entry {
        // It began before the service existed; a packet now would be translated.
        Entry::Normal(_) => {
            let (address, port) = if value.flags & SOURCE_IS_B == 0 { b } else { a };
            nat.is_service(address, port, protocol).then_some(Reason::StaleNat)
        }
        Entry::Reverse(tracking) => {
            let service = (tracking.original_address, tracking.original_port);
            // Which end is the client is unknown here, so either may be the backend.
            let lives = nat.has_backend(service, a, protocol) || nat.has_backend(service, b, protocol);
            (!lives).then_some(Reason::StaleNat)
        }
        Entry::Forward(reverse, changed_port) => match ends(key, reverse, *changed_port) {
            Some((service, backend)) => {
                (!nat.has_backend(service, backend, protocol)).then_some(Reason::StaleNat)
            }
            // Its source was translated, too: only the entry with the state has the original.
            None => match get(reverse) {
                None => Some(Reason::NoReverse),
                Some(value) if matches!(value.entry, Entry::Reverse(_)) => stale(nat, reverse, &value, get),
                Some(_) => Some(Reason::NoReverse),
            },
        },
        Entry::Unknown(_) => None,
    }
}

/// The service and backend of a flow: the parts in which its two keys differ.
fn ends<F: Family>(key: &Key<F>, reverse: &Key<F>, changed_port: u16) -> Option<(End<F>, End<F>)> {
    let sides = |key: &Key<F>| [(key.address_a, key.port_a), (key.address_b, key.port_b)];
    let (before, after) = (sides(key), sides(reverse));
    for (client, service) in [(0, 1), (1, 0)] {
        for (same, backend) in [(0, 1), (1, 0)] {
            let port = if changed_port == 0 { before[client].1 } else { changed_port };
            if (before[client].0, port) == after[same] {
                return Some((before[service], after[backend]));
            }
        }
    }
    None
}
