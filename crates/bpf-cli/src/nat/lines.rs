//! Frontends with their backends, as text and as JSON.

use super::{Backends, Frontends};
use crate::maps::Failure;
use crate::text;
use bpf::layout::Family;
use bpf::layout::nat::{BackendKey, Frontend, FrontendKey};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::io::Write;

const FLAGS: [(u32, &str); 4] =
    [(1, "external-local"), (2, "internal-local"), (4, "nat-exclude"), (8, "maglev")];

/// The number of backends; −1 for a frontend that drops.
fn count(value: &Frontend) -> i64 {
    if value.count == Frontend::DROP { -1 } else { i64::from(value.count) }
}

fn source<F: Family>(key: &FrontendKey<F>) -> Option<String> {
    (key.source_bits != 0).then(|| format!("{}/{}", text::ip::<F>(&key.source), key.source_bits))
}

fn frontend<F: Family>(key: &FrontendKey<F>, value: &Frontend, out: &mut dyn Write) -> Result<(), Failure> {
    let flags = match text::names(value.flags, &FLAGS).join(", ") {
        none if none.is_empty() => none,
        names => format!(" flags {names}"),
    };
    let source = source(key).map_or(String::new(), |net| format!(" src {net}"));
    Ok(writeln!(
        out,
        "{} port {} proto {} id {} count {} local {}{flags}{source}",
        text::ip::<F>(&key.address),
        key.port,
        key.protocol,
        value.id,
        count(value),
        value.local
    )?)
}

fn list<F: Family>(value: &Frontend, backends: &Backends<F>, out: &mut dyn Write) -> Result<(), Failure> {
    for ordinal in 0..u32::try_from(count(value)).unwrap_or(0) {
        let id = value.id;
        match backends.get(&BackendKey { id, ordinal }) {
            Some(one) => writeln!(out, "\t{id}:{ordinal}\t {}", text::place::<F>(&one.address, one.port))?,
            None => writeln!(out, "\t{id}:{ordinal}\t is missing")?,
        }
    }
    Ok(())
}

/// Prints each frontend with its backends.
pub(super) fn flat<F: Family>(
    frontends: &Frontends<F>,
    backends: &Backends<F>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    for (key, value) in frontends {
        frontend(key, value, out)?;
        list(value, backends, out)?;
    }
    Ok(())
}

/// Groups frontends by service id. The largest count is the number of backends: frontends that drop have none.
fn groups<F: Family>(frontends: &Frontends<F>) -> BTreeMap<u32, Frontends<F>> {
    let mut groups: BTreeMap<u32, Frontends<F>> = BTreeMap::new();
    for one in frontends {
        groups.entry(one.1.id).or_default().push(*one);
    }
    groups
}

fn fullest<F: Family>(group: &Frontends<F>) -> Frontend {
    group.iter().map(|(_, value)| *value).max_by_key(count).unwrap_or_default()
}

/// Prints the frontends of each service together, then its backends.
pub(super) fn grouped<F: Family>(
    frontends: &Frontends<F>,
    backends: &Backends<F>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    for group in groups(frontends).values() {
        for (key, value) in group {
            frontend(key, value, out)?;
        }
        list(&fullest(group), backends, out)?;
    }
    Ok(())
}

fn frontend_json<F: Family>(key: &FrontendKey<F>, value: &Frontend) -> Json {
    let mut object = json!({
        "addr": text::ip::<F>(&key.address).to_string(),
        "port": key.port,
        "proto": key.protocol,
        "id": value.id,
        "count": count(value),
        "local": value.local,
    });
    let flags = text::names(value.flags, &FLAGS).join(", ");
    if !flags.is_empty() {
        object["flags"] = flags.into();
    }
    if let Some(net) = source(key) {
        object["src_cidr"] = net.into();
    }
    object
}

fn backends_json<F: Family>(value: &Frontend, backends: &Backends<F>) -> Json {
    let count = u32::try_from(count(value)).unwrap_or(0);
    let all = (0..count).map(|ordinal| match backends.get(&BackendKey { id: value.id, ordinal }) {
        Some(one) => json!({"addr": text::ip::<F>(&one.address).to_string(), "port": one.port}),
        None => json!({"addr": "missing", "port": 0}),
    });
    Json::Array(all.collect())
}

/// [`flat`] as JSON.
pub(super) fn flat_json<F: Family>(
    frontends: &Frontends<F>,
    backends: &Backends<F>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let objects = frontends.iter().map(|(key, value)| {
        json!({"frontend": frontend_json(key, value), "backends": backends_json(value, backends)})
    });
    text::json(out, &Json::Array(objects.collect()))
}

/// [`grouped`] as JSON.
pub(super) fn grouped_json<F: Family>(
    frontends: &Frontends<F>,
    backends: &Backends<F>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let objects = groups(frontends).into_iter().map(|(id, group)| {
        let frontends: Vec<Json> = group.iter().map(|(key, value)| frontend_json(key, value)).collect();
        json!({"id": id, "frontends": frontends, "backends": backends_json(&fullest(&group), backends)})
    });
    text::json(out, &Json::Array(objects.collect()))
}
