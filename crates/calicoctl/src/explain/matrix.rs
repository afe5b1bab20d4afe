//! `explain matrix`: from every workload to every workload.

use super::load::SourceFlags;
use super::{Output, protocol};
use crate::context::Context;
use crate::failure::Result;
use ::explain::{Cluster, Matrix, MatrixOptions, Page, counted};
use serde_json::json;
use std::path::PathBuf;

/// Flags of `explain matrix`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without -n, all namespaces. Each receiver is tested on the ports that it declares and on those that policies name for \
                  it, of ranges on the first one, else on 80. More than 16 ports of policies are not tested: a line lists them, and \
                  --port tests one of them.\n\n\
                  Examples:\n  calicoctl explain matrix -n shop\n  calicoctl explain matrix --offline ./manifests --port 443\n  \
                  calicoctl explain matrix --with policy.yaml --also-from 203.0.113.7\n  \
                  calicoctl explain matrix --with policy.yaml --html matrix.html"
)]
pub(crate) struct MatrixArgs {
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
    /// Also write the matrix as a page to this file; with --with, changes are marked.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Where the cluster comes from.
    #[command(flatten)]
    pub source: SourceFlags,
}

/// Runs `explain matrix`.
///
/// # Errors
/// When the cluster cannot be read.
pub(crate) async fn run(args: &MatrixArgs, context: &mut Context) -> Result<()> {
    let output = Output::parse(&args.output)?;
    let options = MatrixOptions {
        namespace: args.source.namespace.clone(),
        more_senders: args.also_from.clone(),
        protocol: protocol(args.protocol.as_deref())?,
        port: args.port,
    };
    let loaded = args.source.load(context).await?;
    let (before, after) = match &loaded.stored {
        None => (None, ::explain::matrix(&loaded.wanted, &options)?),
        Some(stored) => {
            let (before, after) = ::explain::matrices(stored, &loaded.wanted, &options)?;
            (Some(before), after)
        }
    };
    let changes = before.as_ref().map(|before| after.changes_from(before)).unwrap_or_default();
    if let Some(path) = &args.html {
        let page = page(args, &loaded.wanted, before.as_ref(), &after);
        std::fs::write(path, page.to_html()).map_err(|error| {
            crate::failure::Failure::new(format!("cannot write {}: {error}", path.display()))
        })?;
    }
    let Some(before) = before else {
        return output.print(context, &after, || after.to_text());
    };
    let value = json!({"before": before, "after": after});
    output.print(context, &value, || {
        let changed = if changes.is_empty() {
            let cells = after.cells.iter().map(Vec::len).sum::<usize>();
            let ports: Vec<String> = after.ports().iter().map(ToString::to_string).collect();
            let on = match ports.as_slice() {
                [] => String::new(),
                [port] => format!(" on port {port}"),
                ports => format!(" on ports {}", ports.join(", ")),
            };
            format!("nothing would change for the {} tested{on}\n", counted(cells, "connection"))
        } else {
            changes.iter().fold("would change:\n".to_owned(), |out, change| format!("{out}  {change}\n"))
        };
        format!("{}\n{changed}", after.to_text())
    })
}

fn page(args: &MatrixArgs, cluster: &Cluster, before: Option<&Matrix>, after: &Matrix) -> Page {
    let fact = |name: &str, value: String| (name.to_owned(), value);
    let mut facts = vec![match &args.source.offline {
        Some(path) => fact("manifests", path.display().to_string()),
        None => fact("source", "the datastore".to_owned()),
    }];
    if let Some(namespace) = &args.source.namespace {
        facts.push(fact("namespace", namespace.clone()));
    }
    let with: Vec<String> = args.source.with.iter().map(|path| path.display().to_string()).collect();
    if !with.is_empty() {
        facts.push(fact("with", with.join(", ")));
    }
    facts.push(fact("tortie", env!("CARGO_PKG_VERSION").to_owned()));
    facts.push(fact("computed", jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string()));
    let mut page = after.to_page(before);
    page.facts = facts;
    page.lists.push(("Policies, in the order of evaluation".to_owned(), cluster.policy_names()));
    page
}
