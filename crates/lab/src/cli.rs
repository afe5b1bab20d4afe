//! The commands of `tortie lab`. Flags become wishes; what is done is elsewhere.
//!
//! Commands that use a lab of an ordinary user join its namespaces first, while this process has one thread.

use crate::lab::{self, Lab};
use crate::matrix::Columns;
use crate::probe::Protocol;
use crate::screen::Screen;
use crate::state::{Folder, lab_names};
use crate::topology::{Dataplane, Datastore, Encap, Families, PodWish, Wish, parse_labels, plan, plan_pod};
use crate::{demo, html, inside, keeper, measure, pods, responder, scenario, servers, topology_file};
use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// A cluster of network namespaces on this machine.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The lab's name: several can be there at once.
    #[arg(long, global = true, env = "TORTIE_LAB", default_value = "lab", value_name = "NAME")]
    lab: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a lab: nodes, datastore, pods.
    Up {
        #[command(flatten)]
        wish: WishFlags,
        /// Say nothing unless it fails.
        #[arg(long, short)]
        quiet: bool,
    },
    /// Remove a lab, running or killed, with everything in it.
    Down {
        /// All labs of this user.
        #[arg(long)]
        all: bool,
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
        /// The file, or `-`.
        #[arg(long, short)]
        filename: PathBuf,
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
    /// Play a walk-through on a real kube-apiserver and check each line of it. Nothing stays.
    Scenario {
        /// Which one.
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
    /// How many nodes.
    #[arg(long, value_name = "N")]
    nodes: Option<usize>,
    /// How many pods, in several namespaces.
    #[arg(long, value_name = "N")]
    pods: Option<usize>,
    /// How many subnets the nodes are in.
    #[arg(long, value_name = "N")]
    subnets: Option<usize>,
    /// How packets of pods travel between nodes.
    #[arg(long, value_enum)]
    encap: Option<Encap>,
    /// The packet filter.
    #[arg(long, value_enum)]
    dataplane: Option<Dataplane>,
    /// Where the data live.
    #[arg(long, value_enum)]
    datastore: Option<Datastore>,
    /// IPv6 only.
    #[arg(long, conflicts_with = "dual_stack")]
    ipv6: bool,
    /// IPv4 and IPv6.
    #[arg(long)]
    dual_stack: bool,
    /// A topology file; flags win over it.
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl WishFlags {
    fn wish(&self) -> Result<Wish> {
        let mut wish = match &self.file {
            Some(path) => topology_file::read(&read_file(path)?)?,
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
    let name = arguments.lab.as_str();
    let mut screen = Screen::stdout();
    match arguments.command {
        Command::Up { wish, quiet } => {
            let topology = plan(name, &wish.wish()?)?;
            let mut screen = screen.quiet(quiet);
            let lab = Lab::up(topology, true, &mut screen)?;
            screen.say(&format!(
                "lab '{name}' is up: try `tortie lab matrix`, `tortie lab exec {} -- ip route`, `tortie lab down`",
                lab.topology().nodes[0].name
            ));
            Ok(ExitCode::SUCCESS)
        }
        Command::Down { all } => down(name, all, &mut screen),
        Command::Status { output } => status(name, output, &mut screen),
        Command::Exec { place, words } => {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            become_child(name, &place, &words)
        }
        Command::Pod { command } => pod(name, command, &mut screen),
        Command::Matrix { ports, protocol, output, html, patience } => {
            let columns = Columns { ports, protocols: protocol };
            let page = html.as_deref().map(std::path::absolute).transpose()?;
            matrix(name, &columns, output, page.as_deref(), Duration::from_secs(patience), &mut screen)
        }
        Command::Apply { filename } => {
            let text = read_file(&filename)?;
            let told = Lab::open(name)?.apply(&text)?;
            screen.print(&told);
            Ok(ExitCode::SUCCESS)
        }
        Command::Ctl { words } => {
            let program = inside::node_program();
            let mut all = vec![program.as_str(), "ctl"];
            all.extend(words.iter().map(String::as_str));
            become_child(name, lab::ROUTER, &all)
        }
        Command::Tcpdump { place, words } => {
            let program = servers::find_program("tcpdump", "install Debian's tcpdump")?.display().to_string();
            let mut all = vec![program.as_str()];
            if words.is_empty() {
                all.extend(["-n", "-i", "any"]);
            }
            all.extend(words.iter().map(String::as_str));
            become_child(name, &place, &all)
        }
        Command::Demo { wish, html } => {
            let page = html.as_deref().map(std::path::absolute).transpose()?;
            demo::run(&wish.wish()?, page.as_deref(), &mut screen)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Scenario { which, only_ipip } => {
            let lines = if only_ipip { scenario::Lines::OnlyIpip } else { scenario::Lines::All };
            scenario::run(which, lines, &mut screen)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Internal { command } => internal(command),
    }
}

fn internal(command: Internal) -> Result<ExitCode> {
    match command {
        Internal::Keeper { folder } => keeper::run(&folder)?,
        Internal::Inside { folder, netns, place, parent, words } => {
            match inside::run(&folder, &netns, place.as_deref(), parent, &words)? {}
        }
        Internal::Responder { name, ports } => responder::run(&name, &ports)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn down(name: &str, all: bool, screen: &mut Screen) -> Result<ExitCode> {
    let names = if all { lab_names()? } else { vec![name.to_owned()] };
    for name in names {
        lab::down(&name)?;
        screen.done(&format!("lab '{name}' is removed"));
    }
    Ok(ExitCode::SUCCESS)
}

fn status(name: &str, output: Format, screen: &mut Screen) -> Result<ExitCode> {
    let lab = match Lab::open(name) {
        Ok(lab) => lab,
        Err(error) => {
            let others: Vec<String> = lab_names()?.into_iter().filter(|other| other != name).collect();
            if Folder::of(name)?.exists() || others.is_empty() {
                return Err(error);
            }
            bail!("{error:#}; choose one with --lab");
        }
    };
    let programs = lab.programs()?;
    let state = lab.state();
    if output == Format::Json {
        let programs: serde_json::Map<String, serde_json::Value> = programs
            .into_iter()
            .map(|(name, program)| {
                let value = match program {
                    Ok(pid) => json!({"pid": pid}),
                    Err(how) => json!({"ended": how}),
                };
                (name, value)
            })
            .collect();
        let mut value = serde_json::to_value(state)?;
        value["programs"] = programs.into();
        value["keeper"] = lab.keeper_pid().into();
        screen.print(&format!("{}\n", serde_json::to_string_pretty(&value)?));
        return Ok(ExitCode::SUCCESS);
    }
    let topology = &state.topology;
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "lab {}: encap {}, dataplane {}, datastore {}{}",
        topology.name,
        word(&topology.encap),
        word(&topology.dataplane),
        word(&topology.datastore),
        if state.ready { "" } else { " (it did not come up whole)" }
    );
    let mut sound = state.ready;
    for node in &topology.nodes {
        let ready = lab.is_ready(node)?;
        sound &= ready;
        let addresses: Vec<String> =
            [node.v4, node.v6].into_iter().flatten().map(|address| address.to_string()).collect();
        let _ = writeln!(
            out,
            "  {:14} {:9} subnet {}  {}",
            node.name,
            if ready { "ready" } else { "not ready" },
            node.subnet,
            addresses.join(" ")
        );
        for pod in state.pods.values().filter(|pod| pod.pod.node == node.name) {
            let addresses: Vec<String> = pod.addresses.iter().map(ToString::to_string).collect();
            let labels: Vec<String> =
                pod.pod.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let _ =
                writeln!(out, "    {:22} {}  {}", pod.pod.full_name(), addresses.join(" "), labels.join(","));
        }
    }
    for (name, how) in programs.iter().filter_map(|(name, program)| Some((name, program.as_ref().err()?))) {
        sound = false;
        let _ = writeln!(out, "  {name} ended: {how}");
    }
    screen.print(&out);
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The word by which a choice is known on the command line.
fn word(choice: &impl ValueEnum) -> String {
    choice.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn pod(name: &str, command: PodCommand, screen: &mut Screen) -> Result<ExitCode> {
    let full = |name: &str| match name.split_once('/') {
        Some((namespace, name)) => (namespace.to_owned(), name.to_owned()),
        None => ("default".to_owned(), name.to_owned()),
    };
    match command {
        PodCommand::Add { name: pod, node, labels, ports } => {
            let (namespace, pod) = full(&pod);
            let labels = parse_labels(&labels)?;
            let wish = PodWish { name: pod, namespace: Some(namespace), node, labels, ports };
            let mut lab = Lab::open(name)?;
            let planned = plan_pod(&wish, &lab.topology().nodes, lab.state().pods.len())?;
            let full_name = planned.full_name();
            pods::add(&mut lab, vec![planned])?;
            let added = &lab.state().pods[&full_name];
            let addresses: Vec<String> = added.addresses.iter().map(ToString::to_string).collect();
            screen.done(&format!("{full_name} is on {} with {}", added.pod.node, addresses.join(" and ")));
        }
        PodCommand::Del { name: pod } => {
            let (namespace, pod) = full(&pod);
            let mut lab = Lab::open(name)?;
            pods::remove(&mut lab, &format!("{namespace}/{pod}"))?;
            screen.done(&format!("{namespace}/{pod} is removed"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn matrix(
    name: &str,
    columns: &Columns,
    output: Format,
    page: Option<&Path>,
    patience: Duration,
    screen: &mut Screen,
) -> Result<ExitCode> {
    let lab = Lab::open(name)?;
    let matrix = measure::matrix(&lab, columns, patience)?;
    if let Some(path) = page {
        std::fs::write(path, html::page("Who reaches whom", html::facts(&lab.state.topology), &matrix))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    let colours = screen.colours();
    screen.print(&match output {
        Format::Text => matrix.to_text(colours),
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&matrix)?),
    });
    Ok(if matrix.agrees() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs a program in a place with this process's own streams, and ends as it ends.
fn become_child(name: &str, place: &str, words: &[&str]) -> Result<ExitCode> {
    let lab = Lab::open(name)?;
    let mut command = lab.place(place)?.command(&lab.environment(), words);
    // Others may use the lab meanwhile.
    drop(lab);
    let status =
        command.status().with_context(|| format!("starting {}", words.first().unwrap_or(&"nothing")))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

fn read_file(path: &Path) -> Result<String> {
    if path == Path::new("-") {
        return std::io::read_to_string(std::io::stdin()).context("reading standard input");
    }
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}
