//! Where files are installed: in the host's folders that a container has mounted below `/host`, or, on a host itself,
//! in their usual places.

use crate::settings::Settings;
use std::path::{Path, PathBuf};

/// Where a container has its host's folders mounted.
const MOUNTED: &str = "/host";

/// The host's folder of network configurations, as mounted.
const NET_FOLDER: &str = "/host/etc/cni/net.d";

/// The host's folders of plugins, as mounted.
const PROGRAM_FOLDERS: [&str; 2] = ["/host/opt/cni/bin", "/host/secondary-bin-dir"];

/// The folder of plugins: of the image's further plugins in a container, of all plugins on a host.
const PROGRAMS: &str = "/opt/cni/bin";

/// The folders to install into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The folder of network configurations.
    pub net_folder: PathBuf,
    /// The folders of plugins; those that are not writeable are skipped.
    pub program_folders: Vec<PathBuf>,
    /// The folder of further plugins in the image.
    pub image: Option<PathBuf>,
    /// Whether this is the host itself rather than a container.
    pub is_host: bool,
}

impl Layout {
    /// Finds the layout below `root`.
    #[must_use]
    pub(crate) fn of(root: &Path, settings: &Settings) -> Self {
        let at = |path: &str| root.join(path.strip_prefix('/').unwrap_or(path));
        // A pod is never a host, even if the host's folders are not mounted; the installer then fails and reports that.
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

    /// Creates the folders on a host that has none. In a container they must be mounted.
    ///
    /// # Errors
    /// When a folder cannot be created.
    pub(crate) fn make_folders(&self) -> std::io::Result<()> {
        if self.is_host {
            for folder in self.program_folders.iter().chain([&self.net_folder]) {
                std::fs::create_dir_all(folder)?;
            }
        }
        Ok(())
    }
}
