//! How many packets policy denied: programs count, and the sum is read when somebody asks. A round of the dataplane that read
//! it would ask the kernel about every interface, whatever changed.

use crate::error::Error;
use bpf::layout::network::{CounterKey, Counters};
use bpf::{Map, PerCpu};

/// Where packets that policy denied are counted.
const DENIED: usize = 4;

/// The programs' counters.
#[derive(Debug)]
pub struct Denied(Map);

impl Denied {
    /// Those of this map, which stays open.
    pub(crate) fn of(map: &Map) -> Result<Self, Error> {
        let own = map.try_clone()?;
        PerCpu::<CounterKey, Counters>::new(&own)?;
        Ok(Self(own))
    }

    /// The packets that were denied on the interfaces that are counted.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn packets(&self) -> Result<u64, Error> {
        let all = PerCpu::<CounterKey, Counters>::new(&self.0)?.entries()?;
        Ok(all.iter().flat_map(|(_, values)| values).map(|one| one.0[DENIED]).sum())
    }
}
