//! The typed client: every component and `calicoctl` use it to read and write Calico's resources.
//!
//! - [`config`]: where the datastore is, from a file or the environment, with Calico's names.
//! - [`open_backend`]: the only place that opens a datastore.
//! - [`Client`]: create, update, delete, get, list and watch, typed ([`Client::resource`]) or of any kind
//!   ([`Client::create_any`] and friends). Defaults, validation, names and the rules that need other objects (a policy's
//!   tier exists, pools do not overlap) are applied here and nowhere else.
//! - [`Client::ensure_initialized`]: initialises a datastore for a cluster.
//!
//! It holds no cache and starts no task. The crate `follow` watches whole datastores.

mod any;
mod client;
pub mod config;
mod hooks;
mod init;
mod open;
mod query;
mod resources;

pub use client::Client;
pub use config::{ClientConfig, ConfigError, DatastoreType};
pub use datastore::{Error, InvalidEntry, Result};
pub use open::{OpenError, Purpose, open_backend, open_backend_for, open_for_cni};
pub use query::{DeleteOptions, ListQuery, ResourceEvent, ResourceList, ResourceWatch};
pub use resources::{Storable, Typed};
