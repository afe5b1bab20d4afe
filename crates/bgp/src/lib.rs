//! Computes the intended BGP state of one node from the cluster's objects.
//!
//! ```text
//! nodes, pools, affinities, BGPConfiguration, BGPPeer, BGPFilter, services, secrets ─► BgpState
//!                                                                                         │
//!                                                                         Intent (one node, both families)
//!                                                                            │                    │
//!                                                            native speaker and its tables     files for BIRD
//! ```
//!
//! The [`Intent`] is all that a backend sees: selectors, defaults and references to other objects are resolved here, so
//! that both backends do the same. It is a function of the current objects alone, never of the order in which they
//! arrived.
//!
//! No IO, clock or async, and no knowledge of a backend's syntax or sockets.

mod apply;
mod calc;
mod convert;
mod convert_filter;
pub mod explain;
mod extras;
mod facts;
pub mod intent;
mod state;
#[cfg(test)]
mod tests;

mod values;

pub use convert::{service, slice};
pub use facts::{LocalPeer, ObjectName, Service, Settings, Slice, TrafficPolicy};
pub use intent::Intent;
pub use model::IpVersion;
pub use model::NodeName;
pub use state::{BgpState, NodeMissing};
pub use values::{
    AsNumber, ClusterId, Community, CommunityError, InterfacePattern, Password, Prefix, Priority, Secs,
};
