//! Failures as the protocol prints them: a stable code, a message that names the step and its object, and a remedy.

use serde::Serialize;
use std::fmt;

/// The codes that runtimes and users may rely on. Codes below 100 are defined by the protocol.
pub mod code {
    /// The configuration's CNI version is not supported.
    pub const INCOMPATIBLE_VERSION: u32 = 1;
    /// A field of the configuration has a value that is not supported.
    pub const UNSUPPORTED_FIELD: u32 = 2;
    /// The container is unknown.
    pub const UNKNOWN_CONTAINER: u32 = 3;
    /// A `CNI_*` variable is missing or wrong.
    pub const INVALID_ENVIRONMENT: u32 = 4;
    /// The configuration is not JSON, or a field has an unexpected type.
    pub const DECODING_FAILURE: u32 = 6;
    /// The configuration contradicts itself or is incomplete.
    pub const INVALID_CONFIGURATION: u32 = 7;
    /// The network namespace is the plugin's own.
    pub const INVALID_NAMESPACE: u32 = 8;
    /// The same call may succeed later.
    pub const TRY_AGAIN_LATER: u32 = 11;
    /// The plugin cannot serve ADD now (STATUS).
    pub const NOT_AVAILABLE: u32 = 50;
    /// Flags, the connectivity test, and anything that has no code of its own; Calico's code, too.
    pub const GENERAL: u32 = 100;
    /// The datastore failed or denied the request.
    pub const DATASTORE: u32 = 101;
    /// The datastore is not ready for use (it is being upgraded or was never initialised).
    pub const DATASTORE_NOT_READY: u32 = 102;
    /// No address was available.
    pub const ADDRESS: u32 = 103;
    /// The pod's network could not be created or removed.
    pub const WIRING: u32 = 104;
    /// An annotation of the pod or namespace cannot be followed.
    pub const ANNOTATION: u32 = 105;
    /// The node is not set up yet.
    pub const NODE_NOT_READY: u32 = 106;
    /// Another IPAM plugin failed.
    pub const DELEGATE: u32 = 107;
    /// CHECK found differences from what ADD created.
    pub const CHECK: u32 = 108;
    /// The Kubernetes API failed or denied the request.
    pub const KUBERNETES: u32 = 109;
    /// An external dataplane failed.
    pub const DATAPLANE: u32 = 110;
    /// A defect of the plugin itself.
    pub const INTERNAL: u32 = 999;
}

/// A failure, as printed on standard output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct CniError {
    /// The CNI version of the configuration.
    #[serde(rename = "cniVersion", default, skip_serializing_if = "String::is_empty")]
    pub cni_version: String,
    /// One of the [codes](code).
    pub code: u32,
    /// What was attempted on which object, and what happened.
    pub msg: String,
    /// The full cause, and a remedy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub details: String,
}

/// A result of the plugin.
pub type Result<T, E = CniError> = std::result::Result<T, E>;

impl CniError {
    /// A failure without details.
    pub fn new(code: u32, msg: impl Into<String>) -> Self {
        Self { cni_version: String::new(), code, msg: msg.into(), details: String::new() }
    }

    /// Adds the full cause, or a remedy.
    #[must_use]
    pub fn with_details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// A failure while creating or removing the pod's network.
    pub fn wiring(message: impl fmt::Display) -> Self {
        Self::new(code::WIRING, message.to_string())
    }

    /// Whether the same call may succeed later without any change.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.code == code::TRY_AGAIN_LATER
    }

    /// The JSON that the runtime reads.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        crate::result::pretty(self)
    }
}

impl fmt::Display for CniError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.msg)?;
        if self.details.is_empty() { Ok(()) } else { write!(f, "; {}", self.details) }
    }
}

impl std::error::Error for CniError {}
