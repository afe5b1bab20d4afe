//! The resources, one module per kind or close family, all re-exported flat.

mod blockaffinity;
mod hostendpoint;
mod ipamblock;
mod ipamconfiguration;
mod ipamhandle;
mod ippool;
mod ipreservation;
mod livemigration;
mod node;
mod workloadendpoint;

pub use blockaffinity::*;
pub use hostendpoint::*;
pub use ipamblock::*;
pub use ipamconfiguration::*;
pub use ipamhandle::*;
pub use ippool::*;
pub use ipreservation::*;
pub use livemigration::*;
pub use node::*;
pub use workloadendpoint::*;
