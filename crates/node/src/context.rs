//! The context of every command: its settings, the datastore, the machine, and the root of its files.

use crate::environment::Settings;
use crate::host::{Host, ThisHost};
use crate::node_name::{NameError, determine};
use client::{Client, ClientConfig, ConfigError, OpenError};
use daemon::Environment;
use settings::Mistakes;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::OnceCell;
use typha_client::environment::{self, Component, EnvironmentError, NODE_PREFIXES, Plan};
use typha_client::state_file;
use typha_wire::SyncerType;

/// The context of a command. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// The variables themselves, for settings that other crates read.
    pub environment: Arc<dyn Environment + Send + Sync>,
    /// The node's settings.
    pub settings: Arc<Settings>,
    /// The machine.
    pub host: Arc<dyn Host>,
    /// The root of the file system: `/`, except in tests.
    pub root: PathBuf,
    /// The version of Calico that this program implements.
    pub calico_version: String,
    /// The connection to the datastore, opened when first needed.
    client: Arc<OnceCell<Client>>,
}

/// Why a command cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// Variables have unusable values.
    #[error(transparent)]
    Settings(#[from] Mistakes),
    /// The settings of the datastore cannot be used.
    #[error(transparent)]
    Datastore(#[from] ConfigError),
    /// The node has no name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The settings of Typha are invalid.
    #[error(transparent)]
    Typha(#[from] EnvironmentError),
}

impl Context {
    /// Creates the context of this process.
    ///
    /// # Errors
    /// When variables have unusable values.
    pub fn of_process(calico_version: &str) -> Result<Self, ContextError> {
        let root = PathBuf::from("/");
        let host = Arc::new(ThisHost { root: root.clone() });
        Self::new(Arc::new(daemon::SystemEnvironment), host, root, calico_version)
    }

    /// Creates a context from these parts.
    ///
    /// # Errors
    /// When variables have unusable values.
    pub fn new(
        environment: Arc<dyn Environment + Send + Sync>,
        host: Arc<dyn Host>,
        root: PathBuf,
        calico_version: &str,
    ) -> Result<Self, ContextError> {
        let settings = Arc::new(Settings::read(&*environment)?);
        let (calico_version, client) = (calico_version.to_owned(), Arc::default());
        Ok(Self { environment, settings, host, root, calico_version, client })
    }

    /// Connects to the datastore, once for all services of a process: each connection is probed periodically, which
    /// wakes the process.
    ///
    /// # Errors
    /// When the settings cannot be used.
    pub async fn client<E: From<ContextError> + From<OpenError>>(&self) -> Result<Client, E> {
        let open = || async { Ok(Client::open(&self.client_config()?).await?) };
        self.client.get_or_try_init(open).await.cloned()
    }

    /// The settings of the datastore. Like Calico's node: from the environment, never from a file of calicoctl's.
    ///
    /// # Errors
    /// When the settings cannot be used.
    pub fn client_config(&self) -> Result<ClientConfig, ContextError> {
        Ok(ClientConfig::from_environment(&*self.environment)?)
    }

    /// How a service of the node follows Typha; `None` if no Typha is configured.
    ///
    /// # Errors
    /// When the configured Typha cannot be used: the service must not run without it.
    pub async fn typha(&self, kind: SyncerType, node_name: &str) -> Result<Option<Plan>, ContextError> {
        let component = Component {
            kind,
            name: kind.as_str(),
            node: node_name,
            prefixes: NODE_PREFIXES,
            state_folder: &self.path(state_file::FOLDER),
        };
        Ok(environment::plan(component, &*self.environment).await?)
    }

    /// The path of a file or folder below the root.
    #[must_use]
    pub fn path(&self, absolute: impl AsRef<Path>) -> PathBuf {
        let path = absolute.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The node's name.
    ///
    /// # Errors
    /// When no source has a name.
    pub fn node_name(&self) -> Result<String, ContextError> {
        Ok(determine(&self.settings, &self.path(&self.settings.nodename_file), &self.host.name())?)
    }

    /// Kubernetes' name for the node that Calico calls `node_name`.
    #[must_use]
    pub fn kubernetes_node(&self, node_name: &str) -> String {
        self.settings.kubernetes_node.clone().unwrap_or_else(|| node_name.to_owned())
    }
}
