//! The command line.

use crate::maps::{Failure, Maps};
use crate::{arp, conntrack, counters, interfaces, nat, policy, profiling, routes, sets, watch};
use bpf::layout::{V4, V6};
use clap::{Parser, Subcommand};
use std::io::Write;

/// tool for interrogating Calico BPF state
#[derive(Clone, Debug, Parser)]
#[command(name = "calico-bpf", disable_version_flag = true)]
pub struct Arguments {
    /// Use IPv6 instead of IPv4
    #[arg(long, short = '6', global = true)]
    ipv6: bool,
    /// Output in JSON format
    #[arg(long, short = 'j', global = true)]
    json: bool,
    /// Without effect: this command does not log
    #[arg(long, global = true, hide = true)]
    log_level: Option<String>,
    /// Without effect, as in Calico: there is nothing to configure
    #[arg(long, global = true, hide = true)]
    config: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// Manipulates arp
    #[command(subcommand)]
    Arp(arp::Command),
    /// Removes all calico-bpf programs and maps
    Cleanup,
    /// Manipulates connect-time load balancing programs
    ConnectTime {
        #[command(subcommand)]
        command: ConnectTime,
    },
    /// Manipulates connection tracking
    #[command(subcommand)]
    Conntrack(conntrack::Command),
    /// Show and reset counters
    #[command(subcommand)]
    Counters(counters::Command),
    /// Manipulates ifstate
    #[command(subcommand)]
    Ifstate(interfaces::Command),
    /// Manipulates ipsets
    #[command(subcommand)]
    Ipsets(sets::Command),
    /// Manipulates network address translation (nat)
    #[command(subcommand)]
    Nat(nat::Command),
    /// Dump policy attached to interface
    #[command(subcommand)]
    Policy(policy::Command),
    /// Show and reset profiling data
    #[command(subcommand)]
    Profiling(profiling::Command),
    /// Manipulates routes
    #[command(subcommand)]
    Routes(routes::Command),
    /// Prints the version and exits
    Version,
    /// Shows packets as they are dropped, with interface, reason and rule
    Watch(watch::Command),
}

#[derive(Clone, Debug, Subcommand)]
enum ConnectTime {
    /// removes connect-time BPF programs
    Clean,
}

/// Runs a command; `version` is this program's.
///
/// # Errors
/// When a map does not exist, the kernel refuses, or an argument is invalid.
pub fn run(
    arguments: &Arguments,
    version: &str,
    maps: &mut dyn Maps,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let json = arguments.json;
    macro_rules! of_family {
        ($module:ident, $($argument:expr),*) => {
            if arguments.ipv6 { $module::run::<V6>($($argument),*) } else { $module::run::<V4>($($argument),*) }
        };
    }
    match &arguments.command {
        Command::Arp(command) => of_family!(arp, command, json, maps, out),
        Command::Cleanup => maps.detach(false),
        Command::ConnectTime { command: ConnectTime::Clean } => maps.detach(true),
        Command::Conntrack(command) => of_family!(conntrack, command, json, maps, out),
        Command::Counters(command) => counters::run(command, json, maps, out),
        Command::Ifstate(interfaces::Command::Dump) => interfaces::run(json, maps, out),
        Command::Ipsets(sets::Command::Dump) => of_family!(sets, json, maps, out),
        Command::Nat(command) => of_family!(nat, command, json, maps, out),
        Command::Policy(command) => policy::run(command, if arguments.ipv6 { 6 } else { 4 }, maps, out),
        Command::Profiling(command) => profiling::run(command, json, maps, out),
        Command::Routes(command) => of_family!(routes, command, json, maps, out),
        Command::Version => Ok(writeln!(out, "Version:            {version}")?),
        Command::Watch(command) => watch::run(command, json, maps, out),
    }
}
