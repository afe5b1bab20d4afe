//! Marks of endpoints, where kube-proxy uses IPVS: each interface has one value of the mark's free bits.
//!
//! The value is derived from a hash of the name, so that it is the same after a restart unless two names collide.

use crate::marks::Marks;
use std::collections::BTreeMap;

/// The values in use.
#[derive(Clone, Debug)]
pub struct EndpointMarks {
    mask: u32,
    by_name: BTreeMap<String, u32>,
    /// The name that has each value, by place; `None` for the value that stands for all other interfaces.
    by_place: BTreeMap<u32, Option<String>>,
}

impl EndpointMarks {
    /// Starts without marks.
    #[must_use]
    pub fn new(marks: &Marks) -> Self {
        let reserved = place_of(marks.endpoint, marks.non_calico_endpoint);
        Self { mask: marks.endpoint, by_name: BTreeMap::new(), by_place: BTreeMap::from([(reserved, None)]) }
    }

    /// The bits of the marks.
    #[must_use]
    pub fn mask(&self) -> u32 {
        self.mask
    }

    /// Returns the mark of an interface, which is assigned if it has none. `None` when all values are in use.
    pub fn get(&mut self, name: &str) -> Option<u32> {
        if let Some(mark) = self.by_name.get(name) {
            return Some(*mark);
        }
        if name.is_empty() || self.mask == 0 {
            return None;
        }
        let places = 1_u64 << self.mask.count_ones();
        let start = u64::from(fnv1(name.as_bytes()));
        let place = (0..places)
            .filter_map(|step| u32::try_from((start + step) % places).ok())
            .find(|place| *place != 0 && !self.by_place.contains_key(place))?;
        let mark = mark_of(self.mask, place);
        self.by_place.insert(place, Some(name.to_owned()));
        self.by_name.insert(name.to_owned(), mark);
        Some(mark)
    }

    /// Removes an interface; its value can be reused.
    pub fn release(&mut self, name: &str) {
        if let Some(mark) = self.by_name.remove(name) {
            self.by_place.remove(&place_of(self.mask, mark));
        }
    }
}

/// The hash FNV-1 of 32 bits.
fn fnv1(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash: u32, byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(*byte))
}

/// Spreads the bits of a number over the mask, the lowest first.
fn mark_of(mask: u32, place: u32) -> u32 {
    bits(mask).enumerate().filter(|(index, _)| place >> index & 1 == 1).map(|(_, bit)| bit).sum()
}

/// The inverse of [`mark_of`].
fn place_of(mask: u32, mark: u32) -> u32 {
    bits(mask).enumerate().filter(|(_, bit)| mark & bit != 0).map(|(index, _)| 1 << index).sum()
}

fn bits(mask: u32) -> impl Iterator<Item = u32> {
    (0..u32::BITS).map(|shift| 1 << shift).filter(move |bit| mask & bit != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(endpoint: u32) -> EndpointMarks {
        EndpointMarks::new(&Marks {
            endpoint,
            non_calico_endpoint: endpoint & endpoint.wrapping_neg(),
            ..Marks::default()
        })
    }

    #[test]
    fn hash_is_fnv1() {
        // From the list of test values of the algorithm's authors.
        assert_eq!(fnv1(b""), 0x811c_9dc5);
        assert_eq!(fnv1(b"a"), 0x050c_5d7e);
        assert_eq!(fnv1(b"foobar"), 0x31f0_b262);
    }

    #[test]
    fn all_values_but_two_are_given_once() {
        let mut marks = marks(0x1122_0000);
        let mut given: Vec<_> = (0..20).filter_map(|index| marks.get(&format!("eth{index}"))).collect();
        given.sort_unstable();
        // Sixteen values, except zero and the one that stands for other interfaces.
        assert_eq!(given.len(), 14);
        given.dedup();
        assert_eq!(given.len(), 14);
        assert!(given.iter().all(|mark| mark & !0x1122_0000 == 0 && *mark != 0 && *mark != 0x0002_0000));
    }

    #[test]
    fn a_released_value_is_free_and_a_kept_one_stays() {
        let mut marks = marks(0x3000_0000);
        let (first, second) = (marks.get("eth0"), marks.get("eth1"));
        assert!(first.is_some() && second.is_some() && first != second);
        assert_eq!(marks.get("eth2"), None);
        assert_eq!(marks.get("eth0"), first);
        marks.release("eth0");
        assert_eq!(marks.get("eth2"), first);
        assert_eq!(marks.get("eth1"), second);
    }
}
