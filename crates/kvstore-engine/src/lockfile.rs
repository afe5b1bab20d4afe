//! One process per store: an advisory lock on a small file beside the data (the data file itself is replaced when it is
//! rewritten). The holder identifies itself in the file. The lock ends with the process, however that ends.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::fs::{FlockOperation, flock};

use super::error::OpenError;

/// Held while the store is open.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Unlocked explicitly, not just by closing the file: a child being forked by another thread shares it for a
        // moment.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// Takes the lock of `dir`, or reports its holder.
pub(super) fn acquire(dir: &Path) -> Result<Lock, OpenError> {
    let path = dir.join("tortie.lock");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(OpenError::io("open", &path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut holder = String::new();
            // An unreadable holder is reported as unknown: only the lock itself matters.
            let _ = (&mut file).take(4096).read_to_string(&mut holder);
            let (pid, command) = holder.trim_end().split_once(' ').unwrap_or(("unknown", "unknown"));
            return Err(OpenError::InUse {
                dir: dir.to_owned(),
                pid: pid.to_owned(),
                command: command.to_owned(),
            });
        }
        Err(errno) => return Err(OpenError::io("lock", &path)(errno.into())),
    }
    let command: Vec<String> = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    file.set_len(0)
        .and_then(|()| writeln!(file, "{} {}", std::process::id(), command.join(" ")))
        .map_err(OpenError::io("write", &path))?;
    Ok(Lock { file })
}
