//! The command-line flags.

mod filters;

pub use filters::FilterFlags;

use crate::top::{By, Group};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Show who talked to whom, and which policy allowed or denied it.
#[derive(Clone, Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Flows come from a Goldmane (--server, GOLDMANE_HOST), this node (--node), or a file that -o json wrote \
                  (--input-file). Values of one filter are alternatives, different filters must all hold, and --not negates the \
                  filter after it.\n\n\
                  Examples:\n  # What is denied, as it happens?\n  calicoctl flows -f --denied\n\n  \
                  # Who talked to the database in the last ten minutes, other than the shop?\n  \
                  calicoctl flows --since 10m --to-pod shop/db --not --from-namespace shop\n\n  \
                  # What would the staged policies deny?\n  calicoctl flows --would-deny\n\n  \
                  # Keep an hour, and look at it later.\n  \
                  calicoctl flows --since 1h -o json > hour.jsonl\n  calicoctl flows top --input-file hour.jsonl"
)]
pub struct FlowsArgs {
    /// What to show instead of a list.
    #[command(subcommand)]
    pub command: Option<FlowsCommand>,
    /// The list.
    #[command(flatten)]
    pub list: ListArgs,
}

/// What to show instead of a list.
#[derive(Clone, Debug, Subcommand)]
pub enum FlowsCommand {
    /// Show who talks most.
    Top(Box<TopArgs>),
    /// Show what each policy and rule allowed, denied and passed on.
    Stats(Box<StatsArgs>),
    /// Recommend policies that allow what was allowed and nothing else, as staged policies to try.
    Recommend(Box<RecommendArgs>),
    /// Show which recorded flows a policy would decide differently.
    Impact(Box<ImpactArgs>),
}

/// The list.
#[derive(Clone, Debug, Args)]
pub struct ListArgs {
    /// Show new flows as they arrive, until interrupted.
    #[arg(long, short = 'f')]
    pub follow: bool,
    /// Show the newest N flows; 100 if neither this nor --since nor --input-file is given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub last: Option<u32>,
    /// The output format.
    #[arg(long, short = 'o', value_name = "FORMAT", value_enum, default_value_t = Format::Compact)]
    pub output: Format,
    /// Show every policy that was evaluated, not only the one that decided.
    #[arg(long)]
    pub print_policy_names: bool,
    /// When to use colours.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Colour::Auto)]
    pub color: Colour,
    /// Which flows.
    #[command(flatten)]
    pub input: InputArgs,
}

/// Which flows, and where from.
#[derive(Clone, Debug, Args)]
pub struct InputArgs {
    /// Where from.
    #[command(flatten)]
    pub source: SourceArgs,
    /// Only flows since this time: relative (10m), or absolute (2026-11-17T14:00:00Z).
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only flows before this time.
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Which of them.
    #[command(flatten)]
    pub filters: FilterFlags,
}

/// Where flows come from.
#[derive(Clone, Debug, Default, Args)]
pub struct SourceArgs {
    /// The Goldmane to query, ours or Calico's: host:port, or unix:// and the path of a socket. Also GOLDMANE_HOST.
    #[arg(long, value_name = "ADDRESS", help_heading = SOURCE)]
    pub server: Option<String>,
    /// The authority that signs the server's certificate. Also CA_CERT_PATH.
    #[arg(long, value_name = "FILE", help_heading = SOURCE)]
    pub tls_ca: Option<PathBuf>,
    /// The client certificate. Also TLS_CERT_PATH.
    #[arg(long, value_name = "FILE", help_heading = SOURCE)]
    pub tls_cert: Option<PathBuf>,
    /// Its key. Also TLS_KEY_PATH.
    #[arg(long, value_name = "FILE", help_heading = SOURCE)]
    pub tls_key: Option<PathBuf>,
    /// The name in the server's certificate, if it differs from the one in its address.
    #[arg(long, value_name = "NAME", help_heading = SOURCE)]
    pub tls_server_name: Option<String>,
    /// Watch the flows of this node, at the socket that Felix looks for (FlowLogsLocalReporter: Enabled).
    #[arg(
        long,
        value_name = "SOCKET",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = flows::local::SOCKET,
        conflicts_with_all = ["server", "input_file"],
        help_heading = SOURCE
    )]
    pub node: Option<PathBuf>,
    /// Read flows that -o json wrote; - for standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "server", help_heading = SOURCE)]
    pub input_file: Option<PathBuf>,
}

const SOURCE: &str = "Where flows come from";

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One line each.
    Compact,
    /// In columns.
    Table,
    /// A line of JSON each, for programs and --input-file.
    Json,
    /// Every field on a line.
    Dict,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Colour {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FigureFormat {
    /// In columns.
    Table,
    /// As JSON.
    Json,
}

/// `flows top`.
#[derive(Clone, Debug, Args)]
pub struct TopArgs {
    /// What to compare.
    #[arg(long, value_name = "FIGURE", value_enum, default_value_t = By::Bytes)]
    pub by: By,
    /// How to group flows.
    #[arg(long, value_name = "GROUP", value_enum, default_value_t = Group::Pair)]
    pub group: Group,
    /// How many to show.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub count: usize,
    /// The output format.
    #[arg(long, short = 'o', value_name = "FORMAT", value_enum, default_value_t = FigureFormat::Table)]
    pub output: FigureFormat,
    /// Which flows.
    #[command(flatten)]
    pub input: InputArgs,
}

/// `flows stats`.
#[derive(Clone, Debug, Args)]
pub struct StatsArgs {
    /// What to count.
    #[arg(long, value_name = "FIGURE", value_enum, default_value_t = By::Packets)]
    pub by: By,
    /// One line for each policy, not for each rule.
    #[arg(long)]
    pub policies: bool,
    /// The output format.
    #[arg(long, short = 'o', value_name = "FORMAT", value_enum, default_value_t = FigureFormat::Table)]
    pub output: FigureFormat,
    /// Which flows.
    #[command(flatten)]
    pub input: InputArgs,
}

/// `flows recommend`.
#[derive(Clone, Debug, Args)]
pub struct RecommendArgs {
    /// Only for workloads of this namespace; may be given several times.
    #[arg(long = "for-namespace", value_name = "NS")]
    pub for_namespaces: Vec<String>,
    /// The tier of the policies.
    #[arg(long = "in-tier", value_name = "TIER", default_value = "default")]
    pub in_tier: String,
    /// Their order in the tier.
    #[arg(long, value_name = "ORDER", default_value_t = 1000)]
    pub order: u32,
    /// Which flows.
    #[command(flatten)]
    pub input: InputArgs,
}

/// `flows impact`.
#[derive(Clone, Debug, Args)]
pub struct ImpactArgs {
    /// The policies to try, as files or folders of manifests; may be given several times.
    #[arg(long, short = 'f', value_name = "FILE", required = true)]
    pub filename: Vec<PathBuf>,
    /// Read the cluster's manifests from this file or folder, not from the datastore.
    #[arg(long, value_name = "DIR")]
    pub offline: Option<PathBuf>,
    /// Path to the file containing connection configuration in YAML or JSON format.
    #[arg(long, short = 'c', value_name = "FILE", default_value = "/etc/calico/calicoctl.cfg")]
    pub config: PathBuf,
    /// The output format.
    #[arg(long, short = 'o', value_name = "FORMAT", value_enum, default_value_t = FigureFormat::Table)]
    pub output: FigureFormat,
    /// Exit with 1 if a flow would be decided differently, and with 2 after a failure.
    #[arg(long)]
    pub exit_code: bool,
    /// Which flows.
    #[command(flatten)]
    pub input: InputArgs,
}

impl FlowsArgs {
    /// The flags of `impact`, which needs a cluster.
    #[must_use]
    pub fn impact(&self) -> Option<&ImpactArgs> {
        match &self.command {
            Some(FlowsCommand::Impact(args)) => Some(args),
            _ => None,
        }
    }
}
