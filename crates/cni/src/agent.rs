//! Work through the node's agent: the plugin hands its call to a long-running process by a root-only socket.
//!
//! The same library code runs in both places ([`crate::execute`]). Through the agent the connection to the datastore and
//! the host's blocks are warm, calls that wait at once share one write, and the plugin needs no credentials.

pub mod client;
mod opening;
pub mod protocol;
pub mod scope;
pub mod server;
pub mod thread;

pub use opening::run;
pub use server::{AgentState, bind, serve};
pub use thread::alone;
