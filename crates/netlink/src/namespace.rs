//! Other network namespaces: opened by path, entered only by threads that end there.
//!
//! A thread that changed its namespace must never return to other work: a runtime would run some other task in the
//! wrong network. So [`run_in`] and [`spawn_in`] start a thread, move it, and let it end.

use rustix::fs::{Mode, OFlags, fstatfs, open as open_file};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// The magic number of the file system that holds namespace files.
const NAMESPACE_FILES: i64 = 0x6e73_6673;

/// Why a namespace could not be entered.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The path does not exist.
    #[error("no network namespace at {}", .0.display())]
    Missing(PathBuf),
    /// The path is something else, such as the remains of a deleted namespace's mount point.
    #[error("{} is not a network namespace", .0.display())]
    NotANamespace(PathBuf),
    /// It cannot be opened or entered.
    #[error("cannot enter the network namespace {}: {source}", path.display())]
    Failed {
        /// The path that was tried.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl NamespaceError {
    /// Whether the namespace is gone.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing(_) | Self::NotANamespace(_))
    }
}

/// An open network namespace.
#[derive(Debug)]
pub struct Namespace {
    file: OwnedFd,
    path: PathBuf,
}

impl Namespace {
    /// Opens the namespace at a path such as `/var/run/netns/NAME` or `/proc/PID/ns/net`.
    ///
    /// # Errors
    /// When the path does not exist or is not a namespace.
    pub fn open(path: &Path) -> Result<Self, NamespaceError> {
        let failed = |errno: Errno| NamespaceError::Failed { path: path.to_owned(), source: errno.into() };
        let file = match open_file(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::NOTDIR) => return Err(NamespaceError::Missing(path.to_owned())),
            Err(errno) => return Err(failed(errno)),
        };
        Self::from_file(file, path)
    }

    /// The namespace of a descriptor that the caller opened; `path` names it in messages.
    ///
    /// # Errors
    /// When the descriptor is not a network namespace.
    pub fn from_file(file: OwnedFd, path: &Path) -> Result<Self, NamespaceError> {
        let failed = |errno: Errno| NamespaceError::Failed { path: path.to_owned(), source: errno.into() };
        // The type of the field differs between platforms; the magic number is the same.
        #[expect(clippy::useless_conversion, reason = "the type of f_type differs between platforms")]
        let kind = i64::try_from(fstatfs(&file).map_err(failed)?.f_type).unwrap_or_default();
        if kind != NAMESPACE_FILES {
            return Err(NamespaceError::NotANamespace(path.to_owned()));
        }
        Ok(Self { file, path: path.to_owned() })
    }

    /// The namespace of this thread.
    ///
    /// # Errors
    /// When `/proc` is not mounted.
    pub fn current() -> Result<Self, NamespaceError> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its descriptor, for requests that refer to a namespace by one.
    #[must_use]
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Duplicates the descriptor of this namespace.
    ///
    /// # Errors
    /// When there are no more file descriptors.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.file.try_clone()
    }

    /// Runs `work` in this namespace, on a thread of its own, and waits for it.
    ///
    /// # Errors
    /// When the namespace cannot be entered; then `work` was not run.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
        run_in(self.file.as_fd(), work)
            .map_err(|source| NamespaceError::Failed { path: self.path.clone(), source })
    }
}

/// Starts `work` in the network namespace of a descriptor, on its own thread, which ends with it. The thread's result
/// is an error when the namespace could not be entered; then `work` was not run.
///
/// # Errors
/// When no thread can be started.
pub fn spawn_in<T: Send + 'static>(
    namespace: OwnedFd,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<io::Result<T>>> {
    std::thread::Builder::new().name("namespace".to_owned()).spawn(move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(work())
    })
}

/// Runs `work` in the network namespace of a descriptor, on a thread of its own, and waits for it.
///
/// # Errors
/// When no thread can be started, or the namespace cannot be entered; then `work` was not run.
pub fn run_in<T: Send>(namespace: impl AsFd + Send + Sync, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread =
            std::thread::Builder::new().name("namespace".to_owned()).spawn_scoped(scope, move || {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
                Ok::<T, Errno>(work())
            })?;
        match thread.join() {
            Ok(outcome) => outcome.map_err(io::Error::from),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
