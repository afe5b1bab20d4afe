//! The parts of a node, and the arguments and variables of each.

use crate::environment::{Backend, BgpSpeaker, Settings};
use daemon::Environment;
use std::ffi::OsString;

/// A part of the node that runs as a separate process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Its name, which is also the name of its file.
    pub name: &'static str,
    /// The name of its process. Calico's `calicoctl node status` looks for processes by name.
    pub called: &'static str,
    /// The arguments that make this program run that part.
    pub arguments: &'static [&'static str],
    /// Variables in addition to our own.
    pub variables: Vec<(&'static str, OsString)>,
    /// Whether this program contains that part.
    pub available: bool,
}

/// The part that speaks BGP itself.
pub(crate) const NATIVE_SPEAKER: &str = "bgp";
/// A process for Calico's `calicoctl node status`, which queries IPv6 only if it finds a process called `bird6`. The
/// native speaker, called `bird`, speaks both families and answers on both sockets; this process only waits for the
/// shutdown.
const BIRD6: &str = "bird6";
/// The part that runs BIRD.
pub(crate) const CONFD: &str = "confd";

/// Felix has its own names for these settings.
const FELIX_NAMES: [(&str, &str); 7] = [
    ("ETCD_AUTHORITY", "FELIX_ETCDADDR"),
    ("ETCD_ENDPOINTS", "FELIX_ETCDENDPOINTS"),
    ("ETCD_SCHEME", "FELIX_ETCDSCHEME"),
    ("ETCD_CA_CERT_FILE", "FELIX_ETCDCAFILE"),
    ("ETCD_KEY_FILE", "FELIX_ETCDKEYFILE"),
    ("ETCD_CERT_FILE", "FELIX_ETCDCERTFILE"),
    ("DATASTORE_TYPE", "FELIX_DATASTORETYPE"),
];

/// The parts that the settings require. `available` are the names of the components in this program.
#[must_use]
pub(crate) fn parts(
    settings: &Settings,
    environment: &dyn Environment,
    node_name: &str,
    available: &[&str],
) -> Vec<Part> {
    let node_name = OsString::from(node_name);
    let named = || vec![("NODENAME", node_name.clone())];
    let mut parts = vec![Part {
        name: "node-services",
        called: "calico-node",
        arguments: &["component", "node", "node-services"],
        variables: named(),
        available: true,
    }];
    if !settings.disable_felix {
        let mut variables = named();
        variables.push(("FELIX_FELIXHOSTNAME", node_name.clone()));
        for (ours, felix) in FELIX_NAMES {
            // Calico's Felix does not know the embedded store, so its parameter has no such value; ours reads the
            // client's variable.
            let is_ours = |value: &OsString| felix == "FELIX_DATASTORETYPE" && value == "embedded";
            let value = environment.variable(ours).filter(|value| !value.is_empty() && !is_ours(value));
            variables.extend(value.map(|value| (felix, value)));
        }
        parts.push(Part {
            name: "felix",
            called: "calico-felix",
            arguments: &["component", "felix"],
            variables,
            available: available.contains(&"felix"),
        });
    }
    if settings.backend() == Backend::Bird {
        // BIRD itself is started by confd, which knows when its files are ready.
        let (name, called, arguments): (_, _, &[&str]) = match settings.bgp_speaker {
            BgpSpeaker::Native => (NATIVE_SPEAKER, "bird", &["component", "bgp"]),
            BgpSpeaker::Bird => (CONFD, "calico-node", &["component", "confd"]),
        };
        let available = available.contains(&name);
        parts.push(Part { name, called, arguments, variables: named(), available });
        if name == NATIVE_SPEAKER {
            let arguments = &["component", "node", BIRD6];
            parts.push(Part { name: BIRD6, called: BIRD6, arguments, variables: Vec::new(), available });
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use daemon::Variables;

    fn planned(variables: &[(&str, &str)]) -> Vec<Part> {
        let variables = Variables::new(variables.iter().copied());
        let settings = Settings::read(&variables).expect("usable variables");
        parts(&settings, &variables, "n", &["felix"])
    }

    fn names(variables: &[(&str, &str)]) -> Vec<&'static str> {
        planned(variables).iter().map(|part| part.name).collect()
    }

    #[test]
    fn the_backend_determines_the_parts() {
        assert_eq!(names(&[]), ["node-services", "felix", "bgp", "bird6"]);
        assert_eq!(names(&[("TORTIE_BGP_SPEAKER", "bird")]), ["node-services", "felix", "confd"]);
        assert_eq!(names(&[("CALICO_NETWORKING_BACKEND", "vxlan")]), ["node-services", "felix"]);
        assert_eq!(
            names(&[("CALICO_NETWORKING_BACKEND", "none"), ("CALICO_DISABLE_FELIX", "yes")]),
            ["node-services"]
        );
        let missing: Vec<&str> =
            planned(&[]).iter().filter(|part| !part.available).map(|part| part.name).collect();
        assert_eq!(missing, ["bgp", "bird6"]);
    }

    #[test]
    fn felix_gets_settings_by_its_own_names() {
        let parts = planned(&[
            ("ETCD_ENDPOINTS", "http://1.2.3.4:2379"),
            ("ETCD_KEY_FILE", ""),
            ("DATASTORE_TYPE", "etcdv3"),
        ]);
        let felix = &parts[1];
        let expected: Vec<(&str, OsString)> = vec![
            ("NODENAME", "n".into()),
            ("FELIX_FELIXHOSTNAME", "n".into()),
            ("FELIX_ETCDENDPOINTS", "http://1.2.3.4:2379".into()),
            ("FELIX_DATASTORETYPE", "etcdv3".into()),
        ];
        assert_eq!(felix.variables, expected);
        let embedded = planned(&[("DATASTORE_TYPE", "embedded")]);
        assert_eq!(embedded[1].variables, expected[..2]);
    }
}
