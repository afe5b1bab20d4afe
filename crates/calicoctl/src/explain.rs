//! `calicoctl explain`: why packets pass or do not, based on the datastore, on a directory of manifests, or on the
//! cluster as it would be after an apply.
//!
//! - this file: the query for one pair, and the subcommands below.
//! - [`load`]: the cluster that queries are about.
//! - [`matrix`] and [`test`]: all pairs of workloads; expectations as data.
//! - [`route`]: why a node has a route.
//!
//! The `explain` crate decides; here are flags, files and formats. Nothing is written to the datastore.

mod load;
pub(crate) mod matrix;
mod places;
pub(crate) mod route;
pub(crate) mod test;

use crate::context::Context;
use crate::failure::{Failure, Result};
use ::explain::{Cluster, Explanation, Protocol, Query, Verdict, evaluate};
pub(crate) use load::SourceFlags;
pub(crate) use places::join;
use serde::Serialize;
use serde_json::json;

/// Explain why packets pass or do not.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Ends are pods (shop/web), addresses, nodes (node:n1) and services (shop/web:80); the port follows the name.\n\n\
                  Examples:\n  # Why does the shop not reach its database?\n  \
                  calicoctl explain shop/web shop/db:5432\n  \
                  calicoctl explain --from shop/web --to shop/db:5432\n\n  \
                  # The same without a cluster, from the manifests of a repository.\n  \
                  calicoctl explain --offline ./manifests --from shop/web --to shop/db:5432\n\n  \
                  # What would change if this file were applied?\n  \
                  calicoctl explain --with policy.yaml --from shop/web --to shop/db:5432"
)]
pub(crate) struct ExplainArgs {
    /// What to explain instead of one pair.
    #[command(subcommand)]
    pub command: Option<ExplainCommand>,
    /// The sender and the receiver, like --from and --to.
    #[arg(value_names = ["FROM", "TO"], num_args = 2, conflicts_with_all = ["from", "to"])]
    pub ends: Vec<String>,
    /// The sender: a pod, an address or a node.
    #[arg(long, value_name = "POD|IP|NODE", required_unless_present = "ends")]
    pub from: Option<String>,
    /// The receiver, with a port: a pod, an address, a node or a service.
    #[arg(long, value_name = "POD|IP|NODE|SERVICE[:PORT]", required_unless_present = "ends")]
    pub to: Option<String>,
    /// The protocol, by name or number: tcp (default), udp, sctp, icmp, icmpv6, 47.
    #[arg(long, value_name = "PROTOCOL")]
    pub protocol: Option<String>,
    /// The port, if --to does not contain it.
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// The source port; by default, a typical client port.
    #[arg(long, value_name = "PORT")]
    pub source_port: Option<u16>,
    /// The IP version, 4 or 6, if both ends have addresses of both.
    #[arg(long, value_name = "4|6", value_parser = clap::value_parser!(u8).range(4..=6))]
    pub ip_version: Option<u8>,
    /// Also list the policies that do not select the endpoints, and why.
    #[arg(long, short = 'v')]
    pub verbose: bool,
    /// Output format: text, json or yaml.
    #[arg(long, short = 'o', value_name = "OUTPUT FORMAT", default_value = "text")]
    pub output: String,
    /// Where the cluster comes from.
    #[command(flatten)]
    pub source: SourceFlags,
}

/// What to explain instead of one pair.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ExplainCommand {
    /// Show which workloads reach which, in a namespace or in the cluster.
    Matrix(matrix::MatrixArgs),
    /// Test expectations: who must, and who must not, reach whom.
    Test(test::TestArgs),
    /// Explain why a node has a route to an address, or has none.
    Route(route::RouteArgs),
}

/// How answers are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Text,
    Json,
    Yaml,
}

impl Output {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        match text {
            "text" | "" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            "yaml" | "yml" => Ok(Self::Yaml),
            _ => Err(Failure::new(format!("unrecognized output format '{text}': one of text, json, yaml"))),
        }
    }

    pub(crate) fn print(
        self,
        context: &mut Context,
        value: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        let printed = match self {
            Self::Text => crate::paint::verdicts(&text(), context.surroundings.colours),
            Self::Json => format!("{}\n", crate::output::json::to_string(value)?),
            Self::Yaml => api::yaml::to_string(&serde_json::to_value(value)?),
        };
        context.print(&printed)
    }
}

/// Runs a command of the family.
///
/// # Errors
/// When the cluster cannot be read, the query names something that does not exist, or a test fails.
pub(crate) async fn run(args: &ExplainArgs, context: &mut Context) -> Result<()> {
    match &args.command {
        Some(ExplainCommand::Matrix(args)) => matrix::run(args, context).await,
        Some(ExplainCommand::Test(args)) => test::run(args, context).await,
        Some(ExplainCommand::Route(args)) => route::run(args, context).await,
        None => one_pair(args, context).await,
    }
}

async fn one_pair(args: &ExplainArgs, context: &mut Context) -> Result<()> {
    let output = Output::parse(&args.output)?;
    let end = |flag: &Option<String>, place| {
        flag.as_ref().or_else(|| args.ends.get(place)).cloned().unwrap_or_default()
    };
    let query = Query {
        from: end(&args.from, 0),
        to: end(&args.to, 1),
        namespace: args.source.namespace.clone().unwrap_or_default(),
        protocol: protocol(args.protocol.as_deref())?,
        port: args.port,
        source_port: args.source_port,
        icmp: None,
        ip_version: args.ip_version,
    };
    let loaded = args.source.load(context).await?;
    let after = evaluate(&loaded.wanted, &query)?;
    let Some(stored) = &loaded.stored else {
        return output.print(context, &after, || after.to_text(args.verbose));
    };
    let before = before(stored, &query);
    let changed = before.as_ref().is_ok_and(|before| before.verdict != after.verdict);
    let value = json!({
        "changed": changed,
        "before": before.as_ref().ok(),
        "after": after,
    });
    output.print(context, &value, || {
        let first = match &before {
            Err(reason) => format!("before: {reason}\n"),
            Ok(before) if changed => {
                format!(
                    "would change from {} to {}\nbefore: {}\n",
                    word(before),
                    word(&after),
                    decided(before)
                )
            }
            Ok(_) => format!("would stay {}\n", word(&after)),
        };
        format!("{first}\n{}", after.to_text(args.verbose))
    })
}

/// The answer before the change; an error if the query names something that only the new manifests contain.
fn before(stored: &Cluster, query: &Query) -> std::result::Result<Explanation, String> {
    evaluate(stored, query).map_err(|error| error.to_string())
}

fn word(explanation: &Explanation) -> &'static str {
    match explanation.verdict {
        Verdict::Allow => "allowed",
        Verdict::Deny => "denied",
        Verdict::Partly => "partly allowed",
    }
}

fn decided(explanation: &Explanation) -> String {
    let reasons: Vec<&str> = explanation.flows.iter().map(|flow| flow.decided_by.as_str()).collect();
    reasons.join("; ")
}

/// Reads a protocol from the command line.
fn protocol(text: Option<&str>) -> Result<Option<Protocol>> {
    let Some(text) = text else { return Ok(None) };
    let found = Protocol::from_text(text);
    found.map(Some).ok_or_else(|| {
        Failure::new(format!(
            "'{text}' is not a protocol: tcp, udp, sctp, icmp, icmpv6, udplite or a number from 1 to 255"
        ))
    })
}
