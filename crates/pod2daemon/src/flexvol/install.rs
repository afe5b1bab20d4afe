//! Installs this program as the kubelet's driver.

use anyhow::{Context as _, Result, ensure};
use std::path::Path;

/// The name by which the kubelet calls it, and by which it recognises its role.
pub(super) const NAME: &str = "uds";
/// Only root runs it, as the kubelet does.
pub(super) const MODE: u32 = 0o550;

/// Copies this program to a file on the host. A concurrent call of the kubelet finds the old or the new one.
pub(super) fn install(target: &Path) -> Result<()> {
    let name = target.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    ensure!(
        name == NAME,
        "--target: the name of the file must be {NAME:?}, by which the kubelet calls it, and not {name:?}"
    );
    let own = std::env::current_exe().context("finding this program")?;
    daemon::files::copy(&own, target, MODE)
        .with_context(|| format!("copying this program to {}", target.display()))?;
    tracing::info!(driver = %target.display(), "the driver is in place");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use testkit::Folder;

    #[test]
    fn the_program_replaces_an_existing_file() {
        let folder = Folder::new("flexvol-install").unwrap();
        let target = folder.path().join(NAME);
        std::fs::write(&target, "an older one").unwrap();
        install(&target).unwrap();
        let own = std::env::current_exe().unwrap();
        assert_eq!(std::fs::metadata(&target).unwrap().len(), std::fs::metadata(own).unwrap().len());
        assert_eq!(std::fs::metadata(&target).unwrap().permissions().mode() & 0o7777, MODE);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        for wrong in [folder.path().join("other"), "/".into(), "".into(), folder.path().join("no/uds")] {
            assert!(install(&wrong).is_err(), "{}", wrong.display());
        }
    }
}
