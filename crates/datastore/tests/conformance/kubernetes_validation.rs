//! One verdict: what our own validation accepts, a real kube-apiserver with our definitions accepts, too; and what the
//! API server refuses, ours refuses. (Ours may refuse more: Calico's typed client does. The only thing that just the
//! API server refuses is a duplicate item in a list, as with Calico.)
//!
//! Objects have three sources: the tables of the `api` crate, a table of updates, and the schemas themselves: for every
//! field of every kind, values at its limits, beyond them, and of the wrong type. Nothing is stored: all requests are
//! dry runs, except for the objects that updates start from.

use crate::harness::{sample, sample_name};
use crate::kubernetes_store::KubernetesStore;
use anyhow::{Context as _, Result, ensure};
use api::kind::KubernetesForm;
use api::schema::for_kind;
use api::{Kind, Resource};
use futures::StreamExt as _;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Updates that the definitions or our rules refuse or allow: a kind, the old spec, the new spec.
const UPDATES: &str = include_str!("../data/updates.txt");

/// How many requests are in flight at once.
const CONCURRENCY: usize = 16;

/// An object and its source.
struct Candidate {
    origin: String,
    kind: Kind,
    object: Value,
}

/// The verdicts of both sides.
struct Verdicts {
    ours: Result<(), String>,
    theirs: Result<(), String>,
}

pub(crate) async fn verdicts(store: &KubernetesStore) -> Result<()> {
    let client = client(store).await?;
    let mut candidates = from_tables()?;
    let tables = candidates.len();
    for kind in Kind::ALL.iter().copied().filter(|kind| is_judged(*kind)) {
        candidates.extend(from_schema(kind)?);
    }
    ensure!(tables >= 150, "the tables have only {tables} objects");
    let schemas = candidates.len() - tables;
    ensure!(schemas >= 1000, "the schemas give only {schemas} objects");
    let mut outcomes = futures::stream::iter(candidates)
        .map(|candidate| {
            let client = client.clone();
            async move { (judge(&client, &candidate).await, candidate) }
        })
        .buffered(CONCURRENCY);
    let mut counts: BTreeMap<(bool, bool), usize> = BTreeMap::new();
    let mut disagreements = Vec::new();
    while let Some((outcome, candidate)) = outcomes.next().await {
        let verdicts = outcome.with_context(|| candidate.origin.clone())?;
        *counts.entry((verdicts.ours.is_ok(), verdicts.theirs.is_ok())).or_default() += 1;
        if let (Ok(()), Err(reason)) = (&verdicts.ours, &verdicts.theirs)
            && !reason.contains("Duplicate value")
        {
            disagreements.push(format!("{} {}: {reason}", candidate.origin, candidate.object));
        }
    }
    let count = |ours, theirs| counts.get(&(ours, theirs)).copied().unwrap_or(0);
    eprintln!(
        "kubernetes: {tables} objects from tables and {schemas} from schemas: {} accepted by both, {} refused by both, {} by ours alone",
        count(true, true),
        count(false, false),
        count(false, true)
    );
    ensure!(count(true, true) > 0 && count(false, false) > 0, "one side always says the same");
    let shown: Vec<&String> = disagreements.iter().take(25).collect();
    ensure!(
        disagreements.is_empty(),
        "{} accepted by ours and refused by the API server: {shown:#?}",
        disagreements.len()
    );
    updates(&client).await
}

async fn client(store: &KubernetesStore) -> Result<kube::Client> {
    let path = store.config().kubeconfig.first().context("no kubeconfig")?.clone();
    let options = kube::config::KubeConfigOptions::default();
    let mut config =
        kube::Config::from_custom_kubeconfig(kube::config::Kubeconfig::read_from(path)?, &options).await?;
    config.proxy_url = None;
    Ok(kube::Client::try_from(config)?)
}

/// Kinds that users write and the API server keeps. Blocks and handles are address management's own: they are not
/// validated before they are written.
fn is_judged(kind: Kind) -> bool {
    kind.info().stored && matches!(kind.info().kubernetes, KubernetesForm::CustomResource { .. })
}

/// The objects of the `api` crate's own tables.
fn from_tables() -> Result<Vec<Candidate>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/tests/data/validation");
    let mut candidates = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let text = std::fs::read_to_string(&path)?;
        for (number, line) in text.lines().enumerate() {
            let Some((kind, object)) = line.split_once(' ') else { continue };
            let Some(kind) = Kind::from_name(kind).filter(|kind| is_judged(*kind)) else { continue };
            let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let origin = format!("{file}:{} {kind}", number + 1);
            let mut object: Value = serde_json::from_str(object).with_context(|| origin.clone())?;
            let name = object.pointer("/metadata/name").cloned().unwrap_or_else(|| "p".into());
            object["metadata"]["name"] = name;
            if kind.is_namespaced() {
                object["metadata"]["namespace"] = "default".into();
            }
            candidates.push(Candidate { origin, kind, object });
        }
    }
    Ok(candidates)
}

/// For every field of a kind, the sample object with that field at and beyond its limits.
fn from_schema(kind: Kind) -> Result<Vec<Candidate>> {
    let name = sample_name(kind)?;
    let base = serde_json::to_value(sample(kind, &name)?)?;
    let spec = api::schema::property(for_kind(kind), "spec").context("no schema of the spec")?;
    let mut candidates = Vec::new();
    for (field, schema) in spec.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let Some(schema) = schema.as_object() else { continue };
        for value in values(schema, 0) {
            let origin = format!("schema {kind} spec.{field} = {}", shortened(&value));
            let mut object = base.clone();
            merge(&mut object["spec"], &json!({ field.as_str(): value }));
            candidates.push(Candidate { origin, kind, object });
        }
    }
    Ok(candidates)
}

fn shortened(value: &Value) -> String {
    value.to_string().chars().take(120).collect()
}

/// Sets the fields of a patch; lists are replaced.
fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (name, value) in patch {
                merge(target.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

/// Values at the limits of a schema, and just beyond them.
fn values(schema: &Map<String, Value>, depth: usize) -> Vec<Value> {
    let number = |name: &str| schema.get(name).and_then(Value::as_i64);
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        let mut values = words.clone();
        values.extend([json!("NoSuchWord"), json!("")]);
        return values;
    }
    if schema.contains_key("x-kubernetes-int-or-string") {
        return vec![
            json!(0),
            json!(1),
            json!(-1),
            json!(63),
            json!(64),
            json!(300),
            json!(70000),
            json!("80:90"),
            json!("x"),
            json!(""),
        ];
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("string") => {
            // Deep down there are many fields of the same few types; one wrong value each is enough.
            let mut values = if depth > 2 {
                vec![json!(""), json!("No! Way!")]
            } else {
                ["", "x", "10.0.0.0/8", "all()", "1m30s", "No! Way!"].map(Value::from).to_vec()
            };
            if let Some(most) =
                number("maxLength").and_then(|most| usize::try_from(most).ok()).filter(|most| *most < 10_000)
            {
                values.extend([json!("a".repeat(most)), json!("a".repeat(most + 1))]);
            }
            values
        }
        Some("integer" | "number") => {
            let (least, most) = (number("minimum"), number("maximum"));
            let mut values = vec![json!(0), json!(1), json!(-1), json!(2_147_483_647_i64)];
            values.extend(least.into_iter().flat_map(|least| [json!(least), json!(least - 1)]));
            values.extend(most.into_iter().flat_map(|most| [json!(most), json!(most + 1)]));
            values
        }
        Some("boolean") => vec![json!(true), json!(false)],
        Some("array") => {
            let Some(items) = schema.get("items").and_then(Value::as_object) else { return Vec::new() };
            let below = values(items, depth + 1);
            let mut values: Vec<Value> = vec![json!([])];
            if let Some(first) = below.iter().find(|value| **value != json!("")) {
                values.push(json!([first, first]));
                if let Some(most) =
                    number("maxItems").and_then(|most| usize::try_from(most).ok()).filter(|most| *most <= 64)
                {
                    let many: Vec<Value> = (0..=most).map(|index| distinct(first, index)).collect();
                    values.push(many.into());
                }
            }
            values.extend(below.into_iter().map(|value| json!([value])));
            values
        }
        Some("object") if depth < 6 => {
            let mut found = vec![json!({})];
            for (field, below) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                let Some(below) = below.as_object() else { continue };
                found.extend(
                    values(below, depth + 1).into_iter().map(|value| json!({ field.as_str(): value })),
                );
            }
            if let Some(below) = schema.get("additionalProperties").and_then(Value::as_object) {
                found.extend(values(below, depth + 1).into_iter().map(|value| json!({ "key": value })));
            }
            // A rule without an action does not test its other fields.
            if schema.get("required").is_some_and(|required| {
                required.as_array().is_some_and(|list| list.contains(&json!("action")))
            }) {
                let complete: Vec<Value> = found
                    .iter()
                    .filter(|value| value.get("action").is_none())
                    .map(|value| {
                        let mut value = value.clone();
                        merge(&mut value, &json!({"action": "Allow"}));
                        value
                    })
                    .collect();
                found.extend(complete);
            }
            found
        }
        _ => Vec::new(),
    }
}

/// Values that differ where they are text or numbers.
fn distinct(value: &Value, index: usize) -> Value {
    match value {
        Value::String(_) => json!(format!("x{index}")),
        Value::Number(_) => json!(index + 1),
        other => other.clone(),
    }
}

async fn judge(client: &kube::Client, candidate: &Candidate) -> Result<Verdicts> {
    let Ok(mut resource) = Resource::from_value(candidate.kind, candidate.object.clone()) else {
        // Ours refuses it while reading; the API server's verdict is irrelevant.
        return Ok(Verdicts { ours: Err("cannot be read".into()), theirs: Err("not asked".into()) });
    };
    resource.set_defaults();
    let ours = resource.validate().map_err(|errors| errors.to_string());
    let theirs = send(client, http::Method::POST, &resource, true).await?.map(drop);
    Ok(Verdicts { ours, theirs })
}

/// Creates or replaces an object; the inner error is the API server's refusal.
async fn send(
    client: &kube::Client,
    method: http::Method,
    resource: &Resource,
    dry_run: bool,
) -> Result<Result<Value, String>> {
    let KubernetesForm::CustomResource { plural, .. } = resource.kind().info().kubernetes else {
        anyhow::bail!("not a custom resource")
    };
    let mut object = model::crd::to_crd(resource)?;
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("uid");
        if method == http::Method::POST {
            metadata.remove("resourceVersion");
        }
    }
    let namespace = if resource.kind().is_namespaced() {
        format!("namespaces/{}/", resource.namespace())
    } else {
        String::new()
    };
    let name = if method == http::Method::POST { String::new() } else { format!("/{}", resource.name()) };
    let query = if dry_run { "?dryRun=All" } else { "" };
    let request = http::Request::builder()
        .method(method)
        .uri(format!("/apis/crd.projectcalico.org/v1/{namespace}{plural}{name}{query}"))
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes())?;
    match client.request_text(request).await {
        Ok(text) => Ok(Ok(serde_json::from_str(&text)?)),
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => Ok(Err(status.message.clone())),
        Err(error) => Err(error.into()),
    }
}

/// Each line: a kind, the existing spec, `=>`, the spec that replaces it.
async fn updates(client: &kube::Client) -> Result<()> {
    let mut counts = [0, 0];
    for (number, line) in
        UPDATES.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
    {
        let place = || format!("updates.txt:{} {line}", number + 1);
        let (kind, specs) = line.split_once(' ').with_context(place)?;
        let (old, new) = specs.split_once(" => ").with_context(place)?;
        let kind = Kind::from_name(kind).with_context(place)?;
        let name = sample_name(kind)?;
        let object = |spec: &str, revision: &Value| -> Result<Resource> {
            let mut object = json!({
                "metadata": {"name": name, "resourceVersion": revision},
                "spec": serde_json::from_str::<Value>(spec)?,
            });
            if kind.is_namespaced() {
                object["metadata"]["namespace"] = "default".into();
            }
            let mut resource = Resource::from_value(kind, object)?;
            resource.set_defaults();
            Ok(resource)
        };
        let before = object(old, &json!("")).with_context(place)?;
        let stored = send(client, http::Method::POST, &before, false).await.with_context(place)?;
        let stored = stored.map_err(anyhow::Error::msg).with_context(place)?;
        let after = object(new, &stored["metadata"]["resourceVersion"]).with_context(place)?;
        let ours = after.validate().and_then(|()| after.validate_update(&before));
        let theirs = send(client, http::Method::PUT, &after, true).await.with_context(place)?;
        let KubernetesForm::CustomResource { plural, .. } = kind.info().kubernetes else {
            anyhow::bail!(place())
        };
        let namespace = if kind.is_namespaced() { "namespaces/default/" } else { "" };
        let address = format!("/apis/crd.projectcalico.org/v1/{namespace}{plural}/{name}");
        client.request_text(http::Request::delete(address).body(Vec::new())?).await.with_context(place)?;
        if let (Ok(()), Err(reason)) = (&ours, &theirs) {
            anyhow::bail!("{}: accepted by ours, refused by the API server: {reason}", place());
        }
        counts[usize::from(theirs.is_ok())] += 1;
    }
    eprintln!("kubernetes: {} updates: {} accepted, {} refused", counts[0] + counts[1], counts[1], counts[0]);
    ensure!(counts[0] >= 5 && counts[1] >= 5, "the table of updates has too few of one sort");
    Ok(())
}
