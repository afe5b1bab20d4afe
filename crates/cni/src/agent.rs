//! Work through the node's agent: the plugin hands its call to a long-running process over a root-only socket.
//!
//! The same library code runs in both places ([`execute`](crate::run::execute)). In the agent the connection to the
//! datastore and the host's blocks are warm, concurrent calls share one write, and the plugin needs no credentials.

pub(crate) mod client;
mod opening;
pub(crate) mod protocol;
pub(crate) mod scope;
pub(crate) mod server;
pub(crate) mod thread;

pub use opening::run;
pub use server::{AgentState, bind, serve};
pub use thread::alone;
