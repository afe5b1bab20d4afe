//! The forms in which objects are written: whole, as table rows (`kubectl get`), or as metadata only.

use crate::kinds::Served;
use crate::status::{Outcome, Refusal};
use api::Kind;
use bytes::Bytes;
use serde_json::{Map, Value, json};

/// The form in which a client requests objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Whole objects.
    Whole,
    /// Rows of a table, each with this much of its object.
    Table(Included),
    /// Only the objects' metadata.
    Metadata,
}

/// How much of its object a row carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Included {
    /// Nothing.
    None,
    /// The object's metadata.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

impl Form {
    /// The first acceptable form that is supported.
    ///
    /// # Errors
    /// When none is supported.
    pub(crate) fn choose(accept: &str, include: &str) -> Outcome<Self> {
        if accept.trim().is_empty() {
            return Ok(Self::Whole);
        }
        for choice in accept.split(',') {
            let mut parts = choice.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default();
            if !matches!(media_type, "application/json" | "application/*" | "*/*") {
                continue;
            }
            let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
            let parameter =
                |name: &str| parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
            match (parameter("as"), parameter("g"), parameter("v")) {
                (None, ..) => return Ok(Self::Whole),
                (Some("Table"), Some("meta.k8s.io"), Some("v1" | "v1beta1")) => {
                    return Ok(Self::Table(included(include)?));
                }
                (
                    Some("PartialObjectMetadata" | "PartialObjectMetadataList"),
                    Some("meta.k8s.io"),
                    Some("v1"),
                ) => {
                    return Ok(Self::Metadata);
                }
                _ => {}
            }
        }
        Err(Refusal::not_acceptable())
    }
}

fn included(text: &str) -> Outcome<Included> {
    match text {
        "" | "Metadata" => Ok(Included::Metadata),
        "None" => Ok(Included::None),
        "Object" => Ok(Included::Object),
        other => Err(Refusal::bad_request(format!(
            "unrecognized includeObject value {other:?}: must be None, Metadata or Object"
        ))),
    }
}

/// A column: name, type, format, priority and description.
type Column = (&'static str, &'static str, &'static str, i64, &'static str);

const NAME: Column = ("Name", "string", "name", 0, "The name, unique for its kind and namespace.");

const PLAIN: [Column; 2] = [NAME, ("Created At", "date", "", 0, "When the object was created.")];

const NODE_STATUS: [Column; 11] = [
    NAME,
    ("Node", "string", "", 0, "The node whose status this is."),
    ("Classes", "string", "", 0, "What is reported about the node."),
    ("Update Interval", "string", "", 0, "How often the status is written."),
    ("Age", "string", "", 0, "How long ago the object was created."),
    ("last Updated", "string", "", 0, "How long ago the status was written."),
    ("Agent State", "string", "", 1, "The state of the BGP agents."),
    ("ESTABLISHED-V4", "string", "", 1, "IPv4 sessions that are established, of all."),
    ("ESTABLISHED-V6", "string", "", 1, "IPv6 sessions that are established, of all."),
    ("NUM-V4-ROUTES", "string", "", 1, "IPv4 routes learned from peers."),
    ("NUM-V6-ROUTES", "string", "", 1, "IPv6 routes learned from peers."),
];

/// The columns of a resource.
#[must_use]
pub(crate) fn columns(served: &Served) -> Value {
    let columns: &[Column] = if served.kind == Kind::CalicoNodeStatus { &NODE_STATUS } else { &PLAIN };
    let column = |(name, column_type, format, priority, description): &Column| json!({"name": name, "type": column_type, "format": format, "description": description, "priority": priority});
    columns.iter().map(column).collect()
}

/// A table without rows.
#[must_use]
pub(crate) fn table(metadata: &Value, columns: &Value, rows: &[Value]) -> Value {
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": columns, "rows": rows,
    })
}

/// The table row of an object. Ages are relative to `now`.
#[must_use]
pub(crate) fn row(served: &Served, object: &Bytes, included: Included, now: jiff::Timestamp) -> Value {
    let value: Value = serde_json::from_slice(object).unwrap_or_default();
    let cells = match served.kind {
        Kind::CalicoNodeStatus => node_status(&value, now),
        _ => json!([value.pointer("/metadata/name"), value.pointer("/metadata/creationTimestamp")]),
    };
    let mut row = Map::new();
    row.insert("cells".into(), cells);
    match included {
        Included::None => {}
        Included::Metadata => {
            row.insert("object".into(), only_metadata(&value));
        }
        Included::Object => {
            row.insert("object".into(), value);
        }
    }
    Value::Object(row)
}

/// An object reduced to its metadata.
#[must_use]
pub(crate) fn metadata_of(object: &Bytes) -> Value {
    only_metadata(&serde_json::from_slice(object).unwrap_or_default())
}

fn only_metadata(value: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value["metadata"]})
}

fn node_status(value: &Value, now: jiff::Timestamp) -> Value {
    let text = |path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let list =
        |path: &str| value.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let classes: Vec<&str> = list("/spec/classes").iter().filter_map(Value::as_str).collect();
    let has = |class: &str| classes.contains(&class);
    let updated = match text("/status/lastUpdated") {
        "" => String::new(),
        time => format!("{} ago", since(time, now)),
    };
    let mut agent = String::new();
    if has("Agent") {
        for (family, path) in [("v4", "/status/agent/birdV4/state"), ("v6", "/status/agent/birdV6/state")] {
            if let Some(state) = value.pointer(path).and_then(Value::as_str) {
                agent.push_str(&format!("{family}({state}) "));
            }
        }
    }
    let sessions = |peers: &str, established: &str| match list(peers) {
        [] => String::new(),
        peers if has("BGP") => {
            format!(
                "{}/{}",
                value.pointer(established).and_then(Value::as_i64).unwrap_or_default(),
                peers.len()
            )
        }
        _ => String::new(),
    };
    let routes = |path: &str| match list(path) {
        [] => String::new(),
        routes if has("Routes") => {
            let learned = routes.iter().filter(|route| {
                matches!(
                    route.pointer("/learnedFrom/sourceType").and_then(Value::as_str),
                    Some("BGPPeer" | "NodeMesh")
                )
            });
            learned.count().to_string()
        }
        _ => String::new(),
    };
    let period = value.pointer("/spec/updatePeriodSeconds").and_then(Value::as_i64);
    json!([
        text("/metadata/name"),
        text("/spec/node"),
        classes.join(","),
        period.map(|seconds| format!("{seconds}s")).unwrap_or_default(),
        since(text("/metadata/creationTimestamp"), now),
        updated,
        agent,
        sessions("/status/bgp/peersV4", "/status/bgp/numberEstablishedV4"),
        sessions("/status/bgp/peersV6", "/status/bgp/numberEstablishedV6"),
        routes("/status/routes/routesV4"),
        routes("/status/routes/routesV6"),
    ])
}

/// An age as `kubectl` prints it: `5s`, `3m20s`, `36m`, `5h`, `2d`.
fn since(time: &str, now: jiff::Timestamp) -> String {
    let Ok(then) = time.parse::<jiff::Timestamp>() else { return "<unknown>".into() };
    let seconds = now.as_second() - then.as_second();
    let two = |large: i64, small: i64, large_unit: &str, small_unit: &str| match small {
        0 => format!("{large}{large_unit}"),
        _ => format!("{large}{large_unit}{small}{small_unit}"),
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        ..0 => "0s".into(),
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, seconds % 60, "m", "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, minutes % 60, "h", "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, hours % 24, "d", "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, days % 365, "y", "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_calicos() {
        for line in include_str!("../tests/data/tables.jsonl").lines() {
            let captured: Value = serde_json::from_str(line).expect("JSON");
            let served = Served::from_plural(captured["res"].as_str().expect("a name")).expect("served");
            let ours = columns(served);
            let pick = |column: &Value| json!({"name": column["name"], "type": column["type"], "priority": column["priority"]});
            let ours: Value = ours.as_array().into_iter().flatten().map(pick).collect();
            assert_eq!(ours, captured["columns"], "{}", captured["res"]);
        }
    }

    #[test]
    fn rows_have_the_cells_of_calico() {
        let served = Served::from_plural("caliconodestatuses").expect("served");
        let object = json!({
            "metadata": {"name": "s", "creationTimestamp": "2026-11-16T17:36:26Z"},
            "spec": {"node": "n1", "classes": ["Agent", "BGP", "Routes"], "updatePeriodSeconds": 10},
            "status": {
                "lastUpdated": "2026-11-16T17:00:00Z",
                "agent": {"birdV4": {"state": "Ready"}},
                "bgp": {"numberEstablishedV4": 1, "peersV4": [{"peerIP": "10.0.0.1"}]},
            },
        });
        let now = "2026-11-16T17:36:31Z".parse().expect("a time");
        let row = row(served, &Bytes::from(object.to_string()), Included::Metadata, now);
        let captured = include_str!("../tests/data/tables.jsonl")
            .lines()
            .find(|l| l.contains("caliconode"))
            .expect("a line");
        let captured: Value = serde_json::from_str(captured).expect("JSON");
        assert_eq!(row["cells"], captured["rows"][0]);
        assert_eq!(row["object"]["kind"], "PartialObjectMetadata");
    }

    #[test]
    fn forms_are_negotiated() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        for (accept, include, expected) in [
            ("", "", Ok(Form::Whole)),
            ("application/json, */*", "", Ok(Form::Whole)),
            (table, "", Ok(Form::Table(Included::Metadata))),
            (table, "None", Ok(Form::Table(Included::None))),
            (table, "Some", Err(400)),
            ("application/vnd.kubernetes.protobuf,application/json", "", Ok(Form::Whole)),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
                "",
                Ok(Form::Metadata),
            ),
            ("application/vnd.kubernetes.protobuf", "", Err(406)),
        ] {
            assert_eq!(Form::choose(accept, include).map_err(|r| r.code), expected, "{accept}");
        }
    }

    #[test]
    fn ages_are_formatted_like_kubectl() {
        let now: jiff::Timestamp = "2026-11-16T00:00:00Z".parse().expect("a time");
        for (seconds, expected) in [
            (5, "5s"),
            (119, "119s"),
            (125, "2m5s"),
            (600, "10m"),
            (10_900, "3h1m"),
            (90_000, "25h"),
            (180_000, "2d2h"),
            (700_000, "8d"),
            (70_000_000, "2y80d"),
        ] {
            let then = jiff::Timestamp::from_second(now.as_second() - seconds).expect("a time");
            assert_eq!(since(&then.to_string(), now), expected);
        }
        assert_eq!(since("", now), "<unknown>");
    }
}
