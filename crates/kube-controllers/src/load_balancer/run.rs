//! The shell: when services are checked, and how a plan is carried out.

use super::plan::{Action, Facts, in_order, plan};
use super::service::{LOAD_BALANCER, LoadBalancerPool, Service};
use super::tracker::{HOST, ServiceKey, Tracker};
use crate::controller::{Context, Controller};
use crate::informer::kinds::Namespace;
use crate::informer::{Change, Informer, ObjectKey, Slim as _};
use crate::queue::{Outcome, RETRY, WorkQueue};
use api::{AssignIPs, AssignmentMode, IPPool, IPPoolAllowedUse, Kind, Resource};
use async_trait::async_trait;
use daemon::Shutdown;
use ipam::{AssignIp, AutoAssign, IntendedUse, Ipam, NamespaceLabels, Release};
use ipnet::IpNet;
use jiff::Timestamp;
use kube_access::cluster::{Cluster, ClusterError};
use model::feed::{FeedEntry, Status};
use model::{IpVersion, ListOptions};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often every service is checked.
const PERIOD: Duration = Duration::from_secs(300);

/// The pause before upgrading the records of old releases is retried.
const UPGRADE_PAUSE: Duration = Duration::from_secs(10);

/// The controller.
#[derive(Debug)]
pub struct LoadBalancer {
    shared: Arc<Shared>,
    services: Informer<Service>,
    namespaces: Informer<Namespace>,
    cluster: Cluster,
    ipam: Ipam,
    assign: AssignIPs,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    queue: WorkQueue<ServiceKey>,
}

#[derive(Debug, Default)]
struct State {
    tracker: Tracker,
    pools: BTreeMap<String, LoadBalancerPool>,
    is_in_sync: bool,
    /// Services whose requests could not be met: they are checked when addresses are released.
    waiting: BTreeSet<ServiceKey>,
}

/// Why handling a service failed.
#[derive(Debug, thiserror::Error)]
enum ServiceError {
    #[error("addresses were not released: {0}")]
    Release(#[source] ipam::Error),
    #[error("no address could be assigned: {0}")]
    Assign(#[source] ipam::Error),
    #[error("no address could be assigned: {0}")]
    Short(String),
    #[error("no address could be assigned: namespace {0} is not known")]
    NoNamespace(String),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn service_changed(&self, change: &Change<Service>) {
        let versions = || [&change.old, &change.new].into_iter().flatten();
        let keys: BTreeSet<ServiceKey> = versions().map(|service| key_of(&change.key, service)).collect();
        let is_balanced = versions().any(|service| &*service.kind == LOAD_BALANCER);
        for key in keys {
            let matters = is_balanced || !self.state().tracker.held(&key).is_empty();
            if matters {
                self.queue.add(key);
            }
        }
    }

    fn data_changed(&self, entry: &FeedEntry, services: &Informer<Service>) {
        match entry {
            FeedEntry::Block(cidr, block) => {
                let mut state = self.state();
                let changed = match block {
                    Some(block) => state.tracker.block_changed(block),
                    None => state.tracker.block_gone(cidr),
                };
                let waiting = match changed.is_empty() {
                    true => BTreeSet::new(),
                    false => std::mem::take(&mut state.waiting),
                };
                if state.is_in_sync {
                    drop(state);
                    changed.into_iter().chain(waiting).for_each(|key| self.queue.add(key));
                }
            }
            FeedEntry::Resource(key, resource) if key.kind == Kind::IPPool => {
                let pool = match resource.as_deref() {
                    Some(Resource::IPPool(pool)) => usable(pool),
                    _ => None,
                };
                let mut state = self.state();
                let before = match pool.clone() {
                    Some(pool) => state.pools.insert(key.name.clone(), pool),
                    None => state.pools.remove(&key.name),
                };
                let is_news = before != pool && state.is_in_sync;
                drop(state);
                if is_news {
                    self.everything(services);
                }
            }
            _ => {}
        }
    }

    /// Every service that has an address or may need one.
    fn everything(&self, services: &Informer<Service>) {
        let mut keys: BTreeSet<ServiceKey> = services
            .snapshot()
            .into_iter()
            .filter(|(_, service)| &*service.kind == LOAD_BALANCER)
            .map(|(key, service)| key_of(&key, &service))
            .collect();
        keys.extend(self.state().tracker.services().cloned());
        keys.into_iter().for_each(|key| self.queue.add(key));
    }
}

impl LoadBalancer {
    /// Subscribes to services, pools and blocks.
    #[must_use]
    pub fn new(context: &Context, assign: AssignIPs) -> Self {
        let shared = Arc::new(Shared { state: Mutex::default(), queue: WorkQueue::new(RETRY) });
        // Roles of releases before 3.30 forbid reading services, and those before 3.31 namespaces: then nothing is
        // assigned.
        let services = context.informers.if_allowed::<Service>();
        let listener = Arc::clone(&shared);
        services.subscribe(move |change| listener.service_changed(change));
        for list in [ListOptions::Block { ip_version: None }, ListOptions::resources(Kind::IPPool)] {
            let (listener, services) = (Arc::clone(&shared), services.clone());
            context.feed.follow(list, move |update| listener.data_changed(update, &services));
        }
        let (listener, known) = (Arc::clone(&shared), services.clone());
        context.feed.on_status(move |status| {
            let is_in_sync = status == Status::InSync;
            let was = std::mem::replace(&mut listener.state().is_in_sync, is_in_sync);
            if is_in_sync && !was {
                listener.everything(&known);
            }
        });
        Self {
            shared,
            services,
            namespaces: context.informers.if_allowed(),
            cluster: context.cluster.clone(),
            ipam: Ipam::new(Arc::clone(context.client.backend())),
            assign,
        }
    }

    /// The service of a key; `None` if another one has its name.
    fn service(&self, key: &ServiceKey) -> Option<Arc<Service>> {
        let name = ObjectKey::new(&key.namespace, &key.name);
        self.services.get(&name).filter(|service| service.handle(&name) == key.handle)
    }

    async fn sync(&self, key: &ServiceKey) -> Result<(), ServiceError> {
        let service = self.service(key);
        let (held, pools) = {
            let state = self.shared.state();
            if !state.is_in_sync {
                // Everything is checked as soon as it is known.
                return Ok(());
            }
            (state.tracker.held(key), state.pools.values().cloned().collect::<Vec<_>>())
        };
        let facts = Facts { service: service.as_deref(), held: &held, pools: &pools, assign: &self.assign };
        let actions = match plan(&facts) {
            Ok(actions) => actions,
            Err(error) => {
                // Only a change of the service can help.
                tracing::error!(service = %name(key), %error, "a service has an invalid request for addresses");
                return Ok(());
            }
        };
        if pools.is_empty() && service.is_some_and(|service| service.is_ours(&self.assign)) {
            tracing::warn!(service = %name(key), "no IP pool allows the use LoadBalancer");
        }
        let mut failure = None;
        for action in actions {
            match self.act(key, action).await {
                Ok(()) => {}
                // The status must still be written.
                Err(
                    error @ (ServiceError::Assign(_) | ServiceError::Short(_) | ServiceError::NoNamespace(_)),
                ) => {
                    self.shared.state().waiting.insert(key.clone());
                    failure = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        failure.map_or(Ok(()), Err)
    }

    async fn act(&self, key: &ServiceKey, action: Action) -> Result<(), ServiceError> {
        match action {
            Action::ReleaseAll => {
                tracing::info!(service = %name(key), "releasing all addresses of a service");
                match self.ipam.release_by_handle(&key.handle).await {
                    Err(error) if !error.is_does_not_exist() => return Err(ServiceError::Release(error)),
                    _ => {}
                }
                let mut state = self.shared.state();
                let held: Vec<IpAddr> = state.tracker.held(key).into_iter().collect();
                state.tracker.released(key, &held);
                Ok(())
            }
            Action::Release { addresses, reason } => {
                tracing::info!(service = %name(key), ?addresses, reason, "releasing addresses of a service");
                let release =
                    |address: &IpAddr| Release { handle: Some(key.handle.clone()), ..Release::of(*address) };
                let requests: Vec<Release> = addresses.iter().map(release).collect();
                let outcome = self.ipam.release_ips(&requests).await.map_err(ServiceError::Release)?;
                let released: Vec<IpAddr> = outcome.released.iter().map(|release| release.address).collect();
                self.shared.state().tracker.released(key, &released);
                outcome.failure.map_or(Ok(()), |error| Err(ServiceError::Release(error)))
            }
            Action::AssignThese(addresses) => self.assign_these(key, addresses).await,
            Action::AssignAny { num4, num6, pools4, pools6 } => {
                self.assign_any(key, (num4, pools4), (num6, pools6)).await
            }
            Action::WriteStatus => {
                let held = self.shared.state().tracker.held(key);
                let Some(service) = self.service(key) else { return Ok(()) };
                let addresses = in_order(&service, &held);
                let ingress =
                    json!(addresses.iter().map(|address| json!({"ip": address})).collect::<Vec<_>>());
                self.write_status(key, &service, move |_| ingress.clone()).await
            }
            Action::RemoveFromStatus(addresses) => {
                let Some(service) = self.service(key) else { return Ok(()) };
                let is_ours = |entry: &Value| {
                    let address = entry["ip"].as_str().and_then(|text| text.parse().ok());
                    address.is_some_and(|address| addresses.contains(&address))
                };
                let rest = |ingress: &Value| {
                    let entries = ingress.as_array().map(Vec::as_slice).unwrap_or_default();
                    json!(entries.iter().filter(|entry| !is_ours(entry)).collect::<Vec<_>>())
                };
                self.write_status(key, &service, rest).await
            }
        }
    }

    async fn assign_these(&self, key: &ServiceKey, addresses: Vec<IpAddr>) -> Result<(), ServiceError> {
        for address in addresses {
            let request = AssignIp {
                handle: Some(key.handle.clone()),
                attributes: attributes(key),
                intended_use: Some(IntendedUse::LoadBalancer),
                ..AssignIp::new(address, HOST)
            };
            match self.ipam.assign_ip(&request).await {
                Ok(()) => {
                    tracing::info!(service = %name(key), %address, "a service has the address that it requested");
                }
                // It is ours already, from a write whose answer was lost.
                Err(error) if error.is_already_exists() && self.is_ours(key, address).await => {}
                Err(error) => return Err(ServiceError::Assign(error)),
            }
            self.shared.state().tracker.assigned(key, &[address]);
        }
        Ok(())
    }

    async fn is_ours(&self, key: &ServiceKey, address: IpAddr) -> bool {
        let found = self.ipam.allocation(address).await.ok().flatten();
        found.and_then(|attribute| attribute.handle_id).is_some_and(|handle| handle == *key.handle)
    }

    async fn assign_any(
        &self,
        key: &ServiceKey,
        (num4, ipv4_pools): (usize, Vec<IpNet>),
        (num6, ipv6_pools): (usize, Vec<IpNet>),
    ) -> Result<(), ServiceError> {
        let Some(namespace) = self.namespaces.get(&ObjectKey::new("", &key.namespace)) else {
            return Err(ServiceError::NoNamespace(key.namespace.clone()));
        };
        let labels =
            namespace.labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let request = AutoAssign {
            handle: Some(key.handle.clone()),
            attributes: attributes(key),
            num4,
            num6,
            ipv4_pools,
            ipv6_pools,
            namespace: Some(NamespaceLabels { name: key.namespace.clone(), labels }),
            // One address of each version, however often this is repeated.
            max_per_handle: 1,
            ..AutoAssign::new(HOST, IntendedUse::LoadBalancer)
        };
        let assigned = self.ipam.auto_assign(&request).await.map_err(ServiceError::Assign)?;
        let addresses: Vec<IpAddr> = assigned.addresses().collect();
        if !addresses.is_empty() {
            tracing::info!(service = %name(key), ?addresses, "a service has addresses");
            self.shared.state().tracker.assigned(key, &addresses);
        }
        let short =
            [IpVersion::V4, IpVersion::V6].into_iter().filter_map(|version| assigned.shortfall(version));
        let short: Vec<String> = short.map(ToString::to_string).collect();
        if short.is_empty() { Ok(()) } else { Err(ServiceError::Short(short.join("; "))) }
    }

    /// Replaces the list of addresses in the status, and nothing else of the service.
    async fn write_status(
        &self,
        key: &ServiceKey,
        service: &Service,
        ingress: impl Fn(&Value) -> Value + Send,
    ) -> Result<(), ServiceError> {
        let path = Service::COLLECTION.object(&key.namespace, &key.name);
        let object: Result<Value, ClusterError> =
            self.cluster.get(&format!("read service {}", name(key)), &path).await;
        let mut object = match object {
            Err(error) if error.is_not_found() => return Ok(()),
            object => object?,
        };
        if object["metadata"]["uid"] != *service.uid {
            return Ok(());
        }
        let now = &object["status"]["loadBalancer"]["ingress"];
        let wanted = ingress(now);
        if tells_the_same(now, &wanted) {
            return Ok(());
        }
        object["status"]["loadBalancer"] = json!({"ingress": wanted});
        let what = format!("write the status of service {}", name(key));
        // It includes the revision that was read, so that another writer's status is not overwritten.
        let _: Value = self.cluster.replace(&what, &format!("{path}/status"), &object).await?;
        Ok(())
    }

    async fn upgrade(&self, shutdown: &Shutdown) -> bool {
        loop {
            let Err(error) = self.ipam.upgrade_host(HOST).await else { return true };
            tracing::error!(%error, "the load balancer's claims on blocks could not be brought up to date");
            if !shutdown.sleep(UPGRADE_PAUSE).await {
                return false;
            }
        }
    }
}

/// Whether two lists of ingress entries have the same addresses, in any order.
fn tells_the_same(one: &Value, other: &Value) -> bool {
    let addresses = |list: &Value| -> Vec<String> {
        let entries = list.as_array().map(Vec::as_slice).unwrap_or_default();
        let mut texts: Vec<String> = entries.iter().map(|entry| entry["ip"].to_string()).collect();
        texts.sort();
        texts
    };
    addresses(one) == addresses(other)
}

#[async_trait]
impl Controller for LoadBalancer {
    fn name(&self) -> &'static str {
        "LoadBalancer"
    }

    async fn run(self: Box<Self>, shutdown: Shutdown) -> anyhow::Result<()> {
        tokio::select! {
            () = async { self.services.synced().await; self.namespaces.synced().await } => {}
            () = shutdown.requested() => return Ok(()),
        }
        if !self.upgrade(&shutdown).await {
            return Ok(());
        }
        let mut period = tokio::time::interval(PERIOD);
        period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let key = tokio::select! {
                key = self.shared.queue.take() => key,
                _ = period.tick() => {
                    self.shared.everything(&self.services);
                    continue;
                }
                () = shutdown.requested() => return Ok(()),
            };
            let outcome = match self.sync(&key).await {
                Ok(()) => Outcome::Done,
                Err(error) => {
                    tracing::warn!(service = %name(&key), %error, "a service is not as it should be");
                    Outcome::Failed
                }
            };
            self.shared.queue.finish(&key, outcome);
        }
    }
}

fn key_of(key: &ObjectKey, service: &Service) -> ServiceKey {
    ServiceKey {
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        handle: service.handle(key),
    }
}

fn name(key: &ServiceKey) -> String {
    format!("{}/{}", key.namespace, key.name)
}

fn attributes(key: &ServiceKey) -> BTreeMap<String, String> {
    [
        ("service", key.name.clone()),
        ("namespace", key.namespace.clone()),
        ("type", LOAD_BALANCER.to_owned()),
        ("timestamp", go_time(Timestamp::now())),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

/// Formats a time like Go: fractions of a second without trailing zeros.
fn go_time(moment: Timestamp) -> String {
    let whole = moment.strftime("%Y-%m-%d %H:%M:%S");
    match moment.subsec_nanosecond() {
        0 => format!("{whole} +0000 UTC"),
        nanoseconds => {
            let fraction = format!("{nanoseconds:09}");
            format!("{whole}.{} +0000 UTC", fraction.trim_end_matches('0'))
        }
    }
}

/// The pool, if it is for load balancers and not being deleted.
fn usable(pool: &IPPool) -> Option<LoadBalancerPool> {
    let is_for_us = pool.spec.allowed_uses.contains(&IPPoolAllowedUse::LoadBalancer);
    if !is_for_us || pool.metadata.deletion_timestamp.is_some() {
        return None;
    }
    match pool.spec.cidr.parse() {
        Ok(network) => Some(LoadBalancerPool {
            name: pool.metadata.name.clone(),
            cidr: network.masked(),
            is_manual: pool.spec.assignment_mode == Some(AssignmentMode::Manual),
        }),
        Err(reason) => {
            tracing::warn!(pool = pool.metadata.name, %reason, "the range of this pool cannot be read");
            None
        }
    }
}
