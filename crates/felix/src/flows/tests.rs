//! Real packets through a real kernel: two pods and their host in network namespaces, rules that report, and a server
//! that receives the flows. Needs root.

mod accounting;

use super::*;
use api::Kind;
use felix_config::kinds::NoSurroundings;
use felix_config::values::Interval;
use felix_config::{ConfigResolver, Source, Sources};
use flows::{Action, Counters, FlowKey, Reporter};
use goldmane_api::convert::{counters, decode_key};
use goldmane_api::losses::LossKind;
use goldmane_api::losses::proto::losses_server::{Losses, LossesServer};
use goldmane_api::losses::proto::{LossReceipt, LossReport, LossesRequest, LossesResult};
use goldmane_api::proto::flow_collector_server::{FlowCollector, FlowCollectorServer};
use goldmane_api::proto::{FlowReceipt, FlowUpdate};
use messages::{Policy, PolicyId, PortRange, Rule, RuleEnd, TierInfo, WorkloadEndpointId};
use model::feed::{NamespacedName, RuleAction};
use model::v1::{PolicyKey, WorkloadEndpointKey};
use netlink::netfilter::conntrack::{ConnectionTable, Counted};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::atomic::AtomicU32;
use testkit::Folder;
use testkit::network::Namespace;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status, Streaming};

/// Roughly what Felix would render: pods may connect to port 80, everything else to a pod is denied.
const RULES: &str = r#"
    table inet test {
        chain nat {
            type nat hook prerouting priority -100;
            meta nfproto ipv4 ip daddr 10.96.0.1 tcp dport 8080 dnat ip to 10.0.0.2:80
        }
        chain forward {
            type filter hook forward priority 0; policy accept;
            ct state established,related accept
            meta l4proto 58 accept
            log prefix "APE0|gnp/out" snaplen 80 group 2
            tcp dport 80 log prefix "API0|gnp/in" snaplen 80 group 1 accept
            log prefix "DPI|default" snaplen 80 group 1 drop
        }
    }
"#;

/// The received flows, summed by their keys; and the losses that the node reported last.
#[derive(Clone, Default)]
struct Taken(Arc<Mutex<BTreeMap<FlowKey, Counters>>>, Arc<Mutex<BTreeMap<LossKind, u64>>>);

#[tonic::async_trait]
impl Losses for Taken {
    async fn report(&self, request: Request<LossReport>) -> Result<Response<LossReceipt>, Status> {
        let losses = request.into_inner().losses;
        *self.1.lock().unwrap() = losses.iter().map(|loss| (loss.kind(), loss.count)).collect();
        Ok(Response::new(LossReceipt {}))
    }

    async fn list(&self, _: Request<LossesRequest>) -> Result<Response<LossesResult>, Status> {
        Err(Status::unimplemented("this is for nodes"))
    }
}

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
                let key = decode_key(&flow.key).expect("a key");
                taken.0.lock().unwrap().entry(key).or_default().add(&counters(&flow));
                let _ = receipts.send(Ok(FlowReceipt {})).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(answer)))
    }
}

impl Taken {
    /// The flows of a reporter to a port: one line for each, and its counters.
    fn of(&self, reporter: Reporter, protocol: &str, port: i64) -> Vec<(String, Counters)> {
        let taken = self.0.lock().unwrap();
        let mine = taken
            .iter()
            .filter(|(key, _)| (key.reporter, &*key.protocol, key.dest_port) == (reporter, protocol, port));
        mine.map(|(key, counters)| {
            let hits = |hits: &[flows::PolicyHit]| {
                hits.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            };
            let text = format!(
                "{}/{} > {}/{} {}/{} {} [{}] [{}]",
                key.source.namespace,
                key.source.name,
                key.dest.namespace,
                key.dest.name,
                key.service.name,
                key.service.port_name,
                key.action.as_str(),
                hits(&key.trace.enforced),
                hits(&key.trace.pending),
            );
            (text, *counters)
        })
        .collect()
    }
}

/// A host with two pods.
struct Host {
    host: Namespace,
    pods: [Namespace; 2],
}

impl Host {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let id = format!("fl{}x{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let host = Namespace::new(&id).unwrap();
        host.set("net/ipv4/ip_forward", "1").unwrap();
        host.set("net/ipv6/conf/all/forwarding", "1").unwrap();
        let pods = [1, 2].map(|number| {
            let pod = Namespace::new(&format!("{id}p{number}")).unwrap();
            host.batch(&format!(
                "link add cali{number} type veth peer name eth0 netns {id}p{number}\nlink set cali{number} up\n\
                 addr add 10.0.{number}.254/32 dev cali{number}\naddr add fe80::ffff/64 dev cali{number} nodad\n\
                 route add 10.0.0.{number}/32 dev cali{number}\nroute add fd00::{number}/128 dev cali{number}"
            ))
            .unwrap();
            pod.batch(&format!(
                "addr add 10.0.0.{number}/32 dev eth0\naddr add fd00::{number}/128 dev eth0 nodad\nlink set eth0 up\n\
                 route add 10.0.{number}.254/32 dev eth0\nroute add default via 10.0.{number}.254\n\
                 route add default via fe80::ffff dev eth0"
            ))
            .unwrap();
            pod
        });
        host.feed("nft -f -", RULES).unwrap();
        Self { host, pods }
    }

    /// The first pod sends this many bytes to an address, where the second one answers with twice as many.
    fn talk(&self, address: &str, port: u16, bytes: usize) {
        let server = self.pods[1].run(|| TcpListener::bind("[::]:80")).unwrap().unwrap();
        let address: IpAddr = address.parse().unwrap();
        // Connects before accepting: a connection that fails must not leave a thread that waits for it.
        let mut stream = self.pods[0].run(move || TcpStream::connect((address, port))).unwrap().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (mut stream, _) = server.accept().unwrap();
                let mut all = Vec::new();
                stream.read_to_end(&mut all).unwrap();
                stream.write_all(&[all.as_slice(), &all].concat()).unwrap();
            });
            stream.write_all(&vec![7; bytes]).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            assert_eq!(all.len(), 2 * bytes);
        });
    }

    /// The kernel's counts of connections of a family to port 80.
    fn counted(&self, family: netlink::Family) -> (Counted, Counted) {
        let mut table = self.host.run(ConnectionTable::open).unwrap().unwrap();
        let mut sum = (Counted::default(), Counted::default());
        table
            .read(family, |entry| {
                if (entry.as_filtered().protocol, entry.as_filtered().dest_port) == (6, 80) {
                    let (original, reply) = entry.counted.expect("the kernel counts");
                    for (sum, one) in [(&mut sum.0, original), (&mut sum.1, reply)] {
                        sum.packets += one.packets;
                        sum.bytes += one.bytes;
                    }
                }
            })
            .unwrap();
        sum
    }
}

fn policy(kind: Kind, name: &str, rule: Rule) -> [ToDataplane; 1] {
    let policy = Policy {
        tier: "default".into(),
        inbound_rules: vec![rule.clone()],
        outbound_rules: vec![rule],
        ..Policy::default()
    };
    [ToDataplane::PolicyUpdate(id(kind, name), Arc::new(policy))]
}

fn id(kind: Kind, name: &str) -> PolicyId {
    Arc::new(PolicyKey { kind, namespace: String::new(), name: name.into() })
}

/// Pods, a service, and policies of which one is staged.
fn fill(tap: &Tap) {
    let any = |action| Rule { action, ..Rule::default() };
    let http = |action| Rule {
        destination: RuleEnd { ports: vec![PortRange { first: 80, last: 80 }], ..RuleEnd::default() },
        ..any(action)
    };
    tap.messages(&policy(Kind::GlobalNetworkPolicy, "out", any(RuleAction::Allow)));
    tap.messages(&policy(Kind::GlobalNetworkPolicy, "in", http(RuleAction::Allow)));
    tap.messages(&policy(Kind::StagedGlobalNetworkPolicy, "tried", http(RuleAction::Deny)));
    for number in [1, 2] {
        let tier = TierInfo {
            name: "default".into(),
            ingress_policies: vec![
                id(Kind::StagedGlobalNetworkPolicy, "tried"),
                id(Kind::GlobalNetworkPolicy, "in"),
            ],
            egress_policies: vec![id(Kind::GlobalNetworkPolicy, "out")],
            ..TierInfo::default()
        };
        let workload = format!("shop/web-{number}");
        let name = WorkloadEndpointId {
            orchestrator: "k8s".into(),
            workload: workload.as_str().into(),
            endpoint: "eth0".into(),
        };
        let endpoint = messages::WorkloadEndpoint { tiers: vec![tier], ..Default::default() };
        tap.messages(&[ToDataplane::WorkloadEndpointUpdate(name, Box::new(endpoint))]);
        let key = WorkloadEndpointKey {
            host: "n1".into(),
            orchestrator: "k8s".into(),
            workload,
            endpoint: "eth0".into(),
        };
        let endpoint = model::feed::WorkloadEndpoint {
            generate_name: if number == 1 { "web-".into() } else { String::new() },
            ipv4_nets: vec![format!("10.0.0.{number}/32").parse().unwrap()],
            ipv6_nets: vec![format!("fd00::{number}/128").parse().unwrap()],
            ..Default::default()
        };
        tap.entries(&[FeedEntry::WorkloadEndpoint(key, Some(Box::new(endpoint)))]);
    }
    let service = serde_json::json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"clusterIPs": ["10.96.0.1"], "ports": [{"name": "http", "protocol": "TCP", "port": 8080}]},
    });
    let name = NamespacedName { namespace: "shop".into(), name: "web".into() };
    tap.entries(&[FeedEntry::Service(name, Some(serde_json::from_value(service).unwrap()))]);
}

/// A server that receives flows.
fn serve(socket: &Path) -> Taken {
    let taken = Taken::default();
    let listener = UnixListenerStream::new(tokio::net::UnixListener::bind(socket).unwrap());
    let server = tonic::transport::Server::builder()
        .add_service(FlowCollectorServer::new(taken.clone()))
        .add_service(LossesServer::new(taken.clone()));
    tokio::spawn(server.serve_with_incoming(listener));
    taken
}

/// A collector in the host's namespace: with a Goldmane, or with a socket that it looks for.
fn collector(
    host: &Host,
    goldmane: Option<&Path>,
    socket: Option<&Path>,
    metrics: &Metrics,
) -> (Tap, Running) {
    let settings = Settings {
        host: "n1".into(),
        // Long, where it must not matter.
        interval: Duration::from_secs(if goldmane.is_some() { 1 } else { 300 }),
        target: goldmane.map(|path| Target { address: format!("unix://{}", path.display()), tls: None }),
        socket: socket.map(Path::to_owned),
        evaluates: true,
        is_traced: false,
        has_programs: false,
        untracked: Untracked::Nothing,
    };
    let runtime = tokio::runtime::Handle::current();
    let started = host.host.run(|| {
        let _inside = runtime.enter();
        start(settings, &Health::default(), metrics)
    });
    let (tap, running) = started.unwrap().unwrap();
    fill(&tap);
    wait_until_it_listens(host);
    (tap, running)
}

/// Waits until the kernel's reports are read: a group in use is refused to other readers.
fn wait_until_it_listens(host: &Host) {
    testkit::eventually("the collector listens", || {
        Ok(host
            .host
            .run(|| std::fs::read_to_string("/proc/thread-self/net/netfilter/nfnetlink_log"))?
            .is_ok_and(|text| text.lines().count() == 2))
    })
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_become_flows_with_the_figures_of_the_kernel() {
    let (host, folder) = (Host::new(), Folder::new("flows").unwrap());
    let goldmane = folder.path().join("goldmane.sock");
    let taken = serve(&goldmane);
    let _running = collector(&host, Some(&goldmane), None, &Metrics::default());
    host.talk("10.96.0.1", 8080, 100_000);
    host.talk("fd00::2", 80, 1000);
    host.pods[0]
        .run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            for _ in 0..3 {
                socket.send_to(&[1; 500], "10.0.0.2:53").unwrap();
            }
        })
        .unwrap();
    let staged = "0|default|sgnp:tried|deny|0";
    let allowed = |service: &str| {
        [
            (
                Reporter::Src,
                format!(
                    "shop/web-* > shop/web-2 {service} Allow [0|default|gnp:out|allow|0] \
                     [0|default|gnp:out|allow|0]"
                ),
            ),
            (
                Reporter::Dst,
                format!("shop/web-* > shop/web-2 {service} Allow [0|default|gnp:in|allow|0] [{staged}]"),
            ),
        ]
    };
    let is_complete = || {
        let all = |service| {
            allowed(service).iter().all(|(reporter, text)| {
                let mine = taken.of(*reporter, "tcp", 80);
                mine.iter().any(|(found, counters)| found == text && counters.completed == 1)
            })
        };
        all("web/http") && all("-/-") && !taken.of(Reporter::Dst, "udp", 53).is_empty()
    };
    testkit::eventually_async("every connection is reported", async || is_complete()).await.unwrap_or_else(
        |error| {
            panic!("{error}: {:#?}", taken.0.lock().unwrap());
        },
    );
    for (family, service) in [(netlink::Family::V4, "web/http"), (netlink::Family::V6, "-/-")] {
        let (original, reply) = host.counted(family);
        assert!(original.packets > 3 && reply.bytes > 2000, "{original:?} {reply:?}");
        for (reporter, text) in allowed(service) {
            let mine = taken.of(reporter, "tcp", 80);
            let (_, found) = mine.iter().find(|(found, _)| *found == text).expect("a flow");
            let (out, back) = match reporter {
                Reporter::Src => ((found.packets_out, found.bytes_out), (found.packets_in, found.bytes_in)),
                _ => ((found.packets_in, found.bytes_in), (found.packets_out, found.bytes_out)),
            };
            assert_eq!(out, (original.packets, original.bytes), "{text}");
            assert_eq!(back, (reply.packets, reply.bytes), "{text}");
            assert_eq!((found.started, found.completed), (1, 1), "{text}");
        }
    }
    let denied = taken.of(Reporter::Dst, "udp", 53);
    assert_eq!(
        denied.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>(),
        ["shop/web-* > shop/web-2 -/- Deny [0|default|gnp:in|deny|-1] [0|default|sgnp:tried|deny|-1]"]
    );
    let counters = denied[0].1;
    assert_eq!((counters.packets_in, counters.bytes_in), (3, 3 * 528), "whole packets, not what was copied");
    assert!(taken.0.lock().unwrap().keys().all(|key| key.action != Action::Pass));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_is_counted_packet_by_packet_or_shown_as_lost() {
    const SENT: u64 = 60_000;
    let (host, folder, metrics) = (Host::new(), Folder::new("flows").unwrap(), Metrics::default());
    let goldmane = folder.path().join("goldmane.sock");
    let taken = serve(&goldmane);
    let _running = collector(&host, Some(&goldmane), None, &metrics);
    host.pods[0]
        .run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            for number in 0..SENT {
                let port = 1000 + u16::try_from(number % 2000).unwrap();
                socket.send_to(&[1; 40], ("10.0.0.2", port)).unwrap();
            }
        })
        .unwrap();
    let figure = |name: &str| {
        let page = metrics.page();
        let line = page.lines().find(|line| line.starts_with(&format!("{name}{{groupNum=\"1\"}} ")));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or_default()
    };
    let reported = || {
        let taken = taken.0.lock().unwrap();
        let mine = taken.iter().filter(|(key, _)| key.reporter == Reporter::Dst && &*key.protocol == "udp");
        mine.map(|(_, counters)| counters.packets_in).sum::<u64>()
    };
    testkit::eventually_async("every packet is accounted for", async || {
        // Missing numbers are noticed when the next packet arrives.
        let _ = host.pods[0].run(|| UdpSocket::bind("0.0.0.0:0")?.send_to(&[1; 40], "10.0.0.2:999"));
        let accounted = figure("felix_nflog_logs_received") + figure("felix_nflog_packets_lost");
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let (sent, reported) = (SENT as f64, reported() as f64);
        accounted >= sent
            && reported + figure("felix_nflog_packets_lost") + figure("felix_nflog_packets_shed") >= sent
    })
    .await
    .unwrap_or_else(|error| panic!("{error}: reported {}\n{}", reported(), metrics.page()));
    // Allowed traffic continues, and is reported.
    host.talk("10.0.0.2", 80, 1000);
    testkit::eventually_async("a connection after the flood is reported", async || {
        taken.of(Reporter::Dst, "tcp", 80).iter().any(|(_, counters)| counters.completed == 1)
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn losses_are_reported_to_readers_of_flows() {
    let (host, folder, metrics) = (Host::new(), Folder::new("flows").unwrap(), Metrics::default());
    let goldmane = folder.path().join("goldmane.sock");
    let taken = serve(&goldmane);
    let (tap, _running) = collector(&host, Some(&goldmane), None, &metrics);
    let lost = || -> [u64; 2] {
        let page = metrics.page();
        ["felix_nflog_packets_lost{", "felix_nflog_packets_shed{"].map(|name| {
            let lines = page.lines().filter(|line| line.starts_with(name));
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
        })
    };
    {
        // The collector waits for this lock, and its queue is short.
        let _busy = lock(&tap.0);
        testkit::eventually("load is shed", || {
            host.pods[0].run(|| {
                let socket = UdpSocket::bind("0.0.0.0:0")?;
                (0..2000)
                    .try_for_each(|number| socket.send_to(&[1; 40], ("10.0.0.2", 1000 + number)).map(drop))
            })??;
            Ok(lost().iter().sum::<u64>() > 0)
        })
        .unwrap();
    }
    testkit::eventually_async("losses are reported", async || {
        let told = taken.1.lock().unwrap();
        let told = [LossKind::PacketsLost, LossKind::PacketsShed].map(|kind| told.get(&kind).copied());
        told.map(Option::unwrap_or_default) == lost() && lost().iter().sum::<u64>() > 0
    })
    .await
    .unwrap_or_else(|error| panic!("{error}: reported {:?}\n{}", taken.1.lock().unwrap(), metrics.page()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_on_the_node_does_not_wait_for_the_interval() {
    let (host, folder) = (Host::new(), Folder::new("flows").unwrap());
    let socket = folder.path().join("flows.sock");
    let _running = collector(&host, None, Some(&socket), &Metrics::default());
    let send = || host.pods[0].run(|| UdpSocket::bind("0.0.0.0:0")?.send_to(&[1; 40], "10.0.0.2:53"));
    // There is no listener yet.
    send().unwrap().unwrap();
    let taken = serve(&socket);
    testkit::eventually_async("a denied packet is seen", async || {
        send()??;
        Ok(taken.of(Reporter::Dst, "udp", 53).iter().any(|(text, _)| text.contains(" Deny ")))
    })
    .await
    .unwrap();
}

#[test]
fn settings_follow_the_parameters() {
    let mut sources = Sources::default();
    sources.set(Source::EnvironmentVariable, [("felixhostname".to_owned(), "n1".to_owned())].into());
    let resolver = ConfigResolver::new(sources, Box::new(NoSurroundings)).expect("a configuration");
    let plain = resolver.config();
    assert!(plain.is_leader());
    assert_eq!(Settings::of(plain), None, "off by default");
    let config = Config {
        flow_logs_goldmane_server: "goldmane.calico-system.svc:7443".into(),
        flow_logs_flush_interval: Interval::from_secs(15),
        typha_ca_file: "/ca".into(),
        typha_cert_file: "/cert".into(),
        typha_key_file: "/key".into(),
        ..plain.clone()
    };
    let settings = Settings::of(&config).expect("on");
    let target = settings.target.expect("a server");
    assert_eq!(target.address, "goldmane.calico-system.svc:7443");
    assert_eq!(target.tls.expect("TLS").key, PathBuf::from("/key"));
    assert_eq!((settings.interval, settings.socket), (Duration::from_secs(15), None));
    assert!(settings.evaluates);
    let local = Config {
        flow_logs_local_reporter: Some(EnabledOrDisabled::Enabled),
        flow_logs_policy_evaluation_mode: Some(FlowLogsPolicyEvaluationMode::None),
        flow_logs_flush_interval: Interval::from_secs(0),
        ..plain.clone()
    };
    let settings = Settings::of(&local).expect("on");
    assert_eq!(settings.socket, Some(PathBuf::from(flows::local::SOCKET)));
    assert!(settings.target.is_none() && !settings.evaluates && settings.interval == SHORTEST_INTERVAL);
}
