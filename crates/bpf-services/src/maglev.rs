//! Maglev: a table from hashes of flows to backends that is the same on every node, including Calico's, and changes
//! little when a backend is added or removed.
//!
//! Each backend has its own order of preferred positions, from two hashes of its name; in turns, ordered by name, each
//! takes its first free one. The hashes are 32-bit FNV-1; Calico reads their big-endian bytes as a native integer, and
//! so does this.

use bpf::layout::Family;
use bpf::layout::nat::Backend;

/// The table's size for a number of endpoints: the first prime from five times that number on.
#[must_use]
pub fn table_size(endpoints: u32) -> u32 {
    let is_prime =
        |number: u32| (2..).take_while(|by| by * by <= number).all(|by| !number.is_multiple_of(by));
    let mut size = endpoints.clamp(1, 1 << 24) * 5;
    while !is_prime(size) {
        size += 1;
    }
    size
}

fn hash(seed: u8, name: &str) -> u32 {
    let start: u32 = 0x811c_9dc5;
    let step = |hash: u32, byte: u8| hash.wrapping_mul(0x0100_0193) ^ u32::from(byte);
    name.bytes().fold(step(start, seed), step).swap_bytes()
}

/// The table for these backends, each with its name (address and port); empty without backends.
pub(crate) fn table<F: Family>(size: u32, backends: &[(String, Backend<F>)]) -> Vec<Backend<F>> {
    let mut sorted: Vec<&(String, Backend<F>)> = backends.iter().collect();
    sorted.sort_by(|one, other| one.0.cmp(&other.0));
    sorted.dedup_by(|one, other| one.0 == other.0);
    if sorted.is_empty() || size < 2 {
        return Vec::new();
    }
    let size = u64::from(size);
    let mut wishes: Vec<(u64, u64)> = sorted
        .iter()
        .map(|(name, _)| (u64::from(hash(0, name)) % size, u64::from(hash(0x0a, name)) % (size - 1) + 1))
        .collect();
    let mut places: Vec<Option<usize>> = vec![None; usize::try_from(size).unwrap_or_default()];
    let mut free = places.len();
    loop {
        for (backend, (place, skip)) in wishes.iter_mut().enumerate() {
            let at = loop {
                let at = usize::try_from(*place).unwrap_or_default();
                *place = (*place + *skip) % size;
                if places[at].is_none() {
                    break at;
                }
            };
            places[at] = Some(backend);
            free -= 1;
            if free == 0 {
                return places.into_iter().flatten().map(|backend| sorted[backend].1).collect();
            }
        }
    }
}

#[cfg(test)]
mod tests;
