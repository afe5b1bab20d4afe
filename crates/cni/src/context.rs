//! The context of a call: open connections, the host's paths, the clock.

use crate::error::StoreFailure as _;
use crate::error::{CniError, Result};
use crate::host::HostPaths;
use crate::store::Store;
use jiff::Timestamp;
use std::sync::Arc;

/// The context of a call. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Context {
    /// Open connections.
    pub store: Arc<Store>,
    /// The paths on the host.
    pub paths: HostPaths,
    /// Whether concurrent requests share one write (in an agent), so that no lock between processes is needed.
    pub shares_writes: bool,
    clock: fn() -> Timestamp,
}

impl Context {
    /// A context with the real clock.
    #[must_use]
    pub fn new(store: Arc<Store>, paths: HostPaths, shares_writes: bool) -> Self {
        Self { store, paths, shares_writes, clock: Timestamp::now }
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Upgrades the data of address management to this version's form, once per boot of the host.
    ///
    /// # Errors
    /// When the datastore fails or the marker file cannot be created.
    pub async fn upgrade_once(&self, node: &str) -> Result<()> {
        let mark = &self.paths.ipam_upgraded;
        if mark.exists() {
            return Ok(());
        }
        self.store
            .ipam
            .upgrade_host(node)
            .await
            .map_err(|error| CniError::address("failed to upgrade IPAM database", &error))?;
        let outcome = match mark.parent() {
            Some(folder) => std::fs::create_dir_all(folder).and_then(|()| std::fs::write(mark, "")),
            None => Ok(()),
        };
        outcome.map_err(|error| {
            CniError::wiring(format!("failed to create IPAM upgrade marker file {}: {error}", mark.display()))
        })
    }
}
