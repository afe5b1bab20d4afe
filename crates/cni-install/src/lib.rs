//! `tortie cni install` (`/opt/cni/bin/install` of older images): puts the CNI plugins, their configuration and their
//! kubeconfig in place, on the host whose folders are mounted below `/host`, or on the host that it runs on.
//!
//! - [`layout`]: where things go.
//! - [`settings`]: Calico's variables.
//! - [`programs`]: the plugins, and whatever else the image brings in `/opt/cni/bin`.
//! - [`secrets`]: etcd's certificates.
//! - [`credentials`]: the kubeconfig, with a token of the plugin's own service account.
//! - [`conflist`]: the network configuration, from a template.
//!
//! The configuration is written last, because a runtime that finds it calls the plugins at once. Every file appears whole
//! or not at all. It refuses to widen modes: programs are at most 0755, everything with a secret is 0600. On a host itself it
//! refuses to replace a configuration that is there, unless it is given a template: that may be Calico's own.

mod conflist;
mod credentials;
mod layout;
mod programs;
mod secrets;
mod settings;

/// What tests of this crate reach into, and nothing else may.
#[doc(hidden)]
pub mod for_tests {
    pub use crate::Installation;
    pub use crate::settings::Settings;
}

use credentials::Credentials;
use daemon::Environment;
use daemon::FolderWatch;
use layout::Layout;
use settings::Settings;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why the host is not ready for pods.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// Variables cannot be used.
    #[error(transparent)]
    Settings(#[from] ::settings::Mistakes),
    /// The plugins are not in place.
    #[error(transparent)]
    Programs(#[from] programs::ProgramError),
    /// The certificates are not in place.
    #[error(transparent)]
    Secrets(#[from] secrets::SecretError),
    /// The kubeconfig is not in place.
    #[error(transparent)]
    Credentials(#[from] credentials::CredentialError),
    /// The configuration is not in place.
    #[error(transparent)]
    Conflist(#[from] conflist::ConflistError),
    /// The system fails us.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
}

/// What an installation works with.
pub struct Installation<'a> {
    /// The variables.
    pub environment: &'a (dyn Environment + Send + Sync),
    /// Where the container's files are: `/`, except in tests.
    pub root: &'a Path,
    /// The program that is both plugins.
    pub program: &'a Path,
    /// The system's name.
    pub hostname: &'a str,
}

/// The tables of the reference: the installer's variables, and those that fill the template.
#[must_use]
pub fn reference_page() -> String {
    format!(
        "{}\n## Tokens of the template\n\n\
         `__NAME__` in the template stands for the variable `NAME`. Beside these: `KUBERNETES_NODE_NAME` as above, \
         `KUBECONFIG_FILEPATH` for the plugin's kubeconfig, and `SERVICEACCOUNT_TOKEN` for the pod's own token.\n\n{}",
        ::settings::page(settings::VARIABLES),
        ::settings::page(conflist::TOKENS)
    )
}

/// Installs as this process's variables say, and stays if they say so.
///
/// # Errors
/// The first step that failed.
pub async fn run(environment: &(dyn Environment + Send + Sync), root: &Path) -> Result<(), InstallError> {
    let program = std::env::current_exe()
        .map_err(|source| InstallError::System { what: "finding this program", source })?;
    let hostname = rustix::system::uname().nodename().to_string_lossy().trim().to_lowercase();
    let installation = Installation { environment, root, program: &program, hostname: &hostname };
    let settings = installation.install().await?;
    if settings.sleep == Some(true) {
        tracing::info!("done; staying to keep credentials fresh (SLEEP=true)");
        installation.stay(&settings).await?;
    }
    Ok(())
}

impl Installation<'_> {
    /// Installs everything once.
    ///
    /// # Errors
    /// The first step that failed.
    pub async fn install(&self) -> Result<Settings, InstallError> {
        let mut settings = Settings::read(self.environment, self.hostname)?;
        let layout = Layout::of(self.root, &settings);
        layout
            .make_folders()
            .map_err(|source| InstallError::System { what: "making the folders of CNI", source })?;
        let net_folder = &layout.net_folder;
        let tls_folder = self.path(&settings.tls_folder);
        // Without a secret a container's certificates go; on a host they may be those of a Calico that runs there.
        if !layout.is_host || tls_folder.is_dir() {
            secrets::install(&tls_folder, net_folder)?;
        }
        programs::install(&settings, self.program, layout.image.as_deref(), &layout.program_folders)?;
        let credentials = self.credentials().await?;
        if let Some(credentials) = &credentials {
            credentials.renew(&settings, net_folder).await?;
        }
        let token = credentials::own_token(&self.path(kube_access::access::SERVICE_ACCOUNT_DIR));
        conflist::install(&settings, self.environment, &layout, &token)?;
        settings.sleep.get_or_insert(!layout.is_host || credentials.is_some());
        Ok(settings)
    }

    async fn credentials(&self) -> Result<Option<Credentials>, InstallError> {
        let account = self.path(kube_access::access::SERVICE_ACCOUNT_DIR);
        Ok(Credentials::open(self.environment, &account).await?)
    }

    /// Keeps certificates and kubeconfig fresh until this process is asked to end.
    ///
    /// # Errors
    /// When signals cannot be received.
    pub async fn stay(&self, settings: &Settings) -> Result<(), InstallError> {
        let end = daemon::signals::end()
            .map_err(|source| InstallError::System { what: "receiving signals", source })?;
        tokio::select! {
            () = self.follow_secrets(settings) => {}
            () = self.follow_token(settings) => {}
            () = end => {}
        }
        Ok(())
    }

    /// Installs certificates again whenever their mounted secret changes.
    async fn follow_secrets(&self, settings: &Settings) {
        let source = self.path(&settings.tls_folder);
        let mut watch = match FolderWatch::new(&source) {
            Ok(watch) => watch,
            Err(error) => {
                tracing::info!(%error, folder = %source.display(), "no certificates to keep fresh");
                return std::future::pending().await;
            }
        };
        loop {
            if let Err(error) = watch.changed().await {
                tracing::error!(%error, "can no longer watch the certificates");
                return std::future::pending().await;
            }
            match secrets::install(&source, &self.net_folder(settings)) {
                Ok(()) => tracing::info!("installed changed certificates"),
                Err(error) => tracing::error!(%error, "could not install changed certificates"),
            }
        }
    }

    /// Renews the token long before it ends.
    async fn follow_token(&self, settings: &Settings) {
        let mut expires = None;
        loop {
            match self.renewed(settings).await {
                Ok(Some(moment)) => expires = Some(moment),
                Ok(None) => return std::future::pending().await,
                Err(error) => tracing::error!(%error, "could not renew the CNI plugin's token; trying again"),
            }
            let pause = kube_access::token::pause_now(expires.take(), settings.token_interval);
            tokio::time::sleep(pause.max(Duration::from_secs(1))).await;
        }
    }

    async fn renewed(&self, settings: &Settings) -> Result<Option<jiff::Timestamp>, InstallError> {
        match self.credentials().await? {
            Some(credentials) => {
                let folder = self.net_folder(settings);
                Ok(Some(credentials.renew(settings, &folder).await?))
            }
            None => Ok(None),
        }
    }

    fn net_folder(&self, settings: &Settings) -> PathBuf {
        Layout::of(self.root, settings).net_folder
    }

    fn path(&self, absolute: impl AsRef<Path>) -> PathBuf {
        let path = absolute.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }
}
