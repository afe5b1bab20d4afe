//! The accounts of Calico's manifests on a real API server: the rights of each release's roles (`data/roles.txt`), and
//! a kubeconfig for a program with exactly these rights.
//!
//! A release or role that is not in the table is an error: a test of nothing would pass.

use crate::ApiServer;
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use std::path::PathBuf;

const TABLE: &str = include_str!("../data/roles.txt");

/// The releases that the table covers.
pub const RELEASES: [&str; 8] = ["3.26", "3.27", "3.28", "3.29", "3.30", "3.31", "3.32", "3.33"];

/// The rules of a role in a manifest (`calico`, `canal`, `calico-policy-only`) of a release, as RBAC rules.
///
/// # Errors
/// When the role is not in the table, or the table cannot be parsed.
pub fn rules(manifest: &str, role: &str, release: &str) -> Result<Vec<Value>> {
    let place = |wanted: &str| {
        RELEASES.iter().position(|known| *known == wanted).with_context(|| format!("no release {wanted}"))
    };
    let release = place(release)?;
    let mut rules = Vec::new();
    let mut is_wanted = false;
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(title) = line.strip_prefix('[') {
            is_wanted = title.trim_end_matches(']') == format!("{manifest} {role}");
            continue;
        }
        let words: Vec<&str> = line.split(' ').collect();
        let [first, last, group, resources, verbs, names @ ..] = words.as_slice() else {
            bail!("a line of the table of roles: {line}");
        };
        if !is_wanted || release < place(first)? || release > place(last)? {
            continue;
        }
        let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        let group = if *group == "core" { "" } else { group };
        let mut rule = json!({"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)});
        if let [names] = names {
            rule["resourceNames"] = json!(list(names));
        }
        rules.push(rule);
    }
    if rules.is_empty() {
        bail!("the table of roles has no {role} of {manifest}.yaml");
    }
    Ok(rules)
}

impl ApiServer {
    /// Creates a service account in `kube-system` with these rules, and a kubeconfig for it.
    ///
    /// # Errors
    /// When the server reports an error.
    pub fn account(&self, name: &str, rules: &[Value]) -> Result<PathBuf> {
        let group = "rbac.authorization.k8s.io";
        let namespace = "kube-system";
        let items = json!([
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}},
            {"apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
            {
                "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
            },
        ]);
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        self.kubectl_with_input(&["apply", "-f", "-"], &list.to_string())?;
        let token = self.kubectl_with_input(&["create", "token", name, "-n", namespace], "")?;
        self.kubeconfig_with_token(name, token.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_of_every_release_can_be_read() -> Result<()> {
        for release in RELEASES {
            for (manifest, role) in [
                ("calico", "calico-node"),
                ("calico", "calico-kube-controllers"),
                ("calico", "calico-cni-plugin"),
                ("canal", "calico-node"),
                ("calico-policy-only", "calico-node"),
            ] {
                assert!(rules(manifest, role, release)?.len() > 2, "{manifest} {role} {release}");
            }
        }
        let may = |release: &str, resource: &str| -> Result<bool> {
            let rules = rules("calico", "calico-kube-controllers", release)?;
            Ok(rules.iter().any(|rule| rule["resources"].to_string().contains(resource)))
        };
        assert!(!may("3.28", "\"tiers\"")? && may("3.29", "\"tiers\"")?);
        assert!(rules("calico", "calico-node", "3.25").is_err());
        assert!(rules("calico", "nobody", "3.30").is_err());
        Ok(())
    }
}
