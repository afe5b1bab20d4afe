//! `tortie cni install` (`/opt/cni/bin/install` in older images): installs the CNI plugins, their configuration and
//! their kubeconfig, either on the host whose folders are mounted below `/host`, or on the host it runs on.
//!
//! - [`layout`]: the folders to install into.
//! - [`settings`]: Calico's variables.
//! - [`programs`]: the plugins, and any others that the image has in `/opt/cni/bin`.
//! - [`secrets`]: etcd's certificates.
//! - [`credentials`]: the kubeconfig, with a token of the plugin's own service account.
//! - [`conflist`]: the network configuration, from a template.
//!
//! The configuration is written last, because a runtime that finds it calls the plugins at once. Every file appears
//! whole or not at all. Modes are never widened: programs have at most 0755, and files with a secret 0600. On a host
//! itself an existing configuration is not replaced unless a template is given, because it may be Calico's own.

mod conflist;
mod credentials;
mod layout;
mod programs;
mod secrets;
mod settings;

/// Exports for this crate's tests only.
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

/// Why the installation failed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// Variables cannot be used.
    #[error(transparent)]
    Settings(#[from] ::settings::Mistakes),
    /// The plugins were not installed.
    #[error(transparent)]
    Programs(#[from] programs::ProgramError),
    /// The certificates were not installed.
    #[error(transparent)]
    Secrets(#[from] secrets::SecretError),
    /// The kubeconfig was not written.
    #[error(transparent)]
    Credentials(#[from] credentials::CredentialError),
    /// The configuration was not installed.
    #[error(transparent)]
    Conflist(#[from] conflist::ConflistError),
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
}

/// The inputs of an installation.
pub struct Installation<'a> {
    /// The variables.
    pub environment: &'a (dyn Environment + Send + Sync),
    /// The root of the container's file system: `/`, except in tests.
    pub root: &'a Path,
    /// The program that acts as both plugins.
    pub program: &'a Path,
    /// The system's name.
    pub hostname: &'a str,
}

/// The tables of the reference: the variables of the installer, and those of the template.
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

/// Installs according to the environment's variables, and keeps running if they say so.
///
/// # Errors
/// When a step failed; later steps are skipped.
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
    /// When a step failed; later steps are skipped.
    pub async fn install(&self) -> Result<Settings, InstallError> {
        let mut settings = Settings::read(self.environment, self.hostname)?;
        let layout = Layout::of(self.root, &settings);
        layout
            .make_folders()
            .map_err(|source| InstallError::System { what: "creating the folders of CNI", source })?;
        let net_folder = &layout.net_folder;
        let tls_folder = self.path(&settings.tls_folder);
        // Without a secret, certificates in a container are removed; on a host they may belong to a Calico that runs
        // there.
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

    /// Keeps certificates and kubeconfig fresh until SIGTERM or SIGINT.
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

    /// Renews the token long before it expires.
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
