//! Records whether a component without a health page of its own is connected to Typha: in a file, which the node's
//! health reads.

use std::path::{Path, PathBuf};
use typha_wire::SyncerType;

/// The folder for these files on a node.
pub const FOLDER: &str = "/var/run/calico/typha";

const CONNECTED: &str = "connected";
const NOT_CONNECTED: &str = "not connected";

/// The file of the component that follows this feed.
#[must_use]
pub fn of(folder: &Path, kind: SyncerType) -> PathBuf {
    folder.join(kind.as_str())
}

/// Records the state. A file that cannot be written only causes a warning: following matters more.
pub fn write(file: &Path, connected: bool, detail: &str) {
    let word = if connected { CONNECTED } else { NOT_CONNECTED };
    let written = match file.parent() {
        Some(folder) => std::fs::create_dir_all(folder),
        None => Ok(()),
    };
    let written =
        written.and_then(|()| daemon::files::publish(file, format!("{word}\n{detail}\n").as_bytes(), 0o644));
    if let Err(error) = written {
        tracing::warn!(file = %file.display(), %error, "cannot record whether Typha is connected");
    }
}

/// Why the component that follows this feed is not connected; `None` if it is, or follows no Typha.
#[must_use]
pub fn read(folder: &Path, kind: SyncerType) -> Option<String> {
    let text = std::fs::read_to_string(of(folder, kind)).ok()?;
    let (word, detail) = text.split_once('\n')?;
    (word == NOT_CONNECTED).then(|| detail.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Folder;

    #[test]
    fn a_written_state_is_read_back() {
        let folder = Folder::new("typha-state").unwrap();
        let below = folder.path().join("typha");
        let kind = SyncerType::NodeStatus;
        assert_eq!(read(&below, kind), None);
        write(&of(&below, kind), false, "no connection to Typha (refused)");
        assert_eq!(read(&below, kind).as_deref(), Some("no connection to Typha (refused)"));
        assert_eq!(read(&below, SyncerType::Bgp), None);
        write(&of(&below, kind), true, "connected to Typha at 127.0.0.1:1");
        assert_eq!(read(&below, kind), None);
    }
}
