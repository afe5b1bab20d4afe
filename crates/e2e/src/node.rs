//! A node: a machine with containerd, kubelet and, unless it is left out, kube-proxy.

use crate::cgroups::ControlGroups;
use crate::control_plane::ControlPlane;
use crate::documents;
use crate::machine::{Machine, Parts};
use crate::settings::{Proxy, Settings};
use crate::waiting::until;
use crate::wires;
use anyhow::{Context, Result};
use serde_json::json;
use std::path::Path;
use testkit::network::Namespace;
use testkit::{Process, kubernetes_program, program};

const REMEDY: &str = "install Debian's containerd and runc (`make setup` does)";

/// The image of the process that holds a pod's namespaces.
pub(crate) const PAUSE: &str = "registry.k8s.io/pause:3.10";

/// A node. The order of fields is the order in which they are dropped: first the machine, with everything that runs
/// there.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) machine: Machine,
    processes: Vec<Process>,
    _groups: ControlGroups,
    _network: Namespace,
}

impl Node {
    /// Starts the node with this number, with its images.
    pub(crate) fn start(
        id: &str,
        number: usize,
        plane: &ControlPlane,
        folder: &Path,
        images: &[&Path],
        settings: &Settings,
    ) -> Result<Self> {
        let name = format!("node{number}");
        let folder = folder.join(&name);
        std::fs::create_dir_all(&folder)?;
        let network = wires::node(id, number, plane.namespace(), plane.families)?;
        let groups = ControlGroups::new(&format!("{id}-{name}"))?;
        let parts = Parts {
            network: &network,
            folder: &folder,
            name_server: &plane.families.name_server(),
            // Our own service load balancing attaches to control groups: each node's to its own.
            group: if settings.proxy == Proxy::None { groups.unified() } else { None },
        };
        let machine = Machine::start(&name, parts)?;
        let mut node = Self { name, machine, processes: Vec::new(), _groups: groups, _network: network };
        node.containerd()?;
        for image in images {
            // Inside the machine, only the node's own folder has the same contents as outside.
            let copy = folder.join("image.tar");
            std::fs::copy(image, &copy).with_context(|| format!("copying {}", image.display()))?;
            // With the command of docs/install.md.
            for line in documents::lines("install.md", "ctr -n k8s.io images import")? {
                let line = line.replace("tortie-images.tar", &copy.display().to_string());
                let words: Vec<&str> = line.split_whitespace().skip(1).collect();
                node.machine.must("ctr", &words)?;
            }
            std::fs::remove_file(copy)?;
        }
        node.kubelet(number, plane)?;
        if let Some(mode) = settings.proxy.word() {
            node.proxy(plane, mode)?;
        }
        Ok(node)
    }

    /// Runs `ctr` in the namespace of Kubernetes' containers.
    pub(crate) fn ctr(&self, arguments: &[&str]) -> Result<String> {
        let mut words = vec!["-n", "k8s.io"];
        words.extend_from_slice(arguments);
        self.machine.must("ctr", &words)
    }

    fn containerd(&mut self) -> Result<()> {
        // This machine may not permit lowering OOM scores; missing huge page controllers do not matter.
        let configuration = format!(
            "version = 2\nroot = \"/var/lib/containerd\"\nstate = \"/run/containerd\"\n[grpc]\naddress = \
             \"/run/containerd/containerd.sock\"\n[plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \
             \"{PAUSE}\"\nrestrict_oom_score_adj = true\ndisable_hugetlb_controller = true\n\
             tolerate_missing_hugetlb_controller = true\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \
             \"/opt/cni/bin\"\nconf_dir = \"/etc/cni/net.d\"\n"
        );
        let path = self.machine.folder().join("containerd.toml");
        std::fs::write(&path, configuration)?;
        program("runc", REMEDY)?;
        let containerd = program("containerd", REMEDY)?;
        let process = self.machine.spawn(&containerd, &["--config".into(), path.display().to_string()])?;
        self.processes.push(process);
        until("containerd", || self.ctr(&["version"]).map(drop))
    }

    fn kubelet(&mut self, number: usize, plane: &ControlPlane) -> Result<()> {
        let kubeconfig = plane.kubeconfig(&format!("system:node:{}", self.name), "system:nodes")?;
        let files = self.take_in(&kubeconfig, plane)?;
        let configuration = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": false},
                "webhook": {"enabled": false},
                "x509": {"clientCAFile": files.authority},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self._groups.path(),
            "cgroupsPerQOS": true,
            "enforceNodeAllocatable": ["none"],
            "failCgroupV1": false,
            "failSwapOn": false,
            "localStorageCapacityIsolation": false,
            "makeIPTablesUtilChains": false,
            "clusterDNS": [plane.families.name_server()],
            "clusterDomain": "cluster.local",
            "maxPods": 150,
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "registerWithTaints": [],
            "syncFrequency": "10s",
        });
        let path = self.machine.folder().join("kubelet.json");
        std::fs::write(&path, serde_json::to_vec_pretty(&configuration)?)?;
        let addresses = plane.families.node(number).join(",");
        let process = self.machine.spawn(
            &kubernetes_program("kubelet")?,
            &[
                format!("--config={}", path.display()),
                format!("--kubeconfig={}", files.kubeconfig),
                format!("--hostname-override={}", self.name),
                format!("--node-ip={addresses}"),
            ],
        )?;
        self.processes.push(process);
        Ok(())
    }

    fn proxy(&mut self, plane: &ControlPlane, mode: &str) -> Result<()> {
        let kubeconfig = plane.kubeconfig(&format!("system:kube-proxy-{}", self.name), "system:masters")?;
        let files = self.take_in(&kubeconfig, plane)?;
        let process = self.machine.spawn(
            &kubernetes_program("kube-proxy")?,
            &[
                format!("--kubeconfig={}", files.kubeconfig),
                format!("--hostname-override={}", self.name),
                format!("--proxy-mode={mode}"),
                format!("--cluster-cidr={}", plane.families.pod_ranges()),
                // The machine's limits are not for this node to set.
                "--conntrack-max-per-core=0".into(),
                "--conntrack-tcp-timeout-established=0s".into(),
                "--conntrack-tcp-timeout-close-wait=0s".into(),
            ],
        )?;
        self.processes.push(process);
        Ok(())
    }

    /// Copies what a program needs to reach the API into the node's folder: nothing else on this machine is changed.
    fn take_in(&self, kubeconfig: &Path, plane: &ControlPlane) -> Result<Files> {
        let authority = self.machine.folder().join("ca.pem");
        std::fs::copy(plane.authority(), &authority)?;
        let outside = plane.authority().parent().context("a file has a folder")?.display().to_string();
        let inside = self.machine.folder().display().to_string();
        let text = std::fs::read_to_string(kubeconfig)?;
        for word in text.split_whitespace().filter(|word| word.starts_with(&outside)) {
            std::fs::copy(word, word.replacen(&outside, &inside, 1))?;
        }
        let name = kubeconfig.file_name().context("a file has a name")?;
        let path = self.machine.folder().join(name);
        std::fs::write(&path, text.replace(&outside, &inside))?;
        Ok(Files { kubeconfig: path.display().to_string(), authority: authority.display().to_string() })
    }

    /// Checks that everything is still running.
    pub(crate) fn check_running(&mut self) -> Result<()> {
        self.machine.check_running()?;
        self.processes.iter_mut().try_for_each(Process::check_running).with_context(|| self.name.clone())
    }
}

struct Files {
    kubeconfig: String,
    authority: String,
}
