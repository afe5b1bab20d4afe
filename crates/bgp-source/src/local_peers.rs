//! Workloads on this node with sessions, from the status files that Felix writes for endpoints.

use crate::state::Event;
use bgp::LocalPeer;
use daemon::{FolderWatch, Shutdown};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::sync::mpsc;

/// The maximum delay until a new folder is noticed.
const LOOK: Duration = Duration::from_secs(10);
/// The maximum delay until a change is noticed that the kernel did not report.
const LOOK_AGAIN: Duration = Duration::from_secs(600);

/// Follows the folder until shutdown.
pub(crate) async fn follow(folder: &Path, events: mpsc::Sender<Event>, shutdown: Shutdown) {
    let mut last = None;
    while !shutdown.is_requested() {
        // The watch begins before the files are read, so that no change is missed in between.
        let watch = FolderWatch::new(folder);
        match read(folder) {
            Ok(peers) => {
                if last.as_ref() != Some(&peers) {
                    last = Some(peers.clone());
                    if events.send(Event::LocalPeers(peers)).await.is_err() {
                        return;
                    }
                }
            }
            Err(error) => {
                tracing::warn!(folder = %folder.display(), %error, "endpoint status files cannot be read");
            }
        }
        let pause = if watch.is_ok() { LOOK_AGAIN } else { LOOK };
        let changed = async {
            match watch {
                Ok(mut watch) => drop(watch.changed().await),
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep(pause) => {}
            () = shutdown.requested() => {}
        }
    }
}

/// Reads all files. A missing folder counts as empty; a file that is only partly written is read again soon.
fn read(folder: &Path) -> io::Result<BTreeMap<String, LocalPeer>> {
    let mut peers = BTreeMap::new();
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(peers),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(bytes) = std::fs::read(entry.path()) else { continue };
        match LocalPeer::from_status(&bytes) {
            Ok(Some(peer)) => drop(peers.insert(name, peer)),
            Ok(None) => {}
            Err(reason) => tracing::debug!(file = name, reason, "not an endpoint's status yet"),
        }
    }
    Ok(peers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_all_sorts() {
        let folder = testkit::Folder::new("status").expect("a folder");
        assert_eq!(read(&folder.path().join("missing")).expect("empty"), BTreeMap::new());
        for (name, text) in [
            (
                "k8s shop%2Fone eth0",
                r#"{"ipv4Nets":["10.0.0.1/32"],"ipv6Nets":["fd00::1/128"],"bgpPeerName":"a"}"#,
            ),
            ("k8s shop%2Ftwo eth0", r#"{"ipv4Nets":["10.0.0.2/32"]}"#),
            ("k8s shop%2Fthree eth0", r#"{"bgpPeerName":"a"}"#),
            ("k8s shop%2Fhalf eth0", r#"{"ipv4Nets":["10.0"#),
        ] {
            std::fs::write(folder.path().join(name), text).expect("a file");
        }
        let address = |text: &str| Some(text.parse().expect("an address"));
        let expected = LocalPeer { peer: "a".to_owned(), v4: address("10.0.0.1"), v6: address("fd00::1") };
        let found = read(folder.path()).expect("peers");
        assert_eq!(found, BTreeMap::from([("k8s shop%2Fone eth0".to_owned(), expected)]));
    }
}
