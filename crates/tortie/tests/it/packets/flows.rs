//! Flows of real connections between pods, from the rules that Felix writes to the server that it sends to.

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

/// Flows as they came, summed by their keys.
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
    /// All flows, a line for each.
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

fn connections_are_reported_with_the_policies_that_decided(flavour: Flavour) -> Result<()> {
    let folder = Folder::new("flows")?;
    let socket = folder.path().join("goldmane.sock");
    let address = format!("unix://{}", socket.display());
    let extra = [("FELIX_FLOWLOGSGOLDMANESERVER", address.as_str()), ("FELIX_FLOWLOGSFLUSHINTERVAL", "1")];
    let site = Site::without_agents(&Plan::two_subnets(false), flavour, &extra)?;
    let taken = Taken::default();
    let _inside = site.runtime.enter();
    let listener = UnixListenerStream::new(tokio::net::UnixListener::bind(&socket)?);
    let service = FlowCollectorServer::new(taken.clone());
    site.runtime
        .spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(listener));
    site.put(policy("GlobalNetworkPolicy", "guard", 1000, "Allow")?)?;
    site.put(policy("StagedGlobalNetworkPolicy", "tried", 10, "Deny")?)?;
    site.start_agents()?;
    let (mut questions, mut wanted) = (Vec::new(), Vec::new());
    for (line, answer) in
        [("b a tcp/80", true), ("d a tcp/80", true), ("b a tcp/81", false), ("o1 a udp/53 v4", false)]
    {
        let asked = question(line)?;
        wanted.extend(asked.iter().map(|_| answer));
        questions.extend(asked);
    }
    site.wait_for(&questions, &wanted)?;
    let profile = "[0|__PROFILE__|pro:kns.red|allow|0] [0|__PROFILE__|pro:kns.red|allow|0]";
    let end = "[0|default|gnp:guard|deny|-1] [0|default|sgnp:tried|deny|-1]";
    let expected = [
        format!("red/b > red/a tcp/80 Src Allow {profile}"),
        "red/b > red/a tcp/80 Dst Allow [0|default|gnp:guard|allow|0] [0|default|sgnp:tried|deny|0]"
            .to_owned(),
        format!("red/d > red/a tcp/80 Src Allow {profile}"),
        "red/d > red/a tcp/80 Dst Allow [0|default|gnp:guard|allow|0] [0|default|sgnp:tried|deny|0]"
            .to_owned(),
        format!("red/b > red/a tcp/81 Src Allow {profile}"),
        format!("red/b > red/a tcp/81 Dst Deny {end}"),
        format!("-/pub > red/a udp/53 Dst Deny {end}"),
    ];
    let missing = || {
        let lines = taken.lines();
        expected.iter().filter(|line| !lines.contains(line)).cloned().collect::<Vec<_>>()
    };
    testkit::eventually("every connection is reported", || Ok(missing().is_empty())).with_context(|| {
        format!("missing: {:#?}\nof: {:#?}\n{}", missing(), taken.lines(), site.felix_log("n1"))
    })?;
    // Nothing is lost on the way, and the figures say so.
    for name in ["felix_nflog_packets_lost", "felix_nflog_packets_shed", "felix_nflog_buffer_overruns"] {
        ensure!(site.figure("n1", name)? == 0.0, "{name}");
    }
    ensure!(site.figure("n1", "felix_nflog_logs_received")? > 0.0, "packets are counted");
    Ok(())
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
    ensure!(readers.is_empty(), "nobody reads: {readers}");
    ensure!(!site.ask("n1", 9091, "/metrics")?.contains("felix_nflog"), "nothing is counted");
    Ok(())
}
