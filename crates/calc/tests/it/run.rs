//! Runs a series of worlds through a graph in many ways, and compares the state after each.

use crate::dataplane::Dataplane;
use crate::naive;
use crate::world::{World, difference, put};
use calc::{CalcGraph, GraphConfig};
use model::feed::{FeedEntry, Status};

pub(crate) const HOST: &str = "h1";

/// A way to go through worlds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Way {
    /// Forwards.
    Forward,
    /// Backwards.
    Reversed,
    /// Only the last world.
    Squashed,
    /// A flush after each update.
    Split,
    /// An empty world between each two.
    WithEmptyWorlds,
    /// Several flushes without updates between them, and every update twice.
    WithEmptyFlushes,
    /// The updates of each step in reverse order of keys; in sync only after the first step.
    Backwards,
}

pub(crate) const WAYS: [Way; 7] = [
    Way::Forward,
    Way::Reversed,
    Way::Squashed,
    Way::Split,
    Way::WithEmptyWorlds,
    Way::WithEmptyFlushes,
    Way::Backwards,
];

/// A graph and the dataplane that receives its messages.
pub(crate) struct Run {
    pub(crate) graph: CalcGraph,
    pub(crate) dataplane: Dataplane,
    pub(crate) world: World,
    suppress_overlaps: bool,
}

impl Run {
    pub(crate) fn new(suppress_overlaps: bool) -> Self {
        let config = GraphConfig { host: HOST.into(), suppress_overlaps, ..GraphConfig::default() };
        Self::with(config, suppress_overlaps)
    }

    pub(crate) fn with(config: GraphConfig, suppress_overlaps: bool) -> Self {
        Self {
            graph: CalcGraph::new(config),
            dataplane: Dataplane::default(),
            world: World::new(),
            suppress_overlaps,
        }
    }

    pub(crate) fn in_sync(&mut self) {
        self.graph.on_status(Status::WaitForDatastore);
        self.graph.on_status(Status::ResyncInProgress);
        self.graph.on_status(Status::InSync);
    }

    pub(crate) fn update(&mut self, entry: FeedEntry) {
        put(&mut self.world, entry.clone());
        self.graph.on_entry(entry);
    }

    pub(crate) fn flush(&mut self) -> usize {
        let mut out = Vec::new();
        self.graph.flush(&mut out);
        let count = out.len();
        self.dataplane.apply(out);
        count
    }

    /// Compares the state with the recomputation.
    #[track_caller]
    pub(crate) fn check(&self, what: &dyn std::fmt::Debug) {
        let have = self.dataplane.policy.clone().without_rule_ids();
        let want = naive::expected(&self.world, HOST, self.suppress_overlaps);
        assert_eq!(have.sets, want.sets, "{what:?}: sets");
        assert_eq!(have.policies, want.policies, "{what:?}: policies");
        assert_eq!(have.profiles, want.profiles, "{what:?}: profiles");
        assert_eq!(have.workloads, want.workloads, "{what:?}: workload endpoints");
        assert_eq!(have.hosts, want.hosts, "{what:?}: host endpoints");
    }
}

/// Runs the worlds in one way. `after` is called after each world with its place in `worlds`.
pub(crate) fn go(worlds: &[World], way: Way, suppress_overlaps: bool, mut after: impl FnMut(usize, &Run)) {
    let nothing = World::new();
    let places: Vec<Option<usize>> = match way {
        Way::Squashed => vec![worlds.len().checked_sub(1)],
        Way::Reversed => (0..worlds.len()).rev().map(Some).chain([None]).collect(),
        Way::WithEmptyWorlds => (0..worlds.len()).flat_map(|place| [Some(place), None]).collect(),
        _ => (0..worlds.len()).map(Some).collect(),
    };
    let mut run = Run::new(suppress_overlaps);
    if way != Way::Backwards {
        run.in_sync();
    }
    for place in places {
        let next = place.map_or(&nothing, |place| &worlds[place]);
        let mut updates = difference(&run.world, next);
        if way == Way::Backwards {
            updates.reverse();
        }
        for update in updates {
            if way == Way::WithEmptyFlushes {
                run.update(update.clone());
            }
            run.update(update);
            if way == Way::Split {
                run.flush();
                run.check(&(way, place));
            }
        }
        if way == Way::Backwards && !run.dataplane.in_sync {
            run.flush();
            assert_eq!(
                run.dataplane.policy,
                Default::default(),
                "nothing about policy before the feed is in sync"
            );
            run.in_sync();
        }
        run.flush();
        assert!(run.dataplane.in_sync);
        run.check(&(way, place));
        assert_eq!(run.flush(), 0, "{way:?} {place:?}: a flush without updates sends nothing");
        if let Some(place) = place {
            after(place, &run);
        }
    }
}
