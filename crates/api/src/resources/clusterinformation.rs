//! ClusterInformation: facts about the cluster, and whether its datastore may be used. There is one, named `default`.

use crate::errors::{FieldErrors, FieldPath};
use crate::kind::Kind;
use crate::meta::ObjectMeta;
use crate::object::{NoStatus, Object, Spec};
use crate::scalars::names::check_metadata;
use crate::words::GLOBAL_NAME;
use api_derive::resource_struct;

/// Facts about the cluster.
pub type ClusterInformation = Object<ClusterInformationSpec>;

/// Facts about the cluster.
#[resource_struct]
pub struct ClusterInformationSpec {
    /// The cluster's identity, made up when it is set up.
    #[field(name = "clusterGUID")]
    pub cluster_guid: String,
    /// What kind of cluster it is: words separated by commas.
    pub cluster_type: String,
    /// The version that runs.
    pub calico_version: String,
    /// False while the datastore is being migrated: components wait.
    pub datastore_ready: Option<bool>,
    /// The variant of Calico that is active.
    pub variant: String,
}

impl Spec for ClusterInformationSpec {
    const KIND: Kind = Kind::ClusterInformation;
    type Status = NoStatus;

    fn validate(&self, metadata: &ObjectMeta, errors: &mut FieldErrors) {
        check_metadata(metadata, errors);
        errors.require(
            metadata.name == GLOBAL_NAME,
            FieldPath::new("metadata.name"),
            &metadata.name,
            "Cannot create a Cluster Information resource with a name other than \"default\"",
        );
    }
}
