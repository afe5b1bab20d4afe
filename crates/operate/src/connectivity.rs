//! `tortie connectivity test`: pods talk to each other on a real cluster, under changing policies; the results are
//! compared with the expected ones, and those with `explain`. Everything is created in a separate namespace, which is
//! deleted at the end.

mod aims;
mod phases;
mod run;

pub(crate) use run::{Choices, run};

use std::collections::BTreeMap;

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All of it arrived.
    Reached,
    /// The connection was established, but full packets did not arrive.
    Stuck,
    /// Nothing arrived.
    Failed,
}

/// The outcome for each target in the newest complete round of a client's log.
#[must_use]
pub(crate) fn newest_round(log: &str) -> (Option<u64>, BTreeMap<String, Outcome>) {
    let mut rounds: BTreeMap<u64, BTreeMap<String, Outcome>> = BTreeMap::new();
    for line in log.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [round, target, word] = words.as_slice() else { continue };
        let Ok(round) = round.parse() else { continue };
        let outcome = match *word {
            "reached" => Outcome::Reached,
            "stuck" => Outcome::Stuck,
            _ => Outcome::Failed,
        };
        rounds.entry(round).or_default().insert((*target).to_owned(), outcome);
    }
    // The last round may still be incomplete.
    let most = rounds.values().map(BTreeMap::len).max().unwrap_or_default();
    let whole = rounds.into_iter().rev().find(|(_, targets)| targets.len() == most);
    whole.map_or_else(|| (None, BTreeMap::new()), |(round, targets)| (Some(round), targets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_rounds_count() {
        let log = "rest of a line\n3 a:1 reached\n3 b:1 failed\n3 c:1 stuck\n4 a:1 failed\n";
        let (round, targets) = newest_round(log);
        assert_eq!(round, Some(3));
        assert_eq!(
            targets.into_iter().collect::<Vec<_>>(),
            [
                ("a:1".to_owned(), Outcome::Reached),
                ("b:1".to_owned(), Outcome::Failed),
                ("c:1".to_owned(), Outcome::Stuck)
            ]
        );
        assert_eq!(newest_round("").0, None);
    }
}
