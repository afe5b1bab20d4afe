//! One file per programmed workload endpoint, for the CNI plugin that waits for it and for confd. The directory and the
//! desired files are compared once, when the dataplane is in sync; from then on files follow reports.

use messages::{FromDataplane, WorkloadEndpoint};
use model::names::endpoint_status_file;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The content of a file.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Content<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    iface_name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    mac: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ipv4_nets: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ipv6_nets: Vec<String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    bgp_peer_name: &'a str,
}

/// The files of endpoints.
pub(crate) struct EndpointFiles {
    folder: PathBuf,
    /// The desired files; complete once `in_sync`.
    wanted: BTreeMap<String, Vec<u8>>,
    in_sync: bool,
}

impl EndpointFiles {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, wanted: BTreeMap::new(), in_sync: false }
    }

    /// Processes a report, and updates the directory. Failures to write are logged, and the next report retries.
    pub(crate) fn take(&mut self, report: &FromDataplane) {
        match report {
            FromDataplane::InSync => {
                if let Err(error) = self.compare() {
                    tracing::warn!(%error, folder = %self.folder.display(), "cannot write the endpoints' status files");
                } else {
                    self.in_sync = true;
                }
            }
            FromDataplane::WorkloadEndpointStatus { id, status, endpoint } => {
                let name = endpoint_status_file(&id.orchestrator, &id.workload, &id.endpoint);
                let content = match (status, endpoint) {
                    (Some("up"), Some(endpoint)) => Some(content(endpoint)),
                    _ => None,
                };
                if let Err(error) = self.put(&name, content) {
                    tracing::warn!(%error, file = %name, "cannot write an endpoint's status file");
                }
            }
            _ => {}
        }
    }

    fn put(&mut self, name: &str, content: Option<Vec<u8>>) -> std::io::Result<()> {
        match content {
            Some(content) => {
                if self.in_sync && self.wanted.get(name) != Some(&content) {
                    daemon::files::publish(&self.folder.join(name), &content, 0o644)?;
                }
                self.wanted.insert(name.to_owned(), content);
            }
            None => {
                if self.wanted.remove(name).is_some() && self.in_sync {
                    remove(&self.folder.join(name))?;
                }
            }
        }
        Ok(())
    }

    fn compare(&self) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        std::fs::set_permissions(&self.folder, std::fs::Permissions::from_mode(0o755))?;
        let mut there = BTreeSet::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            match self.wanted.get(&name) {
                Some(content) if std::fs::read(entry.path()).is_ok_and(|found| found == *content) => {
                    there.insert(name);
                }
                Some(_) => {}
                // Only files that look like ours are removed.
                None if name.split(' ').count() == 3 || name.ends_with(".part") => remove(&entry.path())?,
                None => {}
            }
        }
        for (name, content) in self.wanted.iter().filter(|(name, _)| !there.contains(*name)) {
            daemon::files::publish(&self.folder.join(name), content, 0o644)?;
        }
        Ok(())
    }
}

fn content(endpoint: &WorkloadEndpoint) -> Vec<u8> {
    let nets = |nets: &[ipnet::IpNet]| nets.iter().map(ToString::to_string).collect();
    let content = Content {
        iface_name: &endpoint.name,
        mac: &endpoint.mac,
        ipv4_nets: nets(&endpoint.ipv4_nets),
        ipv6_nets: nets(&endpoint.ipv6_nets),
        bgp_peer_name: &endpoint.local_bgp_peer,
    };
    // Texts and lists of texts can always be represented in JSON.
    serde_json::to_vec(&content).unwrap_or_default()
}

fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use messages::WorkloadEndpointId;
    use std::sync::Arc;

    fn report(workload: &str, status: Option<&'static str>) -> FromDataplane {
        let id = WorkloadEndpointId {
            orchestrator: "k8s".into(),
            workload: workload.into(),
            endpoint: "eth0".into(),
        };
        let endpoint = WorkloadEndpoint {
            name: "cali1".into(),
            ipv4_nets: vec!["10.0.0.1/32".parse().unwrap()],
            ..WorkloadEndpoint::default()
        };
        FromDataplane::WorkloadEndpointStatus { id, status, endpoint: status.map(|_| Arc::new(endpoint)) }
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn files_follow_reports_once_in_sync() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("endpoint-status");
        std::fs::create_dir(&place).unwrap();
        std::fs::write(place.join("k8s default%2Fold eth0"), "{}").unwrap();
        std::fs::write(place.join("somebody-elses"), "").unwrap();
        let mut files = EndpointFiles::new(place.clone());
        files.take(&report("default/a", Some("up")));
        files.take(&report("default/down", Some("down")));
        assert_eq!(names(&place), ["k8s default%2Fold eth0", "somebody-elses"], "not in sync yet");
        files.take(&FromDataplane::InSync);
        assert_eq!(names(&place), ["k8s default%2Fa eth0", "somebody-elses"]);
        let text = std::fs::read_to_string(place.join("k8s default%2Fa eth0")).unwrap();
        assert_eq!(text, r#"{"ifaceName":"cali1","ipv4Nets":["10.0.0.1/32"]}"#);
        files.take(&report("default/b", Some("up")));
        files.take(&report("default/a", None));
        assert_eq!(names(&place), ["k8s default%2Fb eth0", "somebody-elses"]);
        files.take(&report("default/b", Some("error")));
        assert_eq!(names(&place), ["somebody-elses"]);
    }
}
