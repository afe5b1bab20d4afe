//! Felix's configuration: every parameter in one table, read from five sources of rising priority.
//!
//! ```text
//!  default < datastore (global) < datastore (node selector) < datastore (this node) < file < environment
//!      table ─► Sources ─► resolve ─► Effective { Config (typed), raw texts, notices }
//!      feed ─► FeedSettings ─┘             └─► Change: none, live, or restart
//! ```
//!
//! - [`table`]: [`Config`] and [`PARAMETERS`], declared together, row by row.
//! - [`kinds`]: how each kind of value is parsed, with Calico's rules and messages.
//! - [`sources`], [`environment`], [`file`]: where texts come from.
//! - [`resolve`](mod@resolve): picks the winning texts and parses them; a mistake is reported in a notice or is an
//!   error.
//! - [`resource`]: the settings in a FelixConfiguration, as texts.
//! - [`feed`]: the datastore's part, from a feed, with configurations for selected nodes.
//! - [`change`], [`derived`]: what follows from a configuration.
//!
//! Does not read files, the environment or the clock itself: the caller provides their contents.

pub mod change;
pub mod choices;
pub mod derived;
mod docs;
pub mod environment;
pub mod feed;
pub mod file;
mod go_numbers;
pub mod kinds;
mod parameter;
pub mod resolve;
pub mod resolver;
pub mod resource;
pub mod sources;
pub mod table;
pub mod values;

pub use change::Change;
pub use docs::reference_page;
pub use feed::{DatastoreSettings, FeedSettings};
pub use kinds::Surroundings;
pub use parameter::{Effect, Parameter, without_bpf, without_effect};
pub use resolve::{ConfigError, Effective, Notice, resolve};
pub use resolver::{ConfigNews, ConfigResolver};
pub use sources::{Source, Sources};
pub use table::{Config, PARAMETERS};
pub use values::{Interval, Pattern, PortProtocol, PortRange, ProtoPort, RouteTableRange};
