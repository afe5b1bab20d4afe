//! The node's dependencies on other components: the list of available components, and the CNI agent as one of the
//! node's services.

use anyhow::{Result, anyhow, bail};
use cni::HostPaths;
use node::Service;
use node::cli::{NodeCommand, OldCommand, Surroundings};
use std::process::ExitCode;

/// The components that this program can run as processes of the node.
const COMPONENTS: [&str; 3] = ["felix", "confd", "bgp"];

/// Runs a command of the node.
pub(crate) fn run(command: NodeCommand) -> Result<ExitCode> {
    let surroundings = Surroundings {
        calico_version: api::words::CALICO_VERSION,
        version: &calicoctl::client_version(),
        components: &COMPONENTS,
        services: Box::new(|context| vec![cni_agent(context)]),
    };
    node::cli::run(command, surroundings).map_err(|error| anyhow!(error))
}

/// Runs what the flags of older manifests request.
pub(crate) fn run_old(flags: &[String]) -> Result<ExitCode> {
    match node::cli::parse_old(flags)? {
        OldCommand::Node(command) => run(command),
        OldCommand::Help => crate::print(&node::cli::old_help()),
        OldCommand::Component("confd", flags) => run_old_confd(&flags),
        OldCommand::Component(name, _) => bail!("{name} is not part of this version yet"),
    }
}

/// Runs confd with the flags of older manifests, converted to the current ones.
fn run_old_confd(flags: &[String]) -> Result<ExitCode> {
    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        arguments: confd::cli::Arguments,
    }
    let words = std::iter::once("calico-node").chain(flags.iter().map(String::as_str));
    let flags: Flags = clap::Parser::try_parse_from(words)?;
    crate::run_confd(&flags.arguments)
}

/// The socket through which plugins pass their calls to this process.
fn cni_agent(context: &node::Context) -> Service {
    let context = context.clone();
    Service::new("cni-agent", |shutdown| {
        cni::alone(move || async move {
            let node = context.node_name().map_err(std::io::Error::other)?;
            tokio::select! {
                outcome = cni::run_agent(HostPaths::below(&context.root), &node, crate::variables()) => outcome,
                () = shutdown.requested() => Ok(()),
            }
        })
    })
}
