//! The table of variables, and the page that is made from it. What is not in it is not read.

use super::environment::names;
use std::fmt::Write as _;

/// One variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What holds when neither the variable nor the resource says anything.
    pub default: &'static str,
    /// The field of the KubeControllersConfiguration `default` that it beats; empty for none.
    pub field: &'static str,
    /// What it means, in one sentence.
    pub doc: &'static str,
}

const fn variable(
    name: &'static str,
    default: &'static str,
    field: &'static str,
    doc: &'static str,
) -> Variable {
    Variable { name, default, field, doc }
}

/// Every variable of the controllers' own, by name. Where the datastore is, is the client's table.
pub const VARIABLES: &[Variable] = &[
    variable(
        names::AUTO_HOST_ENDPOINTS,
        "disabled",
        "controllers.node.hostEndpoint.autoCreate",
        "Whether every node gets a host endpoint: `enabled` or `disabled`.",
    ),
    variable(
        names::COMPACTION_PERIOD,
        "10m",
        "etcdV3CompactionPeriod",
        "How often old revisions of etcd are compacted; `0` for never.",
    ),
    variable(
        names::ENABLED_CONTROLLERS,
        "",
        "controllers",
        "Which controllers run: `node`, `policy`, `namespace` (or `profile`), `serviceaccount`, `workloadendpoint`, \
         `loadbalancer`, separated by commas; or `flannelmigration` alone. Unless set: those that the resource has.",
    ),
    variable(names::HEALTH_ENABLED, "true", "healthChecks", "Whether the status file is kept."),
    variable(
        names::LOG_LEVEL,
        "info",
        "logSeverityScreen",
        "The least severe message that is logged: `trace`, `debug`, `info`, `warning`, `error`, `fatal` or `panic`.",
    ),
    variable(
        names::NODE_WORKERS,
        "1",
        "",
        "Accepted for compatibility: the node controller never had more than one worker.",
    ),
    variable(names::POLICY_WORKERS, "1", "", "Workers of the policy controller, with eight requests each."),
    variable(
        names::PROFILE_WORKERS,
        "1",
        "",
        "Workers of the namespace and service account controllers, with eight requests each.",
    ),
    variable(
        names::RECONCILER_PERIOD,
        "5m",
        "controllers.NAME.reconcilerPeriod",
        "How often a controller that copies compares everything; `0` for only at the start.",
    ),
    variable(
        names::SYNC_NODE_LABELS,
        "true",
        "controllers.node.syncLabels",
        "Whether labels of Kubernetes' nodes are copied (with etcd).",
    ),
    variable(
        names::WORKLOAD_ENDPOINT_WORKERS,
        "1",
        "",
        "Workers of the workload endpoint controller, with eight requests each.",
    ),
];

/// The reference page of the table, as Markdown.
#[must_use]
pub fn reference_page() -> String {
    let mut page =
        String::from("| Variable | Default | Beats the field | Meaning |\n| --- | --- | --- | --- |\n");
    let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
    for variable in VARIABLES {
        let Variable { name, default, field, doc } = variable;
        // Writing to a String cannot fail.
        let _ = writeln!(page, "| `{name}` | {} | {} | {doc} |", code(default), code(field));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EnvironmentSettings;
    use client::config::Environment;
    use std::collections::BTreeSet;
    use std::ffi::OsString;
    use std::io;
    use std::path::Path;
    use std::sync::Mutex;

    /// An environment without variables that remembers which it was asked for.
    struct Asked(Mutex<BTreeSet<String>>);

    impl Environment for Asked {
        fn variable(&self, name: &str) -> Option<OsString> {
            self.0.lock().expect("a list").insert(name.to_owned());
            None
        }

        fn read_file(&self, _: &Path) -> io::Result<String> {
            Err(io::ErrorKind::NotFound.into())
        }

        fn exists(&self, _: &Path) -> bool {
            false
        }
    }

    #[test]
    fn the_table_is_what_is_read() {
        let asked = Asked(Mutex::new(BTreeSet::new()));
        EnvironmentSettings::read(&asked).expect("nothing can be wrong");
        let names: Vec<String> = VARIABLES.iter().map(|variable| variable.name.to_owned()).collect();
        assert_eq!(asked.0.into_inner().expect("a list").into_iter().collect::<Vec<_>>(), names);
    }
}
