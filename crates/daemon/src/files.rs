//! Files that appear whole or not at all, with the requested mode from the first moment on.
//!
//! A file is written beside its destination and then moved there, so that a reader, or the next start after a loss of
//! power, finds either the old contents or the new. A link left under the temporary name is not followed.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Writes a file with this mode, whole or not at all, even across a loss of power.
///
/// # Errors
/// When the file cannot be written; then nothing is left behind.
pub fn write(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    replace(path, mode, true, |file| file.write_all(contents))
}

/// Writes a file with this mode, whole for every reader. Does not wait for the disk: meant for files that are rewritten
/// after a loss of power.
///
/// # Errors
/// When the file cannot be written; then nothing is left behind.
pub fn publish(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    replace(path, mode, false, |file| file.write_all(contents))
}

/// Copies a file, whole or not at all.
///
/// # Errors
/// When one of the two cannot be read or written; then nothing is left behind.
pub fn copy(from: &Path, to: &Path, mode: u32) -> io::Result<()> {
    let mut source = File::open(from)?;
    replace(to, mode, true, |file| io::copy(&mut source, file).map(drop))
}

fn replace(
    path: &Path,
    mode: u32,
    is_durable: bool,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let temporary = Temporary::beside(path)?;
    // Only the owner has access until the file is complete; the mode is set on the open file, regardless of the umask.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary.path)?;
    fill(&mut file)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    if is_durable {
        file.sync_all()?;
    }
    std::fs::rename(&temporary.path, path)?;
    temporary.keep();
    if !is_durable {
        return Ok(());
    }
    // The name itself must survive a loss of power, too.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// A temporary name of ours beside the file; removed unless the file was moved into place.
struct Temporary {
    path: PathBuf,
    kept: bool,
}

impl Temporary {
    fn beside(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{} is not the name of a file", path.display()),
            )
        })?;
        // A leading dot and an unknown extension: container runtimes read every *.conf and *.conflist in their folder.
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.tmp", uuid::Uuid::new_v4().simple()));
        Ok(Self { path: path.with_file_name(hidden), kept: false })
    }

    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.kept {
            // The file may never have been created.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("a file").permissions().mode() & 0o7777
    }

    #[test]
    fn contents_and_mode_are_replaced_together() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, "old and longer").expect("writing");
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("chmod");
        write(&path, b"new", 0o600).expect("replacing");
        assert_eq!((std::fs::read_to_string(&path).expect("text").as_str(), mode(&path)), ("new", 0o600));
        publish(&path, b"newer", 0o640).expect("replacing");
        assert_eq!((std::fs::read_to_string(&path).expect("text").as_str(), mode(&path)), ("newer", 0o640));
        copy(&path, &folder.path().join("copy"), 0o755).expect("copying");
        assert_eq!(mode(&folder.path().join("copy")), 0o755);
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 2);
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let taken = folder.path().join("taken");
        std::fs::create_dir(&taken).expect("a folder");
        std::fs::write(taken.join("inside"), "").expect("writing");
        assert!(write(&taken, b"x", 0o600).is_err());
        assert!(copy(&folder.path().join("missing"), &folder.path().join("target"), 0o600).is_err());
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }
}
