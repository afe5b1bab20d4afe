//! The files for the pod's other containers.

use anyhow::{Context as _, Result};
use std::fmt;
use std::path::{Path, PathBuf};

/// All users may read certificates; only the owner may read the key.
const CERTIFICATE_MODE: u32 = 0o644;
const KEY_MODE: u32 = 0o600;

/// The complete contents of the files.
#[derive(PartialEq, Eq)]
pub(crate) struct Files {
    pub(crate) key: String,
    pub(crate) key_path: PathBuf,
    pub(crate) certificate: Vec<u8>,
    pub(crate) certificate_path: PathBuf,
    pub(crate) authority: Option<(PathBuf, Vec<u8>)>,
}

/// The key is not shown.
impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("certificate_path", &self.certificate_path).finish_non_exhaustive()
    }
}

impl Files {
    /// Writes them atomically, the certificate last: when it exists, the others do, too.
    pub(crate) fn write(&self) -> Result<()> {
        write(&self.key_path, self.key.as_bytes(), KEY_MODE)?;
        if let Some((path, authority)) = &self.authority {
            write(path, authority, CERTIFICATE_MODE)?;
        }
        write(&self.certificate_path, &self.certificate, CERTIFICATE_MODE)
    }
}

fn write(path: &Path, contents: &[u8], mode: u32) -> Result<()> {
    daemon::files::write(path, contents, mode).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use testkit::Folder;

    #[test]
    fn modes_are_tight_and_a_missing_folder_is_named() {
        let folder = Folder::new("key-cert-files").unwrap();
        let at = |name: &str| folder.path().join(name);
        let files = Files {
            key: "key".to_owned(),
            key_path: at("tls.key"),
            certificate: b"certificate".to_vec(),
            certificate_path: at("tls.crt"),
            authority: Some((at("ca.crt"), b"authority".to_vec())),
        };
        assert!(!format!("{files:?}").contains("\"key\""));
        files.write().unwrap();
        let mode = |name: &str| std::fs::metadata(at(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(["tls.key", "tls.crt", "ca.crt"].map(mode), [0o600, 0o644, 0o644]);
        let error = Files { key_path: at("none/tls.key"), ..files }.write().unwrap_err();
        assert!(error.to_string().contains("none/tls.key"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
    }
}
