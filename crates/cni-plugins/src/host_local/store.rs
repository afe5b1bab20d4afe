//! The files of `host-local`: one per address, named after it, containing the owner; one per set of ranges with the
//! last assigned address; one lock. All in the form of the reference plugin, whose lock is respected, too.

use crate::frame::failure;
use cni_protocol::error::Result;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The owner of an address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner<'a> {
    pub(super) container: &'a str,
    pub(super) interface: &'a str,
}

impl Owner<'_> {
    fn line(&self) -> String {
        format!("{}\r\n{}", self.container.trim(), self.interface)
    }

    /// Whether a file's text names this owner. Old versions of the reference plugin wrote no interface.
    fn owns(&self, text: &str) -> bool {
        let text = text.trim();
        text == self.line() || text == self.container.trim()
    }
}

/// The files of one network, locked during the lifetime of this value.
#[derive(Debug)]
pub(super) struct Store {
    folder: PathBuf,
    _lock: File,
}

impl Store {
    pub(super) fn open(data_dir: &Path, network: &str) -> Result<Self> {
        let folder = data_dir.join(network);
        let failed =
            |what: &str, error: std::io::Error| failure(format!("{what} {}: {error}", folder.display()));
        std::fs::create_dir_all(&folder).map_err(|error| failed("create", error))?;
        let lock = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(folder.join("lock"))
            .map_err(|error| failed("open the lock of", error))?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| failed("lock", error.into()))?;
        Ok(Self { folder, _lock: lock })
    }

    /// Takes an address; `false` when another owner has it.
    pub(super) fn reserve(&self, owner: &Owner<'_>, address: IpAddr, set: usize) -> Result<bool> {
        let path = self.folder.join(address.to_string());
        let failed =
            |path: &Path, error: std::io::Error| failure(format!("write {}: {error}", path.display()));
        let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let mut file = match created {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
            Err(error) => return Err(failed(&path, error)),
        };
        if let Err(error) = file.write_all(owner.line().as_bytes()) {
            // A file without an owner would keep the address forever.
            let _ = std::fs::remove_file(&path);
            return Err(failed(&path, error));
        }
        let last = self.last_file(set);
        std::fs::write(&last, address.to_string()).map_err(|error| failed(&last, error))?;
        Ok(true)
    }

    /// The last assigned address of a set. Only the start of a search depends on it, so an unreadable file counts as
    /// none.
    pub(super) fn last(&self, set: usize) -> Option<IpAddr> {
        std::fs::read_to_string(self.last_file(set)).ok()?.trim().parse().ok()
    }

    fn last_file(&self, set: usize) -> PathBuf {
        self.folder.join(format!("last_reserved_ip.{set}"))
    }

    pub(super) fn addresses(&self, owner: &Owner<'_>) -> Result<Vec<IpAddr>> {
        Ok(self.files(owner)?.into_iter().map(|(address, _)| address).collect())
    }

    pub(super) fn release(&self, owner: &Owner<'_>) -> Result<()> {
        for (address, path) in self.files(owner)? {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(failure(format!("release {address}: {error}")));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn files(&self, owner: &Owner<'_>) -> Result<Vec<(IpAddr, PathBuf)>> {
        let failed = |error: std::io::Error| failure(format!("read {}: {error}", self.folder.display()));
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let Some(address) = name.and_then(|name| name.parse().ok()) else { continue };
            if std::fs::read_to_string(&path).is_ok_and(|text| owner.owns(&text)) {
                found.push((address, path));
            }
        }
        found.sort();
        Ok(found)
    }
}
