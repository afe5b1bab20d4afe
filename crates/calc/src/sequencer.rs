//! The buffer between the calculations and the dataplane: it keeps the last word about each thing until the next flush,
//! and then sends everything in an order that is safe to apply one message at a time.
//!
//! Sets go before the policies that name them, policies before the endpoints that use them, and removals the other way
//! round. Tunnel endpoints go before the routes that lead to them. It refuses to calculate: what it receives is sent, once,
//! if it is news; a thing that came and went between two flushes leaves no trace.

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

/// What was decided since the last flush, and what the dataplane knows already.
#[derive(Debug, Default)]
pub struct Sequencer {
    pub(crate) ip_sets: IpSets,
    /// Rules are large, so a policy's message is made when it is sent.
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
    /// A policy applies to a local endpoint. Its content is asked for when it is sent.
    pub(crate) fn policy_update(&mut self, id: PolicyId) {
        self.policies.update(id, ());
    }

    /// A policy applies to no local endpoint.
    pub fn policy_remove(&mut self, id: &PolicyId) {
        self.policies.remove(id);
    }

    /// A local endpoint has this profile.
    pub fn profile_update(&mut self, name: ProfileName, profile: Arc<Profile>) {
        self.profiles.update(name, profile);
    }

    /// No local endpoint has this profile.
    pub fn profile_remove(&mut self, name: &ProfileName) {
        self.profiles.remove(name);
    }

    /// A local workload endpoint is now this.
    pub fn workload_endpoint_update(&mut self, id: WorkloadEndpointId, endpoint: Box<WorkloadEndpoint>) {
        self.workload_endpoints.update(id, endpoint);
    }

    /// A local workload endpoint is gone.
    pub fn workload_endpoint_remove(&mut self, id: &WorkloadEndpointId) {
        self.workload_endpoints.remove(id);
    }

    /// A host endpoint of this host is now this.
    pub fn host_endpoint_update(&mut self, name: HostEndpointName, endpoint: Box<HostEndpoint>) {
        self.host_endpoints.update(name, endpoint);
    }

    /// A host endpoint of this host is gone.
    pub fn host_endpoint_remove(&mut self, name: &HostEndpointName) {
        self.host_endpoints.remove(name);
    }

    /// A service account has these labels.
    pub fn service_account_update(&mut self, namespace: Text, name: Text, labels: BTreeMap<String, String>) {
        self.service_accounts.update((namespace, name), PackedMap::new(labels));
    }

    /// A service account is gone.
    pub fn service_account_remove(&mut self, namespace: Text, name: Text) {
        self.service_accounts.remove(&(namespace, name));
    }

    /// A namespace has these labels.
    pub fn namespace_update(&mut self, name: Text, labels: BTreeMap<String, String>) {
        self.namespaces.update(name, PackedMap::new(labels));
    }

    /// A namespace is gone.
    pub fn namespace_remove(&mut self, name: &Text) {
        self.namespaces.remove(name);
    }

    /// A range of addresses is there.
    pub fn route_update(&mut self, route: Route) {
        self.routes.update(route.dst, route);
    }

    /// A range of addresses is nowhere.
    pub fn route_remove(&mut self, dst: IpNet) {
        self.routes.remove(&dst);
    }

    /// A node has these VXLAN devices.
    pub fn vtep_update(&mut self, node: NodeName, vtep: VxlanTunnelEndpoint) {
        self.vteps.update(node, vtep);
    }

    /// A node has no VXLAN device.
    pub fn vtep_remove(&mut self, node: &NodeName) {
        self.vteps.remove(node);
    }

    /// A node has this IPv4 WireGuard device.
    pub fn wireguard_update(&mut self, node: NodeName, endpoint: WireguardEndpoint) {
        self.wireguard.update(node, endpoint);
    }

    /// A node has no IPv4 WireGuard device.
    pub fn wireguard_remove(&mut self, node: &NodeName) {
        self.wireguard.remove(node);
    }

    /// A node has this IPv6 WireGuard device.
    pub fn wireguard_v6_update(&mut self, node: NodeName, endpoint: WireguardEndpointV6) {
        self.wireguard_v6.update(node, endpoint);
    }

    /// A node has no IPv6 WireGuard device.
    pub fn wireguard_v6_remove(&mut self, node: &NodeName) {
        self.wireguard_v6.remove(node);
    }

    /// A host has these addresses and labels.
    pub fn host_metadata_update(&mut self, host: NodeName, metadata: HostMetadata) {
        self.hosts.update(host, metadata);
    }

    /// A host is gone.
    pub fn host_metadata_remove(&mut self, host: &NodeName) {
        self.hosts.remove(host);
    }

    /// An address pool is now this.
    pub fn pool_update(&mut self, pool: IpamPool) {
        self.pools.update(pool.cidr, pool);
    }

    /// An address pool is gone.
    pub fn pool_remove(&mut self, cidr: IpNet) {
        self.pools.remove(&cidr);
    }

    /// The pools ask for these kinds of encapsulation.
    pub fn encapsulation(&mut self, encapsulation: Encapsulation) {
        self.encapsulation = Some(encapsulation);
    }

    /// The settings of BGP are now these.
    pub fn global_bgp_config(&mut self, config: GlobalBgpConfig) {
        self.global_bgp_config = Some(config);
    }

    /// A service is now this.
    pub fn service_update(&mut self, service: Service) {
        let id = (Text::from(service.namespace.as_str()), Text::from(service.name.as_str()));
        self.services.update(id, service);
    }

    /// A service is gone.
    pub fn service_remove(&mut self, namespace: Text, name: Text) {
        self.services.remove(&(namespace, name));
    }

    /// A service, with all its fields, is now this, or gone.
    pub(crate) fn service_object(&mut self, name: NamespacedName, service: Option<Box<KubernetesService>>) {
        match service {
            Some(service) => self.service_objects.update(name, service),
            None => self.service_objects.remove(&name),
        }
    }

    /// An endpoint slice is now this, or gone.
    pub(crate) fn slice_object(&mut self, name: NamespacedName, slice: Option<Box<KubernetesEndpointSlice>>) {
        match slice {
            Some(slice) => self.slice_objects.update(name, slice),
            None => self.slice_objects.remove(&name),
        }
    }

    /// Sends what is pending, in the order in which it can be applied. Members of new sets and the content of policies
    /// are read from `source`.
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

    /// Sends what is pending when there are no sets and policies: for tests of one part alone.
    #[cfg(test)]
    pub(crate) fn flush_without_sets(&mut self, out: &mut Vec<ToDataplane>) {
        self.flush(&mut Nothing, &mut |message| out.push(message));
    }
}

/// Where the sequencer reads what it does not keep itself.
pub(crate) trait Source: MemberSource {
    /// The content of an active policy.
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
