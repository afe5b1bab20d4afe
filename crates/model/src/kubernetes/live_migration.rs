//! KubeVirt's VirtualMachineInstanceMigration → LiveMigration.
//!
//! A migration is reported as early as possible, so that the node that takes over knows of it before the pod's endpoint
//! arrives. The source is filled in once KubeVirt reports it.

use super::Converted;
use api::kubernetes::VirtualMachineInstanceMigration;
use api::{
    LiveMigration, LiveMigrationSource, LiveMigrationSpec, LiveMigrationTarget, ObjectMeta,
    WorkloadIdentifier,
};

/// Labels of a virtual machine's pod: the instance's name (KubeVirt 1.7 and later), the machine's host name (earlier
/// versions), and the migration that created the pod.
const INSTANCE_LABEL: &str = "vmi.kubevirt.io/id";
const MACHINE_LABEL: &str = "vm.kubevirt.io/name";
const MIGRATION_LABEL: &str = "kubevirt.io/migrationJobUID";

/// The phases in which a migration concerns the network.
const PHASES: [&str; 6] = ["Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running", "Failed"];

/// Whether the migration is in a phase in which the network has to know of it.
#[must_use]
pub fn is_live_migration(migration: &VirtualMachineInstanceMigration) -> bool {
    PHASES.contains(&migration.status.phase.as_str())
        && !migration.spec.vmi_name.is_empty()
        && !migration.metadata.uid.is_empty()
}

/// Converts a migration for which [`is_live_migration`] holds.
#[must_use]
pub fn live_migration(migration: &VirtualMachineInstanceMigration) -> Converted {
    let instance = &migration.spec.vmi_name;
    let uid = &migration.metadata.uid;
    let selector = format!(
        "({INSTANCE_LABEL} == '{instance}' || {MACHINE_LABEL} == '{instance}') && {MIGRATION_LABEL} == '{uid}'"
    );
    let source_pod = migration.status.migration_state.as_ref().map_or("", |state| state.source_pod.as_str());
    let source = (!source_pod.is_empty()).then(|| LiveMigrationSource {
        workload: Some(WorkloadIdentifier {
            orchestrator_id: api::words::KUBERNETES.to_owned(),
            workload_id: format!("{}/{source_pod}", migration.metadata.namespace),
            ..WorkloadIdentifier::default()
        }),
        ..LiveMigrationSource::default()
    });
    let spec = LiveMigrationSpec {
        source,
        target: Some(LiveMigrationTarget { selector: Some(selector), ..LiveMigrationTarget::default() }),
        ..LiveMigrationSpec::default()
    };
    let metadata = ObjectMeta {
        name: migration.metadata.name.clone(),
        namespace: migration.metadata.namespace.clone(),
        uid: uid.clone(),
        creation_timestamp: migration.metadata.creation_timestamp.clone(),
        labels: migration.metadata.labels.clone(),
        annotations: migration.metadata.annotations.clone(),
        ..ObjectMeta::default()
    };
    let object = LiveMigration { metadata, spec, ..LiveMigration::default() };
    Converted::new(object, &migration.metadata.resource_version)
}
