//! `LiveMigration`: a virtual machine moving from one node to another. Felix reads it; users do not write it.

use crate::errors::FieldErrors;
use crate::kind::Kind;
use crate::meta::ObjectMeta;
use crate::object::{NoStatus, Object, Spec};
use crate::scalars::names::check_metadata;
use api_derive::resource_struct;

/// A live migration.
pub type LiveMigration = Object<LiveMigrationSpec>;

/// From where to where.
#[resource_struct]
pub struct LiveMigrationSpec {
    /// What is moved.
    pub source: Option<LiveMigrationSource>,
    /// Where it is moved to.
    pub target: Option<LiveMigrationTarget>,
}

/// The side that is left: a whole workload (KubeVirt) or one endpoint (OpenStack).
#[resource_struct]
pub struct LiveMigrationSource {
    /// The workload, where one migration covers all its interfaces.
    pub workload: Option<WorkloadIdentifier>,
    /// The endpoint, where each interface has a migration of its own.
    pub workload_endpoint: Option<WorkloadEndpointIdentifier>,
}

/// The side that is entered: found by selector (KubeVirt) or named (OpenStack).
#[resource_struct]
pub struct LiveMigrationTarget {
    /// Selects the workload that takes over.
    pub selector: Option<String>,
    /// The endpoint that takes over.
    pub workload_endpoint: Option<WorkloadEndpointIdentifier>,
}

/// Names a workload.
#[resource_struct]
pub struct WorkloadIdentifier {
    /// Its node.
    pub hostname: String,
    /// Its orchestrator.
    #[field(name = "orchestratorID")]
    pub orchestrator_id: String,
    /// Its name there.
    #[field(name = "workloadID")]
    pub workload_id: String,
}

/// Names an endpoint of a workload.
#[resource_struct]
pub struct WorkloadEndpointIdentifier {
    /// Its node.
    pub hostname: String,
    /// Its orchestrator.
    #[field(name = "orchestratorID")]
    pub orchestrator_id: String,
    /// The workload's name there.
    #[field(name = "workloadID")]
    pub workload_id: String,
    /// The endpoint's name in the workload.
    #[field(name = "endpointID")]
    pub endpoint_id: String,
}

impl Spec for LiveMigrationSpec {
    const KIND: Kind = Kind::LiveMigration;
    type Status = NoStatus;

    fn validate(&self, metadata: &ObjectMeta, errors: &mut FieldErrors) {
        check_metadata(metadata, errors);
    }
}
