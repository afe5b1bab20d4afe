//! Copies etcd's certificates and key from a mounted secret to a folder beside the network configuration.
//!
//! Each file is replaced whole, so that a plugin running in the meantime always finds a usable one. Files that are no
//! longer in the secret are removed.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The folder beside the network configuration.
pub(crate) const FOLDER: &str = "calico-tls";

/// The files, and the widest mode that each may have.
const FILES: [(&str, u32); 3] = [("etcd-ca", 0o644), ("etcd-cert", 0o644), ("etcd-key", 0o600)];

/// Why certificates were not installed.
#[derive(Debug, thiserror::Error)]
#[error("cannot install {}: {source}", path.display())]
pub struct SecretError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Makes the host's folder match the secret; without a secret the folder is removed.
///
/// # Errors
/// When a file cannot be copied or removed.
pub(crate) fn install(source: &Path, net_folder: &Path) -> Result<(), SecretError> {
    let target = net_folder.join(FOLDER);
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| SecretError { path, source }
    };
    if !FILES.iter().any(|(name, _)| source.join(name).is_file()) {
        return match std::fs::remove_dir_all(&target) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&target)(error)),
            _ => Ok(()),
        };
    }
    std::fs::create_dir_all(&target).map_err(failed(&target))?;
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o700)).map_err(failed(&target))?;
    for (name, widest) in FILES {
        let (from, to) = (source.join(name), target.join(name));
        match std::fs::metadata(&from) {
            Ok(metadata) => {
                // Readable by its owner whatever the secret's own mode is: the plugin runs as root.
                let mode = (metadata.permissions().mode() & widest) | 0o400;
                daemon::files::copy(&from, &to, mode).map_err(failed(&to))?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::warn!(file = name, "the file is not in the secret");
                match std::fs::remove_file(&to) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&to)(error)),
                    _ => {}
                }
            }
            Err(error) => return Err(failed(&from)(error)),
        }
    }
    tracing::info!(folder = %target.display(), "installed etcd's certificates");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("a file").permissions().mode() & 0o777
    }

    #[test]
    fn the_folder_follows_the_secret() {
        let folder = tempfile::tempdir().expect("a folder");
        let (secret, net) = (folder.path().join("secret"), folder.path().join("net.d"));
        std::fs::create_dir_all(&secret).expect("a folder");
        std::fs::create_dir_all(&net).expect("a folder");
        install(&secret, &net).expect("nothing to install");
        assert!(!net.join(FOLDER).exists());
        for name in ["etcd-ca", "etcd-cert", "etcd-key"] {
            std::fs::write(secret.join(name), name).expect("writing");
            std::fs::set_permissions(secret.join(name), std::fs::Permissions::from_mode(0o666))
                .expect("chmod");
        }
        install(&secret, &net).expect("an installation");
        let target = net.join(FOLDER);
        assert_eq!(std::fs::read_to_string(target.join("etcd-key")).expect("a key"), "etcd-key");
        assert_eq!(
            (mode(&target.join("etcd-key")), mode(&target.join("etcd-ca")), mode(&target)),
            (0o600, 0o644, 0o700)
        );
        std::fs::remove_file(secret.join("etcd-cert")).expect("removing");
        std::fs::write(secret.join("etcd-ca"), "new").expect("writing");
        install(&secret, &net).expect("an installation");
        assert!(!target.join("etcd-cert").exists());
        assert_eq!(std::fs::read_to_string(target.join("etcd-ca")).expect("a certificate"), "new");
        std::fs::remove_dir_all(&secret).expect("removing");
        install(&secret, &net).expect("a removal");
        assert!(!target.exists());
    }
}
