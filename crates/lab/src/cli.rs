//! The commands of `tortie lab`. Flags become wishes; what is done is elsewhere.
//!
//! Commands that use a lab of an ordinary user join its namespaces first, while this process has one thread.

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
    /// The lab's name: several can be there at once [default: lab].
    #[arg(long, global = true, env = called::LAB_VARIABLE, value_name = "NAME")]
    lab: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a lab: nodes, datastore, pods. One of the same name that is not running any more is replaced.
    Up {
        #[command(flatten)]
        wish: WishFlags,
        /// Say nothing unless it fails.
        #[arg(long, short)]
        quiet: bool,
    },
    /// Remove a lab, running or killed, with everything in it.
    Down {
        /// All labs of this user: they are listed, and on a terminal you are asked.
        #[arg(long)]
        all: bool,
        /// Do not ask.
        #[arg(long, short, requires = "all")]
        yes: bool,
    },
    /// The labs of this user, running or not.
    List {
        /// Output format.
        #[arg(long, short, value_enum, default_value_t = Format::Text)]
        output: Format,
    },
    /// Print variables for this machine's calicoctl and kubectl: `eval "$(tortie lab env)"`.
    Env {
        /// Print what takes them back.
        #[arg(long)]
        unset: bool,
    },
    /// Show logs: of a node, a pod, a server or `NODE/cni`; the end of each without a name.
    Logs {
        /// A node, NAMESPACE/POD, `NODE/cni`, `keeper`, `store`, `etcd` or `kube-apiserver`.
        name: Option<String>,
        /// Go on with what is written next, until the lab ends.
        #[arg(long, short)]
        follow: bool,
        /// Only the last N lines.
        #[arg(long, short = 'n', value_name = "N")]
        tail: Option<usize>,
    },
    /// A shell on a node, in a pod or at the router.
    Shell {
        /// A node, NAMESPACE/POD, or `router`.
        place: String,
    },
    /// Draw the lab as SVG: subnets, nodes, tunnels, pods, addresses.
    Picture {
        /// The file to write; standard output without this flag.
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// What is in a lab and what runs.
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
    /// Who reaches whom: every pod to every pod, measured, with the rule that decides.
    Matrix {
        /// Only these ports; each pod's own without this flag.
        #[arg(long, value_delimiter = ',')]
        ports: Vec<u16>,
        /// The protocols.
        #[arg(long, value_enum, value_delimiter = ',')]
        protocol: Vec<Protocol>,
        /// Output format.
        #[arg(long, short, value_enum, default_value_t = Format::Text)]
        output: Format,
        /// Also write a page that a browser shows.
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
        /// For how many seconds cells that are not as expected are asked again.
        #[arg(long, default_value_t = 5, value_name = "SECONDS")]
        patience: u64,
    },
    /// Apply manifests, as `calicoctl apply` (and with a Kubernetes datastore as `kubectl apply`).
    Apply {
        /// A file, a folder, or `-`; can be given several times.
        #[arg(long, short, required = true)]
        filename: Vec<PathBuf>,
        /// Also the folders in a folder.
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
        /// Arguments of tcpdump; `-i any` without any.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Show everything: a cluster, policy, matrices, and the end. Nothing stays.
    Demo {
        #[command(flatten)]
        wish: WishFlags,
        /// Also write the last matrix as a page that a browser shows.
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
    /// Open a living cluster in the browser: traffic, what is denied and why. Everything is removed at the end (Ctrl-C). A
    /// lab of this name that runs already (made with --flows) is shown as it is, and stays.
    Ui {
        #[command(flatten)]
        wish: WishFlags,
        /// The port of 127.0.0.1 that the page is at; any free one without this flag.
        #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
        port: u16,
    },
    /// Play a walk-through on a real kube-apiserver and check each line of it. Nothing stays.
    Scenario {
        /// The scenario to play.
        #[arg(value_enum, ignore_case = true)]
        which: scenario::Which,
        /// Only the lines that need IP in IP, for a machine whose kernel has it.
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
        /// Its node; the next one in turn without this flag.
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

/// What the lab's own processes are started with.
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
    /// Carry connections from outside to the lab's datastore.
    Gate {
        #[arg(long)]
        folder: PathBuf,
    },
    /// Answer in a pod.
    Responder {
        #[arg(long)]
        name: String,
        #[arg(long, value_delimiter = ',')]
        ports: Vec<u16>,
    },
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// What a lab is to look like.
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
    /// How packets of pods travel between nodes [default: vxlan].
    #[arg(long, value_enum)]
    encap: Option<Encap>,
    /// Who carries routes between nodes; with BGP each subnet is a rack with a router of its own, and nothing is
    /// encapsulated unless --encap says so [default: none].
    #[arg(long, value_enum)]
    bgp: Option<Bgp>,
    /// How many Typhas stand between the datastore and the nodes; every agent follows one of them [default: 0].
    #[arg(long, value_name = "N")]
    typha: Option<usize>,
    /// Log flows to a Goldmane at the router, so that `lab ctl flows` and `lab ui` show who talked to whom.
    #[arg(long)]
    flows: bool,
    /// The packet filter [default: nftables].
    #[arg(long, value_enum)]
    dataplane: Option<Dataplane>,
    /// Where the data live [default: embedded].
    #[arg(long, value_enum)]
    datastore: Option<Datastore>,
    /// IPv6 only [default: IPv4 only].
    #[arg(long, conflicts_with = "dual_stack")]
    ipv6: bool,
    /// IPv4 and IPv6.
    #[arg(long)]
    dual_stack: bool,
    /// A topology file; flags win over it. docs/lab.md has its fields.
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
/// One sentence about what failed.
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
