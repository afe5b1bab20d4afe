//! How full the maps of connections are, as passes over them find it, and when they should be larger.
//!
//! The rule is Calico's: above nine tenths, or above 85 in 100 while it fills up pass by pass. It refuses to grow for ever: a map
//! is memory of the kernel, taken in advance.

use std::sync::{Arc, Mutex, PoisonError};

/// The most entries that a map of connections is made for unasked: some 3 GB.
const MOST: u32 = 1 << 24;
/// From here on it is said, in percent.
const NEARLY_FULL: u64 = 80;
const FULL: u64 = 90;
const FILLING: u64 = 85;
/// After so many passes with more connections each, a map fills up.
const RISES: u32 = 3;

/// What passes over a map found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Entries that the last pass looked at.
    pub used: u64,
    /// Those that it took out.
    pub cleaned: u64,
    /// Those that there is room for.
    pub room: u32,
    /// Passes so far.
    pub sweeps: u64,
    /// What the last one took, in nanoseconds.
    pub nanoseconds: u64,
    /// The size that it should have instead.
    pub wants: Option<u32>,
}

impl Usage {
    /// How full it is, 1 at most.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    pub fn fullness(&self) -> f64 {
        self.used.saturating_sub(self.cleaned) as f64 / f64::from(self.room.max(1))
    }
}

/// One map's from pass to pass.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    usage: Usage,
    live: u64,
    rises: u32,
    is_told: bool,
}

impl Growth {
    /// A pass is over.
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
                "the map of connections is nearly full; it forgets the most silent first"
            );
        }
        self.usage = Usage { used, cleaned, room, sweeps: self.usage.sweeps + 1, nanoseconds, wants };
        self.usage
    }
}

/// What is known of both IP versions, for whoever asks.
#[derive(Clone, Debug, Default)]
pub struct Usages(Arc<Mutex<[Usage; 2]>>);

impl Usages {
    /// A pass over the map of a version is over.
    pub fn set(&self, version: u8, usage: Usage) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all[usize::from(version == 6)] = usage;
    }

    /// What was found last, IPv4 and IPv6.
    #[must_use]
    pub fn get(&self) -> [Usage; 2] {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{Growth, MOST, Usages};

    /// The size that is wanted after passes that found so many live entries.
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
    fn what_was_found_is_kept_for_each_version() {
        let (usages, mut growth) = (Usages::default(), Growth::default());
        usages.set(6, growth.after(100, 50, 200, 7));
        usages.set(6, growth.after(100, 50, 200, 7));
        let [v4, v6] = usages.get();
        assert_eq!((v4.sweeps, v6.sweeps, v6.fullness()), (0, 2, 0.25));
    }
}
