//! `calicoctl bgp`: sessions and routes of all nodes, run from anywhere.
//!
//! - [`load`]: reads the objects that determine sessions, and what nodes report (CalicoNodeStatus).
//! - [`peers`], [`routes`], [`summary`]: what is printed.
//!
//! Which sessions there should be is computed from each node's intent, just as its BGP backend does (`bgp`). Which of
//! them are up is what the node itself last reported, if a CalicoNodeStatus requests it. Nothing is written to the
//! datastore.

mod load;
mod peers;
mod routes;
mod summary;

use crate::context::{ConfigFlag, Context};
use crate::explain::Output;
use crate::failure::{Failure, Result};
use bgp::NodeName;
use clap::{Args, Subcommand};
pub(crate) use load::Loaded;
use serde::Serialize;

/// Sessions and routes of all nodes.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "States and routes are what nodes last reported: a CalicoNodeStatus with the classes Agent, BGP and Routes\n\
                  asks a node to. Sessions of other nodes are shown without their state.\n\n\
                  Examples:\n  calicoctl bgp summary\n  calicoctl bgp peers --node n1\n  calicoctl bgp routes -o json"
)]
pub(crate) struct BgpArgs {
    /// What to show.
    #[command(subcommand)]
    pub command: BgpCommand,
}

/// What to show.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum BgpCommand {
    /// Every expected session, and its state.
    Peers(ShowArgs),
    /// The routes that nodes know.
    Routes(ShowArgs),
    /// One line for each node.
    Summary(ShowArgs),
}

/// The flags of all of them.
#[derive(Clone, Debug, Args)]
pub(crate) struct ShowArgs {
    /// Only this node.
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Output format: text, json or yaml.
    #[arg(long, short = 'o', value_name = "OUTPUT FORMAT", default_value = "text")]
    pub output: String,
    /// Where the datastore is.
    #[command(flatten)]
    pub config: ConfigFlag,
}

/// Runs a command of the family.
///
/// # Errors
/// When the datastore cannot be read, or there is no such node.
pub(crate) async fn run(args: &BgpArgs, context: &mut Context) -> Result<()> {
    match &args.command {
        BgpCommand::Peers(args) => show(args, context, peers::rows).await,
        BgpCommand::Routes(args) => show(args, context, routes::rows).await,
        BgpCommand::Summary(args) => show(args, context, summary::rows).await,
    }
}

/// A line of a table.
trait Row: Serialize {
    const TITLES: &'static str;

    fn line(&self) -> String;
}

async fn show<R: Row>(
    args: &ShowArgs,
    context: &mut Context,
    rows: fn(&Loaded, &NodeName) -> Vec<R>,
) -> Result<()> {
    let output = Output::parse(&args.output)?;
    let loaded = Loaded::load(context, &args.config).await?;
    let mut nodes = loaded.cluster.nodes();
    if let Some(name) = &args.node {
        nodes.retain(|node| node.as_str() == name);
        if nodes.is_empty() {
            return Err(Failure::new(format!("node {name} was not found")));
        }
    }
    let all: Vec<R> = nodes.iter().flat_map(|node| rows(&loaded, node)).collect();
    output.print(context, &all, || {
        let lines: String = all.iter().map(|row| format!("{}\n", row.line())).collect();
        crate::output::tabwriter::align(&format!("{}\n{lines}", R::TITLES))
    })
}
