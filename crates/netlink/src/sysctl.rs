//! Settings below `/proc/sys/net`, which always belong to the network namespace of the thread that opens them.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;

/// Why a setting could not be written or read.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct SysctlError {
    /// What was attempted.
    pub action: &'static str,
    /// The file of the setting.
    pub path: PathBuf,
    /// Why it failed.
    #[source]
    pub source: io::Error,
}

impl SysctlError {
    /// Whether the setting does not exist, because the kernel lacks it or the device is gone.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

/// The file of a setting: `path` is relative to `/proc/sys`, such as `net/ipv4/conf/cali1/proxy_arp`. Device names may
/// contain dots, so the dotted form is not offered.
fn file_of(path: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(path)
}

/// Writes a setting.
///
/// # Errors
/// When it does not exist or the kernel refuses the value.
pub fn write(path: &str, value: &str) -> Result<(), SysctlError> {
    let path = file_of(path);
    // One write: the kernel takes each write as a whole value.
    let outcome =
        File::options().write(true).open(&path).and_then(|mut file| file.write_all(value.as_bytes()));
    outcome.map_err(|source| SysctlError { action: "write", path, source })
}

/// Reads a setting, without the line end.
///
/// # Errors
/// When it does not exist.
pub fn read(path: &str) -> Result<String, SysctlError> {
    let path = file_of(path);
    let mut text = String::new();
    match File::open(&path).and_then(|mut file| file.read_to_string(&mut text)) {
        Ok(_) => Ok(text.trim_end().to_owned()),
        Err(source) => Err(SysctlError { action: "read", path, source }),
    }
}

/// Writes a setting unless it has the value already; returns whether it wrote.
///
/// # Errors
/// When it does not exist or the kernel refuses the value.
pub fn ensure(path: &str, value: &str) -> Result<bool, SysctlError> {
    if read(path)? == value {
        return Ok(false);
    }
    write(path, value).map(|()| true)
}
