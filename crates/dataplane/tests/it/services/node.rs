//! A node whose eBPF programs serve services: the host, two workloads and a client outside, each in a network namespace
//! of its own, and each with a server that reports its name.

use anyhow::{Context as _, Result};
use api::{KubernetesEndpointSlice, KubernetesEndpointSliceSpec, KubernetesService, KubernetesServiceSpec};
use dataplane::runner::{Event, Machine, Running, start_on};
use dataplane::settings::DataplaneSettings;
use felix_config::kinds::NoSurroundings;
use felix_config::{Config, Interval};
use messages::{
    Encapsulation, HostMetadata, IpPoolType, PolicyId, Profile, Route, RouteTypes, Rule, Service, TierInfo,
    ToDataplane, TunnelType, WorkloadEndpoint, WorkloadEndpointId,
};
use model::feed::NamespacedName;
use model::feed::RuleAction;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use telemetry::{Health, Metrics, Pulse};
use testkit::network::Namespace;

pub(crate) const NODE: [u8; 4] = [192, 0, 2, 1];
pub(crate) const CLIENT: [u8; 4] = [192, 0, 2, 9];
pub(crate) const PODS: [[u8; 4]; 2] = [[10, 65, 0, 2], [10, 65, 0, 3]];
pub(crate) const SERVICE: [u8; 4] = [10, 96, 0, 1];
/// The IPv6 address of the node.
pub(crate) const NODE6: &str = "fd02::1";
pub(crate) const PODS6: [&str; 2] = ["fd65::2", "fd65::3"];
pub(crate) const SERVICE6: &str = "fd96::1";
/// The port of the servers.
pub(crate) const TARGET: u16 = 8080;
/// How long an answer may take before the next attempt. A refusal that arrives while the socket is still being
/// connected takes effect only when the SYN is sent again, a second later.
const MOMENT: Duration = Duration::from_millis(2500);

/// A file system in a directory of its own, unmounted when the value is dropped.
pub(crate) struct Mounted(tempfile::TempDir);

impl Mounted {
    pub(crate) fn new(kind: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        mount("test", folder.path(), kind, MountFlags::empty(), None)
            .with_context(|| format!("mounting {kind}"))?;
        Ok(Self(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

/// The node and its surroundings.
pub(crate) struct Node {
    running: Option<Running>,
    pub(crate) health: Health,
    is_over: Arc<AtomicBool>,
    servers: Vec<std::thread::JoinHandle<()>>,
    pub(crate) files: Mounted,
    mtu: tempfile::TempDir,
    /// Whether pools use VXLAN.
    pub(crate) has_vxlan: bool,
    pub(crate) host: Namespace,
    pub(crate) client: Namespace,
    pub(crate) pods: [Namespace; 2],
}

impl Node {
    pub(crate) fn new() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |part: &str| format!("dps{}x{number}{part}", std::process::id());
        let (host, client) = (Namespace::new(&name("h"))?, Namespace::new(&name("c"))?);
        let pods = [Namespace::new(&name("a"))?, Namespace::new(&name("b"))?];
        host.set("net/ipv4/conf/default/rp_filter", "1")?;
        host.batch(&format!(
            "link set lo up\nlink add eth0 type veth peer name eth0 netns {}\nlink set eth0 up\n\
             addr add 192.0.2.1/24 dev eth0\naddr add {NODE6}/64 dev eth0 nodad",
            client.name()
        ))?;
        client.batch(
            "link set lo up\nlink set eth0 up\naddr add 192.0.2.9/24 dev eth0\naddr add fd02::9/64 dev eth0 nodad",
        )?;
        for (place, pod) in pods.iter().enumerate() {
            let address = IpAddr::from(PODS[place]);
            host.batch(&format!(
                "link add cali{place} address ee:ee:ee:ee:ee:ee type veth peer name eth0 netns {}\n\
                 link set cali{place} up",
                pod.name()
            ))?;
            let address6 = PODS6[place];
            pod.batch(&format!(
                "link set lo up\nlink set eth0 up\naddr add {address}/32 dev eth0\nroute add 169.254.1.1/32 dev eth0\n\
                 route add default via 169.254.1.1\naddr add {address6}/128 dev eth0 nodad\n\
                 neigh add fe80::1 lladdr ee:ee:ee:ee:ee:ee dev eth0 nud permanent\nroute add default via fe80::1 dev eth0\n\
                 neigh add 169.254.1.1 lladdr ee:ee:ee:ee:ee:ee dev eth0 nud permanent"
            ))?;
        }
        let mut node = Self {
            running: None,
            health: Health::default(),
            is_over: Arc::default(),
            servers: Vec::new(),
            files: Mounted::new("bpf")?,
            mtu: tempfile::tempdir()?,
            has_vxlan: false,
            host,
            client,
            pods,
        };
        for (name, address) in [("a", PODS[0]), ("b", PODS[1]), ("host", NODE), ("client", CLIENT)] {
            node.serve(name, address.into())?;
        }
        for (name, address) in [("a", PODS6[0]), ("b", PODS6[1]), ("host", NODE6)] {
            node.serve(name, address.parse()?)?;
        }
        Ok(node)
    }

    /// Starts a server that reports its name.
    fn serve(&mut self, name: &'static str, address: IpAddr) -> Result<()> {
        let at = SocketAddr::from((address, TARGET));
        let namespace = match name {
            "a" => &self.pods[0],
            "b" => &self.pods[1],
            "client" => &self.client,
            _ => &self.host,
        };
        let (tcp, udp) = namespace.run(|| (TcpListener::bind(at), UdpSocket::bind(at)))?;
        let (tcp, udp) = (tcp?, udp?);
        tcp.set_nonblocking(true)?;
        udp.set_read_timeout(Some(Duration::from_millis(5)))?;
        let is_over = Arc::clone(&self.is_over);
        self.servers.push(std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let mut question = [0; 64];
                if let Ok((mut stream, _)) = tcp.accept() {
                    let _ = stream.set_nonblocking(false);
                    let _ = stream.set_read_timeout(Some(MOMENT));
                    let _ = stream.read(&mut question);
                    let _ = stream.write_all(name.as_bytes());
                }
                if let Ok((_, from)) = udp.recv_from(&mut question) {
                    let _ = udp.send_to(name.as_bytes(), from);
                }
            }
        }));
        Ok(())
    }

    pub(crate) fn config() -> Config {
        Config {
            bpf_enabled: true,
            ipv6_support: false,
            bpf_map_size_conntrack: 10_000,
            bpf_kube_proxy_healthz_port: 10256,
            bpf_kube_proxy_min_sync_period: Interval::default(),
            default_endpoint_to_host_action: Some(rules::EndpointToHost::Accept),
            nftables_mode: Some(api::NFTablesMode::Enabled),
            route_refresh_interval: Interval::default(),
            ..Config::with_defaults(&NoSurroundings)
        }
    }

    /// Starts the dataplane with all its first messages.
    pub(crate) fn start(&mut self, config: Config, more: Vec<ToDataplane>) -> Result<()> {
        let pulse = Pulse::new();
        self.health = Health::default();
        self.health.register("dataplane", &pulse, true, true, Duration::ZERO);
        let settings = DataplaneSettings {
            host: "n1".into(),
            config: Arc::new(config),
            encapsulation: Encapsulation { vxlan: self.has_vxlan, ..Encapsulation::default() },
            has_services: true,
            pulse,
            metrics: Metrics::default(),
        };
        let machine =
            Machine { mtu_file: self.mtu.path().join("mtu"), bpf_pins: Some(self.files.path().to_owned()) };
        self.running = Some(self.host.run(|| start_on(settings, &machine, |_| {}))??);
        let mut all = messages();
        all.extend(more);
        all.push(ToDataplane::InSync);
        self.send(all)
    }

    pub(crate) fn send(&self, messages: Vec<ToDataplane>) -> Result<()> {
        let sent = self.running.as_ref().context("it does not run")?.sender().send(Event::Messages(messages));
        sent.map_err(|_| anyhow::anyhow!("the loop has ended"))
    }

    /// Ends the dataplane like a kill would: nothing is removed.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let Some(running) = self.running.take() else { return Ok(()) };
        let _ = running.sender().send(Event::Stop);
        Ok(running.wait()?)
    }

    pub(crate) fn wait_until_ready(&self) -> Result<()> {
        testkit::eventually("the node to be ready", || self.health.summary(Instant::now()).ready)
            .with_context(|| self.health.summary(Instant::now()).detail)?;
        Ok(())
    }

    /// All elements of a map.
    pub(crate) fn map(&self, name: &str) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut all = bpf::Map::open(&self.files.path().join("tc/globals").join(name))?.entries()?;
        all.sort();
        Ok(all)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.stop();
        self.is_over.store(true, Ordering::Relaxed);
        self.servers.drain(..).for_each(|server| _ = server.join());
    }
}

/// Makes one attempt; returns the name of the server that answered, or the error.
pub(crate) fn ask(from: &Namespace, how: &str, target: (impl Into<IpAddr>, u16)) -> Result<String> {
    let target = SocketAddr::new(target.0.into(), target.1);
    let answer = from.run(|| -> std::io::Result<String> {
        let mut answer = [0; 64];
        if how == "tcp" {
            let mut stream = TcpStream::connect_timeout(&target, MOMENT)?;
            stream.set_read_timeout(Some(MOMENT))?;
            stream.write_all(b"who?")?;
            let length = stream.read(&mut answer)?;
            return Ok(String::from_utf8_lossy(&answer[..length]).into_owned());
        }
        let any: SocketAddr = if target.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
        let socket = UdpSocket::bind(any)?;
        socket.set_read_timeout(Some(MOMENT))?;
        socket.connect(target)?;
        socket.send(b"who?")?;
        let length = socket.recv(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
    })?;
    Ok(answer.unwrap_or_else(|error| format!("{:?}", error.kind())))
}

/// Repeats attempts until one of these servers answers.
pub(crate) fn wait(
    from: &Namespace,
    how: &str,
    target: (impl Into<IpAddr>, u16),
    wanted: &[&str],
) -> Result<()> {
    let mut last = String::new();
    let target: (IpAddr, u16) = (target.0.into(), target.1);
    let found = testkit::eventually("an answer", || {
        last = ask(from, how, target).unwrap_or_else(|error| error.to_string());
        wanted.contains(&last.as_str())
    });
    found.with_context(|| format!("{how} to {target:?}: {last:?} in the place of {wanted:?}"))?;
    Ok(())
}

/// Parses an IPv6 address.
pub(crate) fn address6(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn id(place: usize) -> WorkloadEndpointId {
    WorkloadEndpointId {
        orchestrator: "k8s".into(),
        workload: format!("ns/{place}").into(),
        endpoint: "eth0".into(),
    }
}

/// A workload, with or without an egress policy.
pub(crate) fn workload(place: usize, egress: Option<&PolicyId>) -> ToDataplane {
    let tier = |policy: &PolicyId| TierInfo {
        name: "default".into(),
        default_action: RuleAction::Deny,
        ingress_policies: Vec::new(),
        egress_policies: vec![policy.clone()],
    };
    let endpoint = WorkloadEndpoint {
        state: "active".into(),
        name: format!("cali{place}").into(),
        ipv4_nets: vec![IpAddr::from(PODS[place]).into()],
        ipv6_nets: vec![address6(PODS6[place]).into()],
        profile_ids: vec!["allow".into()],
        tiers: egress.map(tier).into_iter().collect(),
        ..WorkloadEndpoint::default()
    };
    ToDataplane::WorkloadEndpointUpdate(id(place), Box::new(endpoint))
}

fn messages() -> Vec<ToDataplane> {
    let allow = || Rule { action: RuleAction::Allow, ..Rule::default() };
    let profile = Profile { inbound_rules: vec![allow()], outbound_rules: vec![allow()] };
    let mut all = vec![ToDataplane::ProfileUpdate("allow".into(), Arc::new(profile))];
    for (place, address) in PODS.iter().enumerate() {
        all.push(workload(place, None));
        for address in [IpAddr::from(*address), address6(PODS6[place])] {
            all.push(ToDataplane::RouteUpdate(Route {
                dst: address.into(),
                types: RouteTypes::LOCAL_WORKLOAD,
                ip_pool_type: IpPoolType::NoEncap,
                dst_node_name: Some("n1".into()),
                dst_node_ip: Some(if address.is_ipv4() { NODE.into() } else { address6(NODE6) }),
                same_subnet: false,
                nat_outgoing: false,
                local_workload: true,
                tunnel_type: TunnelType::default(),
                borrowed: false,
            }));
        }
    }
    let host = HostMetadata {
        ipv4_addr: "192.0.2.1/24".into(),
        ipv6_addr: format!("{NODE6}/64"),
        ..HostMetadata::default()
    };
    all.push(ToDataplane::HostMetadataUpdate("n1".into(), host));
    all
}

fn name(name: &str) -> NamespacedName {
    NamespacedName { namespace: "ns".to_owned(), name: name.to_owned() }
}

/// A service with a port for TCP and one for UDP; `spec` adds to it or replaces fields.
pub(crate) fn service(
    called: &str,
    address: impl Into<IpAddr>,
    ports: &[(&str, u16, u16)],
    spec: &Value,
) -> Vec<ToDataplane> {
    let address = address.into().to_string();
    let listed: Vec<Value> = ports
        .iter()
        .map(|(protocol, port, node)| {
            json!({"name": format!("{protocol}-{port}"), "port": port, "protocol": protocol, "nodePort": node})
        })
        .collect();
    let mut object = json!({
        "metadata": {"namespace": "ns", "name": called},
        "spec": {"type": "NodePort", "clusterIPs": [address], "ports": listed},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    let read: api::kubernetes::Service = serde_json::from_value(object).expect("a service");
    let object = KubernetesService {
        metadata: read.metadata,
        spec: KubernetesServiceSpec(read.spec),
        status: read.status,
        ..KubernetesService::default()
    };
    let plain = Service {
        namespace: "ns".into(),
        name: called.into(),
        service_type: "NodePort".into(),
        cluster_ips: vec![address],
        loadbalancer_ip: String::new(),
        external_ips: Vec::new(),
        loadbalancer_ingress_ips: Vec::new(),
        ports: ports
            .iter()
            .map(|(p, port, node)| ((*p).to_owned(), i32::from(*port), i32::from(*node)))
            .collect(),
    };
    vec![ToDataplane::ServiceObject(name(called), Some(Box::new(object))), ToDataplane::ServiceUpdate(plain)]
}

/// The endpoints of a service.
pub(crate) fn endpoints<A: Into<IpAddr> + Copy>(
    of: &str,
    ports: &[(&str, u16, u16)],
    addresses: &[A],
) -> ToDataplane {
    endpoints_at(of, ports, addresses, TARGET)
}

/// The endpoints of a service at another port than the servers'.
pub(crate) fn endpoints_at<A: Into<IpAddr> + Copy>(
    of: &str,
    ports: &[(&str, u16, u16)],
    addresses: &[A],
    target: u16,
) -> ToDataplane {
    let version = if addresses.iter().any(|one| (*one).into().is_ipv6()) { "IPv6" } else { "IPv4" };
    let ports: Vec<Value> = ports
        .iter()
        .map(|(protocol, port, _)| json!({"name": format!("{protocol}-{port}"), "port": target, "protocol": protocol}))
        .collect();
    let endpoints: Vec<Value> = addresses
        .iter()
        .map(|address| json!({"addresses": [Into::<IpAddr>::into(*address).to_string()], "nodeName": "n1", "conditions": {"ready": true}}))
        .collect();
    let object = json!({
        "metadata": {"namespace": "ns", "name": format!("{of}-1"), "labels": {"kubernetes.io/service-name": of}},
        "addressType": version, "endpoints": endpoints, "ports": ports,
    });
    let read: api::kubernetes::EndpointSlice = serde_json::from_value(object).expect("a slice");
    let object = KubernetesEndpointSlice {
        metadata: read.metadata,
        spec: KubernetesEndpointSliceSpec(read.content),
        ..KubernetesEndpointSlice::default()
    };
    ToDataplane::EndpointSliceObject(name(&format!("{of}-1")), Some(Box::new(object)))
}
