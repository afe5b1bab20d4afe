//! Pods, namespaces, service accounts, nodes, and KubeVirt's migrations: read, never written back whole.

use super::{read_only_objects, read_only_structs};

read_only_objects! {
    /// A pod (`v1`).
    Pod {
        /// The desired state.
        spec: PodSpec,
        /// The observed state.
        status: PodStatus,
    }

    /// A namespace (`v1`): Calico only reads its metadata.
    Namespace {}

    /// A service account (`v1`): Calico only reads its metadata.
    ServiceAccount {}

    /// A node (`v1`).
    Node {
        /// The desired state.
        spec: NodeSpec,
        /// The observed state.
        status: NodeStatus,
    }

    /// A live migration of a virtual machine (`kubevirt.io/v1`).
    VirtualMachineInstanceMigration {
        /// The desired state.
        spec: MigrationSpec,
        /// The progress.
        status: MigrationStatus,
    }
}

read_only_structs! {
    /// The desired state of a pod.
    PodSpec {
        /// The node; empty until the pod is scheduled.
        node_name: String = "nodeName",
        /// Whether the pod uses the node's network, and so is not a workload to Calico.
        host_network: bool = "hostNetwork",
        /// The service account.
        service_account_name: String = "serviceAccountName",
        /// The containers.
        containers: Vec<Container> = "containers",
        /// The containers that run first.
        init_containers: Vec<Container> = "initContainers",
    }

    /// A container, reduced to its ports.
    Container {
        /// The container's declared ports.
        ports: Vec<ContainerPort> = "ports",
    }

    /// A port of a container.
    ContainerPort {
        /// The name that policies may use.
        name: String = "name",
        /// The port on the node, if one is mapped.
        host_port: i32 = "hostPort",
        /// The port in the pod.
        container_port: i32 = "containerPort",
        /// TCP, UDP or SCTP; TCP if empty.
        protocol: String = "protocol",
        /// The node's address on which the port is mapped.
        host_ip: String = "hostIP",
    }

    /// The observed state of a pod.
    PodStatus {
        /// `Pending`, `Running`, `Succeeded`, `Failed`, `Unknown`.
        phase: String = "phase",
        /// The main address.
        pod_ip: String = "podIP",
        /// All addresses.
        pod_ips: Vec<PodIp> = "podIPs",
    }

    /// One address of a pod.
    PodIp {
        /// The address.
        ip: String = "ip",
    }

    /// What the cluster assigned to a node.
    NodeSpec {
        /// The network for the node's pods.
        pod_cidr: String = "podCIDR",
        /// The networks for the node's pods, one per IP version.
        pod_cidrs: Vec<String> = "podCIDRs",
    }

    /// The observed state of a node.
    NodeStatus {
        /// The node's addresses.
        addresses: Vec<NodeAddress> = "addresses",
        /// The node's conditions.
        conditions: Vec<NodeCondition> = "conditions",
    }

    /// An address of a node.
    NodeAddress {
        /// `InternalIP`, `ExternalIP`, `Hostname` and so on.
        kind: String = "type",
        /// The address.
        address: String = "address",
    }

    /// A condition of a node.
    NodeCondition {
        /// The aspect that is reported.
        kind: String = "type",
        /// `True`, `False` or `Unknown`.
        status: String = "status",
        /// A one-word reason.
        reason: String = "reason",
        /// A human-readable explanation.
        message: String = "message",
    }

    /// The subject of a migration.
    MigrationSpec {
        /// The name of the virtual machine instance.
        vmi_name: String = "vmiName",
    }

    /// The progress of a migration.
    MigrationStatus {
        /// `Scheduling`, `Running`, `Succeeded` and so on.
        phase: String = "phase",
        /// The details, once there are any.
        migration_state: Option<MigrationState> = "migrationState",
    }

    /// The details of a migration.
    MigrationState {
        /// The source pod.
        source_pod: String = "sourcePod",
        /// The target pod.
        target_pod: String = "targetPod",
        /// The source node.
        source_node: String = "sourceNode",
        /// The target node.
        target_node: String = "targetNode",
    }
}
