//! `calicoctl node`: the Calico node of this machine. Linux only; most of it needs root.
//!
//! - [`status`]: whether it is running, and its BGP peers.
//! - [`checksystem`]: whether this machine can run one.
//! - [`diags`]: collects a bundle of everything useful when it does not work.
//! - [`run`]: starts the container, for clusters on etcd.

pub(crate) mod checksystem;
pub(crate) mod diags;
pub(crate) mod run;
pub(crate) mod status;

use crate::context::{ConfigFlag, Context};
use crate::failure::{Failure, Result};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Manage the Calico node of this machine.
#[derive(Clone, Debug, Args)]
pub(crate) struct NodeArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: NodeCommand,
}

/// What to do with this machine's node.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// Show whether Calico runs on this machine, and the state of its BGP peerings. Needs root.
    #[command(
        after_help = "Peers are read from BIRD's control socket in /var/run/calico or /var/run/bird.\n\n\
                            Examples:\n  sudo calicoctl node status"
    )]
    Status,
    /// Gather a diagnostics bundle from this machine. Needs root.
    #[command(after_help = "The output of a missing tool is left out, with a note.\n\n\
                            Examples:\n  sudo calicoctl node diags --log-dir=/var/log/calico")]
    Diags(DiagsArgs),
    /// Check that this machine's kernel can run Calico. Needs root.
    #[command(after_help = "Examples:\n  sudo calicoctl node checksystem\n  \
                            sudo calicoctl node checksystem -f /boot/config-6.1.0")]
    Checksystem(ChecksystemArgs),
    /// Start the Calico node container on this machine with Docker, for a cluster on etcd.
    #[command(
        after_help = "Supported: Docker as the runtime and etcd as the datastore. In Kubernetes, nodes are started by \
                            the manifests instead.\n\nExamples:\n  \
                            # Show the command, for a unit of the init system.\n  \
                            calicoctl node run --dryrun --init-system\n\n  \
                            # Start it; the address is the one that reaches 192.0.2.1.\n  \
                            sudo calicoctl node run --ip=autodetect --ip-autodetection-method=can-reach=192.0.2.1"
    )]
    Run(Box<RunArgs>),
}

/// The flags of `node diags`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DiagsArgs {
    /// The directory containing Calico logs.
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/log/calico")]
    pub log_dir: PathBuf,
}

/// The flags of `node checksystem`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ChecksystemArgs {
    /// The kernel's configuration, instead of the usual places.
    #[arg(long, short = 'f', value_name = "FILE")]
    pub kernel_config: Option<PathBuf>,
    /// Check what this dataplane needs; by default, the one that the kernel supports.
    #[arg(long, value_name = "DATAPLANE", value_enum)]
    pub dataplane: Option<checksystem::Dataplane>,
}

/// The flags of `node run`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    /// Where the datastore is.
    #[command(flatten)]
    pub config: ConfigFlag,
    /// The IPv4 address of this node for routing, or `autodetect`.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub ip: String,
    /// The IPv6 address of this node for routing, or `autodetect`.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub ip6: String,
    /// The AS number of this node: a number, or two with a dot.
    #[arg(long = "as", value_name = "AS_NUM", default_value = "", hide_default_value = true)]
    pub as_number: String,
    /// The name of the node; this machine's host name if it is not given.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub name: String,
    /// How the IPv4 address is detected: first-found, can-reach=HOST, interface=REGEXES or skip-interface=REGEXES.
    #[arg(long, value_name = "METHOD", default_value = "first-found")]
    pub ip_autodetection_method: String,
    /// How the IPv6 address is detected.
    #[arg(long, value_name = "METHOD", default_value = "first-found")]
    pub ip6_autodetection_method: String,
    /// The directory for Calico's logs.
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/log/calico")]
    pub log_dir: String,
    /// The image of the node container.
    #[arg(long, value_name = "IMAGE", default_value = "quay.io/calico/node:latest")]
    pub node_image: String,
    /// How routes are exchanged: bird or none.
    #[arg(long, default_value = "bird")]
    pub backend: String,
    /// Only print the command.
    #[arg(long)]
    pub dryrun: bool,
    /// The command for a unit of an init system: attached, without a restart policy.
    #[arg(long)]
    pub init_system: bool,
    /// Do not create default IP pools.
    #[arg(long)]
    pub no_default_ippools: bool,
    /// A file with Felix's configuration.
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    pub felix_config: String,
}

/// Runs the command.
///
/// # Errors
/// The failure of the command.
pub(crate) async fn run(args: &NodeArgs, context: &mut Context) -> Result<()> {
    match &args.command {
        NodeCommand::Status => {
            require_root()?;
            status::report(&status::Host::default(), context).await
        }
        NodeCommand::Diags(args) => {
            require_root()?;
            diags::collect(&args.log_dir, &std::env::temp_dir(), context).await
        }
        NodeCommand::Checksystem(args) => {
            require_root()?;
            checksystem::check(&checksystem::Host::new(args.kernel_config.clone())?, args.dataplane, context)
        }
        NodeCommand::Run(args) => run::run(args, context).await,
    }
}

/// The kernel shows most of what these commands read only to root.
pub(crate) fn require_root() -> Result<()> {
    if rustix::process::getuid().is_root() {
        return Ok(());
    }
    Err(Failure::new("Need super user privileges: Operation not permitted"))
}
