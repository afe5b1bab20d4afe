//! What the datastore and Kubernetes know about a container before it is attached. Everything is read at once.

use crate::attachment::Attachment;
use crate::endpoint::PodFacts;
use crate::error::{CniError, Result, code};
use crate::gates;
use crate::ipam::assign;
use crate::store::pod_facts;
use api::WorkloadEndpoint;
use api::meta::StringMap;
use ipam::{Ahead, NamespaceLabels};
use std::time::Duration;

/// How long the datastore may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The answers of the datastore and Kubernetes.
pub(super) struct Known {
    pub(super) existing: Option<WorkloadEndpoint>,
    /// `None` for a container that is not a pod.
    pub(super) pod: Option<PodKnown>,
    pub(super) ahead: Option<Ahead>,
}

/// Kubernetes' information about a pod.
#[derive(Default)]
pub(super) struct PodKnown {
    pub(super) facts: PodFacts,
    pub(super) namespace_annotations: StringMap,
    pub(super) namespace_labels: Option<NamespaceLabels>,
}

pub(super) async fn read(attachment: &Attachment<'_>) -> Result<Known> {
    let store = &attachment.context.store;
    let identity = &attachment.identity;
    let pod = async { if identity.is_pod() { read_pod(attachment).await.map(Some) } else { Ok(None) } };
    let ahead = assign::look_ahead(attachment);
    let reads = async { tokio::join!(store.check_ready(), store.find_endpoint(identity), pod, ahead) };
    let (ready, existing, pod, ahead) = answered(reads).await?;
    ready?;
    gates::wait_for(&attachment.request.conf.readiness_gates).await?;
    Ok(Known { existing: existing?, pod: pod?, ahead })
}

async fn read_pod(attachment: &Attachment<'_>) -> Result<PodKnown> {
    let Attachment { context, request, identity } = attachment;
    let conf = &request.conf;
    let name = &identity.namespace;
    let wants_namespace = conf.is_kubernetes_policy() || !conf.kubernetes.kubeconfig.is_empty();
    let namespace = async {
        if wants_namespace { context.store.namespace(conf, name).await.map(Some) } else { Ok(None) }
    };
    let labels_of = |labels| NamespaceLabels { name: name.clone(), labels };
    if !conf.is_kubernetes_policy() {
        let labels = namespace.await?.map(|namespace| labels_of(namespace.metadata.labels));
        return Ok(PodKnown { namespace_labels: labels, ..PodKnown::default() });
    }
    let (namespace, pod) = tokio::join!(namespace, context.store.pod(conf, name, &identity.identifiers.pod));
    let facts = pod_facts(&pod?, &request.environment)?;
    let metadata = namespace?.map(|namespace| namespace.metadata).unwrap_or_default();
    Ok(PodKnown {
        facts,
        namespace_annotations: metadata.annotations,
        namespace_labels: Some(labels_of(metadata.labels)),
    })
}

/// Turns a silent datastore or API into an error before the runtime loses its patience.
pub(super) async fn answered<T>(work: impl Future<Output = T>) -> Result<T> {
    tokio::time::timeout(PATIENCE, work).await.map_err(|_| {
        let message = format!("the datastore did not answer within {} s", PATIENCE.as_secs());
        CniError::new(code::TRY_AGAIN_LATER, message)
            .with_details("check that the datastore runs and can be reached from this node")
    })
}
