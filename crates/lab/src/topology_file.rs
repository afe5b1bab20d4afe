//! A topology file: YAML (or JSON, which is YAML) as a [`Wish`]. Unknown fields are refused with their name.

use crate::topology::{TopologyError, Wish};
use saphyr::{LoadableYamlNode as _, MarkedYaml, Scalar, YamlData};
use serde_json::{Map, Number, Value};

/// Deeper than any topology.
const DEEPEST: usize = 16;
/// Longer than any topology.
const LONGEST: usize = 1 << 20;

/// Reads the text of a file.
///
/// # Errors
/// The first mistake.
pub fn read(text: &str) -> Result<Wish, TopologyError> {
    let wrong = |reason: String| TopologyError::File(reason);
    if text.len() > LONGEST {
        return Err(wrong("it is longer than a mebibyte".to_owned()));
    }
    // A parser recurses: brackets that are never closed must not reach it by the thousand.
    if text.matches(['[', '{']).count() > 5_000 {
        return Err(wrong("it has too many brackets".to_owned()));
    }
    let documents = MarkedYaml::load_from_str(text)
        .map_err(|error| wrong(format!("line {}: {}", error.marker().line(), error.info())))?;
    let [document] = documents.as_slice() else {
        return Err(wrong(format!("it has {} documents, and must have one", documents.len())));
    };
    let value = value(document, 0).map_err(wrong)?;
    serde_json::from_value(value).map_err(|error| wrong(error.to_string()))
}

fn value(node: &MarkedYaml<'_>, depth: usize) -> Result<Value, String> {
    let mistake = |reason: &str| format!("line {}: {reason}", node.span.start.line());
    if depth > DEEPEST {
        return Err(mistake("nested too deeply"));
    }
    Ok(match &node.data {
        YamlData::Value(Scalar::Null) => Value::Null,
        YamlData::Value(Scalar::Boolean(truth)) => Value::Bool(*truth),
        YamlData::Value(Scalar::Integer(number)) => Value::Number((*number).into()),
        YamlData::Value(Scalar::FloatingPoint(number)) => {
            Value::Number(Number::from_f64(number.0).ok_or_else(|| mistake("not a finite number"))?)
        }
        YamlData::Value(Scalar::String(text)) => Value::String(text.clone().into_owned()),
        YamlData::Sequence(items) => {
            Value::Array(items.iter().map(|item| value(item, depth + 1)).collect::<Result<_, _>>()?)
        }
        YamlData::Mapping(entries) => {
            let mut map = Map::new();
            for (key, entry) in entries {
                let YamlData::Value(Scalar::String(name)) = &key.data else {
                    return Err(mistake("a field's name must be text"));
                };
                if map.insert(name.clone().into_owned(), value(entry, depth + 1)?).is_some() {
                    return Err(mistake(&format!("field {name} stands there twice")));
                }
            }
            Value::Object(map)
        }
        _ => return Err(mistake("only plain values, lists and maps are understood")),
    })
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::topology::{Datastore, Encap, plan};

    #[test]
    fn a_file_becomes_a_plan() {
        let wish = read(
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

    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("nodez: 3", "nodez"),
            ("encap: gre", "gre"),
            ("nodes: [", "line"),
            ("pods: [{name: a, ports: [70000]}]", "70000"),
            ("a: 1\n---\nb: 2", "2 documents"),
            ("", "0 documents"),
            ("1: 2", "name must be text"),
        ] {
            let error = read(text).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error} should say {expected}");
        }
        assert!(read(&"[".repeat(100_000)).is_err());
    }
}
