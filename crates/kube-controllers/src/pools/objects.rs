//! Finalizers and conditions of an object: read live, changed, and written to exactly the version that was read.

use http::Method;
use jiff::Timestamp;
use kube_access::cluster::{Cluster, ClusterError, Collection, MERGE_PATCH};
use serde_json::{Value, json};

/// A desired condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Its type.
    pub kind: &'static str,
    /// Whether it is true.
    pub status: bool,
    /// The reason in one word.
    pub reason: &'static str,
    /// The reason as a sentence.
    pub message: String,
}

/// Sets a condition in an object's status. Returns false if it is set already.
pub(crate) fn set_condition(object: &mut Value, wanted: &Wanted, now: Timestamp) -> bool {
    let status = if wanted.status { "True" } else { "False" };
    let condition = json!({
        "type": wanted.kind,
        "status": status,
        "reason": wanted.reason,
        "message": wanted.message,
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    });
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    if !object["status"]["conditions"].is_array() {
        object["status"]["conditions"] = json!([]);
    }
    let Some(conditions) = object["status"]["conditions"].as_array_mut() else { return false };
    match conditions.iter_mut().find(|known| known["type"] == wanted.kind) {
        Some(known) => {
            let is_same =
                ["status", "reason", "message"].iter().all(|field| known[*field] == condition[*field]);
            if !is_same {
                *known = condition;
            }
            !is_same
        }
        None => {
            conditions.push(condition);
            true
        }
    }
}

/// An object's finalizers with this one added or removed; `None` if nothing changes.
#[must_use]
pub(crate) fn with_finalizer(object: &Value, finalizer: &str, wanted: bool) -> Option<Vec<String>> {
    let list = object["metadata"]["finalizers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut finalizers: Vec<String> =
        list.iter().filter_map(|entry| entry.as_str().map(str::to_owned)).collect();
    let has = finalizers.iter().any(|entry| entry == finalizer);
    match (has, wanted) {
        (true, true) | (false, false) => return None,
        (false, true) => finalizers.push(finalizer.to_owned()),
        (true, false) => finalizers.retain(|entry| entry != finalizer),
    }
    Some(finalizers)
}

/// Writes a condition of an object, unless it is set already.
///
/// # Errors
/// When the API returns an error, such as a conflict. If the object is gone, nothing is written.
pub(crate) async fn write_condition(
    cluster: &Cluster,
    collection: Collection,
    name: &str,
    wanted: &Wanted,
) -> Result<(), ClusterError> {
    let Some(mut object) = read(cluster, collection, name).await? else { return Ok(()) };
    if !set_condition(&mut object, wanted, Timestamp::now()) {
        return Ok(());
    }
    let path = format!("{}/status", collection.object("", name));
    let what = format!("write the status of {} {name}", collection.plural);
    let _: Value = cluster.replace(&what, &path, &object).await?;
    tracing::info!(
        kind = collection.plural,
        name,
        status = wanted.status,
        reason = wanted.reason,
        "a condition changed"
    );
    Ok(())
}

/// Adds or removes a finalizer, unless nothing changes.
///
/// # Errors
/// As [`write_condition`].
pub(crate) async fn write_finalizer(
    cluster: &Cluster,
    collection: Collection,
    name: &str,
    finalizer: &str,
    wanted: bool,
) -> Result<(), ClusterError> {
    let Some(object) = read(cluster, collection, name).await? else { return Ok(()) };
    // The API rejects new finalizers while an object is being deleted.
    if wanted && !object["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    let Some(finalizers) = with_finalizer(&object, finalizer, wanted) else { return Ok(()) };
    let patch = json!({"metadata": {
        "finalizers": finalizers,
        "resourceVersion": object["metadata"]["resourceVersion"],
    }});
    let what =
        format!("{} the finalizer of {} {name}", if wanted { "add" } else { "remove" }, collection.plural);
    let path = collection.object("", name);
    let outcome: Result<Value, ClusterError> =
        cluster.send(&what, Method::PATCH, &path, &patch, MERGE_PATCH).await;
    match outcome {
        Err(error) if error.is_not_found() => {}
        outcome => drop(outcome?),
    }
    tracing::info!(kind = collection.plural, name, finalizer, wanted, "a finalizer changed");
    Ok(())
}

async fn read(cluster: &Cluster, collection: Collection, name: &str) -> Result<Option<Value>, ClusterError> {
    let what = format!("read {} {name}", collection.plural);
    match cluster.get(&what, &collection.object("", name)).await {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unchanged_condition_is_not_written() {
        let now = Timestamp::UNIX_EPOCH;
        let open = Wanted { kind: "Allocatable", status: true, reason: "OK", message: "fine".into() };
        let mut object = json!({"metadata": {"name": "p"}});
        assert!(set_condition(&mut object, &open, now));
        assert_eq!(object["status"]["conditions"][0]["lastTransitionTime"], "1970-01-01T00:00:00Z");
        assert!(!set_condition(&mut object, &open, Timestamp::now()));
        object["status"]["conditions"].as_array_mut().expect("a list").insert(0, json!({"type": "Other"}));
        let shut = Wanted { status: false, reason: "PoolDisabled", ..open };
        assert!(set_condition(&mut object, &shut, now));
        let conditions = object["status"]["conditions"].as_array().expect("a list");
        assert_eq!((conditions.len(), &conditions[1]["status"]), (2, &json!("False")));
    }

    #[test]
    fn finalizers_of_others_are_kept() {
        let object = json!({"metadata": {"finalizers": ["a", "ours"]}});
        assert_eq!(with_finalizer(&object, "ours", true), None);
        assert_eq!(with_finalizer(&object, "ours", false), Some(vec!["a".to_owned()]));
        assert_eq!(with_finalizer(&json!({}), "ours", false), None);
        assert_eq!(with_finalizer(&json!({}), "ours", true), Some(vec!["ours".to_owned()]));
    }
}
