//! `calicoctl`: the command line tool that scripts and people already use, with Calico's commands, flags, tables,
//! messages and exit codes.
//!
//! - [`cli`]: the tree of commands and their flags.
//! - [`context`]: what every command gets: streams, configuration, a connected client within a deadline.
//! - [`kinds`], [`files`], [`output`]: what the commands on resources share.
//! - one module per family of commands; each has its arguments and a `run`.
//!
//! Every failure ends with a message on standard error and exit code 1; success is 0. Only a flag that documents it
//! (`--exit-code`) uses other codes. Nothing secret is ever printed: configuration is shown by the names of its settings,
//! never by value.

pub mod analyze;
pub mod archive;
pub mod bgp;
pub mod cli;
pub mod cluster;
pub mod context;
pub mod datastore;
pub mod duration;
pub mod explain;
pub mod failure;
pub mod files;
pub mod flows;
pub mod help;
pub mod ipam;
pub mod kinds;
pub mod manual;
pub mod node;
pub mod output;
pub mod paint;
pub mod programs;
pub mod resource;
pub mod version;
pub mod version_gate;

pub use cli::run;
