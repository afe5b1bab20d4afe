//! The pod's network: planned as data ([`plan`]), made and removed by netlink ([`apply`]), looked at again ([`check`]).

pub mod apply;
pub mod check;
mod inside;
pub mod plan;

pub use apply::{Ends, Pair, remove};
pub use check::check;
pub use plan::{Families, HOST_MAC, Plan};
