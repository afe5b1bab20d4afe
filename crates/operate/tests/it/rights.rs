//! Compares our roles with Calico's: a component's rights in Calico's manifests must also be in ours.

use anyhow::Result;
use manifests::parts::Rule;
use manifests::{Like, roles};
use serde_json::Value;

/// Rights in Calico's role that ours does not need: its migration to another form of storage.
const LEFT_OUT: [&str; 3] = ["apiextensions.k8s.io", "apiregistration.k8s.io", "migration.projectcalico.org"];

fn allows(rules: &[Rule], group: &str, resource: &str, verb: &str) -> bool {
    rules.iter().any(|rule| {
        rule.groups.contains(&group) && rule.resources.contains(&resource) && rule.verbs.contains(&verb)
    })
}

#[test]
fn everything_that_calicos_roles_allow() -> Result<()> {
    for (manifest, like) in [
        ("calico", Like::Calico),
        ("calico", Like::CalicoVxlan),
        ("calico", Like::CalicoTypha),
        ("calico-policy-only", Like::CalicoPolicyOnly),
        ("canal", Like::Canal),
    ] {
        let mut node = roles::node_rules(like);
        node.push(roles::token_rule(like));
        let mut accounts = vec![("calico-node", node)];
        if manifest == "calico" {
            accounts.push(("calico-cni-plugin", roles::plugin_rules(like)));
            accounts.push(("calico-kube-controllers", roles::controllers_rules(like).to_vec()));
        }
        for (role, ours) in accounts {
            for theirs in testkit::roles::rules(manifest, role, "3.33")? {
                let list = |name: &str| -> Vec<String> {
                    theirs[name]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .filter_map(Value::as_str)
                        .map(str::to_owned)
                        .collect()
                };
                let group = list("apiGroups").remove(0);
                if LEFT_OUT.contains(&group.as_str()) {
                    continue;
                }
                for resource in list("resources").iter().filter(|resource| *resource != "*") {
                    for verb in list("verbs") {
                        assert!(
                            allows(&ours, &group, resource, &verb),
                            "{} {role}: {verb} {resource} of {group:?}",
                            like.name()
                        );
                    }
                }
            }
        }
    }
    Ok(())
}
