//! The API group that holds Calico's custom resources: the classic `crd.projectcalico.org/v1`, where objects are
//! wrapped, or `projectcalico.org/v3`, where they are stored unchanged.

use super::path::{Address, ApiResource};
use super::transport::Transport;
use crate::error::{Error, Result};
use api::kind::KubernetesForm;
use api::{Kind, Resource};
use model::{Key, KvPair, Value, crd, names};
use serde::Deserialize;
use std::collections::BTreeSet;

/// Kinds introduced after v3.26, whose manifests a cluster may have been installed with.
const LATER: [&str; 4] =
    ["stagedglobalnetworkpolicies", "stagedkubernetesnetworkpolicies", "stagednetworkpolicies", "tiers"];

/// The group of Calico's custom resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiGroup {
    /// `crd.projectcalico.org/v1`
    CrdV1,
    /// `projectcalico.org/v3`
    ProjectCalicoV3,
}

impl ApiGroup {
    /// The configured group; `None` to determine it.
    #[must_use]
    pub fn configured(text: &str) -> Option<Self> {
        if text.is_empty() {
            return None;
        }
        let v3 = text.eq_ignore_ascii_case(api::kind::API_VERSION);
        Some(if v3 { Self::ProjectCalicoV3 } else { Self::CrdV1 })
    }

    /// Queries the server. If both groups exist, `projectcalico.org/v3` is served by Calico's API server on top of the
    /// other; if the server does not answer, the classic group is assumed.
    pub(crate) async fn discover(transport: &Transport) -> Self {
        #[derive(Deserialize)]
        struct Groups {
            groups: Vec<Group>,
        }
        #[derive(Deserialize)]
        struct Group {
            name: String,
        }
        match transport.get::<Groups>(&Address::fixed("/apis")).await {
            Ok(answer) => {
                let has = |name: &str| answer.groups.iter().any(|group| group.name == name);
                let v3 = has("projectcalico.org") && !has(api::kind::CRD_GROUP);
                if v3 { Self::ProjectCalicoV3 } else { Self::CrdV1 }
            }
            Err(failure) => {
                let error = failure.into_error("list API groups", "/apis");
                tracing::warn!(%error, "cannot find out which API group Calico uses; assuming crd.projectcalico.org/v1");
                Self::CrdV1
            }
        }
    }

    fn base(self) -> &'static str {
        match self {
            Self::CrdV1 => "apis/crd.projectcalico.org/v1",
            Self::ProjectCalicoV3 => "apis/projectcalico.org/v3",
        }
    }

    /// The collection of a kind; `None` for kinds that are computed from Kubernetes' own objects.
    pub(crate) fn resource(self, kind: Kind) -> Option<ApiResource> {
        let KubernetesForm::CustomResource { plural, .. } = kind.info().kubernetes else {
            return None;
        };
        let plural = if self == Self::ProjectCalicoV3 { kind.plural() } else { plural };
        Some(ApiResource { base: self.base(), plural, namespaced: kind.is_namespaced() })
    }

    /// Whether the kind's definition has a status subresource.
    pub(crate) fn has_status(kind: Kind) -> bool {
        matches!(kind.info().kubernetes, KubernetesForm::CustomResource { status: true, .. })
    }

    /// The object to store.
    pub(crate) fn encode(self, resource: &Resource) -> Result<serde_json::Value> {
        let outcome = match self {
            Self::CrdV1 => crd::to_crd(resource).map_err(|error| error.to_string()),
            Self::ProjectCalicoV3 => resource.to_value().map_err(|error| error.to_string()),
        };
        let key = || Key::resource(resource.kind(), resource.namespace(), resource.name());
        outcome.map_err(|reason| Error::permanent(format!("cannot store {}", key()), reason))
    }

    /// Decodes a stored object to an entry, under the name that it is stored under.
    pub(crate) fn decode(
        self,
        kind: Kind,
        mut object: serde_json::Value,
    ) -> std::result::Result<KvPair, String> {
        match self {
            Self::CrdV1 => crd::pair_from_crd(kind, object).map_err(|error| error.to_string()),
            Self::ProjectCalicoV3 => {
                if let Some(metadata) = object.get_mut("metadata").and_then(serde_json::Value::as_object_mut)
                {
                    metadata.remove("managedFields");
                }
                let resource = Resource::from_value(kind, object).map_err(|error| error.to_string())?;
                Ok(KvPair::resource(resource))
            }
        }
    }

    /// As [`Self::decode`], from the object's text: the fast path, for lists and watches.
    pub(crate) fn decode_text(self, kind: Kind, json: &str) -> std::result::Result<KvPair, String> {
        match self {
            Self::CrdV1 => crd::pair_from_crd_text(kind, json).map_err(|error| error.to_string()),
            Self::ProjectCalicoV3 => match Resource::from_json(kind, json.as_bytes()) {
                Ok(mut resource) => {
                    resource.metadata_mut().extra.remove("managedFields");
                    Ok(KvPair::resource(resource))
                }
                // The slow path reports what is wrong.
                Err(_) => self.decode(kind, serde_json::from_str(json).map_err(|error| error.to_string())?),
            },
        }
    }

    /// As much of an unreadable object as can be read, where that matters.
    pub(crate) fn salvage(self, kind: Kind, object: serde_json::Value) -> Option<KvPair> {
        match self {
            Self::CrdV1 => crd::salvage(kind, object),
            Self::ProjectCalicoV3 => model::convert::salvage::salvage(kind, object).map(KvPair::resource),
        }
    }

    /// The uid of the custom resource behind an entry with this uid.
    pub(crate) fn stored_uid(self, uid: &str) -> Result<String> {
        match self {
            Self::CrdV1 => names::translate_uid(uid)
                .map_err(|error| Error::permanent("cannot use the object's uid", error)),
            Self::ProjectCalicoV3 => Ok(uid.to_owned()),
        }
    }

    /// Whether policies may be stored under names of earlier releases, `default.NAME`.
    pub(crate) fn has_old_names(self) -> bool {
        self == Self::CrdV1
    }

    /// Checks that the server has all required definitions: those that every supported release of Calico installs.
    pub(crate) async fn ensure_installed(self, transport: &Transport) -> Result<()> {
        #[derive(Deserialize)]
        struct Resources {
            resources: Vec<Named>,
        }
        #[derive(Deserialize)]
        struct Named {
            name: String,
        }
        let attempt = "check Calico's custom resource definitions";
        let address = Address::fixed(&format!("/{}", self.base()));
        let there: BTreeSet<String> = match transport.get::<Resources>(&address).await {
            Ok(answer) => answer.resources.into_iter().map(|resource| resource.name).collect(),
            Err(failure) if failure.is_not_found() => BTreeSet::new(),
            Err(failure) => return Err(failure.into_error(attempt, self.base())),
        };
        let wanted = Kind::ALL.iter().filter_map(|kind| self.resource(*kind)).map(|resource| resource.plural);
        let (late, missing): (Vec<&str>, Vec<&str>) =
            wanted.filter(|plural| !there.contains(*plural)).partition(|plural| LATER.contains(plural));
        if missing.is_empty() {
            if !late.is_empty() {
                tracing::warn!(
                    kinds = late.join(", "),
                    "definitions of an older release: these kinds count as absent"
                );
            }
            return Ok(());
        }
        let reason = format!(
            "the API server lacks definitions in {}: {}; install them with `tortie crds | kubectl apply --server-side -f -`",
            self.base().trim_start_matches("apis/"),
            missing.join(", ")
        );
        Err(Error::permanent(attempt, reason))
    }
}

/// The resource of an entry, with the entry's revision in its metadata.
pub(crate) fn resource_of(entry: &KvPair, revision: &str) -> Result<Resource> {
    let Value::Resource(resource) = &entry.value else {
        return Err(Error::permanent(format!("cannot store {}", entry.key), "the value is not a resource"));
    };
    let mut resource = resource.clone();
    revision.clone_into(&mut resource.metadata_mut().resource_version);
    Ok(resource)
}
