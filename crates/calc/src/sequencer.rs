//! The buffer between the calculations and the dataplane: it keeps the latest state of each thing until the next flush,
//! and then sends everything in an order that is safe to apply one message at a time.
//!
//! Sets are sent before the policies that name them, policies before the endpoints that use them, and removals in
//! reverse. Tunnel endpoints are sent before the routes that lead to them. It does not calculate: what it receives is
//! sent once, if it is news; what appears and disappears between two flushes is not mentioned.

mod coalescer;
mod ip_sets;
mod text_map;

pub(crate) use ip_sets::{IpSets, MemberSource, SetIndex};

use api::{KubernetesEndpointSlice, KubernetesService};
use coalescer::Coalescer;
use ipnet::IpNet;
use messages::{
    Encapsulation, GlobalBgpConfig, HostEndpoint, HostEndpointName, HostMetadata, IpamPool, NodeName, Policy,
    PolicyId, Profile, ProfileName, Route, Service, Text, ToDataplane, VxlanTunnelEndpoint,
    WireguardEndpoint, WireguardEndpointV6, WorkloadEndpoint, WorkloadEndpointId,
};
use model::feed::NamespacedName;
use std::collections::BTreeMap;
use std::sync::Arc;
use text_map::PackedMap;

/// What was decided since the last flush, and what the dataplane already knows.
#[derive(Debug, Default)]
pub struct Sequencer {
    pub(crate) ip_sets: IpSets,
    /// Rules are large, so a policy's message is built when it is sent.
    policies: Coalescer<PolicyId, ()>,
    profiles: Coalescer<ProfileName, Arc<Profile>>,
    workload_endpoints: Coalescer<WorkloadEndpointId, Box<WorkloadEndpoint>>,
    host_endpoints: Coalescer<HostEndpointName, Box<HostEndpoint>>,
    service_accounts: Coalescer<(Text, Text), PackedMap>,
    namespaces: Coalescer<Text, PackedMap>,
    routes: Coalescer<IpNet, Route>,
    vteps: Coalescer<NodeName, VxlanTunnelEndpoint>,
    wireguard: Coalescer<NodeName, WireguardEndpoint>,
    wireguard_v6: Coalescer<NodeName, WireguardEndpointV6>,
    hosts: Coalescer<NodeName, HostMetadata>,
    pools: Coalescer<IpNet, IpamPool>,
    encapsulation: Option<Encapsulation>,
    global_bgp_config: Option<GlobalBgpConfig>,
    services: Coalescer<(Text, Text), Service>,
    service_objects: Coalescer<NamespacedName, Box<KubernetesService>>,
    slice_objects: Coalescer<NamespacedName, Box<KubernetesEndpointSlice>>,
}

impl Sequencer {
    /// A policy applies to a local endpoint. Its content is read when it is sent.
    pub(crate) fn policy_update(&mut self, id: PolicyId) {
        self.policies.update(id, ());
    }

    /// A policy no longer applies to any local endpoint.
    pub fn policy_remove(&mut self, id: &PolicyId) {
        self.policies.remove(id);
    }

    /// A local endpoint has this profile.
    pub fn profile_update(&mut self, name: ProfileName, profile: Arc<Profile>) {
        self.profiles.update(name, profile);
    }

    /// No local endpoint has this profile any more.
    pub fn profile_remove(&mut self, name: &ProfileName) {
        self.profiles.remove(name);
    }

    /// Adds or changes a local workload endpoint.
    pub fn workload_endpoint_update(&mut self, id: WorkloadEndpointId, endpoint: Box<WorkloadEndpoint>) {
        self.workload_endpoints.update(id, endpoint);
    }

    /// Removes a local workload endpoint.
    pub fn workload_endpoint_remove(&mut self, id: &WorkloadEndpointId) {
        self.workload_endpoints.remove(id);
    }

    /// Adds or changes a host endpoint of this host.
    pub fn host_endpoint_update(&mut self, name: HostEndpointName, endpoint: Box<HostEndpoint>) {
        self.host_endpoints.update(name, endpoint);
    }

    /// Removes a host endpoint of this host.
    pub fn host_endpoint_remove(&mut self, name: &HostEndpointName) {
        self.host_endpoints.remove(name);
    }

    /// Sets the labels of a service account.
    pub fn service_account_update(&mut self, namespace: Text, name: Text, labels: BTreeMap<String, String>) {
        self.service_accounts.update((namespace, name), PackedMap::new(labels));
    }

    /// Removes a service account.
    pub fn service_account_remove(&mut self, namespace: Text, name: Text) {
        self.service_accounts.remove(&(namespace, name));
    }

    /// Sets the labels of a namespace.
    pub fn namespace_update(&mut self, name: Text, labels: BTreeMap<String, String>) {
        self.namespaces.update(name, PackedMap::new(labels));
    }

    /// Removes a namespace.
    pub fn namespace_remove(&mut self, name: &Text) {
        self.namespaces.remove(name);
    }

    /// Adds or changes a route.
    pub fn route_update(&mut self, route: Route) {
        self.routes.update(route.dst, route);
    }

    /// Removes the route of a range.
    pub fn route_remove(&mut self, dst: IpNet) {
        self.routes.remove(&dst);
    }

    /// Sets the VXLAN devices of a node.
    pub fn vtep_update(&mut self, node: NodeName, vtep: VxlanTunnelEndpoint) {
        self.vteps.update(node, vtep);
    }

    /// Removes the VXLAN devices of a node.
    pub fn vtep_remove(&mut self, node: &NodeName) {
        self.vteps.remove(node);
    }

    /// Sets the IPv4 WireGuard device of a node.
    pub fn wireguard_update(&mut self, node: NodeName, endpoint: WireguardEndpoint) {
        self.wireguard.update(node, endpoint);
    }

    /// Removes the IPv4 WireGuard device of a node.
    pub fn wireguard_remove(&mut self, node: &NodeName) {
        self.wireguard.remove(node);
    }

    /// Sets the IPv6 WireGuard device of a node.
    pub fn wireguard_v6_update(&mut self, node: NodeName, endpoint: WireguardEndpointV6) {
        self.wireguard_v6.update(node, endpoint);
    }

    /// Removes the IPv6 WireGuard device of a node.
    pub fn wireguard_v6_remove(&mut self, node: &NodeName) {
        self.wireguard_v6.remove(node);
    }

    /// Sets the addresses and labels of a host.
    pub fn host_metadata_update(&mut self, host: NodeName, metadata: HostMetadata) {
        self.hosts.update(host, metadata);
    }

    /// Removes a host.
    pub fn host_metadata_remove(&mut self, host: &NodeName) {
        self.hosts.remove(host);
    }

    /// Adds or changes an address pool.
    pub fn pool_update(&mut self, pool: IpamPool) {
        self.pools.update(pool.cidr, pool);
    }

    /// Removes an address pool.
    pub fn pool_remove(&mut self, cidr: IpNet) {
        self.pools.remove(&cidr);
    }

    /// Sets the kinds of encapsulation that the pools require.
    pub fn encapsulation(&mut self, encapsulation: Encapsulation) {
        self.encapsulation = Some(encapsulation);
    }

    /// Sets the BGP settings.
    pub fn global_bgp_config(&mut self, config: GlobalBgpConfig) {
        self.global_bgp_config = Some(config);
    }

    /// Adds or changes a service.
    pub fn service_update(&mut self, service: Service) {
        let id = (Text::from(service.namespace.as_str()), Text::from(service.name.as_str()));
        self.services.update(id, service);
    }

    /// Removes a service.
    pub fn service_remove(&mut self, namespace: Text, name: Text) {
        self.services.remove(&(namespace, name));
    }

    /// Adds, changes or removes a service with all its fields.
    pub(crate) fn service_object(&mut self, name: NamespacedName, service: Option<Box<KubernetesService>>) {
        match service {
            Some(service) => self.service_objects.update(name, service),
            None => self.service_objects.remove(&name),
        }
    }

    /// Adds, changes or removes an endpoint slice.
    pub(crate) fn slice_object(&mut self, name: NamespacedName, slice: Option<Box<KubernetesEndpointSlice>>) {
        match slice {
            Some(slice) => self.slice_objects.update(name, slice),
            None => self.slice_objects.remove(&name),
        }
    }

    /// Sends what is pending, in an order that is safe to apply. Members of new sets and the content of policies are
    /// read from `source`.
    pub(crate) fn flush(&mut self, source: &mut impl Source, sink: &mut impl FnMut(ToDataplane)) {
        self.ip_sets.flush_updates(source, sink);
        self.policies.flush_updates(sink, |id, ()| {
            let policy = source.policy(&id);
            ToDataplane::PolicyUpdate(id, Arc::new(policy))
        });
        self.profiles.flush_updates(sink, ToDataplane::ProfileUpdate);
        self.workload_endpoints.flush_updates(sink, ToDataplane::WorkloadEndpointUpdate);
        self.host_endpoints.flush_updates(sink, ToDataplane::HostEndpointUpdate);

        self.workload_endpoints.flush_removes(sink, ToDataplane::WorkloadEndpointRemove);
        self.host_endpoints.flush_removes(sink, ToDataplane::HostEndpointRemove);
        self.profiles.flush_removes(sink, ToDataplane::ProfileRemove);
        self.policies.flush_removes(sink, ToDataplane::PolicyRemove);
        self.ip_sets.flush_removes(sink);

        self.service_accounts.flush_removes(sink, |(ns, name)| ToDataplane::ServiceAccountRemove(ns, name));
        self.service_accounts.flush_updates(sink, |(ns, name), labels| {
            ToDataplane::ServiceAccountUpdate(ns, name, labels.unpack())
        });
        self.namespaces.flush_removes(sink, ToDataplane::NamespaceRemove);
        self.namespaces
            .flush_updates(sink, |name, labels| ToDataplane::NamespaceUpdate(name, labels.unpack()));

        self.routes.flush_removes(sink, ToDataplane::RouteRemove);
        self.vteps.flush_removes(sink, ToDataplane::VtepRemove);
        self.vteps.flush_updates(sink, ToDataplane::VtepUpdate);
        self.routes.flush_updates(sink, |_, route| ToDataplane::RouteUpdate(route));

        self.wireguard.flush_removes(sink, ToDataplane::WireguardRemove);
        self.wireguard_v6.flush_removes(sink, ToDataplane::WireguardV6Remove);
        self.wireguard.flush_updates(sink, ToDataplane::WireguardUpdate);
        self.wireguard_v6.flush_updates(sink, ToDataplane::WireguardV6Update);
        self.hosts.flush_removes(sink, ToDataplane::HostMetadataRemove);
        self.hosts.flush_updates(sink, ToDataplane::HostMetadataUpdate);
        self.pools.flush_removes(sink, ToDataplane::IpamPoolRemove);
        self.pools.flush_updates(sink, |_, pool| ToDataplane::IpamPoolUpdate(pool));
        if let Some(encapsulation) = self.encapsulation.take() {
            sink(ToDataplane::Encapsulation(encapsulation));
        }
        if let Some(config) = self.global_bgp_config.take() {
            sink(ToDataplane::GlobalBgpConfig(config));
        }
        self.services.flush_removes(sink, |(ns, name)| ToDataplane::ServiceRemove(ns, name));
        self.services.flush_updates(sink, |_, service| ToDataplane::ServiceUpdate(service));
        self.service_objects.flush_removes(sink, |name| ToDataplane::ServiceObject(name, None));
        self.slice_objects.flush_removes(sink, |name| ToDataplane::EndpointSliceObject(name, None));
        let object = |name, service| ToDataplane::ServiceObject(name, Some(service));
        self.service_objects.flush_updates(sink, object);
        self.slice_objects
            .flush_updates(sink, |name, slice| ToDataplane::EndpointSliceObject(name, Some(slice)));
    }

    /// Sends what is pending when there are no sets and policies: for tests of single parts.
    #[cfg(test)]
    pub(crate) fn flush_without_sets(&mut self, out: &mut Vec<ToDataplane>) {
        self.flush(&mut Nothing, &mut |message| out.push(message));
    }
}

/// Where the sequencer reads what it does not keep itself.
pub(crate) trait Source: MemberSource {
    /// Returns the content of an active policy.
    fn policy(&mut self, id: &PolicyId) -> Policy;
}

#[cfg(test)]
struct Nothing;

#[cfg(test)]
impl MemberSource for Nothing {
    fn members(&self, _set: SetIndex) -> Vec<messages::IpSetMember> {
        Vec::new()
    }
}

#[cfg(test)]
impl Source for Nothing {
    fn policy(&mut self, _id: &PolicyId) -> Policy {
        Policy::default()
    }
}
