//! Figures by name, and the file that they are compared with.

use std::collections::BTreeMap;
use std::path::Path;
use testkit::heap;

/// How much more is not yet a regression, and how much less is not yet worth an update.
const MORE: f64 = 1.03;
const LESS: f64 = 0.90;
/// Small figures are compared with some tolerance: one allocation more or less does not matter.
const ROOM: f64 = 3.0;

/// Figures by name.
#[derive(Default)]
pub(crate) struct Counts(BTreeMap<String, u64>);

impl Counts {
    pub(crate) fn add(&mut self, name: &str, count: usize) {
        assert!(self.0.insert(name.to_owned(), count as u64).is_none(), "{name} is counted twice");
    }

    /// Runs the work, and records the number of its allocations and their bytes.
    pub(crate) fn allocations<T>(&mut self, name: &str, work: impl FnOnce() -> T) -> T {
        let before = heap::so_far();
        let result = work();
        let after = heap::so_far();
        self.add(&format!("{name}: allocations"), after.0 - before.0);
        self.add(&format!("{name}: bytes allocated"), after.1 - before.1);
        result
    }

    pub(crate) fn compare_with_recorded(&self) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/counts.txt");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            let text = self
                .0
                .iter()
                .fold(String::new(), |text, (name, count)| text + &format!("{name} = {count}\n"));
            std::fs::write(&path, text).unwrap();
            return;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let recorded: BTreeMap<&str, u64> = text
            .lines()
            .map(|line| line.rsplit_once(" = ").unwrap())
            .map(|(name, count)| (name, count.parse().unwrap()))
            .collect();
        let mut problems = Vec::new();
        for (name, count) in &self.0 {
            match recorded.get(name.as_str()) {
                None => problems.push(format!("{name} = {count} is new")),
                Some(was) => problems.extend(verdict(name, *was as f64, *count as f64)),
            }
        }
        let gone = recorded.keys().filter(|name| !self.0.contains_key(**name));
        problems.extend(gone.map(|name| format!("{name} is no longer counted")));
        assert!(
            problems.is_empty(),
            "{}\nIf this is meant: UPDATE_EXPECT=1 cargo test -p cost --test it, and review the difference.",
            problems.join("\n")
        );
    }
}

fn verdict(name: &str, was: f64, is: f64) -> Option<String> {
    let change = || format!("{was} to {is} ({:+.1} %)", (is / was - 1.0) * 100.0);
    if is > was * MORE + ROOM {
        return Some(format!("{name} grew from {}", change()));
    }
    (is + ROOM < was * LESS)
        .then(|| format!("{name} fell from {}: record it, so that it stays there", change()))
}
