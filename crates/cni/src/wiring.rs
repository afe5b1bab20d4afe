//! The pod's network: planned as data ([`plan`]), created and removed by netlink ([`apply`]), verified ([`check`]).

pub(crate) mod apply;
pub(crate) mod check;
mod inside;
pub(crate) mod plan;

pub(crate) use apply::Ends;
pub use apply::{Pair, remove};
pub(crate) use check::check;
pub(crate) use plan::Families;
pub use plan::Plan;
