//! How long a client waits before it retries. Pure: randomness is an argument.
//!
//! All clients of a Typha lose it at the same moment. They reconnect spread over a window, which grows as long as
//! attempts fail, so that the remaining Typhas do not get all connections at once. There is always a pause: the
//! shortest is a tenth of the window.

use std::time::Duration;

/// The window after a successful connection.
const FIRST_WINDOW: Duration = Duration::from_secs(1);
/// The window doubles with each failure, up to this one.
const LAST_WINDOW: Duration = Duration::from_secs(5);
/// The shortest pause, in thousandths of the window.
const LEAST: u32 = 100;

/// The pauses of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    window: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { window: FIRST_WINDOW }
    }
}

impl Backoff {
    /// The pause before the next attempt; later ones are longer. `chance` is any number.
    pub fn pause(&mut self, chance: u64) -> Duration {
        let share = LEAST + u32::try_from(chance % u64::from(1001 - LEAST)).unwrap_or(0);
        let pause = self.window * share / 1000;
        self.window = (self.window * 2).min(LAST_WINDOW);
        pause
    }

    /// Records a successful attempt.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A source of evenly distributed numbers.
    fn chances(seed: u64) -> impl Iterator<Item = u64> {
        (0..).scan(seed, |state, _: u64| {
            *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            Some(mixed ^ mixed >> 31)
        })
    }

    /// How many of a thousand clients that lost their server at once reconnect in the fullest tenth of a second, when
    /// each of them has failed this many times before.
    fn fullest_slot(seed: u64, failures: usize) -> usize {
        let mut slots = std::collections::BTreeMap::<u128, usize>::new();
        let mut chances = chances(seed);
        for _ in 0..1000 {
            let mut backoff = Backoff::default();
            let mut pause = Duration::ZERO;
            for _ in 0..=failures {
                pause = backoff.pause(chances.next().unwrap());
            }
            *slots.entry(pause.as_millis() / 100).or_default() += 1;
        }
        slots.into_values().max().unwrap()
    }

    proptest! {
        #[test]
        fn pauses_are_within_their_window(chances in proptest::collection::vec(any::<u64>(), 1..20)) {
            let mut backoff = Backoff::default();
            let windows = [1, 2, 4, 5, 5].map(Duration::from_secs);
            for (place, chance) in chances.into_iter().enumerate() {
                let window = windows[place.min(windows.len() - 1)];
                let pause = backoff.pause(chance);
                prop_assert!(pause >= window / 10 && pause <= window, "{pause:?} in a window of {window:?}");
            }
        }

        #[test]
        fn a_success_resets_the_window(chances in proptest::collection::vec(any::<u64>(), 0..20), last: u64) {
            let mut backoff = Backoff::default();
            for chance in chances {
                backoff.pause(chance);
            }
            backoff.reset();
            prop_assert_eq!(backoff.pause(last), Backoff::default().pause(last));
        }

        #[test]
        fn a_thousand_clients_do_not_reconnect_at_once(seed: u64) {
            // Evenly spread, there would be 111 per tenth of a second at first, and 22 in the end.
            prop_assert!(fullest_slot(seed, 0) < 180, "{}", fullest_slot(seed, 0));
            prop_assert!(fullest_slot(seed, 6) < 60, "{}", fullest_slot(seed, 6));
        }
    }

    #[test]
    fn the_whole_window_is_used() {
        let pause = |chance| Backoff::default().pause(chance);
        assert_eq!((pause(0), pause(900)), (Duration::from_millis(100), Duration::from_secs(1)));
    }
}
