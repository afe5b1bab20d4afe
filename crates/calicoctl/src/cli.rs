//! The command tree, and the path from arguments to an exit code.
//!
//! Exit codes are Calico's: 0, or 1 for every failure, wrong usage included. With `--exit-code`, 1 means that there is
//! something to report, and failures are 2.

use crate::context::{Context, Globals, Surroundings};
use crate::failure::{Failure, Result};
use crate::{analyze, bgp, cluster, datastore, explain, flows, help, ipam, manual, node, resource, version};
use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

/// The calicoctl command line tool is used to manage Calico network and security policy, to view and manage endpoint
/// configuration, and to manage a Calico node instance.
#[derive(Parser)]
#[command(
    name = "calicoctl",
    disable_version_flag = true,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "The datastore is found through /etc/calico/calicoctl.cfg, or through the environment (DATASTORE_TYPE, \
                  ETCD_ENDPOINTS, KUBECONFIG, EMBEDDED_PATH and others) if there is no such file.\n\n\
                  Examples:\n  calicoctl get ippools -o wide\n  calicoctl apply -f policy.yaml\n  calicoctl diff -R -f ./policies"
)]
pub(crate) struct Arguments {
    /// The flags of every command.
    #[command(flatten)]
    pub globals: Globals,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Create resources from files; resources that already exist are refused.
    Create(Box<resource::write::CreateArgs>),
    /// Create or update resources from files, whichever is needed.
    Apply(Box<resource::write::ApplyArgs>),
    /// Update resources from files; resources that do not exist are refused.
    Replace(Box<resource::write::ReplaceArgs>),
    /// Delete resources, by type and name or as named in files.
    Delete(Box<resource::delete::DeleteArgs>),
    /// Show resources: all of a type, some by name, or those named in files.
    Get(Box<resource::get::GetArgs>),
    /// Show resources in readable form: rules as lines, the selected endpoints, and what uses them.
    Describe(Box<resource::describe::DescribeArgs>),
    /// Change a resource in an editor.
    Edit(Box<resource::edit::EditArgs>),
    /// Change some fields of a resource and leave the rest as it is.
    Patch(Box<resource::patch::PatchArgs>),
    /// Set, change or remove a label of a resource.
    Label(Box<resource::label::LabelArgs>),
    /// Check the resources of files, without a datastore.
    Validate(Box<resource::write::ValidateArgs>),
    /// Show what an apply would change, without changing it.
    Diff(Box<resource::diff::DiffArgs>),
    /// Rewrite files of older API versions, and policies of Kubernetes, in the current version.
    Convert(Box<resource::convert::ConvertArgs>),
    /// Explain why packets pass or not: which policy and rule decide.
    Explain(Box<explain::ExplainArgs>),
    /// Find rules that never match, selectors that select nothing, and unusable pools.
    Analyze(Box<analyze::AnalyzeArgs>),
    /// Show who talked to whom, and which policy allowed or denied it.
    Flows(Box<flows_cli::FlowsArgs>),
    /// Show BGP sessions and routes of all nodes.
    Bgp(Box<bgp::BgpArgs>),
    /// Inspect and manage how addresses are allocated.
    Ipam(Box<ipam::IpamArgs>),
    /// Manage the datastore: move its contents to another one, rename old policies.
    Datastore(Box<datastore::DatastoreArgs>),
    /// Manage the Calico node of this machine.
    Node(Box<node::NodeArgs>),
    /// Access cluster-wide information.
    Cluster(Box<cluster::ClusterArgs>),
    /// Display the version of this binary, and of the cluster.
    Version(version::VersionArgs),
    /// Print a script that completes commands and flags in a shell.
    Completion(manual::CompletionArgs),
    /// Write the manual pages, one per command.
    Man(manual::ManArgs),
}

/// Runs a parsed command.
///
/// # Errors
/// The failure of the command.
pub(crate) async fn dispatch(command: Command, context: &mut Context) -> Result<()> {
    match command {
        Command::Create(args) => resource::write::create(&args, context).await,
        Command::Apply(args) => resource::write::apply(&args, context).await,
        Command::Replace(args) => resource::write::replace(&args, context).await,
        Command::Delete(args) => resource::delete::run(&args, context).await,
        Command::Get(args) => resource::get::run(&args, context).await,
        Command::Describe(args) => resource::describe::run(&args, context).await,
        Command::Edit(args) => resource::edit::run(&args, context).await,
        Command::Patch(args) => resource::patch::run(&args, context).await,
        Command::Label(args) => resource::label::run(&args, context).await,
        Command::Validate(args) => resource::write::validate(&args, context),
        Command::Diff(args) => resource::diff::run(&args, context).await,
        Command::Convert(args) => resource::convert::run(&args, context),
        Command::Explain(args) => explain::run(&args, context).await,
        Command::Analyze(args) => analyze::run(&args, context).await,
        Command::Flows(args) => flows::run(&args, context).await,
        Command::Bgp(args) => bgp::run(&args, context).await,
        Command::Ipam(args) => ipam::run(&args, context).await,
        Command::Datastore(args) => datastore::run(&args, context).await,
        Command::Node(args) => node::run(&args, context).await,
        Command::Cluster(args) => cluster::run(&args, context).await,
        Command::Version(args) => version::run(&args, context).await,
        Command::Completion(args) => manual::completion(&args, context),
        Command::Man(args) => manual::pages(&args, context),
    }
}

/// The exit code of failures in commands where 1 has another meaning.
pub(crate) const FAILED_WITH_EXIT_CODE: u8 = 2;

/// Runs one command line and returns its exit code.
#[must_use]
pub fn run(arguments: &[OsString], mut surroundings: Surroundings) -> ExitCode {
    let command = tree(program_name(arguments));
    let has_exit_codes = arguments.iter().any(|argument| argument == "--exit-code");
    let parsed =
        command.try_get_matches_from(arguments).and_then(|matches| Arguments::from_arg_matches(&matches));
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error, has_exit_codes, &mut surroundings),
    };
    // Messages and the log share one stream, so that they do not interleave.
    let stderr =
        Shared(Arc::new(Mutex::new(std::mem::replace(&mut surroundings.stderr, Box::new(io::sink())))));
    surroundings.stderr = Box::new(stderr.clone());
    let mut context = Context { surroundings, globals: arguments.globals };
    let outcome = start(arguments.command, &mut context, stderr);
    // The exit code may claim success only after the output has been flushed.
    let flushed = context.surroundings.stdout.flush();
    let outcome = outcome.and_then(|()| match flushed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message().is_empty() {
                context.warn(failure.message());
            }
            failure.code()
        }
    }
}

/// The command tree under the name that the program was started by.
#[must_use]
pub fn tree(program: &'static str) -> clap::Command {
    let command = Arguments::command().name(program).bin_name(program);
    // In a command that selects by labels, `-l` is kubectl's label selector; the log level has only its long name
    // there.
    let level = command.get_arguments().find(|argument| argument.get_id() == "log_level").cloned();
    let Some(level) = level.map(|level| level.short(None)) else { return command };
    command.mut_subcommands(|below| {
        let selects = below.get_arguments().any(|argument| argument.get_id() == "selector");
        if selects { below.arg(level.clone()) } else { below }
    })
}

fn program_name(arguments: &[OsString]) -> &'static str {
    let name = arguments.first().and_then(|path| Path::new(path).file_name()).and_then(|name| name.to_str());
    // As a kubectl plugin the program has a file name that no user types.
    match name {
        Some("kubectl-calico") => "kubectl-calico",
        _ => "calicoctl",
    }
}

fn usage(error: &clap::Error, has_exit_codes: bool, surroundings: &mut Surroundings) -> ExitCode {
    let is_help = matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    let mut text = error.render().to_string();
    if let (true, Some(width)) = (is_help, surroundings.width) {
        text = help::wrap(&text, width);
    }
    let stream = if is_help { &mut surroundings.stdout } else { &mut surroundings.stderr };
    // If the stream is gone, the failure cannot be reported anywhere.
    let _ = stream.write_all(text.as_bytes()).and_then(|()| stream.flush());
    match (is_help, has_exit_codes) {
        (true, _) => ExitCode::SUCCESS,
        (false, true) => ExitCode::from(FAILED_WITH_EXIT_CODE),
        (false, false) => ExitCode::FAILURE,
    }
}

fn start(command: Command, context: &mut Context, log: Shared) -> Result<()> {
    let level = log_level(&context.globals.log_level)?;
    // One thread: a command waits for answers and computes little, and its log stays in order.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _guard = level
        .map(|level| tracing::subscriber::set_default(daemon::log::subscriber(level, move || log.clone())));
    runtime.block_on(dispatch(command, context))
}

/// Parses Calico's names of log levels; the first two are more severe than anything that we log.
fn log_level(name: &str) -> Result<Option<daemon::log::LevelFilter>> {
    if ["panic", "fatal"].iter().any(|severe| name.eq_ignore_ascii_case(severe)) {
        return Ok(None);
    }
    daemon::log::level(name).map(Some).ok_or_else(|| {
        Failure::new(format!(
            "unknown log level: {name}, expected one of: panic, fatal, error, warn, info, debug"
        ))
    })
}

/// A stream with several writers.
#[derive(Clone)]
struct Shared(Arc<Mutex<Box<dyn Write + Send>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_tree_is_consistent() {
        tree("calicoctl").debug_assert();
    }
}
