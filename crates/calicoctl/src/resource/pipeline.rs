//! Many objects at once: many requests in flight, results in the order of the input.
//!
//! Dependencies are written first (tiers before policies, filters before peers) and deleted last. Pools are written one
//! at a time, because each is checked against the ones before it. An object that is in the input twice is written
//! twice, in order.

use super::target::Identity;
use crate::context::Context;
use api::Kind;
use futures::StreamExt as _;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// How many requests may be in flight at once, unless the user sets another number.
pub(crate) const DEFAULT_PARALLEL: usize = 64;

/// Work that takes longer than this reports its progress, at this interval.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// The direction of dependencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Dependencies come first.
    Writing,
    /// Dependencies come last.
    Deleting,
}

/// Runs `work` on every index of `identities` and returns the results in the order of the input.
pub(crate) async fn run<T, W, F>(
    context: &mut Context,
    identities: &[Identity],
    direction: Direction,
    parallel: usize,
    work: W,
) -> Vec<T>
where
    W: Fn(usize) -> F,
    F: Future<Output = T>,
{
    let total = identities.len();
    let mut results: Vec<(usize, T)> = Vec::with_capacity(total);
    let mut progress = Progress { shown: false, last: Instant::now() };
    for wave in waves(identities, direction) {
        let limit = if wave.one_at_a_time { 1 } else { parallel.max(1) };
        let started = wave.items.into_iter().map(|index| {
            let work = work(index);
            async move { (index, work.await) }
        });
        let mut finished = futures::stream::iter(started).buffer_unordered(limit);
        while let Some(result) = finished.next().await {
            results.push(result);
            progress.show(context, results.len(), total);
        }
    }
    progress.clear(context);
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Objects that may be processed together.
struct Wave {
    items: Vec<usize>,
    one_at_a_time: bool,
}

fn waves(identities: &[Identity], direction: Direction) -> Vec<Wave> {
    let mut seen: BTreeMap<&Identity, usize> = BTreeMap::new();
    let mut waves: BTreeMap<(usize, u8), Vec<usize>> = BTreeMap::new();
    for (index, identity) in identities.iter().enumerate() {
        let repetition = seen.entry(identity).or_default();
        let rank = rank(identity.kind);
        let rank = if direction == Direction::Deleting { u8::MAX - rank } else { rank };
        waves.entry((*repetition, rank)).or_default().push(index);
        *repetition += 1;
    }
    let is_pool =
        |items: &[usize]| items.first().is_some_and(|index| identities[*index].kind == Kind::IPPool);
    waves.into_values().map(|items| Wave { one_at_a_time: is_pool(&items), items }).collect()
}

/// The position of a kind in the order of dependencies; pools have one of their own.
fn rank(kind: Kind) -> u8 {
    match kind {
        Kind::Tier | Kind::BGPFilter | Kind::IPAMConfiguration => 0,
        Kind::IPPool => 1,
        _ => 2,
    }
}

struct Progress {
    shown: bool,
    last: Instant,
}

impl Progress {
    fn show(&mut self, context: &mut Context, done: usize, total: usize) {
        if !context.surroundings.progress || self.last.elapsed() < PROGRESS_INTERVAL {
            return;
        }
        self.last = Instant::now();
        self.shown = true;
        // Progress output is optional: if it fails, the work continues.
        let stderr = &mut context.surroundings.stderr;
        let _ = write!(stderr, "\r{done} of {total} resources").and_then(|()| stderr.flush());
    }

    fn clear(&self, context: &mut Context) {
        if self.shown {
            let _ = write!(context.surroundings.stderr, "\r\u{1b}[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(kind: Kind, name: &str) -> Identity {
        Identity { kind, namespace: String::new(), name: name.to_owned() }
    }

    #[test]
    fn dependencies_go_first_and_repetitions_wait() {
        let identities = [
            identity(Kind::GlobalNetworkPolicy, "a"),
            identity(Kind::IPPool, "p"),
            identity(Kind::Tier, "t"),
            identity(Kind::GlobalNetworkPolicy, "a"),
            identity(Kind::IPPool, "q"),
        ];
        let shown = |direction| {
            let waves = waves(&identities, direction);
            waves.into_iter().map(|wave| (wave.items, wave.one_at_a_time)).collect::<Vec<_>>()
        };
        let writing = [(vec![2], false), (vec![1, 4], true), (vec![0], false), (vec![3], false)];
        assert_eq!(shown(Direction::Writing), writing);
        let deleting = [(vec![0], false), (vec![1, 4], true), (vec![2], false), (vec![3], false)];
        assert_eq!(shown(Direction::Deleting), deleting);
    }
}
