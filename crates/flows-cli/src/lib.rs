//! Flows in the terminal: `calicoctl flows`, which is also `tortie flows`.
//!
//! ```text
//! Goldmane, a node's socket, a file ─► source ─► filter ─► print │ top │ stats │ recommend │ impact
//! ```
//!
//! - [`args`]: the flags. [`filter`]: which flows are selected; [`push`]: the part of the filter that a server can
//!   apply.
//! - [`source`]: where flows come from. [`json`]: reading and writing flows as lines of JSON.
//! - [`losses`]: reports what is missing, beside the flows.
//! - [`print`], [`top`], [`stats`]: the output.
//! - [`recommend`]: policies from recorded flows; [`impact`]: what a policy would change. Both query `explain`, through
//!   [`question`].
//! - [`run`](mod@run): the shell, which only fetches and prints.
//!
//! Never changes anything: recommendations are text, and the cluster for `impact` is passed in as a value.

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
