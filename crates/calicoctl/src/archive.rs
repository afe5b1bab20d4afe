//! A folder as a compressed archive, written without help from other programs.

use std::fs::File;
use std::io;
use std::path::Path;

/// Writes the folder `source`, as `name`, into the new file `archive` (`.tar.gz`).
///
/// # Errors
/// When something cannot be read or written; a file that is half written is removed.
pub(crate) fn write(archive: &Path, source: &Path, name: &str) -> io::Result<()> {
    let outcome = try_write(archive, source, name);
    if outcome.is_err() {
        // Better no archive than one that ends in the middle.
        let _ = std::fs::remove_file(archive);
    }
    outcome
}

fn try_write(archive: &Path, source: &Path, name: &str) -> io::Result<()> {
    let compressed = flate2::write::GzEncoder::new(File::create(archive)?, flate2::Compression::default());
    let mut builder = tar::Builder::new(compressed);
    // Links are part of the layout of cluster diagnostics: kept as links.
    builder.follow_symlinks(false);
    builder.append_dir_all(name, source)?;
    builder.into_inner()?.finish()?.sync_all()
}
