//! The CSI driver `csi.tigera.io`: `calico component csi`, `csi-driver`.
//!
//! - [`serve`]: the services Identity and Node on a Unix socket.
//! - `configuration`: the driver's file on the node; `request`: a kubelet's requests as values, or the code of the
//!   refusal; `node`: the services.
//!
//! There is no service Controller: a volume is created and removed with its pod, and only the kubelet of the pod's node
//! calls the driver.

mod configuration;
mod node;
mod request;

use crate::proto::csi::identity_server::IdentityServer;
use crate::proto::csi::node_server::NodeServer;
use crate::volume::Homes;
use anyhow::{Context as _, Result};
use clap::Args;
use configuration::Configuration;
use daemon::log::{LevelFilter, Log};
use daemon::{Shutdown, SystemEnvironment};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tonic::transport::Server;

/// The default socket for the kubelet.
const ENDPOINT: &str = "/csi/csi.sock";
/// Only the kubelet and its helpers, which run as root, may connect.
const MODE: u32 = 0o600;

/// Run Calico's CSI driver: pods get a folder in which Felix opens a socket for this pod only.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// The name of this node in Kubernetes [default: `node_id` of /etc/calico/csi/nodeagent.json].
    #[arg(long, value_name = "NAME")]
    nodeid: Option<String>,
    /// The log level: error, warn, info or debug [default: `log_level` of the file, else warn].
    #[arg(long, value_name = "LEVEL")]
    loglevel: Option<String>,
    /// The socket for the kubelet [default: `endpoint` of the file, else /csi/csi.sock].
    #[arg(long, value_name = "PATH")]
    endpoint: Option<String>,
}

/// The driver's settings.
#[derive(Debug, PartialEq, Eq)]
struct Settings {
    node: String,
    level: LevelFilter,
    endpoint: PathBuf,
    homes: Homes,
}

/// Runs until a signal ends it.
///
/// # Errors
/// When a flag or the file is invalid, or the socket cannot be served.
pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let log = Log::start(LevelFilter::WARN);
    let settings = settings(arguments, Configuration::read(&SystemEnvironment)?)?;
    log.set_screen(settings.level);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let shutdown = daemon::signals::shutdown()?;
        serve(&settings.endpoint, settings.node, settings.homes, shutdown).await
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Combines flags, the file and the defaults, in this order of precedence.
fn settings(arguments: &Arguments, file: Configuration) -> Result<Settings> {
    let given = |flag: &Option<String>, field: String| {
        flag.clone().filter(|text| !text.is_empty()).or(Some(field).filter(|text| !text.is_empty()))
    };
    let node = given(&arguments.nodeid, file.node)
        .context("the node has no name: --nodeid is needed for the kubelet to accept the driver")?;
    let level = given(&arguments.loglevel, file.level).unwrap_or_else(|| "warn".to_owned());
    let level =
        daemon::log::level(&level).with_context(|| format!("--loglevel: {level:?} is not a level"))?;
    let endpoint = given(&arguments.endpoint, file.endpoint).unwrap_or_else(|| ENDPOINT.to_owned());
    let endpoint = PathBuf::from(endpoint.strip_prefix("unix://").unwrap_or(&endpoint));
    Ok(Settings { node, level, endpoint, homes: file.homes.into() })
}

/// Serves the driver at a socket until it is asked to end.
///
/// # Errors
/// When the socket cannot be served.
pub async fn serve(endpoint: &Path, node: String, homes: Homes, shutdown: Shutdown) -> Result<()> {
    let listening = grpc_socket::listen(endpoint, MODE)
        .with_context(|| format!("listening for the kubelet at {}", endpoint.display()))?;
    tracing::info!(endpoint = %endpoint.display(), node, "the driver is listening");
    Server::builder()
        .add_service(IdentityServer::new(node::Identity))
        .add_service(NodeServer::new(node::Node::new(node, homes)))
        .serve_with_incoming_shutdown(listening, async move { shutdown.requested().await })
        .await
        .context("serving the driver")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(flags: [&str; 3], file: &str) -> Result<Settings> {
        let [nodeid, loglevel, endpoint] = flags.map(|flag| Some(flag.to_owned()).filter(|flag| flag != "-"));
        settings(&Arguments { nodeid, loglevel, endpoint }, serde_json::from_str(file)?)
    }

    #[test]
    fn flags_override_the_file() {
        let usual = check(["node1", "-", "-"], "{}").unwrap();
        assert_eq!((usual.level, usual.endpoint.as_path()), (LevelFilter::WARN, Path::new(ENDPOINT)));
        let file = r#"{"node_id": "n", "log_level": "INFO", "endpoint": "/a.sock", "nodeagent_management_home": "/run/x"}"#;
        let from_file = check(["", "", ""], file).unwrap();
        assert_eq!((from_file.node.as_str(), from_file.level), ("n", LevelFilter::INFO));
        assert_eq!(
            (from_file.endpoint.as_path(), from_file.homes),
            (Path::new("/a.sock"), Homes::under(Path::new("/run/x")))
        );
        let flags = check(["m", "debug", "unix:///b.sock"], file).unwrap();
        assert_eq!((flags.node.as_str(), flags.endpoint.as_path()), ("m", Path::new("/b.sock")));
        for (flags, reason) in
            [(["-", "-", "-"], "--nodeid is needed"), (["n", "chatty", "-"], "is not a level")]
        {
            assert!(check(flags, "{}").unwrap_err().to_string().contains(reason));
        }
    }
}
