//! What leads from pods to daemons of their node: a folder in the pod, in which Felix opens a socket that is this pod's alone.
//!
//! ```text
//! kubelet ─► registrar (who the driver is) ─► csi ──┐
//! kubelet ─► flexvol (one process per call) ────────┴─► volume: folder, mounts, credentials ─► Felix ─► socket
//! ```
//!
//! - [`csi`]: the CSI driver `csi.tigera.io`, for ephemeral volumes of pods.
//! - [`registrar`]: makes a CSI driver known to the kubelet.
//! - [`flexvol`]: the older FlexVolume driver `nodeagent/uds`, and its installer.
//! - `volume`: what both drivers do on the node. Every step may be the last one of a process that is killed: the next call
//!   goes on from what is there.
//!
//! It refuses volumes that are to outlive their pod, names that could lead anywhere else, and to unmount what is not its own.

pub mod csi;
pub mod flexvol;
mod proto;
pub mod registrar;
mod volume;

/// What tests reach into, and nothing else may.
#[doc(hidden)]
pub mod for_tests {
    pub use crate::csi::serve as serve_driver;
    pub use crate::flexvol::answer as answer_flexvol;
    pub use crate::proto::{csi as csi_proto, registration as registration_proto};
    pub use crate::registrar::{Settings as RegistrarSettings, serve as serve_registrar};
    pub use crate::volume::Homes;
}
