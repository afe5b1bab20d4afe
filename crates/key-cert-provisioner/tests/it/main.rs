//! Certificates from a real kube-apiserver, approved and signed by the test.

mod provisioning;
mod signer;
