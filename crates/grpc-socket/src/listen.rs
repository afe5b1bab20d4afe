//! A socket that appears when it is listening, and is removed with its value.

use crate::admitted::{Admitted, admit};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::Stream;

/// Connections to a socket, accepted while it is polled. Dropping it removes the socket, unless another process has
/// replaced it.
#[derive(Debug)]
pub struct Listening {
    listener: UnixListener,
    path: PathBuf,
    number: u64,
}

/// Listens at a path; the socket gets this mode. A socket left by a killed process is replaced in one step, so that
/// clients always find a socket that answers.
///
/// # Errors
/// When nothing can listen there, or a file that is not a socket is in the way.
pub fn listen(path: &Path, mode: u32) -> io::Result<Listening> {
    is_socket_or_nothing(path)?;
    let listener = daemon::sockets::take_over(path, mode)?;
    let number = std::fs::symlink_metadata(path)?.ino();
    Ok(Listening { listener, path: path.to_owned(), number })
}

/// Checks that the path is a socket or does not exist.
fn is_socket_or_nothing(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            let what = format!("{} is there and is not a socket", path.display());
            Err(io::Error::new(io::ErrorKind::AlreadyExists, what))
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Stream for Listening {
    type Item = io::Result<Admitted<UnixStream>>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.listener.poll_accept(context).map(|accepted| Some(accepted.map(|(stream, _)| admit(stream))))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.number) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::listen;
    use std::os::unix::fs::PermissionsExt as _;
    use testkit::Folder;

    #[tokio::test]
    async fn sockets_appear_listening_and_are_removed_with_their_owner() {
        let folder = Folder::new("grpc-socket").unwrap();
        let path = folder.path().join("csi.sock");
        let names = || {
            let names = std::fs::read_dir(folder.path()).unwrap();
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
        };
        // Left by two killed processes: one that was serving, and one that had not started to.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        drop(std::os::unix::net::UnixListener::bind(folder.path().join(".csi.sock")).unwrap());
        let first = listen(&path, 0o600).unwrap();
        assert_eq!(names(), ["csi.sock"]);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        tokio::net::UnixStream::connect(&path).await.unwrap();
        let second = listen(&path, 0o600).unwrap();
        drop(first);
        tokio::net::UnixStream::connect(&path).await.expect("the second one still stands");
        drop(second);
        assert_eq!(names(), [""; 0]);
    }

    #[tokio::test]
    async fn files_that_are_not_sockets_stay() {
        let folder = Folder::new("grpc-socket-file").unwrap();
        let path = folder.path().join("csi.sock");
        std::fs::write(&path, "precious").unwrap();
        let error = listen(&path, 0o600).unwrap_err();
        assert!(error.to_string().contains("is not a socket"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        assert!(listen(std::path::Path::new("/"), 0o600).is_err());
    }
}
