//! Failures of the stores behind the plugins, in the protocol's form.

pub(crate) use cni_protocol::error::{CniError, Result, code};

/// Turns failures of a store into errors for the runtime.
pub(crate) trait StoreFailure {
    /// A failure of the datastore while attempting `step`.
    fn datastore(step: &str, error: &datastore::Error) -> CniError;
    /// A failure of address management while attempting `step`.
    fn address(step: &str, error: &ipam::Error) -> CniError;
}

impl StoreFailure for CniError {
    fn datastore(step: &str, error: &datastore::Error) -> CniError {
        let remedy = match error {
            datastore::Error::Unauthorized { .. } => {
                "check the credentials in the CNI configuration and what they may do"
            }
            error if error.is_transient() => {
                "check that the datastore runs and can be reached from this node"
            }
            _ => "",
        };
        let code = if error.is_transient() { code::TRY_AGAIN_LATER } else { code::DATASTORE };
        Self::new(code, format!("{step}: {error}")).with_details(remedy)
    }

    fn address(step: &str, error: &ipam::Error) -> CniError {
        let code = if error.is_transient() { code::TRY_AGAIN_LATER } else { code::ADDRESS };
        Self::new(code, format!("{step}: {error}"))
    }
}
