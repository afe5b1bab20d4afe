//! One shared list and watch per kind of Kubernetes object.
//!
//! ```text
//! API ─ pages, events ─► Wire (only named fields are decoded) ─ take ─► slim object ─► store ─► subscribers
//! ```
//!
//! Lists, watches and pauses are handled by crate `follow`; what is specific here is that objects are decoded and kept
//! slim.
//!
//! - A kind is a type that implements [`Slim`] and has a line in [`All`]; those that several controllers share are in
//!   [`kinds`].
//! - [`Informers::of`] returns the only informer of a kind. Request it (and subscribe) while controllers are being
//!   created; the runner starts all that were requested.
//! - Subscribers are called in the order of changes, on the informer's task, with the old and the new object: they
//!   record work (put a key in a queue, update an index) and never block.
//! - A change that touches no field of the slim object does not count: no subscriber is called.
//! - After a list, missing objects are reported as deleted.
//!
//! Nothing is kept that no controller reads.

pub(crate) mod kinds;
mod shell;
mod store;
mod strings;

pub(crate) use shell::Informer;
pub(crate) use store::Change;
pub(crate) use strings::{Labels, Strings};

use daemon::Shutdown;
use kube_access::cluster::{Cluster, Collection};
use kube_access::followed::Revised;
use serde::de::DeserializeOwned;
use shell::AnyInformer;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task::JoinHandle;

/// The identity of an object within its kind. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The namespace; empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// Creates the key of an object.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.namespace {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

/// A received object, reduced to what is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken<T> {
    /// Its identity.
    pub key: ObjectKey,
    /// The revision at which it was seen.
    pub revision: String,
    /// The reduced object.
    pub object: T,
}

impl<T: Send + 'static> Revised for Taken<T> {
    fn revision(&self) -> &str {
        &self.revision
    }
}

/// A kind of object, reduced to the fields that are used.
pub trait Slim: Placed + PartialEq + Send + Sync + 'static {
    /// The collection in the API.
    const COLLECTION: Collection;

    /// Whether clusters may lack the kind altogether (a third-party custom resource).
    const OPTIONAL: bool = false;

    /// The fields that are decoded.
    type Wire: DeserializeOwned + Clone + Send + 'static;

    /// Reduces an object. Texts that repeat (nodes, namespaces, labels) are shared through `strings`.
    fn take(wire: Self::Wire, strings: &mut Strings) -> Taken<Self>;
}

/// The informer of a kind, and whether it was requested. Only requested ones are started.
pub struct Place<T> {
    informer: Informer<T>,
    is_asked_for: AtomicBool,
    /// Whether a controller cannot work without it.
    is_needed: AtomicBool,
}

impl<T: Slim> Default for Place<T> {
    fn default() -> Self {
        Self {
            informer: Informer::new(),
            is_asked_for: AtomicBool::new(false),
            is_needed: AtomicBool::new(false),
        }
    }
}

impl<T: Slim> Place<T> {
    fn asked(&self) -> Option<Asked<'_>> {
        let is_needed = self.is_needed.load(Ordering::Relaxed);
        self.is_asked_for.load(Ordering::Relaxed).then_some(Asked { informer: &self.informer, is_needed })
    }
}

/// A requested informer.
struct Asked<'a> {
    informer: &'a dyn AnyInformer,
    is_needed: bool,
}

/// A kind that has a field in [`All`].
pub trait Placed: Sized {
    /// Its field.
    fn place(all: &All) -> &Place<Self>;
}

macro_rules! all_kinds {
    ($($field:ident: $kind:ty,)*) => {
        /// A place for each kind that can be followed.
        #[derive(Default)]
        pub struct All {
            $($field: Place<$kind>,)*
        }

        $(impl Placed for $kind {
            fn place(all: &All) -> &Place<Self> {
                &all.$field
            }
        })*

        impl All {
            /// The requested informers.
            fn asked(&self) -> impl Iterator<Item = Asked<'_>> {
                [$(self.$field.asked(),)*].into_iter().flatten()
            }
        }
    };
}

all_kinds! {
    nodes: kinds::Node,
    namespaces: kinds::Namespace,
    service_accounts: kinds::ServiceAccount,
    pods: kinds::Pod,
    kubernetes_policies: crate::policies::Policy,
    services: crate::load_balancer::service::Service,
    machines: crate::ipam_gc::machines::VirtualMachine,
    machine_instances: crate::ipam_gc::machines::VirtualMachineInstance,
    pools: crate::pools::pool::Pool,
    tiers: crate::pools::tier::Tier,
    global_policies: crate::pools::tier::GlobalPolicyTier,
    policies: crate::pools::tier::PolicyTier,
    staged_global_policies: crate::pools::tier::StagedGlobalPolicyTier,
    staged_policies: crate::pools::tier::StagedPolicyTier,
}

/// All informers of the process, one per kind. Cheap to clone.
#[derive(Clone, Default)]
pub struct Informers {
    all: Arc<All>,
    pod_labels: Arc<AtomicBool>,
}

impl Informers {
    /// Returns the informer of a kind: the same one for every caller.
    #[must_use]
    pub fn of<T: Slim>(&self) -> Informer<T> {
        T::place(&self.all).is_needed.store(true, Ordering::Relaxed);
        self.if_allowed()
    }

    /// Returns the informer of a kind that roles of older releases do not let us read: if it is forbidden, the process
    /// is ready nevertheless, unless another controller needs the kind.
    #[must_use]
    pub fn if_allowed<T: Slim>(&self) -> Informer<T> {
        let place = T::place(&self.all);
        place.is_asked_for.store(true, Ordering::Relaxed);
        place.informer.clone()
    }

    /// Keeps the labels of pods, which are otherwise dropped. Must be called before the start.
    pub fn want_pod_labels(&self) {
        self.pod_labels.store(true, Ordering::Relaxed);
    }

    /// Starts every requested informer.
    pub fn start(&self, cluster: &Cluster, shutdown: &Shutdown) -> Vec<JoinHandle<()>> {
        let pod_labels = self.pod_labels.load(Ordering::Relaxed);
        let start = |asked: Asked<'_>| asked.informer.start(cluster.clone(), shutdown.clone(), pod_labels);
        self.all.asked().map(start).collect()
    }

    /// Why informers cannot follow their kinds, one message each; empty if they all can.
    #[must_use]
    pub fn troubles(&self) -> Vec<String> {
        self.all.asked().filter_map(|asked| asked.informer.trouble()).map(|trouble| trouble.message).collect()
    }

    /// The missing permissions, and for each whether a controller cannot work without it.
    #[must_use]
    pub fn refusals(&self) -> Vec<(String, bool)> {
        let refusal = |asked: Asked<'_>| {
            let trouble = asked.informer.trouble().filter(|trouble| trouble.is_refused)?;
            Some((trouble.message, asked.is_needed))
        };
        self.all.asked().filter_map(refusal).collect()
    }

    /// Waits until every requested informer has read the whole list.
    pub async fn synced(&self) {
        let waits: Vec<_> = self.all.asked().map(|asked| asked.informer.wait()).collect();
        for wait in waits {
            wait.await;
        }
    }
}

impl fmt::Debug for Informers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Informers")
    }
}
