//! Reconstructs an order from observed sequences: what always came first is first.

use std::collections::{BTreeMap, BTreeSet};

/// Orders all elements of the sequences. Where sequences contradict each other, or leave the order open, names decide.
pub(super) fn order<'a>(sequences: impl Iterator<Item = Vec<&'a str>>) -> Vec<&'a str> {
    let mut before: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for sequence in sequences {
        for (place, name) in sequence.iter().enumerate() {
            let earlier = sequence[..place].iter().filter(|other| *other != name);
            before.entry(name).or_default().extend(earlier);
        }
    }
    let mut ordered = Vec::with_capacity(before.len());
    while !before.is_empty() {
        // In a cycle, the element with the fewest predecessors is next.
        let next = before.iter().min_by_key(|(name, earlier)| (earlier.len(), **name)).map(|(name, _)| *name);
        let Some(next) = next else { break };
        before.remove(next);
        for earlier in before.values_mut() {
            earlier.remove(next);
        }
        ordered.push(next);
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::order;

    #[test]
    fn sequences_and_names() {
        for (sequences, expected) in [
            (vec![vec!["b", "a"], vec!["c", "b"]], vec!["c", "b", "a"]),
            (vec![vec!["b"], vec!["a"]], vec!["a", "b"]),
            (vec![vec!["a", "b"], vec!["b", "a"], vec!["b", "c"]], vec!["a", "b", "c"]),
            (vec![vec!["x", "x", "y"]], vec!["x", "y"]),
            (vec![], vec![]),
        ] {
            assert_eq!(order(sequences.into_iter()), expected);
        }
    }
}
