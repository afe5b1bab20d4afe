//! `calicoctl cluster`: the cluster as a whole.
//!
//! - [`diags`]: collects a bundle of everything useful when something is wrong.
//! - [`jobs`]: the `kubectl` queries, as data.
//! - [`collector`]: runs many queries at a time and stores the answers as files.

pub(crate) mod collector;
pub(crate) mod diags;
pub(crate) mod jobs;

use crate::context::{ConfigFlag, Context};
use crate::failure::Result;
use clap::{Args, Subcommand};
use std::path::Path;

/// Access cluster-wide information.
#[derive(Clone, Debug, Args)]
pub(crate) struct ClusterArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ClusterCommand,
}

/// What to do with the cluster.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Collect a snapshot of diagnostic information and logs of the whole cluster.
    #[command(
        after_help = "Needs kubectl on the PATH, and writes ./calico-diagnostics-DATE_TIME.tar.gz.\n\n\
                            Examples:\n  calicoctl cluster diags\n\n  \
                            # The logs of the last two hours, from these nodes first.\n  \
                            calicoctl cluster diags --since=2h --focus-nodes=node-a,node-b"
    )]
    Diags(DiagsArgs),
}

/// The flags of `cluster diags`.
#[derive(Clone, Debug, Args)]
pub struct DiagsArgs {
    /// Where the datastore is.
    #[command(flatten)]
    pub config: ConfigFlag,
    /// Only collect logs newer than provided relative duration (e.g. 30m, 2h).
    #[arg(long, value_name = "DURATION", default_value = "", hide_default_value = true)]
    pub since: String,
    /// Only collect up to this number of logs, for each kind of Calico component.
    #[arg(long, value_name = "NUMBER", default_value_t = 5, allow_negative_numbers = true)]
    pub max_logs: i64,
    /// Maximum number of parallel threads to use for collecting logs.
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    pub max_parallelism: usize,
    /// Comma-separated list of nodes from which to try first to collect logs.
    #[arg(long, value_name = "NODES", default_value = "", hide_default_value = true)]
    pub focus_nodes: String,
    /// Don't clean up the temporary directory.
    #[arg(long)]
    pub skip_temp_dir_cleanup: bool,
}

/// Runs the command.
///
/// # Errors
/// The failure of the command.
pub(crate) async fn run(args: &ClusterArgs, context: &mut Context) -> Result<()> {
    match &args.command {
        ClusterCommand::Diags(args) => diags::run(args, Path::new("."), context).await,
    }
}
