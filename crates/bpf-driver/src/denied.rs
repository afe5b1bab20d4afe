//! The number of packets that policy denied: programs count, and the sum is read on request. Reading it in every round
//! of the dataplane would query the kernel about every interface, whatever changed.

use crate::error::Error;
use bpf::layout::network::{CounterKey, Counters};
use bpf::{Map, PerCpu};

/// The index of the counter of packets denied by policy.
const DENIED: usize = 4;

/// The programs' counters.
#[derive(Debug)]
pub struct Denied(Map);

impl Denied {
    /// The counters in this map, which stays open.
    pub(crate) fn of(map: &Map) -> Result<Self, Error> {
        let own = map.try_clone()?;
        PerCpu::<CounterKey, Counters>::new(&own)?;
        Ok(Self(own))
    }

    /// The number of packets denied on the counted interfaces.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn packets(&self) -> Result<u64, Error> {
        let all = PerCpu::<CounterKey, Counters>::new(&self.0)?.entries()?;
        Ok(all.iter().flat_map(|(_, values)| values).map(|one| one.0[DENIED]).sum())
    }
}
