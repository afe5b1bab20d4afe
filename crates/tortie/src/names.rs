//! Decides which component a name and its arguments select, without starting anything.
//!
//! Manifests of two generations are in the field: programs with names of their own (`calico-node -felix-live`,
//! `/opt/cni/bin/install`), and one program with a tree of commands (`calico component node health --felix-live`). A
//! container runtime calls plugins by name, with `CNI_COMMAND` set.

use cni_plugins::ReferencePlugin;
use std::ffi::OsString;
use std::path::Path;

/// The component to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// The command line tool, with these arguments (the program's name first).
    Ctl(Vec<OsString>),
    /// The CNI plugin.
    Plugin,
    /// The IPAM plugin.
    IpamPlugin,
    /// A reference plugin that conflists use.
    ReferencePlugin(ReferencePlugin),
    /// The CNI installer.
    Installer,
    /// The node: starts and supervises its parts.
    Node,
    /// The policy agent.
    Felix,
    /// The probe of the Kubernetes controllers, under its old name.
    CheckStatus,
    /// The version, in the format of Calico's programs.
    Version,
    /// The help text of the IPAM plugin.
    IpamHelp,
    /// One call of the kubelet to the FlexVolume driver, with these arguments (the program's name first).
    FlexVolume(Vec<OsString>),
    /// The FlexVolume driver's installer, by the flags of the script that older images have (the script's name first).
    FlexVolumeScript(Vec<OsString>),
    /// The node, by the flags of older manifests (without the program's name).
    OldNode(Vec<String>),
    /// The tree of commands, with these arguments (the program's name first).
    Tree(Vec<OsString>),
}

/// The first words of the tree. If `CNI_COMMAND` is set, any other word means the plugin.
const WORDS: [&str; 30] = [
    "apiserver",
    "bgp",
    "cni",
    "component",
    "confd",
    "connectivity",
    "crds",
    "ctl",
    "datastore",
    "doctor",
    "felix",
    "flows",
    "goldmane",
    "health",
    "help",
    "install",
    "kube-controllers",
    "lab",
    "manifests",
    "migrate",
    "node",
    "probe",
    "status",
    "typha",
    "uninstall",
    "upgrade",
    "version",
    "webhooks",
    "whisker",
    "--help",
];

/// Selects the entry. `arguments` begin with the program's name; `cni_command` is the variable of that name.
pub(crate) fn choose(arguments: &[OsString], cni_command: Option<&OsString>) -> Entry {
    let name = arguments
        .first()
        .and_then(|path| Path::new(path).file_name()?.to_str())
        .unwrap_or("tortie")
        .to_owned();
    let rest = arguments.get(1..).unwrap_or_default();
    let text = || rest.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>();
    let first = rest.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let is_flag = |flags: &[&str]| rest.len() == 1 && flags.contains(&first.as_str());
    if let Some(plugin) = ReferencePlugin::from_name(&name) {
        return Entry::ReferencePlugin(plugin);
    }
    match name.as_str() {
        "calico" | "calico-ipam" if is_flag(&["-v", "--v"]) => return Entry::Version,
        "calico-ipam" if is_flag(&["-h", "-help", "--help"]) => return Entry::IpamHelp,
        "calico" if is_flag(&["-help"]) => {
            return Entry::Tree(vec![OsString::from("calico"), OsString::from("--help")]);
        }
        "calico-ipam" => return Entry::IpamPlugin,
        "calicoctl" | "kubectl-calico" => return Entry::Ctl(arguments.to_vec()),
        "install" => return Entry::Installer,
        "start_runit" => return Entry::Node,
        "check-status" => return Entry::CheckStatus,
        "uds" | "flexvol" => return Entry::FlexVolume(arguments.to_vec()),
        "flexvol.sh" => return Entry::FlexVolumeScript(arguments.to_vec()),
        // Components that are also programs with names of their own, but have no top-level command. Go accepts one dash
        // for two.
        "csi-driver" | "node-driver-registrar" | "csi-node-driver-registrar" | "key-cert-provisioner" => {
            let component = match name.as_str() {
                "csi-driver" => "csi",
                other => other.strip_prefix("csi-").unwrap_or(other),
            };
            let words = ["tortie", "component", component].map(OsString::from).into_iter();
            return Entry::Tree(words.chain(rest.iter().map(doubled)).collect());
        }
        // Components that were separate programs in older images, followed by their flags.
        "calico-typha" | "calico-apiserver" | "apiserver" | "kube-controllers" | "goldmane"
        | "whisker-backend" | "webhook" | "health" => {
            let command = match name.as_str() {
                "whisker-backend" => "whisker",
                "webhook" => "webhooks",
                other => other.strip_prefix("calico-").unwrap_or(other),
            };
            let mut words = vec![OsString::from("tortie"), OsString::from(command)];
            // Of these programs, only the probe is called with single dashes.
            let as_called = |word: &OsString| if name == "health" { doubled(word) } else { word.clone() };
            words.extend(rest.iter().map(as_called));
            return Entry::Tree(words);
        }
        // Felix as the program in packages for hosts, with its own flags. The node starts it by the same name, followed
        // by words of the tree.
        "calico-felix" if first != "component" => {
            let mut words = vec![OsString::from("tortie"), OsString::from("felix")];
            words.extend(rest.iter().cloned());
            return Entry::Tree(words);
        }
        "calico-node" if rest.is_empty() => return Entry::Node,
        "calico-node" if rest.first().is_some_and(|word| !word.to_string_lossy().starts_with('-')) => {
            return Entry::Tree(arguments.to_vec());
        }
        "calico-node" if text().iter().any(|word| word.trim_start_matches('-') == "felix") => {
            return Entry::Felix;
        }
        "calico-node" => return Entry::OldNode(text()),
        _ => {}
    }
    let is_called_as_plugin = cni_command.is_some_and(|command| !command.is_empty());
    // The plugin's own flags do not need a runtime's command.
    let is_plugin_flag =
        name == "calico" && matches!(first.trim_start_matches('-'), "v" | "t") && first.starts_with('-');
    if (is_called_as_plugin && !WORDS.contains(&first.as_str())) || is_plugin_flag {
        return Entry::Plugin;
    }
    if first == "ctl" {
        // The tool is called `ctl` here, followed by its own arguments.
        return Entry::Ctl(rest.to_vec());
    }
    if first == "flows" {
        // A command of the tool, for users who have only this program under its own name.
        let tool = std::iter::once(OsString::from("calicoctl"));
        return Entry::Ctl(tool.chain(rest.iter().cloned()).collect());
    }
    Entry::Tree(arguments.to_vec())
}

/// A flag with two dashes; Go accepts one for two.
fn doubled(word: &OsString) -> OsString {
    match word.to_str() {
        Some(text) if text.starts_with('-') && !text.starts_with("--") && !matches!(text, "-" | "-h") => {
            OsString::from(format!("-{text}"))
        }
        _ => word.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn chosen(line: &str, cni_command: &str) -> Entry {
        choose(&words(line), Some(&OsString::from(cni_command)).filter(|command| !command.is_empty()))
    }

    #[test]
    fn names_of_both_generations() {
        let old = |flags: &[&str]| Entry::OldNode(flags.iter().map(|flag| (*flag).to_owned()).collect());
        for (line, cni_command, expected) in [
            ("/opt/cni/bin/calico-ipam", "ADD", Entry::IpamPlugin),
            ("/opt/cni/bin/calico-ipam -upgrade", "", Entry::IpamPlugin),
            ("/opt/cni/bin/calico", "ADD", Entry::Plugin),
            ("/opt/cni/bin/calico -v", "", Entry::Version),
            ("/opt/cni/bin/calico-ipam -v", "", Entry::Version),
            ("/opt/cni/bin/calico -t", "", Entry::Plugin),
            ("/opt/cni/bin/calico-ipam -h", "", Entry::IpamHelp),
            ("/opt/cni/bin/calico -h", "", Entry::Tree(words("/opt/cni/bin/calico -h"))),
            ("/opt/cni/bin/calico -help", "", Entry::Tree(words("calico --help"))),
            ("calico-node --help", "", old(&["--help"])),
            ("/opt/cni/bin/install", "", Entry::Installer),
            ("/opt/cni/bin/portmap", "ADD", Entry::ReferencePlugin(ReferencePlugin::Portmap)),
            ("/opt/cni/bin/loopback", "", Entry::ReferencePlugin(ReferencePlugin::Loopback)),
            ("/bin/calico-node -felix-live -bird-live", "", old(&["-felix-live", "-bird-live"])),
            ("/bin/calico-node -shutdown", "", old(&["-shutdown"])),
            ("calico-node -felix", "", Entry::Felix),
            ("calico-node", "", Entry::Node),
            ("/usr/bin/calico-felix -c x", "", Entry::Tree(words("tortie felix -c x"))),
            ("calico-felix component felix", "", Entry::Tree(words("calico-felix component felix"))),
            ("start_runit", "", Entry::Node),
            ("/usr/bin/check-status -l", "", Entry::CheckStatus),
            (
                "/usr/bin/kube-controllers --health-port 9440",
                "",
                Entry::Tree(words("tortie kube-controllers --health-port 9440")),
            ),
            (
                "/usr/bin/calico-apiserver --secure-port=5443",
                "",
                Entry::Tree(words("tortie apiserver --secure-port=5443")),
            ),
            (
                "/code/apiserver --secure-port=5443 -v=5",
                "",
                Entry::Tree(words("tortie apiserver --secure-port=5443 -v=5")),
            ),
            ("/goldmane", "", Entry::Tree(words("tortie goldmane"))),
            ("/whisker-backend", "", Entry::Tree(words("tortie whisker"))),
            ("/webhook -v=5", "", Entry::Tree(words("tortie webhooks -v=5"))),
            (
                "/health -port=8080 --type=liveness",
                "",
                Entry::Tree(words("tortie health --port=8080 --type=liveness")),
            ),
            (
                "/usr/local/bin/csi-driver --nodeid=n -loglevel warn",
                "",
                Entry::Tree(words("tortie component csi --nodeid=n --loglevel warn")),
            ),
            (
                "/usr/bin/csi-node-driver-registrar --v=5 -csi-address=/csi/csi.sock",
                "",
                Entry::Tree(words(
                    "tortie component node-driver-registrar --v=5 --csi-address=/csi/csi.sock",
                )),
            ),
            (
                "/usr/bin/node-driver-registrar -v=5",
                "",
                Entry::Tree(words("tortie component node-driver-registrar --v=5")),
            ),
            (
                "/usr/bin/key-cert-provisioner",
                "",
                Entry::Tree(words("tortie component key-cert-provisioner")),
            ),
            (
                "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/nodeagent~uds/uds unmount /x",
                "",
                Entry::FlexVolume(words(
                    "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/nodeagent~uds/uds unmount /x",
                )),
            ),
            ("/usr/local/bin/flexvol init", "", Entry::FlexVolume(words("/usr/local/bin/flexvol init"))),
            (
                "/usr/local/bin/flexvol.sh -d uds",
                "",
                Entry::FlexVolumeScript(words("/usr/local/bin/flexvol.sh -d uds")),
            ),
            ("kubectl-calico get nodes", "", Entry::Ctl(words("kubectl-calico get nodes"))),
            ("tortie ctl get nodes", "", Entry::Ctl(words("ctl get nodes"))),
            ("calico ctl version", "ADD", Entry::Ctl(words("ctl version"))),
            ("tortie flows --denied", "", Entry::Ctl(words("calicoctl flows --denied"))),
            ("calico component node startup", "", Entry::Tree(words("calico component node startup"))),
            ("calico component node startup", "ADD", Entry::Tree(words("calico component node startup"))),
            ("tortie lab internal inside", "ADD", Entry::Tree(words("tortie lab internal inside"))),
            ("tortie", "DEL", Entry::Plugin),
            ("tortie", "", Entry::Tree(words("tortie"))),
        ] {
            assert_eq!(chosen(line, cni_command), expected, "{line} {cni_command}");
        }
    }
}
