//! Flows in the terminal: `calicoctl flows`, which is also `tortie flows`.
//!
//! ```text
//! Goldmane, a node's socket, a file ─► source ─► filter ─► print │ top │ stats │ recommend │ impact
//! ```
//!
//! - [`args`]: the flags. [`filter`]: which flows are wanted; [`push`]: the part of that which a server can do.
//! - [`source`]: where flows come from. [`json`]: flows as lines of JSON, there and back.
//! - [`losses`]: what is missing, said beside it.
//! - [`print`], [`top`], [`stats`]: what is shown.
//! - [`recommend`]: policies from recorded flows; [`impact`]: what a policy would change. Both ask `explain`, through
//!   [`question`].
//! - [`run`](mod@run): the shell, which only fetches and prints.
//!
//! It refuses to change anything: recommendations are text, and the cluster that impact is about comes in as a value.

pub mod args;
pub mod filter;
pub mod flow;
pub mod impact;
pub mod json;
pub mod losses;
pub mod print;
pub mod push;
pub mod question;
pub mod recommend;
pub mod run;
pub mod source;
pub mod stats;
pub mod text;
pub mod time;
pub mod top;

pub use args::FlowsArgs;
pub use flow::Flow;
pub use run::{Clusters, Failure, Shell, run};
