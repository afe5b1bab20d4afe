//! Detects repeated flows: after a reconnect, senders repeat the flows of the last minutes.
//!
//! A sender reports a flow of a key and a time only once, so sender, key and time identify a repetition. Bounded: when
//! the memory is full, the oldest entries are forgotten first, and counted.

use hashbrown::{HashMap, HashSet};
use std::collections::BTreeMap;
use std::hash::Hash;

/// How long a flow is remembered, in seconds. Senders repeat flows that are up to five minutes old.
const MEMORY: i64 = 600;
/// How often old entries are looked for, in seconds.
const PAUSE: i64 = 60;

/// The flows of one period: stored compactly, and forgotten together.
#[derive(Debug)]
struct Generation {
    /// When the last flow arrived.
    touched: i64,
    /// (sender, key).
    flows: HashSet<(u32, u32)>,
}

/// The flows of the last minutes. `S` identifies senders.
#[derive(Debug)]
pub struct Seen<S> {
    senders: HashMap<S, u32>,
    next_sender: u32,
    /// By the start and end of the flows.
    generations: BTreeMap<(i64, i64), Generation>,
    count: usize,
    /// The size of the largest generation when it was last checked.
    usual: usize,
    most: usize,
    forgotten: u64,
    swept: i64,
}

impl<S: Hash + Eq + Clone> Seen<S> {
    /// Creates a memory of at most `most` flows.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            senders: HashMap::new(),
            next_sender: 0,
            generations: BTreeMap::new(),
            count: 0,
            usual: 0,
            most: most.max(1),
            forgotten: 0,
            swept: i64::MIN,
        }
    }

    /// The number for a sender's next flows. A sender gets a new number once all its flows have been forgotten.
    pub fn sender(&mut self, sender: &S, now: i64) -> u32 {
        self.sweep(now);
        if let Some(number) = self.senders.get(sender) {
            return *number;
        }
        let number = self.next_sender;
        self.next_sender = self.next_sender.wrapping_add(1);
        self.senders.insert(sender.clone(), number);
        number
    }

    /// Whether a flow of a key and a period is new; records it. Keys are named by the ring's slots: a slot is reused
    /// only when no flow of its period can arrive any more.
    pub fn is_new(&mut self, sender: u32, slot: u32, start: i64, end: i64, now: i64) -> bool {
        self.make_room();
        let generation = self.generations.entry((start, end)).or_insert_with(|| {
            // Most likely as many flows as in the fullest other generation.
            Generation { touched: now, flows: HashSet::with_capacity(self.usual) }
        });
        let is_new = generation.flows.insert((sender, slot));
        if is_new {
            generation.touched = generation.touched.max(now);
            self.count += 1;
        }
        is_new
    }

    fn sweep(&mut self, now: i64) {
        if now.saturating_sub(self.swept) >= PAUSE {
            self.swept = now;
            self.generations.retain(|_, generation| now - generation.touched <= MEMORY);
            let sizes = || self.generations.values().map(|generation| generation.flows.len());
            (self.count, self.usual) = (sizes().sum(), sizes().max().unwrap_or(0));
        }
        if self.generations.is_empty() {
            self.senders.clear();
        }
    }

    fn make_room(&mut self) {
        if self.count >= self.most
            && let Some((_, generation)) = self.generations.pop_first()
        {
            self.forgotten += generation.flows.len() as u64;
            self.count -= generation.flows.len();
        }
    }

    /// The number of remembered flows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether no flows are remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many flows were forgotten too early for lack of room.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_counts_once_per_sender_and_time() {
        let mut seen = Seen::new(100);
        let is_new = |seen: &mut Seen<&str>, name: &'static str, slot, start, end, now| {
            let sender = seen.sender(&name, now);
            seen.is_new(sender, slot, start, end, now)
        };
        assert!(is_new(&mut seen, "node-1", 1, 15, 30, 100));
        assert!(!is_new(&mut seen, "node-1", 1, 15, 30, 100), "the same");
        assert!(is_new(&mut seen, "node-2", 1, 15, 30, 100), "another sender");
        assert!(is_new(&mut seen, "node-1", 2, 15, 30, 100), "another key");
        assert!(is_new(&mut seen, "node-1", 1, 30, 45, 100), "another time");
        assert!(!is_new(&mut seen, "node-1", 1, 15, 30, 100 + MEMORY), "still known");
        assert!(is_new(&mut seen, "node-1", 1, 15, 30, 100 + MEMORY + 2 * PAUSE), "long ago");
        assert_eq!((seen.len(), seen.forgotten()), (1, 0));
    }

    #[test]
    fn memory_is_bounded() {
        let mut seen = Seen::new(10);
        for key in 0..1000 {
            let time = i64::from(key) * 7;
            let sender = seen.sender(&"node", time);
            assert!(seen.is_new(sender, key, time, time, time));
            assert!(seen.len() <= 10);
        }
        assert!(seen.forgotten() > 0 && !seen.is_empty());
    }
}
