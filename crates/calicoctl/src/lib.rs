//! `calicoctl`: the command line tool that scripts and users already know, with Calico's commands, flags, tables,
//! messages and exit codes.
//!
//! - [`cli`]: the command tree and its flags.
//! - [`context`]: what every command needs: streams, configuration, a client connected within a deadline.
//! - [`kinds`], [`files`], [`output`]: shared by the commands on resources.
//! - one module per family of commands; each has its arguments and a `run`.
//!
//! Every failure ends with a message on standard error and exit code 1; success is 0. Only a flag that documents it
//! (`--exit-code`) uses other codes. Secrets are never printed: configuration is shown by the names of its settings,
//! never by value.

mod analyze;
mod archive;
mod bgp;
mod cli;
mod cluster;
mod context;
mod datastore;
mod duration;
mod explain;
mod failure;
mod files;
mod flows;
mod help;
mod ipam;
mod kinds;
mod manual;
mod node;
mod output;
mod paint;
mod programs;
mod resource;
mod version;
mod version_gate;

pub use cli::{run, tree};
pub use context::Surroundings;
pub use help::wrap as wrap_help;
pub use manual::manual;
pub use version::client_version;

/// Items that only the tests and benchmarks of this crate may use.
#[doc(hidden)]
pub mod for_tests {
    pub use crate::cluster::DiagsArgs;
    pub use crate::cluster::diags::run as cluster_diags;
    pub use crate::context::{ConfigFlag, Context, Globals};
    pub use crate::kinds::{KINDS, KindEntry, Settings};
    pub use crate::node::diags::collect as node_diags;
    pub use crate::output::{Answer, Format};
    pub use crate::version::GIT_COMMIT;
    pub mod bundle {
        pub use crate::datastore::bundle::{Bundle, KINDS, read};
    }
    pub mod checksystem {
        pub use crate::node::checksystem::{Host, check};
    }
    pub mod sameness {
        pub use crate::datastore::sameness::{essence, status};
    }
    pub mod status {
        pub use crate::node::status::{Host, report};
    }
}
