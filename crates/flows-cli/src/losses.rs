//! Reports flows that were lost on the way to a Goldmane, because an incomplete list must not look complete.
//!
//! Calico's Goldmane does not count losses; nothing is reported then.

use crate::text;
use goldmane_api::losses::{LossesResult, SILENT};
use std::collections::BTreeMap;

/// What has been reported: a loss is reported again only when it has grown.
#[derive(Debug, Default)]
pub struct Said(BTreeMap<(String, i32), u64>);

impl Said {
    /// A line for each loss that has not been reported yet.
    pub fn lines(&mut self, known: &LossesResult) -> Vec<String> {
        let mut lines = Vec::new();
        for node in &known.nodes {
            let place = match node.node.as_str() {
                "" => "Goldmane".to_owned(),
                name => format!("node {}", text::clean(name)),
            };
            for loss in &node.losses {
                let said = self.0.entry((node.node.clone(), loss.kind)).or_default();
                if loss.recent > 0 && loss.total > *said {
                    *said = loss.total;
                    lines.push(format!(
                        "{place} lost, in the last hour: {} {}",
                        loss.recent,
                        loss.kind().words()
                    ));
                }
            }
            let said = self.0.entry((node.node.clone(), -1)).or_default();
            let is_silent = !node.node.is_empty() && node.age >= SILENT;
            if is_silent && *said == 0 {
                lines.push(format!(
                    "{place} has not been heard from for {} seconds: its flows may be missing",
                    node.age
                ));
            }
            *said = u64::from(is_silent);
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use goldmane_api::losses::LossKind;
    use goldmane_api::losses::proto::{KnownLoss, NodeLosses};

    fn known(node: &str, age: i64, recent: u64, total: u64) -> LossesResult {
        let loss = KnownLoss { kind: LossKind::PacketsShed.into(), recent, total };
        let losses = (total > 0).then_some(loss).into_iter().collect();
        LossesResult {
            nodes: vec![NodeLosses { node: node.to_owned(), age, losses }],
            ..LossesResult::default()
        }
    }

    #[test]
    fn losses_are_reported_once_and_again_when_they_grow() {
        let mut said = Said::default();
        let line = |count| {
            vec![format!(
                "node n1 lost, in the last hour: {count} packets dropped because the collector was busy"
            )]
        };
        assert_eq!(said.lines(&known("n1", 3, 7, 9)), line(7));
        assert!(said.lines(&known("n1", 3, 7, 9)).is_empty());
        assert_eq!(said.lines(&known("n1", 3, 8, 10)), line(8));
        assert!(said.lines(&known("n2", 3, 0, 10)).is_empty(), "long ago");
        assert!(said.lines(&known("n2", 3, 0, 0)).is_empty());
    }

    #[test]
    fn silence_is_reported_once_per_occurrence() {
        let mut said = Said::default();
        assert_eq!(
            said.lines(&known("n1", 61, 0, 0)),
            ["node n1 has not been heard from for 61 seconds: its flows may be missing"]
        );
        assert!(said.lines(&known("n1", 66, 0, 0)).is_empty());
        assert!(said.lines(&known("n1", 1, 0, 0)).is_empty());
        assert_eq!(said.lines(&known("n1", 60, 0, 0)).len(), 1);
        assert!(said.lines(&known("", 61, 0, 0)).is_empty());
    }

    #[test]
    fn node_names_are_sanitised() {
        assert!(!Said::default().lines(&known("n\u{1b}[31m", 3, 1, 1))[0].contains('\u{1b}'));
    }
}
