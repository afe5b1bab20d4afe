//! Scalars shared by several kinds: ports, protocols, addresses, durations, selectors, names.
//!
//! Each keeps what was written, so that reading and writing back changes nothing, and also offers the parsed value.
//! Validation decides whether a value is acceptable, never the decoder.

mod address;
mod duration;
mod int_or_string;
pub mod names;
mod number;
mod port;
mod protocol;
mod selector_text;

pub use address::{Cidr, Ip, IpOrCidr, MacAddr, Network};
pub use duration::{Duration, go_duration};
pub use int_or_string::IntOrString;
pub use number::{ASNumber, Dscp, GoFloat};
pub use port::Port;
pub use protocol::Protocol;
pub use selector_text::SelectorText;
