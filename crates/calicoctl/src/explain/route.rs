//! `calicoctl explain route`: which block, pool, sessions and filters determine a node's route to an address.

use super::Output;
use crate::bgp::Loaded;
use crate::context::{ConfigFlag, Context};
use crate::failure::{Failure, Result};
use api::scalars::Ip;

/// Explain a node's route to an address.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "It follows the announcement of the address's block from node to node, as configured. Whether sessions \
                        are up is shown by calicoctl bgp peers.\n\n\
                        Examples:\n  calicoctl explain route --from n1 --to 10.66.2.5"
)]
pub(crate) struct RouteArgs {
    /// The node that sends.
    #[arg(long, value_name = "NODE")]
    pub from: String,
    /// The address that it sends to.
    #[arg(long, value_name = "IP")]
    pub to: String,
    /// Output format: text, json or yaml.
    #[arg(long, short = 'o', value_name = "OUTPUT FORMAT", default_value = "text")]
    pub output: String,
    /// Where the datastore is.
    #[command(flatten)]
    pub config: ConfigFlag,
}

/// Prints the explanation.
///
/// # Errors
/// When the datastore cannot be read, or there is no such node.
pub(super) async fn run(args: &RouteArgs, context: &mut Context) -> Result<()> {
    let output = Output::parse(&args.output)?;
    let to = Ip::new(&args.to).parse().map_err(Failure::new)?;
    let loaded = Loaded::load(context, &args.config).await?;
    let answer = bgp::explain::route(&loaded.cluster, &args.from, to)
        .map_err(|error| Failure::new(error.to_string()))?;
    output.print(context, &answer, || answer.text())
}
