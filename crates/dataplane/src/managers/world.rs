//! Shared state of managers: the renderer, the host's interfaces, and results of one manager that others depend on.

use super::{Groups, Interfaces, Routing};
use messages::{InterfaceName, PolicyId, Text, WorkloadEndpointId};
use rules::{EndpointMarks, Renderer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// The shared state that managers read when they write.
#[derive(Debug)]
pub(crate) struct World {
    /// The time.
    pub(crate) now: Instant,
    /// Renders chains.
    pub(crate) renderer: Arc<Renderer>,
    /// The host's interfaces and addresses.
    pub(crate) interfaces: Interfaces,
    /// The selectors of policies, by which endpoints group them.
    pub(crate) selectors: BTreeMap<PolicyId, Text>,
    /// Groups of policies, shared by endpoints.
    pub(crate) groups: Groups,
    /// The marks of endpoints, shared by all that have one.
    pub(crate) marks: EndpointMarks,
    /// Workloads whose routes are not programmed as usual.
    pub(crate) routing: BTreeMap<WorkloadEndpointId, Routing>,
    /// What judges packets.
    pub(crate) judge: Judge,
    /// The interfaces of workload endpoints.
    pub(crate) workloads: BTreeSet<InterfaceName>,
    /// The interfaces with a host endpoint of their own.
    pub(crate) hosts: BTreeSet<InterfaceName>,
    /// Changes of this state since managers wrote last.
    pub(crate) changed: Changed,
    /// When managers have to write again even without news.
    pub(crate) wake_at: Option<Instant>,
}

/// What judges packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Judge {
    /// Rules.
    #[default]
    Rules,
    /// Rules, until every interface has eBPF programs.
    RulesBeforePrograms,
    /// eBPF programs.
    Programs,
}

/// Results that managers pass on in one pass, in the order in which they write.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    /// Policies whose selectors changed.
    pub(crate) selectors: BTreeSet<PolicyId>,
    /// Workloads whose routing changed.
    pub(crate) routing: BTreeSet<WorkloadEndpointId>,
    /// Interfaces that became a workload endpoint's or ceased to be.
    pub(crate) workloads: BTreeSet<InterfaceName>,
    /// Whether the host endpoints of interfaces changed.
    pub(crate) hosts: bool,
}

impl World {
    /// An empty world.
    #[must_use]
    pub(crate) fn new(renderer: Arc<Renderer>, interfaces: Interfaces, now: Instant) -> Self {
        Self {
            now,
            marks: EndpointMarks::new(&renderer.config().marks),
            renderer,
            interfaces,
            selectors: BTreeMap::new(),
            groups: Groups::default(),
            routing: BTreeMap::new(),
            judge: Judge::default(),
            workloads: BTreeSet::new(),
            hosts: BTreeSet::new(),
            changed: Changed::default(),
            wake_at: None,
        }
    }

    /// Starts a pass.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.now = now;
        self.changed = Changed::default();
        self.wake_at = None;
    }

    /// The selector of a policy.
    #[must_use]
    pub(crate) fn selector(&self, id: &PolicyId) -> Text {
        self.selectors.get(id).cloned().unwrap_or_default()
    }

    /// Whether an interface is a workload's by its name.
    #[must_use]
    pub(crate) fn is_workload(&self, interface: &str) -> bool {
        is_workload(&self.renderer, interface)
    }

    /// Makes managers write again by this time.
    pub(crate) fn wake(&mut self, at: Instant) {
        self.wake_at = self.wake_at.into_iter().chain([at]).min();
    }
}

/// Whether an interface is a workload's by its name.
#[must_use]
pub(crate) fn is_workload(renderer: &Renderer, interface: &str) -> bool {
    renderer.config().workload_interface_prefixes.iter().any(|prefix| interface.starts_with(&**prefix))
}
