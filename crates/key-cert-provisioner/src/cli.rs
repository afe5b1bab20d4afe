//! The command line: `calico component key-cert-provisioner`, `key-cert-provisioner`.

use crate::files::Files;
use crate::keys::Key;
use crate::request;
use crate::settings::{Provision, Settings};
use crate::signing::Signing;
use anyhow::{Context as _, Result};
use clap::Args;
use daemon::log::{LevelFilter, Log};
use daemon::{Environment, SystemEnvironment};
use kube_access::KubeAccess;
use kube_access::access::SERVICE_ACCOUNT_DIR;
use kube_access::cluster::Cluster;
use std::path::Path;
use std::process::ExitCode;

/// Make a key, have its certificate signed by the cluster's signer, and write both. Environment variables configure
/// everything.
#[derive(Clone, Debug, Args)]
pub struct Arguments {}

/// Runs once.
///
/// # Errors
/// The errors of [`run`].
pub fn main(_: &Arguments) -> Result<ExitCode> {
    let _log = Log::start(LevelFilter::INFO);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let end = daemon::signals::end()?;
        tokio::select! {
            outcome = run(&SystemEnvironment) => outcome,
            () = end => anyhow::bail!("terminated before the certificate was issued"),
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Provisions the key and certificate that the environment configures.
///
/// # Errors
/// When a variable is invalid, the request is denied, or the certificate is not issued in time.
pub async fn run(environment: &(dyn Environment + Send + Sync)) -> Result<()> {
    let Provision { name, signer, app, kind, subject, files, patience } =
        Settings::read(environment)?.provision()?;
    let deadline = tokio::time::Instant::now() + patience;
    let making = tokio::task::spawn_blocking(move || Key::new(kind));
    let key = tokio::time::timeout_at(deadline, making).await;
    let key = key.context("creating the key took too long: increase TIMEOUT_DURATION")??;
    let key = key.context("making a key")?;
    let request = request::sign(&subject, &key).context("making the request")?;
    let access = KubeAccess::open(environment, Path::new(SERVICE_ACCOUNT_DIR)).await?;
    let signing = Signing { cluster: Cluster::new(&access), name, signer, app, request };
    let certificate = signing.certificate(&key, deadline).await?;
    Files { key: key.pem(), certificate, ..files }.write()?;
    tracing::info!("the certificate is in place");
    Ok(())
}
