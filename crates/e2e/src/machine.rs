//! A node's machine: its own namespaces of all kinds, a root that overlays this machine's, and a first process whose
//! end terminates all others there.
//!
//! The root is an overlay, so that manifests find `/opt/cni/bin`, `/etc/cni/net.d`, `/lib/modules` and
//! `/var/run/calico` where they expect them, separately for each node, and this machine stays unchanged.

use crate::waiting::until;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use testkit::network::Namespace;
use testkit::{Process, program};

/// Runs as the first process of the machine: creates the root, moves into it, and stays.
const FIRST_PROCESS: &str = r#"set -e
folder=$1 name=$2 name_server=$3
hostname "$name"
mount -t tmpfs changes "$folder/changes"
mkdir "$folder/changes/upper" "$folder/changes/work" "$folder/changes/root"
mount -t overlay root -o "lowerdir=/,upperdir=$folder/changes/upper,workdir=$folder/changes/work" "$folder/changes/root"
cd "$folder/changes/root"
rm -rf opt/cni etc/cni etc/containerd var/lib/cni var/lib/calico var/lib/kubelet var/lib/containerd var/log
mkdir -p opt/cni/bin etc/cni/net.d etc/calico var/lib/cni var/lib/calico var/lib/kubelet var/lib/containerd var/log/pods lib/modules "./$folder" previous-root
printf 'nameserver %s\n' "$name_server" >etc/resolv.conf
printf '127.0.0.1 localhost\n::1 localhost\n' >etc/hosts
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /sys/fs/cgroup sys/fs/cgroup
mount -t bpf bpf sys/fs/bpf
mount --rbind /dev dev
mount -t tmpfs run run
mount --bind "$folder" "./$folder"
mount --bind "$folder/kubelet" var/lib/kubelet
mount --bind "$folder/containerd" var/lib/containerd
pivot_root . previous-root
umount -l /previous-root
mount --make-rshared /
touch /run/ready
while :; do sleep 3600 & wait $!; done
"#;

/// Moves itself into a control group, and executes the program that follows.
const JOIN: &str = r#"echo 0 >"$1/cgroup.procs" && shift && exec "$@""#;

/// The parts of a machine besides its name.
#[derive(Clone, Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) network: &'a Namespace,
    /// An empty folder for its files and logs.
    pub(crate) folder: &'a Path,
    /// The address of the cluster's name server.
    pub(crate) name_server: &'a str,
    /// The control group to use as the root on this machine; `None` to keep the existing root.
    pub(crate) group: Option<PathBuf>,
}

/// A machine. Its processes end when this is dropped.
#[derive(Debug)]
pub(crate) struct Machine {
    keeper: Process,
    /// The process ID of its first process on the host.
    first: u32,
    folder: PathBuf,
    group: Option<PathBuf>,
}

impl Machine {
    /// Starts the machine.
    pub(crate) fn start(name: &str, parts: Parts<'_>) -> Result<Self> {
        let Parts { network, folder, name_server, group } = parts;
        for part in ["changes", "kubelet", "containerd"] {
            std::fs::create_dir_all(folder.join(part))?;
        }
        let cgroup = if group.is_some() { "--cgroup" } else { "--pid" };
        let words = [
            &format!("--net=/var/run/netns/{}", network.name()),
            "unshare",
            "--mount",
            "--uts",
            "--ipc",
            "--pid",
            "--fork",
            "--kill-child",
            "--propagation=private",
            cgroup,
            "sh",
            "-c",
            FIRST_PROCESS,
            "first-process",
            &folder.display().to_string(),
            name,
            name_server,
        ];
        let words = words.map(str::to_owned).to_vec();
        let mut keeper = start(group.as_deref(), words, &folder.join("first-process.log"))?;
        let id = keeper.id();
        let first = until("the machine's first process", || -> Result<u32> {
            keeper.check_running()?;
            let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
            let first = children.split_whitespace().next().context("it has not forked yet")?;
            ensure!(Path::new(&format!("/proc/{first}/root/run/ready")).exists(), "it is not ready");
            Ok(first.parse()?)
        })?;
        Ok(Self { keeper, first, folder: folder.to_owned(), group })
    }

    /// The folder of its files and logs, at the same path inside and outside.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn words(&self) -> Vec<String> {
        let mut words = vec!["-t".to_owned(), self.first.to_string()];
        let cgroup = if self.group.is_some() { "-C" } else { "-p" };
        words.extend(["-m", "-u", "-i", "-n", "-p", cgroup, "--"].map(str::to_owned));
        words
    }

    /// Starts a program that keeps running, with its log in the folder.
    pub(crate) fn spawn(&self, program_path: &Path, arguments: &[String]) -> Result<Process> {
        let name = program_path.file_name().context("a program has a name")?.to_string_lossy().into_owned();
        let mut words = self.words();
        words.push(program_path.display().to_string());
        words.extend_from_slice(arguments);
        start(self.group.as_deref(), words, &self.folder.join(format!("{name}.log")))
    }

    /// Runs a program on the machine to its end.
    pub(crate) fn run(&self, program_name: &str, arguments: &[&str]) -> Result<Output> {
        let nsenter = program("nsenter", "install Debian's util-linux")?;
        let mut command = Command::new(nsenter);
        command.args(self.words()).arg(program_name).args(arguments);
        command.output().with_context(|| format!("running {program_name}"))
    }

    /// Runs a program on the machine, which must succeed; returns its output.
    pub(crate) fn must(&self, program_name: &str, arguments: &[&str]) -> Result<String> {
        let output = self.run(program_name, arguments)?;
        ensure!(
            output.status.success(),
            "{program_name} {arguments:?} ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Checks that the machine is still running.
    pub(crate) fn check_running(&mut self) -> Result<()> {
        self.keeper.check_running()
    }
}

/// Starts `nsenter` with these arguments, in a control group if one is named: the program that it starts is in the same
/// group.
fn start(group: Option<&Path>, words: Vec<String>, log: &Path) -> Result<Process> {
    let nsenter = program("nsenter", "install Debian's util-linux")?;
    let Some(group) = group else { return Process::start(&nsenter, &words, log) };
    let before = ["-c", JOIN, "join", &group.display().to_string(), &nsenter.display().to_string()];
    let words: Vec<String> = before.into_iter().map(str::to_owned).chain(words).collect();
    Process::start(&program("sh", "install a shell")?, &words, log)
}
