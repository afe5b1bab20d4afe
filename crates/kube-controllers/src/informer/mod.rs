//! One shared list and watch per kind of Kubernetes object.
//!
//! ```text
//! API ─ pages, events ─► Wire (only named fields are decoded) ─ take ─► slim object ─► store ─► subscribers
//! ```
//!
//! - A kind is a type that implements [`Slim`]; [`kinds`] has those that several controllers share.
//! - [`Informers::of`] gives the one informer of a kind. Ask for it (and subscribe) while controllers are made; the runner
//!   starts all that were asked for.
//! - Subscribers are called in the order of changes, on the informer's task, with the old and the new object: they take
//!   notes (put a key in a queue, update an index) and never wait.
//! - A change that touches no field of the slim object is no change: nobody is called.
//! - After a list, what is no longer there is told as gone. A watch that expired leads to a new list.
//!
//! It refuses to hold anything that no controller reads.

pub mod kinds;
mod shell;
mod store;
mod strings;

pub use shell::{Informer, Trouble};
pub use store::Change;
pub use strings::{Labels, Strings};

use crate::cluster::{Cluster, Collection};
use crate::shutdown::Shutdown;
use serde::de::DeserializeOwned;
use shell::AnyInformer;
use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;

/// The identity of an object within its kind. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The namespace; empty for kinds without.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// The key of this object.
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

/// An object that came over the wire and was cut down.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken<T> {
    /// Its identity.
    pub key: ObjectKey,
    /// The revision at which it was seen.
    pub revision: String,
    /// What is kept.
    pub object: T,
}

/// A kind of object, cut down to what is used.
pub trait Slim: Sized + PartialEq + Send + Sync + 'static {
    /// Where the API has them.
    const COLLECTION: Collection;

    /// Whether clusters may lack the kind altogether (somebody else's custom resource).
    const OPTIONAL: bool = false;

    /// The fields that are decoded.
    type Wire: DeserializeOwned + Clone + Send + 'static;

    /// Cuts an object down. Texts that repeat (nodes, namespaces, labels) are shared through `strings`.
    fn take(wire: Self::Wire, strings: &mut Strings) -> Taken<Self>;
}

/// An informer that somebody asked for.
struct Asked {
    informer: Box<dyn AnyInformer>,
    /// Whether a controller cannot work without it.
    is_needed: bool,
}

/// All informers of the process, one per kind. Cheap to clone.
#[derive(Clone, Default)]
pub struct Informers {
    kinds: Arc<Mutex<BTreeMap<TypeId, Asked>>>,
    pod_labels: Arc<AtomicBool>,
}

impl Informers {
    /// The informer of a kind: the same one for everybody who asks.
    #[must_use]
    pub fn of<T: Slim>(&self) -> Informer<T> {
        self.asked(true)
    }

    /// The same for a kind that roles of older releases do not let us read: where it is refused, the process is ready all the
    /// same, unless another controller needs the kind.
    #[must_use]
    pub fn if_allowed<T: Slim>(&self) -> Informer<T> {
        self.asked(false)
    }

    fn asked<T: Slim>(&self, is_needed: bool) -> Informer<T> {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = kinds
            .entry(TypeId::of::<T>())
            .or_insert_with(|| Asked { informer: Box::new(Informer::<T>::new()), is_needed });
        asked.is_needed |= is_needed;
        match asked.informer.as_any().downcast_ref::<Informer<T>>() {
            Some(informer) => informer.clone(),
            // The map has what was put in above.
            None => unreachable!("an informer of another kind under this type"),
        }
    }

    /// Asks for the labels of pods, which are dropped otherwise. To be called before the start.
    pub fn want_pod_labels(&self) {
        self.pod_labels.store(true, Ordering::Relaxed);
    }

    /// Starts every informer that somebody asked for.
    pub fn start(&self, cluster: &Cluster, shutdown: &Shutdown) -> Vec<JoinHandle<()>> {
        let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let pod_labels = self.pod_labels.load(Ordering::Relaxed);
        let start = |asked: &Asked| asked.informer.start(cluster.clone(), shutdown.clone(), pod_labels);
        kinds.values().map(start).collect()
    }

    /// What keeps informers from following their kind, in sentences; empty when all is well.
    #[must_use]
    pub fn troubles(&self) -> Vec<String> {
        let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.values().filter_map(|asked| asked.informer.trouble()).map(|trouble| trouble.message).collect()
    }

    /// The permissions that are missing, and whether a controller cannot work without.
    #[must_use]
    pub fn refusals(&self) -> Vec<(String, bool)> {
        let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let refusal = |asked: &Asked| {
            let trouble = asked.informer.trouble().filter(|trouble| trouble.is_refused)?;
            Some((trouble.message, asked.is_needed))
        };
        kinds.values().filter_map(refusal).collect()
    }

    /// Waits until every informer that was asked for has the whole list.
    pub async fn synced(&self) {
        let waits: Vec<_> = {
            let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
            kinds.values().map(|asked| asked.informer.wait()).collect()
        };
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
