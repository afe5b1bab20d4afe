//! The kinds that only exist in feeds: Kubernetes' own policies, converted, and the services that rules may name.
//!
//! They are never stored, so they have no defaults, and validation accepts them unchanged.

use super::globalnetworkpolicy::GlobalNetworkPolicySpec;
use super::networkpolicy::NetworkPolicySpec;
use crate::errors::FieldErrors;
use crate::kind::Kind;
use crate::kubernetes::service::{EndpointSliceContent, ServiceSpec, ServiceStatus};
use crate::meta::ObjectMeta;
use crate::object::{NoStatus, Object, Spec, StatusPart};
use crate::schema::Schema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::ops::{Deref, DerefMut};

/// A Kubernetes NetworkPolicy, converted to a Calico policy.
pub type KubernetesNetworkPolicy = Object<KubernetesNetworkPolicySpec>;

/// A Kubernetes ClusterNetworkPolicy, converted to a Calico policy.
pub type KubernetesClusterNetworkPolicy = Object<KubernetesClusterNetworkPolicySpec>;

/// A Kubernetes Service.
pub type KubernetesService = Object<KubernetesServiceSpec>;

/// A Kubernetes EndpointSlice. Kubernetes has no `spec` there: what stands at the top of its object is in ours.
pub type KubernetesEndpointSlice = Object<KubernetesEndpointSliceSpec>;

impl StatusPart for ServiceStatus {}

macro_rules! feed_kinds {
    ($($(#[$doc:meta])* $name:ident($inner:ty), $kind:ident, $status:ty;)+) => {
        $($(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl Deref for $name {
            type Target = $inner;
            fn deref(&self) -> &$inner {
                &self.0
            }
        }

        impl DerefMut for $name {
            fn deref_mut(&mut self) -> &mut $inner {
                &mut self.0
            }
        }

        impl From<$inner> for $name {
            fn from(inner: $inner) -> Self {
                Self(inner)
            }
        }

        impl Schema for $name {
            fn schema() -> Map<String, Value> {
                <$inner>::schema()
            }
        }

        impl Spec for $name {
            const KIND: Kind = Kind::$kind;
            type Status = $status;

            fn validate(&self, _metadata: &ObjectMeta, _errors: &mut FieldErrors) {}
        })+
    };
}

feed_kinds! {
    /// A Calico policy under the name of the Kubernetes policy that it was made from.
    KubernetesNetworkPolicySpec(NetworkPolicySpec), KubernetesNetworkPolicy, NoStatus;
    /// A global Calico policy under the name of the Kubernetes policy that it was made from.
    KubernetesClusterNetworkPolicySpec(GlobalNetworkPolicySpec), KubernetesClusterNetworkPolicy, NoStatus;
    /// What a service serves.
    KubernetesServiceSpec(ServiceSpec), KubernetesService, ServiceStatus;
    /// Addresses and ports behind a service.
    KubernetesEndpointSliceSpec(EndpointSliceContent), KubernetesEndpointSlice, NoStatus;
}
