//! Flows of real connections between pods, from Felix's rules to the server that receives them.

use super::plan::{Flavour, Plan, resource};
use super::site::Site;
use super::table::question;
use anyhow::{Context as _, Result, ensure};
use flows::{Counters, FlowKey, PolicyHit};
use goldmane_api::convert::{counters, decode_key};
use goldmane_api::proto::flow_collector_server::{FlowCollector, FlowCollectorServer};
use goldmane_api::proto::{FlowReceipt, FlowUpdate};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use testkit::Folder;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status, Streaming};

/// Received flows, summed by key.
#[derive(Clone, Default)]
struct Taken(Arc<Mutex<BTreeMap<FlowKey, Counters>>>);

#[tonic::async_trait]
impl FlowCollector for Taken {
    type ConnectStream = ReceiverStream<Result<FlowReceipt, Status>>;

    async fn connect(
        &self,
        request: Request<Streaming<FlowUpdate>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        let (receipts, answer) = tokio::sync::mpsc::channel(1024);
        let (taken, mut updates) = (self.clone(), request.into_inner());
        tokio::spawn(async move {
            while let Ok(Some(update)) = updates.message().await {
                let flow = update.flow.unwrap_or_default();
                if let Ok(key) = decode_key(&flow.key) {
                    let mut taken = taken.0.lock().unwrap_or_else(PoisonError::into_inner);
                    taken.entry(key).or_default().add(&counters(&flow));
                }
                if receipts.send(Ok(FlowReceipt {})).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(answer)))
    }
}

impl Taken {
    /// All flows, one line each.
    fn lines(&self) -> Vec<String> {
        let hits = |hits: &[PolicyHit]| hits.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let line = |key: &FlowKey| {
            format!(
                "{}/{} > {}/{} {}/{} {} {} [{}] [{}]",
                key.source.namespace,
                key.source.name,
                key.dest.namespace,
                key.dest.name,
                key.protocol,
                key.dest_port,
                key.reporter.as_str(),
                key.action.as_str(),
                hits(&key.trace.enforced),
                hits(&key.trace.pending),
            )
        };
        taken.keys().map(line).collect()
    }
}

fn policy(kind: &str, name: &str, order: u32, action: &str) -> Result<api::Resource> {
    resource(json!({
        "apiVersion": "projectcalico.org/v3", "kind": kind, "metadata": {"name": name},
        "spec": {"selector": "app == 'web'", "order": order, "types": ["Ingress"], "ingress": [
            {"action": action, "protocol": "TCP", "source": {"selector": "app == 'client'"}, "destination": {"ports": [80]}},
        ]},
    }))
}

/// A site whose nodes send their flows to a server of the test.
struct Watched {
    site: Site,
    taken: Taken,
    _folder: Folder,
}

impl Watched {
    fn start(flavour: Flavour, resources: Vec<api::Resource>) -> Result<Self> {
        let folder = Folder::new("flows")?;
        let socket = folder.path().join("goldmane.sock");
        let address = format!("unix://{}", socket.display());
        let extra =
            [("FELIX_FLOWLOGSGOLDMANESERVER", address.as_str()), ("FELIX_FLOWLOGSFLUSHINTERVAL", "1")];
        let site = Site::without_agents(&Plan::two_subnets(false), flavour, &extra)?;
        let taken = Taken::default();
        {
            let _inside = site.runtime.enter();
            let listener = UnixListenerStream::new(tokio::net::UnixListener::bind(&socket)?);
            let service = FlowCollectorServer::new(taken.clone());
            site.runtime.spawn(
                tonic::transport::Server::builder().add_service(service).serve_with_incoming(listener),
            );
        }
        for resource in resources {
            site.put(resource)?;
        }
        site.start_agents()?;
        Ok(Self { site, taken, _folder: folder })
    }

    /// Sends the packets described by the lines, and checks their outcomes.
    fn send(&self, lines: &[(&str, bool)]) -> Result<()> {
        let (mut questions, mut wanted) = (Vec::new(), Vec::new());
        for (line, answer) in lines {
            let asked = question(line)?;
            wanted.extend(asked.iter().map(|_| *answer));
            questions.extend(asked);
        }
        self.site.wait_for(&questions, &wanted)
    }

    /// Waits until all of these flows have been reported.
    fn wait_for(&self, expected: &[String]) -> Result<()> {
        let missing = || {
            let lines = self.taken.lines();
            expected.iter().filter(|line| !lines.contains(line)).cloned().collect::<Vec<_>>()
        };
        testkit::eventually("every connection is reported", || Ok(missing().is_empty())).with_context(|| {
            let log = self.site.felix_log("n1");
            format!("missing: {:#?}\nof: {:#?}\n{log}", missing(), self.taken.lines())
        })
    }
}

fn connections_are_reported_with_the_policies_that_decided(flavour: Flavour) -> Result<()> {
    let watched = Watched::start(
        flavour,
        vec![
            policy("GlobalNetworkPolicy", "guard", 1000, "Allow")?,
            policy("StagedGlobalNetworkPolicy", "tried", 10, "Deny")?,
        ],
    )?;
    watched.send(&[
        ("b a tcp/80", true),
        ("d a tcp/80", true),
        ("b a tcp/81", false),
        ("o1 a udp/53 v4", false),
    ])?;
    let profile = "[0|__PROFILE__|pro:kns.red|allow|0] [0|__PROFILE__|pro:kns.red|allow|0]";
    let end = "[0|default|gnp:guard|deny|-1] [0|default|sgnp:tried|deny|-1]";
    watched.wait_for(&[
        format!("red/b > red/a tcp/80 Src Allow {profile}"),
        "red/b > red/a tcp/80 Dst Allow [0|default|gnp:guard|allow|0] [0|default|sgnp:tried|deny|0]"
            .to_owned(),
        format!("red/d > red/a tcp/80 Src Allow {profile}"),
        "red/d > red/a tcp/80 Dst Allow [0|default|gnp:guard|allow|0] [0|default|sgnp:tried|deny|0]"
            .to_owned(),
        format!("red/b > red/a tcp/81 Src Allow {profile}"),
        format!("red/b > red/a tcp/81 Dst Deny {end}"),
        format!("-/pub > red/a udp/53 Dst Deny {end}"),
    ])?;
    // Nothing is lost on the way, as the figures show.
    let site = &watched.site;
    for name in ["felix_nflog_packets_lost", "felix_nflog_packets_shed", "felix_nflog_buffer_overruns"] {
        ensure!(site.figure("n1", name)? == 0.0, "{name}");
    }
    if !flavour.has_programs() {
        ensure!(site.figure("n1", "felix_nflog_logs_received")? > 0.0, "packets are counted");
    }
    Ok(())
}

/// A host endpoint with addresses, a policy for it, and a staged one before that.
fn guarded_host() -> Result<Vec<api::Resource>> {
    let host = json!({
        "apiVersion": "projectcalico.org/v3", "kind": "HostEndpoint",
        "metadata": {"name": "n1-eth0", "labels": {"host": "n1"}},
        "spec": {"node": "n1", "interfaceName": "eth0", "expectedIPs": ["10.65.1.1", "fd00:65:1::1"]},
    });
    let policy = json!({
        "apiVersion": "projectcalico.org/v3", "kind": "GlobalNetworkPolicy", "metadata": {"name": "hosts"},
        "spec": {
            "selector": "has(host)", "types": ["Ingress", "Egress"],
            "ingress": [
                {"action": "Deny", "protocol": "TCP", "destination": {"ports": [81]}},
                {"action": "Allow", "protocol": "TCP", "destination": {"ports": [80]}},
            ],
            "egress": [{"action": "Allow", "protocol": "UDP"}],
        },
    });
    let tried = json!({
        "apiVersion": "projectcalico.org/v3", "kind": "StagedGlobalNetworkPolicy", "metadata": {"name": "tried"},
        "spec": {
            "selector": "has(host)", "order": 10, "types": ["Ingress", "Egress"],
            "ingress": [{"action": "Deny", "protocol": "TCP", "destination": {"ports": [80]}}],
            "egress": [{"action": "Allow", "protocol": "TCP"}],
        },
    });
    Ok(vec![resource(host)?, resource(policy)?, resource(tried)?])
}

fn connections_of_hosts_are_reported(flavour: Flavour) -> Result<()> {
    let watched = Watched::start(flavour, guarded_host()?)?;
    watched.send(&[
        ("o1 n1 tcp/80", true),
        ("o1 n1 tcp/81", false),
        ("o1 n1 udp/53", false),
        ("n1 o1 udp/80", true),
        ("n1 o1 tcp/80", false),
        // Between a pod of another node and the host.
        ("d n1 tcp/80", true),
    ])?;
    let [denies, allows, end] =
        ["deny|0", "allow|0", "deny|-1"].map(|hit| format!("[0|default|sgnp:tried|{hit}]"));
    let hits = |enforced: &str, pending: &str| format!("[0|default|gnp:hosts|{enforced}] {pending}");
    let same = |hit: &str| hits(hit, &format!("[0|default|gnp:hosts|{hit}]"));
    watched.wait_for(&[
        format!("-/pub > -/n1 tcp/80 Dst Allow {}", hits("allow|1", &denies)),
        format!("-/pub > -/n1 tcp/81 Dst Deny {}", same("deny|0")),
        format!("-/pub > -/n1 udp/53 Dst Deny {}", hits("deny|-1", &end)),
        format!("-/n1 > -/pub udp/80 Src Allow {}", same("allow|0")),
        format!("-/n1 > -/pub tcp/80 Src Deny {}", hits("deny|-1", &allows)),
        format!("red/d > -/n1 tcp/80 Dst Allow {}", hits("allow|1", &denies)),
    ])
}

#[test]
fn connections_of_hosts_are_reported_with_ebpf() -> Result<()> {
    connections_of_hosts_are_reported(Flavour::Ebpf)
}

#[test]
fn connections_are_reported_with_ebpf() -> Result<()> {
    connections_are_reported_with_the_policies_that_decided(Flavour::Ebpf)
}

#[test]
fn connections_of_hosts_are_reported_with_nftables() -> Result<()> {
    connections_of_hosts_are_reported(Flavour::Nftables)
}

#[test]
fn connections_of_hosts_are_reported_with_iptables() -> Result<()> {
    connections_of_hosts_are_reported(Flavour::IptablesNft)
}

#[test]
fn connections_are_reported_with_nftables() -> Result<()> {
    connections_are_reported_with_the_policies_that_decided(Flavour::Nftables)
}

#[test]
fn connections_are_reported_with_iptables() -> Result<()> {
    connections_are_reported_with_the_policies_that_decided(Flavour::IptablesNft)
}

#[test]
fn nothing_is_reported_unless_flows_are_logged() -> Result<()> {
    let site = Site::start(&Plan::two_subnets(false), Flavour::Nftables)?;
    let rules = site.namespace("n1").shell("nft list ruleset")?;
    ensure!(rules.contains("calico") && !rules.contains(" group "), "no packet is reported:\n{rules}");
    let readers = site.namespace("n1").shell("cat /proc/net/netfilter/nfnetlink_log")?;
    ensure!(readers.is_empty(), "a group has a reader: {readers}");
    ensure!(!site.ask("n1", 9091, "/metrics")?.contains("felix_nflog"), "nothing is counted");
    Ok(())
}
