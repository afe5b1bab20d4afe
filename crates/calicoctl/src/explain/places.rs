//! The file and line of objects in files: by kind, namespace, name and the path inside the object.

use crate::datastore::tolerant_yaml::Lines;
use serde_json::Value;
use std::collections::BTreeMap;

/// Where objects are written.
#[derive(Debug, Default)]
pub(crate) struct Places {
    objects: BTreeMap<(String, String, String), (String, Lines)>,
}

impl Places {
    /// Adds the objects of a document.
    pub(super) fn add(&mut self, file: &str, document: &Value, lines: &Lines) {
        self.add_below(file, document, lines, "");
    }

    fn add_below(&mut self, file: &str, value: &Value, lines: &Lines, prefix: &str) {
        let (list, field) = match value {
            Value::Array(items) => (Some(items), String::new()),
            other => (other["items"].as_array(), "items".to_owned()),
        };
        for (index, item) in list.into_iter().flatten().enumerate() {
            let place = join(prefix, &format!("{field}[{index}]"));
            self.add_below(file, item, lines, &place);
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &value["metadata"];
        let key = (text(&value["kind"]), text(&metadata["namespace"]), text(&metadata["name"]));
        if list.is_some() || key.2.is_empty() {
            return;
        }
        let own = lines.iter().filter_map(|(path, line)| {
            let rest = path.strip_prefix(prefix)?;
            Some((rest.strip_prefix('.').unwrap_or(rest).to_owned(), *line))
        });
        self.objects.insert(key, (file.to_owned(), own.collect()));
    }

    /// The file and line of a path in an object; if the path is not written, those of the nearest enclosing path.
    pub(crate) fn find(&self, kind: &str, namespace: &str, name: &str, path: &str) -> Option<String> {
        // Kubernetes' kinds have other names inside; the namespace `default` may be omitted.
        let kind = kind.strip_prefix("Kubernetes").unwrap_or(kind);
        let of =
            |namespace: &str| self.objects.get(&(kind.to_owned(), namespace.to_owned(), name.to_owned()));
        let (file, lines) = of(namespace).or_else(|| of("").filter(|_| namespace == "default"))?;
        let mut place = path;
        loop {
            if let Some(line) = lines.get(place) {
                return Some(format!("{file}:{line}"));
            }
            if place.is_empty() {
                return Some(file.clone());
            }
            place = place.rfind(['.', '[']).map_or("", |end| &place[..end]);
        }
    }
}

/// Appends a step to a path.
pub(crate) fn join(prefix: &str, step: &str) -> String {
    if prefix.is_empty() || step.starts_with('[') {
        format!("{prefix}{step}")
    } else {
        format!("{prefix}.{step}")
    }
}

#[cfg(test)]
mod tests {
    use super::Places;
    use crate::datastore::tolerant_yaml::documents_with_lines;

    #[test]
    fn places_are_found_in_documents_and_in_lists() {
        let text = "kind: List\nitems:\n- kind: NetworkPolicy\n  metadata:\n    name: a\n    namespace: shop\n  spec:\n    \
                    ingress:\n    - action: Allow\n    - action: Deny\n---\nkind: IPPool\nmetadata: {name: p}\nspec:\n  cidr: x\n";
        let mut places = Places::default();
        for (document, lines) in documents_with_lines(text).expect("documents") {
            places.add("f.yaml", &document, &lines);
        }
        let find = |kind, namespace, name, path| places.find(kind, namespace, name, path).unwrap_or_default();
        assert_eq!(find("NetworkPolicy", "shop", "a", "spec.ingress[1]"), "f.yaml:10");
        assert_eq!(find("NetworkPolicy", "shop", "a", "spec.egress"), "f.yaml:7");
        assert_eq!(find("IPPool", "", "p", "spec.cidr"), "f.yaml:15");
        assert_eq!(find("IPPool", "", "q", "spec.cidr"), "");
    }
}
