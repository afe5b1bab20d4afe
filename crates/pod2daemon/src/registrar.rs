//! The sidecar that registers a CSI driver with the kubelet: `csi-node-driver-registrar`, with the flags of Kubernetes'
//! program of that name, for any driver.
//!
//! ```text
//! driver's socket ─► its name ─► <folder>/<name>-reg.sock ─► kubelet queries the driver, and accepts or rejects it
//! ```
//!
//! It waits for the driver for as long as it takes, and ends with an error if the kubelet rejects it: its pod is then
//! restarted, as with Kubernetes' program.

mod driver;
mod flags;
mod health;
mod service;

use crate::proto::registration::registration_server::RegistrationServer;
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use daemon::Shutdown;
use daemon::log::{LevelFilter, Log};
use flags::Ignored;
use service::Registrar;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::mpsc;
use tonic::transport::Server;

/// Only the kubelet, which runs as root, may connect.
const MODE: u32 = 0o600;
/// The mode for probes of older manifests.
const PROBE: &str = "kubelet-registration-probe";

/// Register a CSI driver with the kubelet.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// The driver's socket.
    #[arg(long, value_name = "PATH", default_value = "/run/csi/socket")]
    csi_address: String,
    /// The driver's socket as seen by the kubelet.
    #[arg(long, value_name = "PATH")]
    kubelet_registration_path: Option<String>,
    /// The folder in which the kubelet looks for plugins.
    #[arg(long, value_name = "DIR", default_value = "/registration")]
    plugin_registration_path: PathBuf,
    /// How long a call to the driver may take.
    #[arg(long, default_value = "1s", value_parser = settings::kinds::go_duration)]
    timeout: Duration,
    /// The address to serve /healthz on, such as :8080; none if empty.
    #[arg(long, value_name = "ADDRESS", default_value = "")]
    http_endpoint: String,
    /// The port to serve /healthz on; none if 0 or less. The older form of --http-endpoint.
    #[arg(long, value_name = "PORT", default_value_t = 0, allow_negative_numbers = true)]
    health_port: i32,
    /// `kubelet-registration-probe` only reports success, for older manifests; any other value registers.
    #[arg(long, default_value = "")]
    mode: String,
    /// The verbosity of the log: from 4 on every call is logged.
    #[arg(long = "v", value_name = "NUMBER", default_value_t = 0, allow_negative_numbers = true)]
    verbosity: i32,
    /// Print the version.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    version: Option<bool>,
    #[command(flatten)]
    ignored: Ignored,
}

/// The registrar's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The driver's socket.
    pub driver: PathBuf,
    /// The driver's socket as seen by the kubelet.
    pub seen: String,
    /// The folder where the kubelet looks for plugins.
    pub folder: PathBuf,
    /// How long a call may take.
    pub patience: Duration,
    /// The address of the health server.
    pub health: Option<String>,
}

/// Runs until a signal ends it.
///
/// # Errors
/// When a flag is invalid, or the kubelet rejects the driver.
pub fn main(arguments: &Arguments, version: &str) -> Result<ExitCode> {
    if arguments.version == Some(true) {
        return Ok(daemon::exit::print(&format!("{version}\n"))?);
    }
    let _log = Log::start(if arguments.verbosity >= 4 { LevelFilter::DEBUG } else { LevelFilter::INFO });
    let settings = settings(arguments)?;
    arguments.ignored.warn();
    if arguments.mode == PROBE {
        tracing::warn!("--mode={PROBE} checks nothing; a probe of /healthz (--http-endpoint) does");
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let shutdown = daemon::signals::shutdown()?;
        serve(&settings, shutdown).await
    })?;
    Ok(ExitCode::SUCCESS)
}

fn settings(arguments: &Arguments) -> Result<Settings> {
    let seen = arguments.kubelet_registration_path.clone().filter(|path| !path.is_empty());
    let seen =
        seen.context("--kubelet-registration-path is needed: where the kubelet finds the driver's socket")?;
    let health = match (arguments.health_port, arguments.http_endpoint.as_str()) {
        (1.., "") => Some(format!(":{}", arguments.health_port)),
        (1.., _) => bail!("only one of --health-port and --http-endpoint can be set"),
        (_, "") => None,
        (_, address) => Some(address.to_owned()),
    };
    let driver = arguments.csi_address.strip_prefix("unix://").unwrap_or(&arguments.csi_address);
    ensure!(!driver.is_empty(), "--csi-address is empty");
    Ok(Settings {
        driver: PathBuf::from(driver),
        seen,
        folder: arguments.plugin_registration_path.clone(),
        patience: arguments.timeout,
        health,
    })
}

/// Waits for the driver, and registers it until it is asked to end.
///
/// # Errors
/// When the kubelet rejects the driver, or a socket cannot be served.
pub async fn serve(settings: &Settings, shutdown: Shutdown) -> Result<()> {
    let Some(name) = driver::name(settings, &shutdown).await? else { return Ok(()) };
    let socket = settings.folder.join(format!("{name}-reg.sock"));
    let listening = grpc_socket::listen(&socket, MODE)
        .with_context(|| format!("listening for the kubelet at {}", socket.display()))?;
    tracing::info!(driver = name, socket = %socket.display(), "waiting for the kubelet");
    let (refuse, mut refused) = mpsc::channel(1);
    let registrar = Registrar { name: name.clone(), endpoint: settings.seen.clone(), refuse };
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let serving = Server::builder()
        .add_service(RegistrationServer::new(registrar))
        .serve_with_incoming_shutdown(listening, async {
            let _ = ended.await;
        });
    let health = async {
        match &settings.health {
            Some(address) => health::serve(address, &socket, &name, settings.patience).await,
            None => std::future::pending().await,
        }
    };
    let watched = async {
        let outcome = tokio::select! {
            Some(reason) = refused.recv() => Err(anyhow::anyhow!("the kubelet rejected driver {name}: {reason}")),
            () = shutdown.requested() => Ok(()),
            outcome = health => outcome,
        };
        // Requests in progress are still answered.
        drop(end);
        outcome
    };
    let (served, outcome) = tokio::join!(serving, watched);
    outcome?;
    served.context("serving the kubelet")
}

/// Checks that a driver of this name is registered at a socket.
pub(crate) async fn check(socket: &Path, name: &str, patience: Duration) -> Result<()> {
    let found = driver::registered(socket, patience).await?;
    ensure!(found == name, "it registers {found:?} instead of {name:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn read(line: &str) -> Result<(Arguments, Settings)> {
        let line = Line::try_parse_from(std::iter::once("x").chain(line.split_whitespace()))?;
        let settings = settings(&line.arguments)?;
        Ok((line.arguments, settings))
    }

    #[test]
    fn flags_of_kubernetes_program() {
        let calicos = "--v=5 --csi-address=/csi/csi.sock --kubelet-registration-path=/var/lib/kubelet/plugins/csi.tigera.io/csi.sock";
        let (arguments, settings) = read(calicos).unwrap();
        assert_eq!((arguments.verbosity, settings.driver.as_path()), (5, Path::new("/csi/csi.sock")));
        assert_eq!(
            (settings.folder.as_path(), settings.patience),
            (Path::new("/registration"), Duration::from_secs(1))
        );
        assert_eq!(
            (settings.seen.as_str(), settings.health),
            ("/var/lib/kubelet/plugins/csi.tigera.io/csi.sock", None)
        );
        let at = |flags: &str| {
            read(&format!("--kubelet-registration-path=/k {flags}")).map(|(_, settings)| settings.health)
        };
        assert_eq!(at("--health-port=9809").unwrap().as_deref(), Some(":9809"));
        assert_eq!(at("--health-port -1 --http-endpoint :8080").unwrap().as_deref(), Some(":8080"));
        let (arguments, settings) =
            read("--kubelet-registration-path=/k --timeout 1m30s --connection-timeout=5s --enable-pprof --csi-address unix:///c")
                .unwrap();
        assert_eq!(
            (settings.patience, settings.driver.as_path()),
            (Duration::from_secs(90), Path::new("/c"))
        );
        assert_eq!(arguments.ignored.given(), ["connection-timeout", "enable-pprof"]);
    }

    #[test]
    fn invalid_flags() {
        for (line, reason) in [
            ("", "--kubelet-registration-path is needed"),
            ("--kubelet-registration-path=/k --health-port=1 --http-endpoint=:2", "only one of"),
            ("--kubelet-registration-path=/k --timeout=soon", "timeout"),
            ("--kubelet-registration-path=/k --csi-address=", "--csi-address is empty"),
        ] {
            let error = format!("{:#}", read(line).unwrap_err());
            assert!(error.contains(reason), "{line}: {error}");
        }
    }
}
