//! What was refused, and by whom.

/// Why something is not in the kernel.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] bpf::Error),
    /// Something in the file system.
    #[error("{what}: {reason}")]
    File {
        /// What was attempted.
        what: String,
        /// Why not.
        reason: std::io::Error,
    },
    /// A table has more entries than its map has room for. What was in the maps before stays.
    #[error(
        "the policy needs {wanted} entries in {map}, which has room for {room}: the last policy that fitted stays"
    )]
    TooMany {
        /// The map.
        map: &'static str,
        /// How many entries there should be.
        wanted: usize,
        /// How many it takes.
        room: usize,
    },
    /// The kernel cannot do something that is needed.
    #[error("this kernel has no {0}")]
    Missing(&'static str),
}
