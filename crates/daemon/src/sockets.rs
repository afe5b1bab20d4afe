//! Sockets with a name in the file system.
//!
//! A socket is created under a temporary name, gets its mode there, and is then moved into place: clients always find
//! the old socket or the new one, and never one that is briefly open to others.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use tokio::net::UnixListener;

/// Listens at `path` with this mode. A socket that an earlier process left behind is replaced.
///
/// # Errors
/// When another process listens there, the file there is not a socket, or the socket cannot be created.
pub fn listen(path: &Path, mode: u32) -> io::Result<UnixListener> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "there is a file that is not a socket"));
        }
        Ok(_) if std::os::unix::net::UnixStream::connect(path).is_ok() => {
            return Err(io::Error::new(ErrorKind::AddrInUse, "another process is already listening there"));
        }
        _ => {}
    }
    take_over(path, mode)
}

/// Listens at `path` with this mode, replacing any existing file: for a name that a running process hands over.
///
/// # Errors
/// When the socket cannot be created.
pub fn take_over(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let temporary = hidden(path)?;
    remove(&temporary)?;
    let listener = UnixListener::bind(&temporary)?;
    let placed = std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(mode))
        .and_then(|()| std::fs::rename(&temporary, path));
    if let Err(error) = placed {
        let _ = remove(&temporary);
        return Err(error);
    }
    Ok(listener)
}

/// Returns the temporary name: short, because a socket's path has at most 107 bytes, and with a leading dot, because
/// kubelets that watch a folder for sockets ignore such names.
fn hidden(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| {
        io::Error::new(ErrorKind::InvalidInput, format!("{} is not the path of a socket", path.display()))
    })?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    Ok(path.with_file_name(hidden))
}

/// Removes a file if it exists.
fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{listen, take_over};
    use std::io::ErrorKind;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixStream;

    #[tokio::test]
    async fn a_socket_left_behind_is_replaced_and_one_in_use_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.sock");
        let first = listen(&path, 0o600).expect("a socket");
        assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        let refused = listen(&path, 0o600).expect_err("in use");
        assert_eq!(refused.kind(), ErrorKind::AddrInUse);
        drop(first);
        let second = listen(&path, 0o660).expect("left behind");
        assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o660);
        let third = take_over(&path, 0o600).expect("handed over");
        drop(second);
        UnixStream::connect(&path).expect("the new one listens");
        drop(third);
        assert_eq!(
            std::fs::read_dir(folder.path()).expect("the folder").count(),
            1,
            "no temporary file is left"
        );
    }

    #[tokio::test]
    async fn a_file_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notes");
        std::fs::write(&path, "words").expect("a file");
        assert_eq!(listen(&path, 0o600).expect_err("a file").kind(), ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).expect("the file"), b"words");
    }
}
