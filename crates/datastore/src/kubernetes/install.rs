//! Installs Calico's custom resource definitions.
//!
//! Server-side apply creates what is missing and updates older definitions to this version. A user without permission
//! for definitions does not cause a failure as long as they all exist.

use super::group::ApiGroup;
use super::path::ApiResource;
use super::transport::Transport;
use crate::error::{Error, Result};
use http::Method;
use serde_json::Value;
use std::time::{Duration, Instant};

const DEFINITIONS: ApiResource =
    ApiResource::cluster("apis/apiextensions.k8s.io/v1", "customresourcedefinitions");

/// How long the server may take to serve new definitions.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(200);

pub(super) async fn install(transport: &Transport, group: ApiGroup) -> Result<()> {
    let definitions = match group {
        ApiGroup::CrdV1 => api::crds::all(),
        ApiGroup::ProjectCalicoV3 => api::crds::all_v3(),
    };
    for definition in definitions {
        let name = definition.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let address = DEFINITIONS.object("", name).with("fieldManager", "calicoctl").with("force", "true");
        let body = definition.to_string().into_bytes();
        let outcome =
            transport.send::<Value>(Method::PATCH, &address, body, "application/apply-patch+yaml").await;
        if let Err(failure) = outcome {
            let key = format!("CustomResourceDefinition({name})");
            return match failure.into_error(&format!("apply {key}"), &key) {
                error @ Error::Unauthorized { .. } => {
                    group.ensure_installed(transport).await.inspect_err(|_| {
                        tracing::info!(%error, "not allowed to install definitions");
                    })
                }
                error => Err(error),
            };
        }
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        match group.ensure_installed(transport).await {
            Err(_) if Instant::now() < deadline => tokio::time::sleep(PAUSE).await,
            outcome => return outcome,
        }
    }
}
