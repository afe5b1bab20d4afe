//! Connects pods to daemons of their node: a folder in the pod, in which Felix opens a socket for this pod only.
//!
//! ```text
//! kubelet ─► registrar (who the driver is) ─► csi ──┐
//! kubelet ─► flexvol (one process per call) ────────┴─► volume: folder, mounts, credentials ─► Felix ─► socket
//! ```
//!
//! - [`csi`]: the CSI driver `csi.tigera.io`, for ephemeral volumes of pods.
//! - [`registrar`]: registers a CSI driver with the kubelet.
//! - [`flexvol`]: the older FlexVolume driver `nodeagent/uds`, and its installer.
//! - `volume`: the work of both drivers on the node. A process may be killed after any step: the next call continues
//!   from the existing state.
//!
//! It refuses volumes that are to outlive their pod and names that could lead elsewhere, and unmounts only what it has
//! mounted.

pub mod csi;
pub mod flexvol;
mod proto;
pub mod registrar;
mod volume;

/// Internals for tests; not for other use.
#[doc(hidden)]
pub mod for_tests {
    pub use crate::csi::serve as serve_driver;
    pub use crate::flexvol::answer as answer_flexvol;
    pub use crate::proto::{csi as csi_proto, registration as registration_proto};
    pub use crate::registrar::{Settings as RegistrarSettings, serve as serve_registrar};
    pub use crate::volume::Homes;
}
