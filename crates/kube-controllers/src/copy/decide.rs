//! Compares the desired with the actual copy.

use api::schema::{apply_defaults, for_kind, property};
use api::{Object, Spec};

/// What to do about one copy.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step<S: Spec> {
    /// The copy is correct.
    Nothing,
    /// The copy is missing.
    Create(Object<S>),
    /// The copy is wrong: store this under its own identity and revision.
    Update(Object<S>),
    /// The copy should not exist.
    Delete {
        /// The revision that was read.
        revision: String,
    },
}

/// Decides about one copy.
#[must_use]
pub(crate) fn decide<S: Spec>(desired: Option<Object<S>>, actual: Option<Object<S>>) -> Step<S> {
    match (desired, actual) {
        (None, None) => Step::Nothing,
        (Some(desired), None) => Step::Create(desired),
        (None, Some(actual)) => Step::Delete { revision: actual.metadata.resource_version },
        (Some(desired), Some(actual)) if is_same(&desired, &actual) => Step::Nothing,
        // Labels and annotations that others added to the copy are kept.
        (Some(desired), Some(actual)) => Step::Update(Object { spec: complete(desired).spec, ..actual }),
    }
}

/// Whether a stored object has the desired contents.
#[must_use]
pub(crate) fn is_same<S: Spec>(desired: &Object<S>, actual: &Object<S>) -> bool {
    desired.spec == actual.spec || complete(desired.clone()).spec == actual.spec
}

/// Fills in the defaults that are filled in before an object is stored.
#[must_use]
pub(crate) fn complete<S: Spec>(mut object: Object<S>) -> Object<S> {
    object.set_defaults();
    let Some(schema) = property(for_kind(S::KIND), "spec") else { return object };
    // A value that came from a spec can always be read back as one.
    if let Ok(mut value) = serde_json::to_value(&object.spec) {
        apply_defaults(schema, &mut value);
        if let Ok(spec) = serde_json::from_value(value) {
            object.spec = spec;
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{NetworkPolicySpec, ProfileSpec};

    fn profile(label: &str) -> Object<ProfileSpec> {
        let mut spec = ProfileSpec::default();
        spec.labels_to_apply.insert("pcns.x".to_owned(), label.to_owned());
        Object::new("", "kns.a", spec)
    }

    #[test]
    fn each_difference_has_its_step() {
        let stored = |label: &str| {
            let mut stored = profile(label);
            stored.metadata.uid = "u".to_owned();
            stored.metadata.resource_version = "7".to_owned();
            stored.metadata.labels.insert("somebody".to_owned(), "else".to_owned());
            stored
        };
        assert_eq!(decide::<ProfileSpec>(None, None), Step::Nothing);
        assert_eq!(decide(Some(profile("a")), None), Step::Create(profile("a")));
        assert_eq!(decide(Some(profile("a")), Some(stored("a"))), Step::Nothing);
        assert_eq!(decide(Some(profile("b")), Some(stored("a"))), Step::Update(stored("b")));
        assert_eq!(decide(None, Some(stored("a"))), Step::Delete { revision: "7".to_owned() });
    }

    #[test]
    fn filled_in_defaults_are_not_a_difference() {
        let desired = Object::new("n", "knp.default.p", NetworkPolicySpec::default());
        let stored = complete(desired.clone());
        assert_ne!(desired.spec, stored.spec, "a policy has defaults");
        assert!(is_same(&desired, &stored));
    }
}
