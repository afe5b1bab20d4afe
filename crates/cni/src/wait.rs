//! Waits until Felix reports that an endpoint's policy is in place: a file appears in a folder.
//!
//! The kernel reports it (inotify); nothing is polled, except for a folder that does not exist yet.

use crate::error::{CniError, Result, code};
use api::WorkloadEndpoint;
use daemon::folder::BlockingFolderWatch;
use model::names::endpoint_status_file;
use std::path::Path;
use std::time::{Duration, Instant};

/// The pause between checks for a folder that does not exist yet.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The name of the file that reports that an endpoint is programmed; `None` for an invalid name of an endpoint.
#[must_use]
pub(crate) fn status_file(endpoint: &WorkloadEndpoint) -> Option<String> {
    let parts = api::split_workload_endpoint_name(&endpoint.metadata.name)?;
    let [_, orchestrator, workload, name] = <[String; 4]>::try_from(parts).ok()?;
    let workload = format!("{}/{workload}", endpoint.metadata.namespace);
    Some(endpoint_status_file(&orchestrator, &workload, &name))
}

/// Waits until the file exists, at most until the limit. Blocks.
///
/// # Errors
/// When the limit has passed.
pub(crate) fn for_file(folder: &Path, name: &str, limit: Duration) -> Result<()> {
    let deadline = Instant::now() + limit;
    let file = folder.join(name);
    loop {
        // Watch first, then check: a file that appears in between is noticed by one of the two.
        let watch = BlockingFolderWatch::new(folder);
        if file.exists() {
            return Ok(());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let message =
                format!("timed out waiting for endpoint status file '{}': file not found", file.display());
            return Err(CniError::new(code::TRY_AGAIN_LATER, message));
        }
        match watch {
            Ok(watch) => {
                watch.wait(left);
            }
            Err(error) => {
                tracing::debug!(%error, folder = %folder.display(), "the folder cannot be watched yet");
                std::thread::sleep(left.min(LOOK_AGAIN));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{for_file, status_file};
    use std::time::Duration;

    #[test]
    fn names_are_felixs() {
        let mut endpoint = api::WorkloadEndpoint::default();
        endpoint.metadata.namespace = "default".into();
        endpoint.metadata.name = "node--1-k8s-testpod1-eth0".into();
        assert_eq!(status_file(&endpoint).unwrap(), "k8s default%2Ftestpod1 eth0");
        endpoint.metadata.name = "nonsense".into();
        assert_eq!(status_file(&endpoint), None);
    }

    #[test]
    fn a_new_file_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("later");
        let error = for_file(&place, "f", Duration::from_millis(10)).unwrap_err();
        assert!(error.msg.contains("timed out waiting for endpoint status file"), "{error}");
        std::fs::create_dir(&place).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| for_file(&place, "f", Duration::from_secs(60)));
            std::fs::write(place.join("other"), "").unwrap();
            std::fs::write(place.join(".draft"), "").unwrap();
            std::fs::rename(place.join(".draft"), place.join("f")).unwrap();
            waiting.join().unwrap().unwrap();
        });
        for_file(&place, "f", Duration::ZERO).unwrap();
    }
}
