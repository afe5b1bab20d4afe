//! `explain matrix`: every workload to every workload.

use super::load::SourceFlags;
use super::{Output, protocol};
use crate::context::Context;
use crate::failure::Result;
use ::explain::{Matrix, MatrixOptions};
use serde_json::json;
use std::fmt::Write as _;

/// Flags of `explain matrix`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without -n, all namespaces. Each receiver is asked on its first named port of the protocol, else on 80.\n\n\
                  Examples:\n  calicoctl explain matrix -n shop\n  calicoctl explain matrix --offline ./manifests --port 443\n  \
                  calicoctl explain matrix --with policy.yaml --also-from 203.0.113.7"
)]
pub struct MatrixArgs {
    /// The protocol, by name or number.
    #[arg(long, value_name = "PROTOCOL")]
    pub protocol: Option<String>,
    /// The port of every receiver.
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// A further sender: an address or a node. May be given several times.
    #[arg(long, value_name = "IP|NODE")]
    pub also_from: Vec<String>,
    /// Output format: text, json or yaml.
    #[arg(long, short = 'o', value_name = "OUTPUT FORMAT", default_value = "text")]
    pub output: String,
    /// Where the cluster comes from.
    #[command(flatten)]
    pub source: SourceFlags,
}

/// Runs `explain matrix`.
///
/// # Errors
/// When the cluster cannot be read.
pub async fn run(args: &MatrixArgs, context: &mut Context) -> Result<()> {
    let output = Output::parse(&args.output)?;
    let options = MatrixOptions {
        namespace: args.source.namespace.clone(),
        more_senders: args.also_from.clone(),
        protocol: protocol(args.protocol.as_deref())?,
        port: args.port,
    };
    let loaded = args.source.load(context).await?;
    let after = ::explain::matrix(&loaded.wanted, &options)?;
    let Some(stored) = &loaded.stored else {
        return output.print(context, &after, || after.to_text());
    };
    let before = ::explain::matrix(stored, &options)?;
    let value = json!({"before": before, "after": after});
    output.print(context, &value, || format!("{}\n{}", after.to_text(), changes(&before, &after)))
}

/// The cells that are in both and differ.
fn changes(before: &Matrix, after: &Matrix) -> String {
    let mut out = String::new();
    for (row, sender) in after.senders.iter().enumerate() {
        for (column, receiver) in after.receivers.iter().enumerate() {
            let place = |names: &[String], name: &String| names.iter().position(|other| other == name);
            let old = place(&before.senders, sender)
                .zip(place(&before.receivers, receiver))
                .map(|(row, column)| &before.cells[row][column]);
            let new = &after.cells[row][column];
            if let Some(old) = old
                && old.verdict != new.verdict
            {
                // Writing to a string cannot fail.
                let _ = writeln!(
                    out,
                    "  {sender} -> {receiver}: {} becomes {}",
                    old.verdict.as_str(),
                    new.verdict.as_str()
                );
            }
        }
    }
    if out.is_empty() { "nothing would change\n".to_owned() } else { format!("would change:\n{out}") }
}
