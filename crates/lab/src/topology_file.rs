//! A topology file: YAML (or JSON, a subset of YAML) as a [`Wish`], read as strictly as manifests: each mistake is
//! reported with its line, and a suggestion.

use crate::topology::{Bgp, Dataplane, Datastore, Encap, Families, TopologyError, Wish};
use clap::ValueEnum;
use serde_json::{Map, Value, json};
use std::sync::OnceLock;

/// Longer than any topology.
const LONGEST: usize = 1 << 20;

/// Parses the text of a file; `name` is its name in messages.
///
/// # Errors
/// All mistakes.
pub(crate) fn read(name: &str, text: &str) -> Result<Wish, TopologyError> {
    let wrong = |reason: String| TopologyError::File(format!("topology file {name}: {reason}"));
    if text.len() > LONGEST {
        return Err(wrong("it is longer than a mebibyte".to_owned()));
    }
    // The parser is recursive: thousands of unclosed brackets must not reach it.
    if text.matches(['[', '{']).count() > 5_000 {
        return Err(wrong("it has too many brackets".to_owned()));
    }
    let documents = api::document::read_as(name, text.as_bytes(), schema()).map_err(|mistakes| {
        TopologyError::File(format!("the topology file has mistakes\n{}", mistakes.to_string().trim_end()))
    })?;
    let [document] = documents.as_slice() else {
        return Err(wrong(format!("it has {} documents instead of one", documents.len())));
    };
    serde_json::from_value(document.clone()).map_err(|error| wrong(error.to_string()))
}

/// The schema of a file: the fields of [`Wish`].
fn schema() -> &'static Map<String, Value> {
    static SCHEMA: OnceLock<Map<String, Value>> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let (text, number) = (json!({"type": "string"}), json!({"type": "integer"}));
        let texts = json!({"type": "object", "additionalProperties": text});
        let node = json!({
            "type": "object", "required": ["name"],
            "properties": {"name": text, "subnet": number, "podCidr": text, "environment": texts},
        });
        let pod = json!({
            "type": "object", "required": ["name"],
            "properties": {
                "name": text, "namespace": text, "node": text, "labels": texts,
                "ports": {"type": "array", "items": number},
            },
        });
        let schema = json!({
            "type": "object",
            "properties": {
                "nodes": {"type": "array", "items": node}, "nodeCount": number,
                "pods": {"type": "array", "items": pod}, "podCount": number,
                "subnets": number,
                "encap": words::<Encap>(), "dataplane": words::<Dataplane>(), "datastore": words::<Datastore>(),
                "family": words::<Families>(), "bgp": words::<Bgp>(), "typhas": number, "flows": {"type": "boolean"},
                "podCidr": text, "blockSize": number, "nodeCidr": text, "nodePrefix": number, "mtu": number,
                "serviceCidr": text, "nodeEnvironment": texts,
            },
        });
        schema.as_object().cloned().unwrap_or_default()
    })
}

/// The values of a choice.
fn words<Choice: ValueEnum>() -> Value {
    let words: Vec<String> = Choice::value_variants()
        .iter()
        .filter_map(|choice| Some(choice.to_possible_value()?.get_name().to_owned()))
        .collect();
    json!({"type": "string", "enum": words})
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::topology::{Datastore, Encap, plan};

    #[test]
    fn a_file_becomes_a_plan() {
        let wish = read(
            "t.yaml",
            "nodes:\n- {name: left, subnet: 0}\n- {name: right, subnet: 1}\npods:\n- name: web\n  namespace: shop\n  \
             node: right\n  labels: {app: web}\n  ports: [80, 443]\nencap: cross-subnet\ndatastore: etcd\n",
        )
        .unwrap();
        let topology = plan("lab", &wish).unwrap();
        assert_eq!(
            (topology.encap, topology.datastore, topology.subnets),
            (Encap::CrossSubnet, Datastore::Etcd, 2)
        );
        assert_eq!((topology.pods[0].node.as_str(), topology.pods[0].ports.len()), ("right", 2));
    }

    /// Checks that every field in the documentation is understood.
    #[test]
    fn every_field() {
        let text = "nodeCount: 2\npodCount: 1\nsubnets: 1\nencap: none\ndataplane: iptables\ndatastore: embedded\n\
                    family: dual-stack\nbgp: native\ntyphas: 0\nflows: true\npodCidr: 172.20.0.0/16\nblockSize: 28\nnodeCidr: 10.9.0.0/16\nnodePrefix: 32\n\
                    mtu: 1400\nserviceCidr: 10.96.0.0/16\nnodeEnvironment: {A: b}\n";
        let wish = read("t.yaml", text).unwrap();
        assert_eq!(
            (wish.node_count, wish.pod_count, wish.block_size, wish.mtu),
            (Some(2), Some(1), Some(28), Some(1400))
        );
        plan("lab", &wish).unwrap();
    }

    #[test]
    fn mistakes_are_reported_with_suggestions() {
        for (text, expected) in [
            ("nodez: 3", "did you mean `nodes`?"),
            ("nodes:\n- {name: a, subnett: 1}", "t.yaml:2:13"),
            ("encap: gre", "allowed: none, vxlan, ipip, cross-subnet"),
            ("encap: vxlann", "did you mean `vxlan`?"),
            ("mtu: large", "expected a whole number"),
            ("nodes: [{subnet: 1}]", "missing field `name`"),
            ("nodes: [", "not valid YAML"),
            ("pods: [{name: a, ports: [70000]}]", "70000"),
            ("a: 1\n---\nb: 2", "unknown field"),
            ("mtu: 1400\n---\nmtu: 1500", "2 documents"),
            ("", "0 documents"),
            ("1: 2", "unknown field"),
        ] {
            let error = read("t.yaml", text).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error} should say {expected}");
        }
        assert!(read("t.yaml", &"[".repeat(100_000)).is_err());
    }
}
