//! The command line of `tortie lab`. Flags become wishes; other modules do the work.
//!
//! Commands that use a lab of an unprivileged user join its namespaces first, while this process has a single thread.

mod commands;

use crate::probe::Protocol;
use crate::screen::Screen;
use crate::topology::{Bgp, Dataplane, Datastore, Encap, Families, Wish};
use crate::{called, scenario, topology_file};
use anyhow::{Context as _, Result};
use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A cluster of network namespaces on this machine.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The lab's name; several labs can exist at once [default: lab].
    #[arg(long, global = true, env = called::LAB_VARIABLE, value_name = "NAME")]
    lab: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create a lab: nodes, datastore, pods. One of the same name that is no longer running is replaced.
    Up {
        #[command(flatten)]
        wish: WishFlags,
        /// Print nothing unless it fails.
        #[arg(long, short)]
        quiet: bool,
    },
    /// Remove a lab, running or killed, with everything in it.
    Down {
        /// All labs of this user: lists them, and on a terminal asks for confirmation.
        #[arg(long)]
        all: bool,
        /// Do not ask for confirmation.
        #[arg(long, short, requires = "all")]
        yes: bool,
    },
    /// List the labs of this user, running or not.
    List {
        /// Output format.
        #[arg(long, short, value_enum, default_value_t = Format::Text)]
        output: Format,
    },
    /// Print variables for this machine's calicoctl and kubectl: `eval "$(tortie lab env)"`.
    Env {
        /// Print commands that unset them.
        #[arg(long)]
        unset: bool,
    },
    /// Show logs of a node, a pod, a server or `NODE/cni`; without a name the end of each.
    Logs {
        /// A node, NAMESPACE/POD, `NODE/cni`, `keeper`, `store`, `etcd` or `kube-apiserver`.
        name: Option<String>,
        /// Keep printing new lines, until the lab ends.
        #[arg(long, short)]
        follow: bool,
        /// Only the last N lines.
        #[arg(long, short = 'n', value_name = "N")]
        tail: Option<usize>,
    },
    /// Open a shell on a node, in a pod or at the router.
    Shell {
        /// A node, NAMESPACE/POD, or `router`.
        place: String,
    },
    /// Draw the lab as SVG: subnets, nodes, tunnels, pods, addresses.
    Picture {
        /// The file to write [default: standard output].
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Show what is in a lab and what is running.
    Status {
        /// Output format.
        #[arg(long, short, value_enum, default_value_t = Format::Text)]
        output: Format,
    },
    /// Run a program on a node, in a pod or at the router.
    Exec {
        /// A node, NAMESPACE/POD, or `router`.
        place: String,
        /// The program and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        words: Vec<String>,
    },
    /// Add or remove pods.
    Pod {
        #[command(subcommand)]
        command: PodCommand,
    },
    /// Show which pods reach each other: every pod to every pod, measured, with the deciding rule.
    Matrix {
        /// Only these ports [default: each pod's own].
        #[arg(long, value_delimiter = ',')]
        ports: Vec<u16>,
        /// The protocols.
        #[arg(long, value_enum, value_delimiter = ',')]
        protocol: Vec<Protocol>,
        /// Output format.
        #[arg(long, short, value_enum, default_value_t = Format::Text)]
        output: Format,
        /// Also write it as a web page.
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
        /// How many seconds cells that are not as expected are retried.
        #[arg(long, default_value_t = 5, value_name = "SECONDS")]
        patience: u64,
    },
    /// Apply manifests, like `calicoctl apply` (and with a Kubernetes datastore like `kubectl apply`).
    Apply {
        /// A file, a folder, or `-`; can be repeated.
        #[arg(long, short, required = true)]
        filename: Vec<PathBuf>,
        /// Include subfolders.
        #[arg(long, short = 'R')]
        recursive: bool,
    },
    /// Run `calicoctl` in the lab.
    Ctl {
        /// Its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Watch packets on a node, in a pod or at the router.
    Tcpdump {
        /// A node, NAMESPACE/POD, or `router`.
        place: String,
        /// Arguments of tcpdump [default: `-i any`].
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Demonstrate everything: a cluster, policy, matrices, and the removal. Nothing is left behind.
    Demo {
        #[command(flatten)]
        wish: WishFlags,
        /// Also write the last matrix as a web page.
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
    /// Open a living cluster in the browser: traffic, what is denied and why. Everything is removed at the end
    /// (Ctrl-C). A running lab of this name (created with --flows) is shown as it is, and kept.
    Ui {
        #[command(flatten)]
        wish: WishFlags,
        /// The page's port on 127.0.0.1 [default: any free one].
        #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
        port: u16,
    },
    /// Play a walk-through on a real kube-apiserver and check each line of it. Nothing is left behind.
    Scenario {
        /// The scenario to play.
        #[arg(value_enum, ignore_case = true)]
        which: scenario::Which,
        /// Only the lines that need IP in IP, for a machine whose kernel supports it.
        #[arg(long)]
        only_ipip: bool,
    },
    #[command(hide = true)]
    Internal {
        #[command(subcommand)]
        command: Internal,
    },
}

#[derive(Debug, Subcommand)]
enum PodCommand {
    /// Add a pod through the CNI plugin.
    Add {
        /// NAMESPACE/NAME, or a name in namespace default.
        name: String,
        /// Its node [default: nodes in turn].
        #[arg(long)]
        node: Option<String>,
        /// Its labels: NAME=VALUE,NAME=VALUE.
        #[arg(long, default_value = "")]
        labels: String,
        /// The ports it answers on, TCP and UDP.
        #[arg(long, value_delimiter = ',')]
        ports: Vec<u16>,
    },
    /// Remove a pod through the CNI plugin.
    Del {
        /// NAMESPACE/NAME, or a name in namespace default.
        name: String,
    },
}

/// Subcommands with which the lab starts its own processes.
#[derive(Debug, Subcommand)]
enum Internal {
    /// Hold a lab.
    Keeper {
        #[arg(long)]
        folder: PathBuf,
    },
    /// Become a program in a place of the lab.
    Inside {
        #[arg(long)]
        folder: PathBuf,
        #[arg(long)]
        netns: PathBuf,
        #[arg(long)]
        place: Option<String>,
        #[arg(long)]
        parent: u32,
        #[arg(last = true)]
        words: Vec<OsString>,
    },
    /// Forward connections from outside to the lab's datastore.
    Gate {
        #[arg(long)]
        folder: PathBuf,
    },
    /// Answer connections in a pod.
    Responder {
        #[arg(long)]
        name: String,
        #[arg(long, value_delimiter = ',')]
        ports: Vec<u16>,
    },
}

/// The output format of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For users.
    Text,
    /// For programs.
    Json,
}

/// The desired lab.
#[derive(Clone, Debug, Default, Args)]
struct WishFlags {
    /// How many nodes [default: 3].
    #[arg(long, value_name = "N")]
    nodes: Option<usize>,
    /// How many pods, in several namespaces [default: 6].
    #[arg(long, value_name = "N")]
    pods: Option<usize>,
    /// How many subnets the nodes are in [default: 2, or 1 with one node].
    #[arg(long, value_name = "N")]
    subnets: Option<usize>,
    /// How packets of pods are sent between nodes [default: vxlan].
    #[arg(long, value_enum)]
    encap: Option<Encap>,
    /// How routes get from node to node; with BGP each subnet is a rack with a router of its own, and nothing is
    /// encapsulated unless --encap is given [default: none].
    #[arg(long, value_enum)]
    bgp: Option<Bgp>,
    /// How many Typhas to put between the datastore and the nodes; every agent connects to one of them [default: 0].
    #[arg(long, value_name = "N")]
    typha: Option<usize>,
    /// Log flows to a Goldmane at the router, so that `lab ctl flows` and `lab ui` show who talked to whom.
    #[arg(long)]
    flows: bool,
    /// The packet filter [default: nftables].
    #[arg(long, value_enum)]
    dataplane: Option<Dataplane>,
    /// Where the data is stored [default: embedded].
    #[arg(long, value_enum)]
    datastore: Option<Datastore>,
    /// IPv6 only [default: IPv4 only].
    #[arg(long, conflicts_with = "dual_stack")]
    ipv6: bool,
    /// IPv4 and IPv6.
    #[arg(long)]
    dual_stack: bool,
    /// A topology file; flags override it. docs/lab.md lists its fields.
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl WishFlags {
    fn wish(&self) -> Result<Wish> {
        let mut wish = match &self.file {
            Some(path) => topology_file::read(&path.display().to_string(), &read_file(path)?)?,
            None => Wish::default(),
        };
        if let Some(count) = self.nodes {
            wish.nodes.clear();
            wish.node_count = Some(count);
        }
        if let Some(count) = self.pods {
            wish.pods.clear();
            wish.pod_count = Some(count);
        }
        wish.subnets = self.subnets.or(wish.subnets);
        wish.encap = self.encap.or(wish.encap);
        wish.bgp = self.bgp.or(wish.bgp);
        wish.typhas = self.typha.or(wish.typhas);
        if self.flows {
            wish.flows = Some(true);
        }
        wish.dataplane = self.dataplane.or(wish.dataplane);
        wish.datastore = self.datastore.or(wish.datastore);
        if self.ipv6 {
            wish.family = Some(Families::V6);
        } else if self.dual_stack {
            wish.family = Some(Families::Dual);
        }
        Ok(wish)
    }
}

/// Runs a command of the lab.
///
/// # Errors
/// A one-sentence explanation of the failure.
pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let mut screen = Screen::stdout();
    let code = commands::carry_out(arguments, &mut screen)?;
    screen.end().context("writing standard output")?;
    Ok(code)
}

fn read_file(path: &Path) -> Result<String> {
    if path == Path::new("-") {
        return std::io::read_to_string(std::io::stdin()).context("reading standard input");
    }
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}
