//! The plain pages: `/health`, `/version`, `/metrics`. Metric names are etcd's where the figure is the same.

use std::fmt::Write as _;

use axum::{
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};

use super::{CLUSTER_VERSION, VERSION, services::Api};

pub(super) async fn health(State(api): State<Api>) -> Response {
    let healthy = api.store.healthy().is_ok() && !api.store.status().no_space_alarm;
    let code = if healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = format!(r#"{{"health":"{healthy}"}}"#);
    (code, [(CONTENT_TYPE, "application/json")], body).into_response()
}

pub(super) async fn version() -> Response {
    let body = format!(r#"{{"etcdserver":"{VERSION}","etcdcluster":"{CLUSTER_VERSION}"}}"#);
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

pub(super) async fn metrics(State(api): State<Api>) -> Response {
    let status = api.store.status();
    let activity = api.store.activity();
    let healthy = u64::from(api.store.healthy().is_ok());
    let revision = u64::try_from(status.revision).unwrap_or(0);
    let compacted = u64::try_from(status.compact_revision).unwrap_or(0);
    let figures = [
        ("etcd_server_has_leader", "gauge", "Whether or not a leader exists; the store is its own.", 1),
        ("etcd_server_is_leader", "gauge", "Whether or not this member is a leader.", 1),
        ("etcd_server_health_success", "gauge", "Whether the store can be written.", healthy),
        (
            "etcd_server_quota_backend_bytes",
            "gauge",
            "Current quota in bytes.",
            api.store.options().quota_bytes,
        ),
        (
            "etcd_mvcc_db_total_size_in_bytes",
            "gauge",
            "Bytes of the file in use, garbage included.",
            status.file_bytes,
        ),
        (
            "etcd_mvcc_db_total_size_in_use_in_bytes",
            "gauge",
            "Bytes of the records still needed.",
            status.live_bytes,
        ),
        (
            "etcd_debugging_mvcc_db_total_size_in_bytes",
            "gauge",
            "Bytes of the file in use, garbage included.",
            status.file_bytes,
        ),
        ("etcd_debugging_mvcc_keys_total", "gauge", "Total number of keys.", status.keys),
        ("etcd_debugging_mvcc_current_revision", "gauge", "The current revision of the store.", revision),
        ("etcd_debugging_mvcc_compact_revision", "gauge", "The revision of the last compaction.", compacted),
        ("etcd_debugging_mvcc_watcher_total", "gauge", "Total number of watchers.", status.watchers),
        ("etcd_debugging_mvcc_events_total", "counter", "Events handed to watchers.", activity.events),
        ("etcd_debugging_lease_total", "gauge", "Leases that are alive.", status.leases),
        ("etcd_mvcc_put_total", "counter", "Puts seen by this member.", activity.puts),
        ("etcd_mvcc_delete_total", "counter", "Deletions seen by this member.", activity.deletes),
        ("etcd_mvcc_txn_total", "counter", "Transactions seen by this member.", activity.txns),
        ("etcd_mvcc_range_total", "counter", "Ranges seen by this member.", activity.ranges),
        (
            "tortie_datastore_commits_total",
            "counter",
            "Synced commits; requests per commit is the group size.",
            activity.commits,
        ),
    ];
    let mut page = String::new();
    for (name, kind, help, value) in figures {
        // Writing to a string cannot fail.
        let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    }
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page).into_response()
}

pub(super) async fn not_found() -> Response {
    (StatusCode::NOT_FOUND, "Not Found\n").into_response()
}

pub(super) async fn not_allowed() -> Response {
    (StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n").into_response()
}
