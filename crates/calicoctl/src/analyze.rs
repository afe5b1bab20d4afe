//! `calicoctl analyze`: mistakes in policies and pools, found on a cluster or in a folder of manifests.
//!
//! The `explain` crate does the analysis; here are flags, places in files, and output formats. Nothing is written.

use crate::context::Context;
use crate::explain::{Output, SourceFlags};
use crate::failure::{Failure, Result};
use crate::ipam;
use crate::version_gate::Access;
use ::explain::{Finding, analyze};
use serde_json::{Value, json};

/// Flags of `analyze`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Looks for rules that can never match or are never reached, selectors that select nothing, policies that only log, \
                  and pools and blocks that cannot serve. With --offline, places are files and lines.\n\n\
                  Examples:\n  calicoctl analyze\n  calicoctl analyze --offline ./manifests --exit-code\n  \
                  calicoctl analyze --with policy.yaml"
)]
pub(crate) struct AnalyzeArgs {
    /// Exit with 1 if there are warnings.
    #[arg(long)]
    pub exit_code: bool,
    /// Output format: text, json or yaml.
    #[arg(long, short = 'o', value_name = "OUTPUT FORMAT", default_value = "text")]
    pub output: String,
    /// Where the cluster comes from.
    #[command(flatten)]
    pub source: SourceFlags,
}

/// Runs the command.
///
/// # Errors
/// When the cluster cannot be read, or with `--exit-code` if there are warnings.
pub(crate) async fn run(args: &AnalyzeArgs, context: &mut Context) -> Result<()> {
    let output = Output::parse(&args.output)?;
    let loaded = args.source.load(context).await?;
    let addresses = match &args.source.offline {
        Some(_) => None,
        None => {
            let client = context.connect_for(&args.source.config, Access::Read).await?;
            Some(ipam::addresses(&client).await?)
        }
    };
    let mut analysis = analyze(&loaded.wanted, addresses.as_ref());
    if let Some(namespace) = &args.source.namespace {
        analysis.findings.retain(|finding| finding.namespace == *namespace || finding.namespace.is_empty());
    }
    let place = |finding: &Finding| {
        loaded.places.find(&finding.kind, &finding.namespace, &finding.name, &finding.path)
    };
    let findings: Vec<Value> = analysis
        .findings
        .iter()
        .map(|finding| {
            let mut value = json!(finding);
            if let Some(place) = place(finding) {
                value["place"] = place.into();
            }
            value
        })
        .collect();
    let value = json!({"findings": findings, "notes": analysis.notes});
    output.print(context, &value, || analysis.to_text(place))?;
    if args.exit_code && analysis.has_warnings() {
        return Err(Failure::new("warnings were found"));
    }
    Ok(())
}
