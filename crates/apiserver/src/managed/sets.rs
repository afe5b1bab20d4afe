//! Sets of fields in the format of `metadata.managedFields`: `{"f:spec":{"f:order":{}}}`.
//!
//! A step of a path is the name of a field (`f:order`), the keys of a list's item (`k:{"name":"a"}`), or an item of a
//! set (`v:"x"`). A node that is itself owned, in addition to what is below it, has a `.`.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A set of fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    /// Whether this node itself is in the set.
    pub here: bool,
    /// The steps below this node.
    pub below: BTreeMap<String, FieldSet>,
}

impl FieldSet {
    /// A set with only the node itself.
    #[must_use]
    pub(crate) fn leaf() -> Self {
        Self { here: true, below: BTreeMap::new() }
    }

    /// Whether the set is empty.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        !self.here && self.below.is_empty()
    }

    /// Parses `fieldsV1`. Anything that is not a set of fields is read as an empty one.
    #[must_use]
    pub(crate) fn from_value(value: &Value) -> Self {
        let mut set = Self::default();
        for (step, below) in value.as_object().into_iter().flatten() {
            if step == "." {
                set.here = true;
                continue;
            }
            let mut child = Self::from_value(below);
            // An empty map stands for the node itself.
            if below.as_object().is_some_and(Map::is_empty) {
                child.here = true;
            }
            set.below.insert(step.clone(), child);
        }
        set
    }

    /// Formats the set as `fieldsV1`.
    #[must_use]
    pub(crate) fn to_value(&self) -> Value {
        let mut fields = Map::new();
        if self.here && !self.below.is_empty() {
            fields.insert(".".into(), Value::Object(Map::new()));
        }
        for (step, below) in &self.below {
            fields.insert(step.clone(), below.to_value());
        }
        Value::Object(fields)
    }

    /// The fields in both sets.
    #[must_use]
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let mut set = Self { here: self.here && other.here, below: BTreeMap::new() };
        for (step, below) in &self.below {
            if let Some(theirs) = other.below.get(step) {
                let both = below.intersection(theirs);
                if !both.is_empty() {
                    set.below.insert(step.clone(), both);
                }
            }
        }
        set
    }

    /// The fields in this set but not in the other.
    #[must_use]
    pub(crate) fn difference(&self, other: &Self) -> Self {
        let mut set = Self { here: self.here && !other.here, below: BTreeMap::new() };
        for (step, below) in &self.below {
            let rest = match other.below.get(step) {
                Some(theirs) => below.difference(theirs),
                None => below.clone(),
            };
            if !rest.is_empty() {
                set.below.insert(step.clone(), rest);
            }
        }
        set
    }

    /// The fields in either set.
    #[must_use]
    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut set = self.clone();
        set.here |= other.here;
        for (step, theirs) in &other.below {
            let ours = set.below.entry(step.clone()).or_default();
            *ours = ours.union(theirs);
        }
        set
    }

    /// All paths of the set, such as `.spec.order`.
    #[must_use]
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.collect("", &mut found);
        found
    }

    fn collect(&self, path: &str, found: &mut Vec<String>) {
        if self.here && !path.is_empty() {
            found.push(path.to_owned());
        }
        for (step, below) in &self.below {
            let text = match step.split_once(':') {
                Some(("f", name)) => format!("{path}.{name}"),
                Some((_, rest)) => {
                    let keys = rest.trim_matches(['{', '}']).replace("\":", "=").replace('"', "");
                    format!("{path}[{keys}]")
                }
                None => format!("{path}.{step}"),
            };
            below.collect(&text, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sets_are_written_and_read() {
        let text = json!({"f:spec": {"f:order": {}, "f:nets": {".": {}, "v:\"a\"": {}}}});
        let set = FieldSet::from_value(&text);
        assert_eq!(set.to_value(), text);
        assert_eq!(set.paths(), [".spec.nets", ".spec.nets[a]", ".spec.order"]);
    }

    #[test]
    fn sets_are_combined() {
        let a = FieldSet::from_value(&json!({"f:x": {}, "f:y": {"f:z": {}, "f:w": {}}}));
        let b = FieldSet::from_value(&json!({"f:y": {"f:z": {}}, "f:q": {}}));
        assert_eq!(a.intersection(&b).to_value(), json!({"f:y": {"f:z": {}}}));
        assert_eq!(a.difference(&b).to_value(), json!({"f:x": {}, "f:y": {"f:w": {}}}));
        assert_eq!(a.union(&b).to_value(), json!({"f:x": {}, "f:y": {"f:z": {}, "f:w": {}}, "f:q": {}}));
        assert!(a.difference(&a).is_empty());
    }
}
