//! Services and endpoint slices, which are passed on unchanged under kinds of their own.

use super::Converted;
use api::kubernetes::{EndpointSlice, Service};
use api::{KubernetesEndpointSlice, KubernetesEndpointSliceSpec, KubernetesService, KubernetesServiceSpec};

/// Returns the service under its own kind.
#[must_use]
pub fn kubernetes_service(service: Service) -> Converted {
    let revision = service.metadata.resource_version.clone();
    let object = KubernetesService {
        metadata: service.metadata,
        spec: KubernetesServiceSpec(service.spec),
        status: service.status,
        ..KubernetesService::default()
    };
    Converted::new(object, &revision)
}

/// Returns the slice under its own kind.
#[must_use]
pub fn kubernetes_endpoint_slice(slice: EndpointSlice) -> Converted {
    let revision = slice.metadata.resource_version.clone();
    let mut content = slice.content;
    // The fields of the envelope (kind, apiVersion) are beside the content and not part of it.
    content.extra.clear();
    let object = KubernetesEndpointSlice {
        metadata: slice.metadata,
        spec: KubernetesEndpointSliceSpec(content),
        ..KubernetesEndpointSlice::default()
    };
    Converted::new(object, &revision)
}
