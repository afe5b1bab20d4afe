//! The plugin's paths and facts on the host: the node's name, the MTU that the agent measured, and the plugin's own
//! files.

use crate::config::NetConf;
use crate::error::{CniError, Result, code};
use crate::request::Environment;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The environment variable with a folder that all paths below are relative to: for containers that see the host's
/// files elsewhere, and for tests.
pub(crate) const ROOT_VARIABLE: &str = "TORTIE_HOST_ROOT";

/// The paths on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPaths {
    /// The file with the node's name.
    pub nodename: PathBuf,
    /// The file with the MTU that the agent measured.
    pub mtu: PathBuf,
    /// The lock file by which plugins of this host take turns.
    pub ipam_lock: PathBuf,
    /// The marker file of an upgrade of address management's data.
    pub ipam_upgraded: PathBuf,
    /// The folder in which Felix shows which endpoints are programmed.
    pub endpoint_status: PathBuf,
    /// Releases that could not be carried out yet.
    pub journal: PathBuf,
    /// The folder of the locks by which calls for one container take turns.
    pub turns: PathBuf,
    /// The agent's socket.
    pub agent_socket: PathBuf,
    /// The folder of the files for Azure's IPAM plugin.
    pub azure: PathBuf,
    /// The folder where `host-local` kept its addresses, for the migration to `calico-ipam`.
    pub host_local: PathBuf,
}

impl HostPaths {
    /// The default paths below a folder, normally `/`.
    #[must_use]
    pub fn below(root: &Path) -> Self {
        Self {
            nodename: root.join("var/lib/calico/nodename"),
            mtu: root.join("var/lib/calico/mtu"),
            ipam_lock: root.join("var/run/calico/ipam.lock"),
            ipam_upgraded: root.join("var/run/calico/cni/ipam_upgraded"),
            endpoint_status: root.join("var/run/calico/endpoint-status"),
            journal: root.join("var/lib/calico/cni-pending"),
            turns: root.join("var/run/calico/cni/turns"),
            agent_socket: root.join("var/run/calico/cni-agent.sock"),
            azure: root.join("var/run/calico/azure/networks"),
            host_local: root.join("var/lib/cni/networks/k8s-pod-network"),
        }
    }

    /// The paths below the folder that the environment names.
    #[must_use]
    pub fn of(environment: &Environment) -> Self {
        let root = environment.get(ROOT_VARIABLE).filter(|root| !root.is_empty());
        Self::below(Path::new(root.map_or("/", String::as_str)))
    }

    /// The file with the node's name, as configured.
    fn nodename_file(&self, conf: &NetConf) -> PathBuf {
        named_or(&conf.nodename_file, |usual| &usual.nodename, self)
    }

    /// The folder in which Felix shows which endpoints are programmed, as configured.
    #[must_use]
    pub fn endpoint_status_folder(&self, conf: &NetConf) -> PathBuf {
        named_or(&conf.endpoint_status_dir, |usual| &usual.endpoint_status, self)
    }
}

/// The path that a configuration names. If that is the default path, the one from `paths` is used, which may be below
/// another root.
fn named_or(name: &str, place: fn(&HostPaths) -> &PathBuf, paths: &HostPaths) -> PathBuf {
    let is_usual = name.is_empty() || Path::new(name) == place(&HostPaths::below(Path::new("/")));
    if is_usual { place(paths).clone() } else { PathBuf::from(name) }
}

/// Whether the node's name is known without the host's own name.
#[must_use]
pub(crate) fn knows_its_node(conf: &NetConf, paths: &HostPaths) -> bool {
    let file = paths.nodename_file(conf);
    !conf.nodename.is_empty()
        || !conf.hostname.is_empty()
        || std::fs::read_to_string(file).is_ok_and(|name| !name.is_empty())
}

/// The node's name: from the configuration, from the file that the node's start-up wrote, or the host's own.
///
/// # Errors
/// When the start-up has not written the file yet, and the configuration does not make it optional.
pub(crate) fn node_name(conf: &NetConf, paths: &HostPaths) -> Result<String> {
    let file = paths.nodename_file(conf);
    let text = std::fs::read_to_string(&file);
    if let Err(error) = &text
        && !conf.nodename_file_optional
    {
        let reason = if error.kind() == ErrorKind::NotFound {
            "no such file or directory".to_owned()
        } else {
            error.to_string()
        };
        return Err(CniError::new(
            code::NODE_NOT_READY,
            format!(
                "stat {}: {reason}: check that the calico/node container is running and has mounted /var/lib/calico/",
                file.display()
            ),
        ));
    }
    let from_file = text.unwrap_or_default();
    let candidates = [conf.nodename.as_str(), from_file.as_str(), conf.hostname.as_str()];
    match candidates.into_iter().find(|name| !name.is_empty()) {
        Some(name) => Ok(name.to_owned()),
        None => Ok(own_host_name()),
    }
}

/// The host's own name, in lower case.
fn own_host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().trim().to_lowercase()
}

/// The MTU for the pod's device: from the configuration, or what the agent measured; `None` for the kernel's choice.
///
/// # Errors
/// When the file is required but missing, or does not contain a number.
pub(crate) fn mtu(conf: &NetConf, paths: &HostPaths) -> Result<Option<u32>> {
    let wrong = |reason: String| {
        CniError::new(
            code::NODE_NOT_READY,
            format!("failed to read MTU file: {}: {reason}", paths.mtu.display()),
        )
        .with_details(
            "the node's agent writes this file; check that it runs, or set mtu in the CNI configuration",
        )
    };
    let measured = match std::fs::read_to_string(&paths.mtu) {
        Ok(text) => Some(text.trim().parse::<u32>().map_err(|error| wrong(error.to_string()))?),
        Err(error) if error.kind() == ErrorKind::NotFound && !conf.require_mtu_file => None,
        Err(error) => return Err(wrong(error.to_string())),
    };
    match u32::try_from(conf.mtu) {
        Ok(0) => Ok(measured.filter(|mtu| *mtu != 0)),
        Ok(mtu) => Ok(Some(mtu)),
        Err(_) => {
            Err(CniError::new(code::INVALID_CONFIGURATION, format!("mtu {} is not possible", conf.mtu)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HostPaths, knows_its_node, mtu, node_name};
    use crate::config::NetConf;

    #[test]
    fn precedence_of_node_names() {
        let folder = tempfile::tempdir().unwrap();
        let paths = HostPaths::below(folder.path());
        let conf = NetConf { hostname: "old".into(), ..NetConf::default() };
        let error = node_name(&conf, &paths).unwrap_err();
        assert!(error.msg.contains("calico/node container is running"), "{error}");
        let optional = NetConf { nodename_file_optional: true, ..conf.clone() };
        assert_eq!(node_name(&optional, &paths).unwrap(), "old");
        std::fs::create_dir_all(paths.nodename.parent().unwrap()).unwrap();
        std::fs::write(&paths.nodename, "from-file").unwrap();
        assert_eq!(node_name(&conf, &paths).unwrap(), "from-file");
        let usual = NetConf { nodename_file: "/var/lib/calico/nodename".into(), ..conf.clone() };
        assert_eq!(node_name(&usual, &paths).unwrap(), "from-file");
        assert!(knows_its_node(&NetConf::default(), &paths));
        assert_eq!(node_name(&NetConf { nodename: "named".into(), ..conf }, &paths).unwrap(), "named");
        std::fs::write(&paths.nodename, "").unwrap();
        assert!(!node_name(&NetConf::default(), &paths).unwrap().is_empty());
        assert!(!knows_its_node(&NetConf::default(), &paths));
    }

    #[test]
    fn sources_of_the_mtu() {
        let folder = tempfile::tempdir().unwrap();
        let paths = HostPaths::below(folder.path());
        let required = NetConf { require_mtu_file: true, ..NetConf::default() };
        assert_eq!(mtu(&NetConf::default(), &paths).unwrap(), None);
        assert!(mtu(&required, &paths).is_err());
        std::fs::create_dir_all(paths.mtu.parent().unwrap()).unwrap();
        std::fs::write(&paths.mtu, "1450\n").unwrap();
        assert_eq!(mtu(&required, &paths).unwrap(), Some(1450));
        assert_eq!(mtu(&NetConf { mtu: 1400, ..NetConf::default() }, &paths).unwrap(), Some(1400));
        std::fs::write(&paths.mtu, "many").unwrap();
        assert!(mtu(&NetConf { mtu: 1400, ..NetConf::default() }, &paths).is_err());
    }
}
