//! The node's commands: `component node NAME` of today's manifests, and the flags of `calico-node` of older ones.
//!
//! Both spell the same [`NodeCommand`]; what a command does is elsewhere. It refuses flags that it does not know: a probe
//! that silently checks nothing would be worse than one that fails.

mod old;

pub use old::{OldCommand, OldError, help as old_help, parse as parse_old};

use crate::context::Context;
use crate::health::{self, Checks};
use crate::services::{self, Service};
use crate::{address_monitor, condition, flows, hostpath, privileged, shutdown, startup, status, supervise};
use crate::{token_monitor, tunnel};
use clap::{Args, Subcommand};
use daemon::Shutdown;
use daemon::exit::print;
use daemon::log::Log;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

/// A command of the node.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum NodeCommand {
    /// Start the node and keep all its parts running.
    Run,
    /// Do what only a privileged container can: mount the file systems that BPF needs.
    Init {
        /// Tell failures, but go on and succeed.
        #[arg(long)]
        best_effort: bool,
    },
    /// Register this node in the datastore, with its addresses, pools and settings.
    Startup {
        /// Also mark the node's network as available.
        #[arg(long)]
        complete_startup: bool,
    },
    /// Tell the cluster that this node is going down.
    Shutdown,
    /// Run everything beside Felix and BGP: condition, tunnel addresses, status, addresses, CNI token and agent.
    NodeServices,
    /// Be there under this name, for tools that look for such a process; the speaker answers for it.
    #[command(hide = true)]
    Bird6,
    /// Keep the node's addresses in the datastore right.
    MonitorAddresses,
    /// Give the node's tunnel devices their addresses.
    AllocateTunnelAddrs {
        /// Do it once and end.
        #[arg(long)]
        run_once: bool,
    },
    /// Keep the CNI plugin's kubeconfig fresh.
    MonitorToken,
    /// Mark the node's network as available once it is ready.
    CompleteStartup,
    /// Make the folders of a node that does not run as root.
    HostpathInit,
    /// Check that parts of the node are live or ready.
    Health(HealthArgs),
    /// The node's BGP status.
    Status {
        /// What to do with it.
        #[command(subcommand)]
        command: StatusCommand,
    },
    /// Print what the kernel holds, without helper programs.
    Dump {
        /// What to print.
        what: DumpWhat,
    },
    /// Look at the maps of the eBPF dataplane: conntrack, nat, routes, counters and more; `node bpf -- --help` has the list.
    Bpf {
        /// What to look at.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Show the node's flows as they come (needs FlowLogsLocalReporter).
    Flows {
        /// How many flows; negative to watch.
        #[arg(long, short = 'n', allow_negative_numbers = true)]
        num: i64,
    },
    /// Print the version.
    Version,
}

/// What to print of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DumpWhat {
    /// Devices.
    Link,
    /// Addresses.
    Addr,
    /// IPv4 routes of all tables.
    Route,
    /// IPv6 routes of all tables.
    Route6,
    /// Rules of policy routing.
    Rule,
    /// Neighbours and forwarding tables.
    Neigh,
    /// Queueing disciplines.
    Qdisc,
    /// IP sets with their members.
    Ipset,
    /// Tables of nftables, with chains, sets and the comments of rules.
    Nft,
    /// Connections.
    Conntrack,
    /// The logs of the CNI plugin.
    CniLogs,
}

/// What to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
pub struct HealthArgs {
    /// Run felix liveness checks.
    #[arg(long)]
    pub felix_live: bool,
    /// Run felix readiness checks.
    #[arg(long)]
    pub felix_ready: bool,
    /// Run BIRD liveness checks.
    #[arg(long)]
    pub bird_live: bool,
    /// Run BIRD readiness checks.
    #[arg(long)]
    pub bird_ready: bool,
    /// Run BIRD6 liveness checks.
    #[arg(long)]
    pub bird6_live: bool,
    /// Run BIRD6 readiness checks.
    #[arg(long)]
    pub bird6_ready: bool,
    /// How long after a start all BGP sessions must be up.
    #[arg(long, value_parser = duration, default_value = "30s")]
    pub threshold_time: Duration,
}

/// What to do with the node's BGP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub enum StatusCommand {
    /// Answer the cluster's CalicoNodeStatus resources.
    Report,
    /// Print it.
    Show,
}

/// A duration as Go writes it.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    api::scalars::Duration::from(text).parse()
}

/// Makes the services of other components.
pub type OtherServices<'a> = Box<dyn FnOnce(&Context) -> Vec<Service> + 'a>;

/// What this program brings for the node's commands.
pub struct Surroundings<'a> {
    /// The version of Calico that this program is, for the datastore.
    pub calico_version: &'a str,
    /// The version that is printed.
    pub version: &'a str,
    /// The names of components that this program can be.
    pub components: &'a [&'a str],
    /// Services of other components for `node-services`.
    pub services: OtherServices<'a>,
}

/// Why a command failed.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Runs a command of this process.
///
/// # Errors
/// What the command failed with.
pub fn run(command: NodeCommand, surroundings: Surroundings<'_>) -> Result<ExitCode, Failure> {
    if command == NodeCommand::Version {
        return Ok(print(&format!("{}\n", surroundings.version))?);
    }
    if let NodeCommand::Bpf { arguments } = &command {
        return look_at_maps(arguments, surroundings.version);
    }
    if let NodeCommand::Flows { num } = command {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        return runtime.block_on(show_flows(num));
    }
    if let NodeCommand::Dump { what } = command {
        return Ok(print(&crate::dump::dump(what, std::path::Path::new("/"))?)?);
    }
    if matches!(command, NodeCommand::NodeServices | NodeCommand::Bird6) {
        supervise::end_with_supervisor()?;
    }
    if command == NodeCommand::Bird6 {
        // A signal ends it.
        loop {
            std::thread::park();
        }
    }
    let context = match Context::of_process(surroundings.calico_version) {
        Ok(context) => context,
        // A probe's output is what people see of it.
        Err(error) if matches!(command, NodeCommand::Health(_)) => return unhealthy(&[error.to_string()]),
        Err(error) => return Err(error.into()),
    };
    let _log = Log::start(context.settings.log_level);
    match command {
        NodeCommand::Run => {
            supervise::run(&context, surroundings.components)?;
            Ok(ExitCode::SUCCESS)
        }
        NodeCommand::Init { best_effort } => match privileged::run(&context, best_effort) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(error) => {
                tracing::error!(%error, "not initialised");
                Ok(ExitCode::from(error.exit_code))
            }
        },
        NodeCommand::HostpathInit => {
            hostpath::run(&context)?;
            Ok(ExitCode::SUCCESS)
        }
        NodeCommand::NodeServices => {
            // Small tasks that mostly wait. Several threads would wake each other with every packet that arrives.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let others = (surroundings.services)(&context);
                services::run(&context, others).await
            })?;
            Ok(ExitCode::SUCCESS)
        }
        command => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(run_one(command, &context))
        }
    }
}

async fn run_one(command: NodeCommand, context: &Context) -> Result<ExitCode, Failure> {
    // These end when they are done, or by a signal, which may end them anywhere.
    let never = Shutdown::never();
    match command {
        NodeCommand::Startup { complete_startup } => {
            startup::run(context).await?;
            if complete_startup {
                condition::mark_available(context).await?;
            }
        }
        NodeCommand::Shutdown => shutdown::run(context).await?,
        NodeCommand::MonitorAddresses => address_monitor::run(context, never).await?,
        NodeCommand::AllocateTunnelAddrs { run_once: true } => tunnel::run_once(context).await?,
        NodeCommand::AllocateTunnelAddrs { run_once: false } => tunnel::run(context, never).await?,
        NodeCommand::MonitorToken => token_monitor::run(context, never).await?,
        NodeCommand::CompleteStartup => condition::manage(context, condition::READY_PATIENCE, never).await?,
        NodeCommand::Health(args) => {
            let checks = Checks {
                felix_live: args.felix_live,
                felix_ready: args.felix_ready,
                bird_live: args.bird_live,
                bird6_live: args.bird6_live,
                bird_ready: args.bird_ready,
                bird6_ready: args.bird6_ready,
            };
            if let Err(wrong) = health::check(context, checks, args.threshold_time).await {
                return unhealthy(&wrong);
            }
        }
        NodeCommand::Status { command: StatusCommand::Report } => status::run(context, never).await?,
        NodeCommand::Status { command: StatusCommand::Show } => {
            return Ok(print(&status::show(context).await)?);
        }
        // Run above, without a runtime of one thread.
        NodeCommand::Run
        | NodeCommand::Init { .. }
        | NodeCommand::NodeServices
        | NodeCommand::Bird6
        | NodeCommand::HostpathInit
        | NodeCommand::Dump { .. }
        | NodeCommand::Bpf { .. }
        | NodeCommand::Flows { .. }
        | NodeCommand::Version => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a command of `calico-bpf`; how to use it goes to standard error, or to standard output where it was asked for.
fn look_at_maps(arguments: &[String], version: &str) -> Result<ExitCode, Failure> {
    let words = std::iter::once("calico-bpf").chain(arguments.iter().map(String::as_str));
    let arguments = match <bpf_cli::Arguments as clap::Parser>::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => {
            error.print()?;
            return Ok(if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS });
        }
    };
    let mut maps = bpf_cli::Pinned::of_machine();
    bpf_cli::run(&arguments, version, &mut maps, &mut std::io::stdout())?;
    Ok(ExitCode::SUCCESS)
}

/// Shows flows until there are enough, or a signal ends it.
async fn show_flows(count: i64) -> Result<ExitCode, Failure> {
    let shutdown = daemon::signals::shutdown()?;
    let socket = std::path::Path::new(::flows::local::SOCKET);
    flows::show(socket, count, &mut std::io::stdout(), shutdown).await?;
    Ok(ExitCode::SUCCESS)
}

/// Tells what is wrong where probes look for it: on standard output.
fn unhealthy(wrong: &[String]) -> Result<ExitCode, Failure> {
    print(&format!("{}\n", wrong.join("\n")))?;
    Ok(ExitCode::FAILURE)
}
