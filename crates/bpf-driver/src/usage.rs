//! How full the maps of connections are, as found by sweeps, and when they should grow.
//!
//! The rule is Calico's: above nine tenths, or above 85 percent while usage rises pass by pass. Growth is bounded: a
//! map is kernel memory, allocated in advance.

use std::sync::{Arc, Mutex, PoisonError};

/// The maximum size that a map of connections grows to: some 3 GB.
const MOST: u32 = 1 << 24;
/// The usage in percent from which a warning is logged.
const NEARLY_FULL: u64 = 80;
const FULL: u64 = 90;
const FILLING: u64 = 85;
/// After this many passes with rising numbers of connections, a map counts as filling up.
const RISES: u32 = 3;

/// The findings of passes over a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Entries found by the last pass.
    pub used: u64,
    /// Entries removed by the last pass.
    pub cleaned: u64,
    /// The map's capacity.
    pub room: u32,
    /// The number of passes so far.
    pub sweeps: u64,
    /// The duration of the last pass in nanoseconds.
    pub nanoseconds: u64,
    /// The size that the map should have instead, if any.
    pub wants: Option<u32>,
}

impl Usage {
    /// The share of the capacity in use, at most 1.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    pub fn fullness(&self) -> f64 {
        self.used.saturating_sub(self.cleaned) as f64 / f64::from(self.room.max(1))
    }
}

/// Tracks one map's usage from pass to pass.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    usage: Usage,
    live: u64,
    rises: u32,
    is_told: bool,
}

impl Growth {
    /// Records a pass.
    pub(crate) fn after(&mut self, used: u64, cleaned: u64, room: u32, nanoseconds: u64) -> Usage {
        let live = used.saturating_sub(cleaned);
        self.rises = if live > self.live { self.rises + 1 } else { 0 };
        self.live = live;
        let percent = live * 100 / u64::from(room.max(1));
        let is_full = percent > FULL || (percent > FILLING && self.rises >= RISES);
        let wants = is_full.then(|| room.saturating_mul(2).min(MOST)).filter(|size| *size > room);
        if percent <= NEARLY_FULL {
            self.is_told = false;
        } else if !std::mem::replace(&mut self.is_told, true) {
            tracing::warn!(
                live,
                room,
                "the map of connections is nearly full; the least recently used are evicted first"
            );
        }
        self.usage = Usage { used, cleaned, room, sweeps: self.usage.sweeps + 1, nanoseconds, wants };
        self.usage
    }
}

/// The usage for both IP versions, shared with readers.
#[derive(Clone, Debug, Default)]
pub struct Usages(Arc<Mutex<[Usage; 2]>>);

impl Usages {
    /// Records a pass over the map of a version.
    pub fn set(&self, version: u8, usage: Usage) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all[usize::from(version == 6)] = usage;
    }

    /// The latest findings, for IPv4 and IPv6.
    #[must_use]
    pub fn get(&self) -> [Usage; 2] {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{Growth, MOST, Usages};

    /// The desired size after passes that found these numbers of live entries.
    fn wanted(room: u32, passes: &[u64]) -> Option<u32> {
        let mut growth = Growth::default();
        passes.iter().map(|live| growth.after(live + 5, 5, room, 1).wants).last().flatten()
    }

    #[test]
    fn a_map_grows_when_it_is_full_or_fills_up() {
        for (passes, expected) in [
            (&[800_u64][..], None),
            (&[900], None),
            (&[910], Some(2000)),
            (&[860, 870], None),
            (&[860, 870, 880], Some(2000)),
            (&[860, 870, 870], None),
            (&[100, 200, 300], None),
        ] {
            assert_eq!(wanted(1000, passes), expected, "{passes:?}");
        }
        assert_eq!(wanted(MOST - 1, &[u64::from(MOST)]), Some(MOST));
        assert_eq!(wanted(MOST, &[u64::from(MOST)]), None);
    }

    #[test]
    fn findings_are_kept_for_each_version() {
        let (usages, mut growth) = (Usages::default(), Growth::default());
        usages.set(6, growth.after(100, 50, 200, 7));
        usages.set(6, growth.after(100, 50, 200, 7));
        let [v4, v6] = usages.get();
        assert_eq!((v4.sweeps, v6.sweeps, v6.fullness()), (0, 2, 0.25));
    }
}
