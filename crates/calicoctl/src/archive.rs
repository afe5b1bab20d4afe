//! Packs a folder into a compressed archive, without running other programs.

use std::fs::File;
use std::io;
use std::path::Path;

/// Writes the folder `source`, as `name`, into the new file `archive` (`.tar.gz`).
///
/// # Errors
/// When something cannot be read or written; a half-written file is removed.
pub(crate) fn write(archive: &Path, source: &Path, name: &str) -> io::Result<()> {
    let outcome = try_write(archive, source, name);
    if outcome.is_err() {
        // No archive is better than a truncated one.
        let _ = std::fs::remove_file(archive);
    }
    outcome
}

fn try_write(archive: &Path, source: &Path, name: &str) -> io::Result<()> {
    let compressed = flate2::write::GzEncoder::new(File::create(archive)?, flate2::Compression::default());
    let mut builder = tar::Builder::new(compressed);
    // Cluster diagnostics use links in their layout: keep them as links.
    builder.follow_symlinks(false);
    builder.append_dir_all(name, source)?;
    builder.into_inner()?.finish()?.sync_all()
}
