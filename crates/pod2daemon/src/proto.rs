//! Messages and services, generated from `proto/`.

/// The Container Storage Interface.
#[expect(
    missing_docs,
    unused_qualifications,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated code; the protocol file is the documentation"
)]
pub mod csi {
    tonic::include_proto!("csi.v1");
}

/// How a kubelet discovers plugins.
#[expect(
    missing_docs,
    unused_qualifications,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated code; the protocol file is the documentation"
)]
pub mod registration {
    tonic::include_proto!("pluginregistration");
}
