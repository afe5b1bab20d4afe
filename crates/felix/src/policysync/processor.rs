//! Computes what each proxy has to know: the endpoint of its own workload, with the policies, profiles and sets that it
//! uses, and the labels of all service accounts and namespaces.
//!
//! All messages of the calculation are kept, so that a proxy that joins later receives everything at once. Sets are
//! sent before the policies that refer to them, and those before the endpoint; unused objects are removed in the
//! reverse order. Sockets are not known here: the processor is notified when proxies join and leave, and returns the
//! messages for each.

use super::convert::{
    endpoint_id, endpoint_update, message, policy_id, policy_update, profile_update, set_type, sets_of,
};
use super::wire::{self, Payload};
use messages::{
    IpSetId, IpSetMember, IpSetType, Policy, PolicyId, Profile, ProfileName, Text, ToDataplane,
    WorkloadEndpoint, WorkloadEndpointId,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The maximum number of members in a message, because of gRPC's size limit.
const MEMBERS_PER_MESSAGE: usize = 82_200;

/// One connection of a proxy.
pub(crate) type Connection = u64;

/// Messages for one connection.
#[derive(Debug, PartialEq)]
pub(crate) enum Output {
    /// These messages, in order.
    Messages(Vec<wire::ToDataplane>),
    /// These messages, followed by the end of the stream.
    Last(Vec<wire::ToDataplane>),
}

/// A proxy that follows an endpoint, and what it has been sent.
#[derive(Debug, Default)]
struct Client {
    connection: Connection,
    sets: BTreeSet<IpSetId>,
    policies: BTreeSet<PolicyId>,
    profiles: BTreeSet<ProfileName>,
}

/// The known state, and what has been sent to whom.
#[derive(Debug, Default)]
pub(crate) struct Processor {
    in_sync: bool,
    endpoints: BTreeMap<WorkloadEndpointId, Box<WorkloadEndpoint>>,
    policies: BTreeMap<PolicyId, Arc<Policy>>,
    profiles: BTreeMap<ProfileName, Arc<Profile>>,
    sets: BTreeMap<IpSetId, (IpSetType, BTreeSet<IpSetMember>)>,
    service_accounts: BTreeMap<(Text, Text), BTreeMap<String, String>>,
    namespaces: BTreeMap<Text, BTreeMap<String, String>>,
    clients: BTreeMap<WorkloadEndpointId, Client>,
}

impl Processor {
    /// Adds a proxy of this workload. An earlier proxy of the same workload receives nothing any more.
    pub(crate) fn join(
        &mut self,
        id: &WorkloadEndpointId,
        connection: Connection,
    ) -> Vec<(Connection, Output)> {
        let mut output = Vec::new();
        if let Some(old) = self.clients.insert(id.clone(), Client { connection, ..Client::default() }) {
            output.push((old.connection, Output::Last(Vec::new())));
        }
        let mut messages = self.sync(id);
        messages.extend(self.service_accounts.iter().map(|(id, labels)| service_account(id, labels)));
        messages.extend(self.namespaces.iter().map(|(name, labels)| namespace(name, labels)));
        if self.in_sync {
            messages.push(message(Payload::InSync(wire::InSync {})));
        }
        output.push((connection, Output::Messages(messages)));
        output
    }

    /// Removes a proxy.
    pub(crate) fn leave(&mut self, id: &WorkloadEndpointId, connection: Connection) {
        if self.clients.get(id).is_some_and(|client| client.connection == connection) {
            self.clients.remove(id);
        }
    }

    /// Processes one message of the calculation.
    pub(crate) fn take(&mut self, told: &ToDataplane) -> Vec<(Connection, Output)> {
        match told {
            ToDataplane::InSync => {
                if std::mem::replace(&mut self.in_sync, true) {
                    return Vec::new();
                }
                self.to_all(|| message(Payload::InSync(wire::InSync {})))
            }
            ToDataplane::WorkloadEndpointUpdate(id, endpoint) => {
                self.endpoints.insert(id.clone(), endpoint.clone());
                self.tell_one(id)
            }
            ToDataplane::WorkloadEndpointRemove(id) => {
                self.endpoints.remove(id);
                let gone = wire::EndpointRemove { id: Some(endpoint_id(id)) };
                let client = self.clients.remove(id);
                let last = client.map(|client| {
                    (client.connection, Output::Last(vec![message(Payload::EndpointRemove(gone))]))
                });
                last.into_iter().collect()
            }
            ToDataplane::PolicyUpdate(id, policy) => {
                self.policies.insert(Arc::clone(id), Arc::clone(policy));
                self.for_users(
                    |endpoint| uses_policy(endpoint, id),
                    |client| {
                        client.policies.remove(id);
                    },
                )
            }
            ToDataplane::PolicyRemove(id) => {
                // Endpoints were sent without it before.
                self.policies.remove(id);
                Vec::new()
            }
            ToDataplane::ProfileUpdate(name, profile) => {
                self.profiles.insert(name.clone(), Arc::clone(profile));
                self.for_users(
                    |endpoint| endpoint.profile_ids.contains(name),
                    |client| {
                        client.profiles.remove(name);
                    },
                )
            }
            ToDataplane::ProfileRemove(name) => {
                self.profiles.remove(name);
                Vec::new()
            }
            ToDataplane::IpSetUpdate { id, set_type, members } => {
                self.sets.insert(id.clone(), (*set_type, members.iter().copied().collect()));
                self.to_users_of_set(id, |processor| processor.whole_set(id))
            }
            ToDataplane::IpSetDelta { id, added, removed } => {
                if let Some((_, members)) = self.sets.get_mut(id) {
                    members.extend(added);
                    removed.iter().for_each(|member| {
                        members.remove(member);
                    });
                }
                self.to_users_of_set(id, |_| deltas(id, added, removed))
            }
            ToDataplane::IpSetRemove(id) => {
                self.sets.remove(id);
                Vec::new()
            }
            ToDataplane::ServiceAccountUpdate(namespace, name, labels) => {
                let id = (Arc::clone(namespace), Arc::clone(name));
                let output = self.to_all(|| service_account(&id, labels));
                self.service_accounts.insert(id, labels.clone());
                output
            }
            ToDataplane::ServiceAccountRemove(namespace, name) => {
                let id = (Arc::clone(namespace), Arc::clone(name));
                self.service_accounts.remove(&id);
                let id = service_account_id(&id);
                self.to_all(|| {
                    let gone = wire::ServiceAccountRemove { id: Some(id.clone()) };
                    message(Payload::ServiceAccountRemove(gone))
                })
            }
            ToDataplane::NamespaceUpdate(name, labels) => {
                self.namespaces.insert(Arc::clone(name), labels.clone());
                self.to_all(|| namespace(name, labels))
            }
            ToDataplane::NamespaceRemove(name) => {
                self.namespaces.remove(name);
                self.to_all(|| {
                    let id = Some(wire::NamespaceId { name: name.to_string() });
                    message(Payload::NamespaceRemove(wire::NamespaceRemove { id }))
                })
            }
            // The other messages do not concern proxies.
            _ => Vec::new(),
        }
    }

    fn to_all(&self, make: impl Fn() -> wire::ToDataplane) -> Vec<(Connection, Output)> {
        let one = |client: &Client| (client.connection, Output::Messages(vec![make()]));
        self.clients.values().map(one).collect()
    }

    fn tell_one(&mut self, id: &WorkloadEndpointId) -> Vec<(Connection, Output)> {
        let Some(connection) = self.clients.get(id).map(|client| client.connection) else {
            return Vec::new();
        };
        vec![(connection, Output::Messages(self.sync(id)))]
    }

    /// Updates all proxies whose endpoint uses a changed object; `forget` marks the object as not sent.
    fn for_users(
        &mut self,
        uses: impl Fn(&WorkloadEndpoint) -> bool,
        forget: impl Fn(&mut Client),
    ) -> Vec<(Connection, Output)> {
        let ids: Vec<WorkloadEndpointId> = self
            .clients
            .keys()
            .filter(|id| self.endpoints.get(*id).is_some_and(|endpoint| uses(endpoint)))
            .cloned()
            .collect();
        let mut output = Vec::new();
        for id in ids {
            if let Some(client) = self.clients.get_mut(&id) {
                forget(client);
                let connection = client.connection;
                let messages = self.sync_parts(&id, false);
                output.push((connection, Output::Messages(messages)));
            }
        }
        output
    }

    fn to_users_of_set(
        &self,
        id: &IpSetId,
        make: impl Fn(&Self) -> Vec<wire::ToDataplane>,
    ) -> Vec<(Connection, Output)> {
        let users = self.clients.values().filter(|client| client.sets.contains(id));
        users.map(|client| (client.connection, Output::Messages(make(self)))).collect()
    }

    /// The messages that the proxy of an endpoint still lacks, and the endpoint.
    fn sync(&mut self, id: &WorkloadEndpointId) -> Vec<wire::ToDataplane> {
        self.sync_parts(id, true)
    }

    fn sync_parts(&mut self, id: &WorkloadEndpointId, with_endpoint: bool) -> Vec<wire::ToDataplane> {
        let Some(endpoint) = self.endpoints.get(id) else { return Vec::new() };
        let Some(mut client) = self.clients.remove(id) else { return Vec::new() };
        let policies: BTreeSet<PolicyId> = endpoint
            .tiers
            .iter()
            .flat_map(|tier| tier.ingress_policies.iter().chain(&tier.egress_policies))
            .filter(|id| self.policies.contains_key(*id))
            .cloned()
            .collect();
        let profiles: BTreeSet<ProfileName> =
            endpoint.profile_ids.iter().filter(|name| self.profiles.contains_key(*name)).cloned().collect();
        let mut sets: BTreeSet<IpSetId> = BTreeSet::new();
        for policy in policies.iter().filter_map(|id| self.policies.get(id)) {
            sets.extend(sets_of(&policy.inbound_rules).chain(sets_of(&policy.outbound_rules)).cloned());
        }
        for profile in profiles.iter().filter_map(|name| self.profiles.get(name)) {
            sets.extend(sets_of(&profile.inbound_rules).chain(sets_of(&profile.outbound_rules)).cloned());
        }
        sets.retain(|id| self.sets.contains_key(id));
        let mut out = Vec::new();
        for id in sets.difference(&client.sets) {
            out.extend(self.whole_set(id));
        }
        for id in policies.difference(&client.policies) {
            out.extend(self.policies.get(id).map(|policy| policy_update(id, policy)));
        }
        for name in profiles.difference(&client.profiles) {
            out.extend(self.profiles.get(name).map(|profile| profile_update(name, profile)));
        }
        if with_endpoint {
            out.push(endpoint_update(id, endpoint));
        }
        for id in client.policies.difference(&policies) {
            let gone = wire::PolicyRemove { id: Some(policy_id(id)) };
            out.push(message(Payload::PolicyRemove(gone)));
        }
        for name in client.profiles.difference(&profiles) {
            let id = Some(wire::ProfileId { name: name.to_string() });
            out.push(message(Payload::ProfileRemove(wire::ProfileRemove { id })));
        }
        for id in client.sets.difference(&sets) {
            out.push(message(Payload::IpSetRemove(wire::IpSetRemove { id: id.to_string() })));
        }
        (client.sets, client.policies, client.profiles) = (sets, policies, profiles);
        self.clients.insert(id.clone(), client);
        out
    }

    fn whole_set(&self, id: &IpSetId) -> Vec<wire::ToDataplane> {
        let Some((kind, members)) = self.sets.get(id) else { return Vec::new() };
        let members: Vec<String> = members.iter().map(ToString::to_string).collect();
        let mut parts = members.chunks(MEMBERS_PER_MESSAGE);
        let first = wire::IpSetUpdate {
            id: id.to_string(),
            members: parts.next().unwrap_or_default().to_vec(),
            set_type: set_type(*kind),
        };
        let more = parts.map(|part| {
            let delta = wire::IpSetDelta {
                id: id.to_string(),
                added_members: part.to_vec(),
                removed_members: Vec::new(),
            };
            message(Payload::IpSetDelta(delta))
        });
        std::iter::once(message(Payload::IpSetUpdate(first))).chain(more).collect()
    }
}

fn deltas(id: &IpSetId, added: &[IpSetMember], removed: &[IpSetMember]) -> Vec<wire::ToDataplane> {
    let texts = |members: &[IpSetMember]| members.iter().map(ToString::to_string).collect();
    let delta = |added: &[IpSetMember], removed: &[IpSetMember]| {
        message(Payload::IpSetDelta(wire::IpSetDelta {
            id: id.to_string(),
            added_members: texts(added),
            removed_members: texts(removed),
        }))
    };
    if added.len() + removed.len() <= MEMBERS_PER_MESSAGE {
        return vec![delta(added, removed)];
    }
    let added = added.chunks(MEMBERS_PER_MESSAGE).map(|part| delta(part, &[]));
    added.chain(removed.chunks(MEMBERS_PER_MESSAGE).map(|part| delta(&[], part))).collect()
}

fn uses_policy(endpoint: &WorkloadEndpoint, id: &PolicyId) -> bool {
    endpoint.tiers.iter().any(|tier| tier.ingress_policies.contains(id) || tier.egress_policies.contains(id))
}

fn service_account_id(id: &(Text, Text)) -> wire::ServiceAccountId {
    wire::ServiceAccountId { namespace: id.0.to_string(), name: id.1.to_string() }
}

fn service_account(id: &(Text, Text), labels: &BTreeMap<String, String>) -> wire::ToDataplane {
    message(Payload::ServiceAccountUpdate(wire::ServiceAccountUpdate {
        id: Some(service_account_id(id)),
        labels: labels.clone(),
    }))
}

fn namespace(name: &Text, labels: &BTreeMap<String, String>) -> wire::ToDataplane {
    message(Payload::NamespaceUpdate(wire::NamespaceUpdate {
        id: Some(wire::NamespaceId { name: name.to_string() }),
        labels: labels.clone(),
    }))
}

#[cfg(test)]
mod tests {
    use super::{Output, Processor};
    use crate::policysync::wire::Payload;
    use api::Kind;
    use messages::{
        IpSetMember, IpSetType, Policy, Profile, Rule, RuleEnd, TierInfo, ToDataplane, WorkloadEndpoint,
        WorkloadEndpointId,
    };
    use model::v1::PolicyKey;
    use std::sync::Arc;

    fn id(name: &str) -> WorkloadEndpointId {
        WorkloadEndpointId { orchestrator: "k8s".into(), workload: name.into(), endpoint: "eth0".into() }
    }

    fn key(name: &str) -> Arc<PolicyKey> {
        let (kind, namespace) = (Kind::GlobalNetworkPolicy, String::new());
        Arc::new(PolicyKey { kind, namespace, name: name.to_owned() })
    }

    fn endpoint(policies: &[&str]) -> WorkloadEndpoint {
        let tier = TierInfo {
            name: "default".into(),
            ingress_policies: policies.iter().map(|name| key(name)).collect(),
            ..TierInfo::default()
        };
        WorkloadEndpoint {
            tiers: vec![tier],
            profile_ids: vec!["kns.shop".into()],
            ..WorkloadEndpoint::default()
        }
    }

    fn policy(set: &str) -> Arc<Policy> {
        let source = RuleEnd { ip_set_ids: vec![set.into()], ..RuleEnd::default() };
        let rule = Rule { source, ..Rule::default() };
        Arc::new(Policy { inbound_rules: vec![rule], ..Policy::default() })
    }

    fn member(address: &str) -> IpSetMember {
        IpSetMember::Ip(address.parse().unwrap())
    }

    fn fill(processor: &mut Processor) {
        for set in ["s:a", "s:b"] {
            let members = vec![member("10.0.0.1")];
            processor.take(&ToDataplane::IpSetUpdate { id: set.into(), set_type: IpSetType::Ip, members });
        }
        processor.take(&ToDataplane::PolicyUpdate(key("a"), policy("s:a")));
        processor.take(&ToDataplane::PolicyUpdate(key("b"), policy("s:b")));
        processor.take(&ToDataplane::ProfileUpdate("kns.shop".into(), Arc::new(Profile::default())));
        processor.take(&ToDataplane::WorkloadEndpointUpdate(id("web"), Box::new(endpoint(&["a"]))));
        processor.take(&ToDataplane::NamespaceUpdate("shop".into(), [].into()));
        processor.take(&ToDataplane::ServiceAccountUpdate("shop".into(), "default".into(), [].into()));
    }

    /// The subject of each message, by connection.
    fn told(output: Vec<(u64, Output)>) -> Vec<String> {
        let mut lines = Vec::new();
        for (connection, output) in output {
            let (messages, last) = match output {
                Output::Messages(messages) => (messages, false),
                Output::Last(messages) => (messages, true),
            };
            for one in messages {
                let text = match one.payload.expect("a payload") {
                    Payload::InSync(_) => "in sync".to_owned(),
                    Payload::IpSetUpdate(set) => format!("set {} {:?}", set.id, set.members),
                    Payload::IpSetDelta(set) => {
                        format!("set {} +{:?} -{:?}", set.id, set.added_members, set.removed_members)
                    }
                    Payload::IpSetRemove(set) => format!("no set {}", set.id),
                    Payload::ProfileUpdate(update) => format!("profile {}", update.id.unwrap().name),
                    Payload::ProfileRemove(gone) => format!("no profile {}", gone.id.unwrap().name),
                    Payload::PolicyUpdate(update) => format!("policy {}", update.id.unwrap().name),
                    Payload::PolicyRemove(gone) => format!("no policy {}", gone.id.unwrap().name),
                    Payload::EndpointUpdate(update) => {
                        format!("endpoint {}", update.id.unwrap().workload_id)
                    }
                    Payload::EndpointRemove(gone) => format!("no endpoint {}", gone.id.unwrap().workload_id),
                    Payload::ServiceAccountUpdate(update) => {
                        format!("service account {}", update.id.unwrap().name)
                    }
                    Payload::ServiceAccountRemove(_) => "no service account".to_owned(),
                    Payload::NamespaceUpdate(update) => format!("namespace {}", update.id.unwrap().name),
                    Payload::NamespaceRemove(_) => "no namespace".to_owned(),
                };
                lines.push(format!("{connection}: {text}"));
            }
            if last {
                lines.push(format!("{connection}: end"));
            }
        }
        lines
    }

    #[test]
    fn a_proxy_receives_what_its_endpoint_uses_in_a_safe_order() {
        let mut processor = Processor::default();
        fill(&mut processor);
        processor.take(&ToDataplane::InSync);
        assert_eq!(
            told(processor.join(&id("web"), 7)),
            [
                "7: set s:a [\"10.0.0.1\"]",
                "7: policy a",
                "7: profile kns.shop",
                "7: endpoint web",
                "7: service account default",
                "7: namespace shop",
                "7: in sync",
            ]
        );
        let update = ToDataplane::WorkloadEndpointUpdate(id("web"), Box::new(endpoint(&["b"])));
        assert_eq!(
            told(processor.take(&update)),
            [
                "7: set s:b [\"10.0.0.1\"]",
                "7: policy b",
                "7: endpoint web",
                "7: no policy a",
                "7: no set s:a"
            ]
        );
        // Policies that it does not use are not sent.
        assert!(processor.take(&ToDataplane::PolicyUpdate(key("a"), policy("s:a"))).is_empty());
        let delta = |set: &str| ToDataplane::IpSetDelta {
            id: set.into(),
            added: vec![member("10.0.0.2")],
            removed: vec![member("10.0.0.1")],
        };
        assert!(processor.take(&delta("s:a")).is_empty());
        assert_eq!(told(processor.take(&delta("s:b"))), ["7: set s:b +[\"10.0.0.2\"] -[\"10.0.0.1\"]"]);
        // The policy now refers to another set.
        assert_eq!(
            told(processor.take(&ToDataplane::PolicyUpdate(key("b"), policy("s:a")))),
            ["7: set s:a [\"10.0.0.2\"]", "7: policy b", "7: no set s:b"]
        );
        let gone = ToDataplane::WorkloadEndpointRemove(id("web"));
        assert_eq!(told(processor.take(&gone)), ["7: no endpoint web", "7: end"]);
    }

    #[test]
    fn a_proxy_may_join_before_its_endpoint_and_replace_another() {
        let mut processor = Processor::default();
        assert!(told(processor.join(&id("web"), 1)).is_empty());
        assert_eq!(told(processor.join(&id("web"), 2)), ["1: end"]);
        // A replaced proxy does not remove its successor when it leaves.
        processor.leave(&id("web"), 1);
        fill(&mut processor);
        assert_eq!(told(processor.take(&ToDataplane::InSync)), ["2: in sync"]);
        assert!(processor.take(&ToDataplane::InSync).is_empty());
        processor.leave(&id("web"), 2);
        assert!(processor.take(&ToDataplane::NamespaceRemove("shop".into())).is_empty());
    }
}
