//! Copies labels of a Kubernetes node to the Calico node in the etcd datastore.
//!
//! An annotation of the Calico node records which labels came from Kubernetes, so that a label removed there is removed
//! here, while labels that others added to the Calico node are kept.

use crate::informer::Labels;
use api::meta::StringMap;
use api::words::node::KUBE_LABELS;

/// Updates the labels of a Calico node to match those of its Kubernetes node. Returns whether a label changed.
///
/// # Errors
/// When the annotation cannot be parsed: then it is unknown which labels came from Kubernetes, and nothing is changed.
pub(crate) fn bring_after(
    labels: &mut StringMap,
    annotations: &mut StringMap,
    kubernetes: &Labels,
) -> Result<bool, String> {
    let before: StringMap = match annotations.get(KUBE_LABELS) {
        Some(text) => serde_json::from_str::<Option<StringMap>>(text)
            .map_err(|error| format!("annotation {KUBE_LABELS} cannot be read: {error}"))?
            .unwrap_or_default(),
        None => StringMap::new(),
    };
    let mut changed = false;
    for (name, value) in kubernetes.iter() {
        if labels.get(name).map(String::as_str) != Some(value) {
            labels.insert(name.to_string(), value.to_string());
            changed = true;
        }
    }
    for name in before.keys().filter(|name| !kubernetes.contains_key(name.as_str())) {
        changed |= labels.remove(name).is_some();
    }
    if changed {
        let remembered: std::collections::BTreeMap<&str, &str> = kubernetes.iter().collect();
        // A map of texts can always be serialised.
        if let Ok(text) = serde_json::to_string(&remembered) {
            annotations.insert(KUBE_LABELS.to_owned(), text);
        }
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubernetes(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().copied().collect()
    }

    fn map(pairs: &[(&str, &str)]) -> StringMap {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn labels_are_added_changed_and_removed_and_others_kept() {
        let mut labels = map(&[("mine", "1"), ("zone", "old")]);
        let mut annotations = map(&[("other", "annotation")]);
        let step = |labels: &mut StringMap, annotations: &mut StringMap, pairs: &[(&str, &str)]| {
            bring_after(labels, annotations, &kubernetes(pairs)).expect("a readable annotation")
        };
        assert!(step(&mut labels, &mut annotations, &[("zone", "a"), ("arch", "amd64")]));
        assert_eq!(labels, map(&[("mine", "1"), ("zone", "a"), ("arch", "amd64")]));
        assert_eq!(annotations[KUBE_LABELS], r#"{"arch":"amd64","zone":"a"}"#);
        assert!(!step(&mut labels, &mut annotations, &[("zone", "a"), ("arch", "amd64")]));
        assert!(step(&mut labels, &mut annotations, &[("zone", "b")]));
        assert_eq!(labels, map(&[("mine", "1"), ("zone", "b")]));
        assert!(step(&mut labels, &mut annotations, &[]));
        assert_eq!(labels, map(&[("mine", "1")]));
        assert_eq!((annotations[KUBE_LABELS].as_str(), annotations["other"].as_str()), ("{}", "annotation"));
    }

    #[test]
    fn an_annotation_of_null_is_empty_and_another_stops_everything() {
        let mut labels = map(&[("a", "1")]);
        assert_eq!(bring_after(&mut labels, &mut map(&[(KUBE_LABELS, "null")]), &kubernetes(&[])), Ok(false));
        let mut broken = map(&[(KUBE_LABELS, "what")]);
        assert!(bring_after(&mut labels, &mut broken, &kubernetes(&[("b", "2")])).is_err());
        assert_eq!(labels, map(&[("a", "1")]));
    }
}
