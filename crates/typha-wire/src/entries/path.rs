//! Paths of entries. They are `model`'s; the path of workload endpoints, of which a cluster has hundreds of thousands,
//! is also written here, without allocating a string for each of its parts.

use model::feed::FeedKeyRef;
use model::v1::WorkloadEndpointKey;
use model::{Key, KeyError};

/// Replaces `path` with the path of a key.
///
/// # Errors
/// When the key has no path.
pub(super) fn put_path(key: FeedKeyRef<'_>, path: &mut String) -> Result<(), KeyError> {
    path.clear();
    match key {
        FeedKeyRef::WorkloadEndpoint(key) if is_plain(key) => put_workload(key, path),
        key => *path = Key::from(key).path()?,
    }
    Ok(())
}

/// Whether no part is empty, and only slashes in the name of the workload, which most names have, need escaping.
fn is_plain(key: &WorkloadEndpointKey) -> bool {
    let WorkloadEndpointKey { host, orchestrator, workload, endpoint } = key;
    let is_plain = |part: &str| !part.is_empty() && !part.bytes().any(|byte| matches!(byte, b'/' | b'%'));
    is_plain(host)
        && is_plain(orchestrator)
        && is_plain(endpoint)
        && !workload.is_empty()
        && !workload.contains('%')
}

fn put_workload(key: &WorkloadEndpointKey, path: &mut String) {
    let WorkloadEndpointKey { host, orchestrator, workload, endpoint } = key;
    for part in ["/calico/v1/host/", host, "/workload/", orchestrator, "/"] {
        path.push_str(part);
    }
    for (place, part) in workload.split('/').enumerate() {
        if place > 0 {
            path.push_str("%2f");
        }
        path.push_str(part);
    }
    path.push_str("/endpoint/");
    path.push_str(endpoint);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_path_equals_the_models(
            host in "[a-c/%.-]{0,3}",
            orchestrator in "[k8s/%]{0,3}",
            workload in "[a-c/%]{0,5}",
            endpoint in "[a-c/%]{0,3}",
        ) {
            let key = WorkloadEndpointKey { host: host.into(), orchestrator, workload, endpoint };
            let key = FeedKeyRef::WorkloadEndpoint(&key);
            let mut path = "what was there before".to_owned();
            let written = put_path(key, &mut path).map(|()| path);
            let expected = Key::from(key).path();
            prop_assert_eq!(written.map_err(|error| error.to_string()), expected.map_err(|error| error.to_string()));
        }
    }
}
