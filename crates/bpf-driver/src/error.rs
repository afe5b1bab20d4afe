//! The driver's errors.

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] bpf::Error),
    /// A file operation failed.
    #[error("{what}: {reason}")]
    File {
        /// The attempted operation.
        what: String,
        /// The system's error.
        reason: std::io::Error,
    },
    /// A table does not fit into its map. The maps keep their previous contents.
    #[error(
        "the policy needs {wanted} entries in {map}, which has room for {room}: the last policy that fitted stays"
    )]
    TooMany {
        /// The map's name.
        map: &'static str,
        /// The number of required entries.
        wanted: usize,
        /// The map's capacity.
        room: usize,
    },
    /// The kernel lacks a required feature.
    #[error("this kernel has no {0}")]
    Missing(&'static str),
}
