//! Where things go: into the host's folders as a container has them mounted below `/host`, or, on a host itself, where they
//! belong.

use crate::settings::Settings;
use std::path::{Path, PathBuf};

/// Below which folder a container has those of its host.
const MOUNTED: &str = "/host";

/// The host's folder of network configurations, as it is mounted.
const NET_FOLDER: &str = "/host/etc/cni/net.d";

/// The host's folders of plugins, as they are mounted; those that cannot be written are skipped.
const PROGRAM_FOLDERS: [&str; 2] = ["/host/opt/cni/bin", "/host/secondary-bin-dir"];

/// Where plugins are: what an image brings besides our own, and where a host looks for them.
const PROGRAMS: &str = "/opt/cni/bin";

/// Where things go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Network configurations.
    pub net_folder: PathBuf,
    /// Plugins; those that cannot be written are skipped.
    pub program_folders: Vec<PathBuf>,
    /// What an image brings besides our own plugins.
    pub image: Option<PathBuf>,
    /// Whether this is the host itself.
    pub is_host: bool,
}

impl Layout {
    /// The layout of what is below `root`.
    #[must_use]
    pub(crate) fn of(root: &Path, settings: &Settings) -> Self {
        let at = |path: &str| root.join(path.strip_prefix('/').unwrap_or(path));
        // A pod is never a host, even if somebody forgot to mount the host's folders; it says so when it finds none.
        if at(MOUNTED).is_dir() || at(kube_access::access::SERVICE_ACCOUNT_DIR).is_dir() {
            return Self {
                net_folder: at(NET_FOLDER),
                program_folders: PROGRAM_FOLDERS.map(at).to_vec(),
                image: Some(at(PROGRAMS)),
                is_host: false,
            };
        }
        Self {
            net_folder: at(&settings.net_folder),
            program_folders: vec![at(PROGRAMS)],
            image: None,
            is_host: true,
        }
    }

    /// Makes the folders, where this is a host that never had any. A container's are the business of what mounts them.
    ///
    /// # Errors
    /// When a folder cannot be made.
    pub(crate) fn make_folders(&self) -> std::io::Result<()> {
        if self.is_host {
            for folder in self.program_folders.iter().chain([&self.net_folder]) {
                std::fs::create_dir_all(folder)?;
            }
        }
        Ok(())
    }
}
