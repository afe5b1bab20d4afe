//! Mutations of valid documents of every kind: whatever Calico's tool accepts is accepted and read in the same way, and
//! mistakes are refused.
//!
//! The expectation is the table of rules in [`Mutation::apply`], not Calico. If `TORTIE_PEER_CALICOCTL` names Calico's
//! own calicoctl, each document is also passed to its `validate`, which must agree.

use api::document::{Checks, Document, read};
use api::{Kind, Resource};
use proptest::prelude::*;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Maps whose keys are the user's own, so that every key is valid.
const FREE_MAPS: &[&str] = &["labels", "annotations", "matchlabels", "labelstoapply", "bpflogfilters"];

/// Lists without duplicate items.
const SETS: &[&str] = &["types", "performancehints", "classes", "methods", "templates"];

/// Numbers that may be given as text, because Calico's types for them read both.
const NUMBERS_OR_TEXT: &[&str] =
    &["asnumber", "localasnumber", "aspathprefix", "ports", "notports", "protocol", "notprotocol"];

/// Durations: text, never a number.
const DURATIONS: &[&str] = &[
    "maxrestarttime",
    "nodemeshmaxrestarttime",
    "reportinginterval",
    "routerefreshinterval",
    "timeout",
    "etcdv3compactionperiod",
    "reconcilerperiod",
    "leakgraceperiod",
];

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Item(usize),
}

/// A way to change a document at one place.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mutation {
    /// A field name in capitals.
    OtherCase,
    /// A field name with an extra letter.
    Misspelt,
    /// A field repeated in capitals.
    TwoSpellings,
    /// The last item of a list repeated.
    Repeated,
    /// A number or a boolean in quotes.
    Quoted,
    /// An integer with a point.
    Fraction,
    /// No value.
    Emptied,
    /// A number instead of a duration.
    Number,
}

const MUTATIONS: [Mutation; 8] = [
    Mutation::OtherCase,
    Mutation::Misspelt,
    Mutation::TwoSpellings,
    Mutation::Repeated,
    Mutation::Quoted,
    Mutation::Fraction,
    Mutation::Emptied,
    Mutation::Number,
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    /// Accepted, and read as before.
    Same,
    /// Accepted, possibly as a different object.
    Accepted,
    Refused,
    /// As if the field were absent.
    AsWithout,
}

impl Mutation {
    /// Changes the document, and returns the expected verdict. `None` if the mutation makes no sense here.
    fn apply(self, document: &mut Value, place: &[Step]) -> Option<Verdict> {
        let (last, parent_path) = place.split_last()?;
        let field = place
            .iter()
            .rev()
            .find_map(|step| match step {
                Step::Field(name) => Some(name.to_lowercase()),
                Step::Item(_) => None,
            })
            .unwrap_or_default();
        let in_kubernetes_policy = document["kind"] == "StagedKubernetesNetworkPolicy";
        let is_identity = place.len() == 1 && matches!(field.as_str(), "kind" | "apiversion");
        let parent = at(document, parent_path)?;
        let verdict = match (self, last) {
            (Self::OtherCase | Self::Misspelt, Step::Field(name)) => {
                let new = if self == Self::OtherCase { name.to_uppercase() } else { format!("{name}x") };
                let fields = parent.as_object_mut()?;
                if new == *name || fields.contains_key(&new) {
                    return None;
                }
                let value = fields.remove(name)?;
                fields.insert(new, value);
                if self == Self::OtherCase && !is_identity { Verdict::Same } else { Verdict::Refused }
            }
            (Self::TwoSpellings, Step::Field(name)) => {
                let fields = parent.as_object_mut()?;
                let value = fields.get(name)?.clone();
                fields.insert(name.to_uppercase(), value).is_none().then_some(Verdict::Refused)?
            }
            (Self::Repeated, Step::Item(index)) => {
                let items = parent.as_array_mut()?;
                let item = items.get(*index)?.clone();
                items.push(item);
                if SETS.contains(&field.as_str()) { Verdict::Refused } else { Verdict::Accepted }
            }
            (_, _) => {
                let value = at(document, place)?;
                match (self, &*value) {
                    (Self::Quoted, Value::Number(_) | Value::Bool(_)) => {
                        let both = NUMBERS_OR_TEXT.contains(&field.as_str())
                            || in_kubernetes_policy && field == "port";
                        let fits = value.is_number() && both;
                        *value = Value::from(value.to_string());
                        if fits { Verdict::Accepted } else { Verdict::Refused }
                    }
                    (Self::Fraction, Value::Number(number)) if number.is_u64() => {
                        *value = Value::from(number.as_f64()?);
                        Verdict::Same
                    }
                    (Self::Emptied, _) if !value.is_null() => {
                        *value = Value::Null;
                        if matches!(last, Step::Item(_)) || is_identity {
                            Verdict::Refused
                        } else {
                            Verdict::AsWithout
                        }
                    }
                    (Self::Number, Value::String(_)) if DURATIONS.contains(&field.as_str()) => {
                        *value = Value::from(5);
                        Verdict::Refused
                    }
                    _ => return None,
                }
            }
        };
        Some(verdict)
    }
}

fn at<'a>(value: &'a mut Value, place: &[Step]) -> Option<&'a mut Value> {
    place.iter().try_fold(value, |value, step| match step {
        Step::Field(name) => value.get_mut(name),
        Step::Item(index) => value.get_mut(index),
    })
}

/// Every field and item, except those of free-form maps.
fn places(value: &Value, path: &mut Vec<Step>, found: &mut Vec<Vec<Step>>) {
    let mut visit = |step: Step, below: &Value, path: &mut Vec<Step>| {
        path.push(step);
        found.push(path.clone());
        places(below, path, found);
        path.pop();
    };
    match value {
        Value::Object(fields) => {
            let is_free = |step: &Step| matches!(step, Step::Field(name) if FREE_MAPS.contains(&name.to_lowercase().as_str()));
            if path.last().is_some_and(is_free) {
                return;
            }
            for (name, below) in fields {
                visit(Step::Field(name.clone()), below, path);
            }
        }
        Value::Array(items) => {
            for (index, below) in items.iter().enumerate() {
                visit(Step::Item(index), below, path);
            }
        }
        _ => {}
    }
}

fn places_of(value: &Value) -> Vec<Vec<Step>> {
    let mut found = Vec::new();
    places(value, &mut Vec::new(), &mut found);
    found
}

fn valid() -> Vec<Document> {
    let text = include_bytes!("../data/valid.yaml");
    read("valid.yaml", text, Checks::Everything).unwrap_or_else(|found| panic!("{found}"))
}

/// The one resource of a document, with its defaults, and the number of warnings; or the mistakes.
fn outcome(document: &Value) -> Result<(Resource, usize), String> {
    let mut documents = read("mutated", document.to_string().as_bytes(), Checks::Everything)
        .map_err(|found| found.to_string())?;
    assert_eq!(documents.len(), 1);
    let found = documents.remove(0);
    let warnings = found.warnings().len();
    Ok((found.resource, warnings))
}

fn check(mutation: Mutation, place: &[Step], original: &Value, mutated: &Value, verdict: Verdict) {
    let about = || format!("{mutation:?} at {place:?} of {}: {mutated}", original["kind"]);
    let found = outcome(mutated);
    match verdict {
        Verdict::Same | Verdict::Accepted => {
            let (resource, warnings) = found.unwrap_or_else(|text| panic!("{}\n{text}", about()));
            if verdict == Verdict::Same {
                assert_eq!(resource, outcome(original).unwrap().0, "{}", about());
            }
            if mutation == Mutation::OtherCase {
                assert!(warnings > 0, "no warning: {}", about());
            }
        }
        Verdict::Refused => assert!(found.is_err(), "accepted: {}", about()),
        Verdict::AsWithout => {
            let mut without = original.clone();
            if let Some((Step::Field(name), parent)) = place.split_last() {
                at(&mut without, parent).and_then(Value::as_object_mut).map(|fields| fields.remove(name));
            }
            let without = outcome(&without);
            assert_eq!(found.is_ok(), without.is_ok(), "{}", about());
            if let (Ok((found, _)), Ok((without, _))) = (found, without) {
                assert_eq!(found, without, "{}", about());
            }
        }
    }
}

#[test]
fn each_mutation_of_each_field_of_each_kind() {
    let documents = valid();
    for kind in Kind::ALL.iter().filter(|kind| kind.info().stored) {
        let internal = matches!(
            kind,
            Kind::BlockAffinity
                | Kind::IPAMBlock
                | Kind::IPAMHandle
                | Kind::ClusterInformation
                | Kind::LiveMigration
        );
        assert!(internal || documents.iter().any(|document| document.kind() == *kind), "no {kind}");
    }
    let peer = Peer::new();
    let mut count = 0;
    let mut disagreements = Vec::new();
    for document in &documents {
        for place in places_of(&document.value) {
            for mutation in MUTATIONS {
                let mut mutated = document.value.clone();
                let Some(verdict) = mutation.apply(&mut mutated, &place) else { continue };
                check(mutation, &place, &document.value, &mutated, verdict);
                disagreements.extend(peer.as_ref().and_then(|peer| peer.differs(mutation, &mutated)));
                count += 1;
            }
        }
    }
    assert!(count > 1500, "only {count} mutations");
    assert!(disagreements.is_empty(), "{} of {count}:\n{}", disagreements.len(), disagreements.join("\n"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Several at once: harmless ones are harmless together, and cannot hide a harmful one.
    #[test]
    fn several_mutations_at_once(
        which in any::<prop::sample::Index>(),
        steps in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(vec![
            Mutation::OtherCase, Mutation::OtherCase, Mutation::Fraction, Mutation::Quoted, Mutation::Misspelt,
        ])), 1..6),
    ) {
        let documents = valid();
        let original = &which.get(&documents).value;
        let mut mutated = original.clone();
        let (mut refused, mut changed) = (false, false);
        for (place, mutation) in steps {
            let places = places_of(&mutated);
            let place = place.get(&places);
            // The two fields that determine the document's kind are not recognised in another case.
            if place.len() > 1 {
                let verdict = mutation.apply(&mut mutated, place);
                refused |= verdict == Some(Verdict::Refused);
                changed |= verdict == Some(Verdict::Accepted);
            }
        }
        match outcome(&mutated) {
            Ok((resource, _)) => {
                prop_assert!(!refused, "accepted: {mutated}");
                prop_assert!(changed || resource == outcome(original).unwrap().0, "read differently: {mutated}");
            }
            Err(found) => prop_assert!(refused, "refused: {mutated}\n{found}"),
        }
    }
}

/// Calico's own calicoctl.
struct Peer {
    program: std::ffi::OsString,
    file: std::path::PathBuf,
}

impl Peer {
    fn new() -> Option<Self> {
        let program = std::env::var_os("TORTIE_PEER_CALICOCTL")?;
        let file =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mutation-{}.yaml", std::process::id()));
        Some(Self { program, file })
    }

    /// The disagreement of the two programs, if any, other than intended differences.
    fn differs(&self, mutation: Mutation, document: &Value) -> Option<String> {
        std::fs::write(&self.file, document.to_string()).unwrap();
        let output = Command::new(&self.program).arg("validate").arg("-f").arg(&self.file).output().unwrap();
        std::fs::remove_file(&self.file).unwrap();
        let ours = outcome(document);
        // Go lets one of two spellings win, and turns an empty item into an object without fields. Calico's `validate`
        // does not see what only a create checks (here: templates of the same name).
        let templates = document.pointer("/spec/controllers/node/hostEndpoint/templates/1").is_some();
        let meant = matches!(mutation, Mutation::TwoSpellings | Mutation::Emptied) || templates;
        // The name of a workload endpoint follows from its other fields; Calico's `create` computes it, its `validate`
        // does not.
        let nameless = document["kind"] == "WorkloadEndpoint"
            && document.pointer("/metadata/name").is_none_or(Value::is_null);
        if output.status.success() == ours.is_ok() || output.status.success() && meant || nameless {
            return None;
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Some(format!("{mutation:?}: Calico: {} ours: {:?} {document}", said.trim(), ours.err()))
    }
}
