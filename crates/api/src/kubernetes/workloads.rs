//! Pods, namespaces, service accounts, nodes, and KubeVirt's migrations: read, never written back whole.

use super::{read_only_objects, read_only_structs};

read_only_objects! {
    /// A pod (`v1`).
    Pod {
        /// What runs where.
        spec: PodSpec,
        /// What was observed.
        status: PodStatus,
    }

    /// A namespace (`v1`): Calico reads its metadata only.
    Namespace {}

    /// A service account (`v1`): Calico reads its metadata only.
    ServiceAccount {}

    /// A node (`v1`).
    Node {
        /// What the cluster gave to the node.
        spec: NodeSpec,
        /// What was observed.
        status: NodeStatus,
    }

    /// A live migration of a virtual machine (`kubevirt.io/v1`).
    VirtualMachineInstanceMigration {
        /// What is moved.
        spec: MigrationSpec,
        /// How far it is.
        status: MigrationStatus,
    }
}

read_only_structs! {
    /// What runs where.
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

    /// A container, as far as its ports go.
    Container {
        /// The ports that the container names.
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
        /// The node's address that the port is mapped on.
        host_ip: String = "hostIP",
    }

    /// What was observed of a pod.
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

    /// What the cluster gave to a node.
    NodeSpec {
        /// The network for the node's pods.
        pod_cidr: String = "podCIDR",
        /// The networks for the node's pods, one per IP version.
        pod_cidrs: Vec<String> = "podCIDRs",
    }

    /// What was observed of a node.
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
        /// A word for the cause.
        reason: String = "reason",
        /// A sentence for people.
        message: String = "message",
    }

    /// What a migration moves.
    MigrationSpec {
        /// The name of the virtual machine instance.
        vmi_name: String = "vmiName",
    }

    /// How far a migration is.
    MigrationStatus {
        /// `Scheduling`, `Running`, `Succeeded` and so on.
        phase: String = "phase",
        /// The details, once there are any.
        migration_state: Option<MigrationState> = "migrationState",
    }

    /// The details of a migration.
    MigrationState {
        /// The pod that is left.
        source_pod: String = "sourcePod",
        /// The pod that takes over.
        target_pod: String = "targetPod",
        /// The node that is left.
        source_node: String = "sourceNode",
        /// The node that takes over.
        target_node: String = "targetNode",
    }
}
