//! `calicoctl ipam`: which addresses are allocated, whether the records of address management agree, and their repair.
//!
//! - [`show`], [`check`], [`release`], [`split`], [`configure`]: the commands.
//! - `store`: reading and compare-and-swap over `ipam-core`'s transitions, the same on every datastore.
//! - `snapshot` and `fix`: all records at one moment, and the repairs that are safe to make.
//! - `table`: boxed tables. `addresses`: how much room there is, for `calicoctl analyze`.
//! - `usage` and `map`: how full each block is, as values; the same as a map for a terminal, or as a page.
//!
//! No command here allocates an address, and none releases an address that it was not asked to release.

mod addresses;
pub(crate) mod check;
pub(crate) mod configure;
mod explain;
mod fix;
mod map;
pub(crate) mod release;
mod report;
pub(crate) mod show;
mod snapshot;
pub(crate) mod split;
mod store;
mod table;
pub(crate) mod usage;

pub(crate) use addresses::addresses;

use crate::context::Context;
use crate::failure::{Failure, Result};
use std::net::IpAddr;

/// Inspect and manage how addresses are allocated.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  # How full the pools are.\n  calicoctl ipam show\n\n  \
                        # Look for leaked addresses and records that disagree.\n  calicoctl ipam check --show-problem-ips")]
pub(crate) struct IpamArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: IpamCommand,
}

/// What to do with address management.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum IpamCommand {
    /// Check the integrity of the IPAM data structures.
    Check(check::CheckArgs),
    /// Release an address, or the leaked addresses of reports.
    Release(release::ReleaseArgs),
    /// Show an address, or how full pools and blocks are.
    Show(show::ShowArgs),
    /// Split an IP pool into smaller ones.
    Split(split::SplitArgs),
    /// Change the settings of address management.
    Configure(configure::ConfigureArgs),
}

/// Runs a command of the family.
///
/// # Errors
/// The failure of the command.
pub(crate) async fn run(args: &IpamArgs, context: &mut Context) -> Result<()> {
    match &args.command {
        IpamCommand::Check(args) => check::run(args, context).await,
        IpamCommand::Release(args) => release::run(args, context).await,
        IpamCommand::Show(args) => show::run(args, context).await,
        IpamCommand::Split(args) => split::run(args, context).await,
        IpamCommand::Configure(args) => configure::run(args, context).await,
    }
}

/// Parses an address from the command line; an IPv4-mapped IPv6 address is an IPv4 address.
fn parse_address(text: &str) -> Result<IpAddr> {
    let address = text.parse::<IpAddr>().map(|address| address.to_canonical());
    address
        .map_err(|_| Failure::new(format!("Error executing command: invalid IP address specified: {text}")))
}
