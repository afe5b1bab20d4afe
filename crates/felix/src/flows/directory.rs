//! Lookups for the collector: the endpoint of an address, services, policies. Maintained from the feed and from the
//! calculation's messages, and only while flows are logged.

use super::endpoints::Endpoints;
use super::network_sets::NetworkSets;
use super::policies::Policies;
use super::services::Services;
use bpf_policy::RuleTexts;
use flows::collector::{End, Tuple, World};
use flows::nflog::Prefix;
use flows::pending::Evaluator;
use flows::{PolicyHit, Reporter, Service};
use messages::{Text, ToDataplane};
use model::feed::FeedEntry;
use std::net::IpAddr;
use std::sync::Arc;

/// Names of addresses, services and policies.
#[derive(Debug)]
pub(super) struct Names {
    endpoints: Endpoints,
    network_sets: NetworkSets,
    services: Services,
    policies: Policies,
}

/// The numbers of known objects, for figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) endpoints: usize,
    pub(super) network_sets: usize,
    pub(super) services: usize,
    pub(super) policies: usize,
}

/// All lookup tables.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) names: Names,
    /// The rules by their numbers, for reports of eBPF programs.
    rules: RuleTexts,
    evaluator: Option<Evaluator>,
}

impl Directory {
    /// An empty directory. `evaluates`: whether staged policies are evaluated.
    pub(super) fn new(host: &str, evaluates: bool) -> Self {
        let names = Names {
            endpoints: Endpoints::new(host),
            network_sets: NetworkSets::default(),
            services: Services::default(),
            policies: Policies::default(),
        };
        Self { names, rules: RuleTexts::default(), evaluator: evaluates.then(Evaluator::default) }
    }

    pub(super) fn entry(&mut self, entry: &FeedEntry) {
        let names = &mut self.names;
        match entry {
            FeedEntry::WorkloadEndpoint(key, endpoint) => names.endpoints.workload(key, endpoint.as_deref()),
            FeedEntry::HostEndpoint(key, endpoint) => names.endpoints.host(key, endpoint.as_deref()),
            FeedEntry::NetworkSet(name, set) => names.network_sets.set(name, set.as_deref()),
            FeedEntry::Service(name, service) => names.services.service(name, service.as_deref()),
            _ => {}
        }
    }

    pub(super) fn message(&mut self, message: &ToDataplane) {
        match message {
            ToDataplane::HostMetadataUpdate(name, host) => self.names.services.host(name, Some(host)),
            ToDataplane::HostMetadataRemove(name) => self.names.services.host(name, None),
            message => self.names.policies.take(message),
        }
        self.rules.hear(message);
        if let Some(evaluator) = &mut self.evaluator {
            evaluator.take(message);
        }
    }

    /// Forgets objects that have been gone for long enough.
    pub(super) fn tick(&mut self, now: i64) {
        self.names.endpoints.tick(now);
        self.names.policies.tick(now);
        self.rules.tick(now);
    }

    /// The decision about a connection at a local endpoint if staged policies were enforced. Only the host endpoint
    /// with the address is considered: the interface by which packets arrived is not known here.
    pub(super) fn pending(&mut self, tuple: &Tuple, reporter: Reporter) -> Option<Arc<[PolicyHit]>> {
        let evaluator = self.evaluator.as_mut()?;
        let address = if reporter == Reporter::Src { tuple.source } else { tuple.dest };
        let id = self.names.endpoints.find(address)?.id.as_ref()?;
        evaluator.evaluate(id, reporter.direction(), tuple)
    }

    /// A number that changes whenever such decisions may have changed; `None` if they are not evaluated.
    pub(super) fn generation(&self) -> Option<u64> {
        self.evaluator.as_ref().map(Evaluator::generation)
    }

    /// The text of a rule that eBPF programs report by its number.
    pub(super) fn rule(&self, id: u64) -> Option<&Text> {
        self.rules.get(id)
    }

    /// The meaning of a reported packet's text.
    pub(super) fn prefix(&self, text: &str) -> Option<Prefix> {
        self.names.policies.prefix(text)
    }

    pub(super) fn sizes(&self) -> Sizes {
        Sizes {
            endpoints: self.names.endpoints.len(),
            network_sets: self.names.network_sets.len(),
            services: self.names.services.len(),
            policies: self.names.policies.len(),
        }
    }
}

impl World for Names {
    fn end(&self, address: IpAddr, other_namespace: &str) -> Option<End> {
        let endpoint = self.endpoints.find(address).map(|known| &known.end);
        endpoint.or_else(|| self.network_sets.find(address, other_namespace)).cloned()
    }

    fn service(&self, address: IpAddr, port: u16, protocol: u8) -> Option<Service> {
        self.services.find(address, port, protocol).cloned()
    }

    fn decision(&self, prefix: &Prefix, local: &End) -> Option<PolicyHit> {
        self.policies.decision(prefix, local)
    }
}
