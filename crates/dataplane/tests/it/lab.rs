//! The host on which Calico's files were captured, with its interfaces, and the dataplane running on it.

use crate::captured::sets;
use crate::host::Host;
use crate::shop;
use dataplane::runner::{DataplaneError, Event, Machine, Running, start_on};
use dataplane::settings::DataplaneSettings;
use felix_config::kinds::NoSurroundings;
use felix_config::{Config, Interval};
use messages::{
    Encapsulation, FromDataplane, HostMetadata, IpPoolType, IpamPool, Route, RouteTypes, Text, ToDataplane,
    TunnelType, VxlanTunnelEndpoint, WorkloadEndpoint, WorkloadEndpointId,
};
use rules::Backend;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use telemetry::{Metrics, Pulse};

/// The time limit for anything on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// A host and, while it runs, its dataplane.
pub(crate) struct Lab {
    pub(crate) host: Host,
    pub(crate) metrics: Metrics,
    running: Option<Running>,
    reports: Receiver<FromDataplane>,
    heard: Vec<FromDataplane>,
    mtu_file: PathBuf,
}

/// Felix's settings for the host.
pub(crate) fn config(backend: Backend) -> Config {
    use api::{IptablesBackend, NFTablesMode};
    Config {
        ipv6_support: false,
        ipv4_vxlan_tunnel_addr: Some([10, 66, 1, 0].into()),
        nftables_mode: Some(match backend {
            Backend::Iptables => NFTablesMode::Disabled,
            Backend::Nftables => NFTablesMode::Enabled,
        }),
        iptables_backend: Some(IptablesBackend::NFT),
        // Repairs in tests must be triggered by events.
        route_refresh_interval: Interval::default(),
        ipsets_refresh_interval: Interval::default(),
        interface_refresh_interval: Interval::default(),
        iptables_refresh_interval: Interval::default(),
        nftables_refresh_interval: Interval::default(),
        ..Config::with_defaults(&NoSurroundings)
    }
}

/// The settings that the dataplane is started with.
pub(crate) fn settings(config: Config, encapsulation: Encapsulation, metrics: &Metrics) -> DataplaneSettings {
    DataplaneSettings {
        host: "n1".into(),
        config: Arc::new(config),
        encapsulation,
        has_services: true,
        pulse: Pulse::new(),
        metrics: metrics.clone(),
    }
}

impl Lab {
    /// Creates the host with its interfaces, without a dataplane.
    pub(crate) fn new() -> Self {
        let host = Host::new();
        host.shell(
            "ip link add eth0 address 02:00:00:00:00:01 type veth peer name wire0
             ip addr add 10.65.0.1/24 dev eth0
             ip link set wire0 up
             ip link set eth0 up",
        );
        for name in ["cali00000000001", "cali00000000002", "cali12345678903"] {
            let peer = &name[name.len() - 3..];
            host.shell(&format!(
                "ip link add {name} type veth peer name pod{peer}
                 ip link set pod{peer} up
                 ip link set {name} up"
            ));
        }
        let mtu_file = std::env::temp_dir().join(format!("{}-mtu", host.name()));
        let (_, reports) = channel();
        Self { host, metrics: Metrics::default(), running: None, reports, heard: Vec::new(), mtu_file }
    }

    /// Starts the dataplane on a host with VXLAN.
    pub(crate) fn start(&mut self, config: Config) {
        let vxlan = Encapsulation { vxlan: true, ..Encapsulation::default() };
        self.start_with(settings(config, vxlan, &self.metrics));
    }

    /// Starts the dataplane.
    pub(crate) fn start_with(&mut self, settings: DataplaneSettings) {
        let (sender, reports) = channel();
        self.reports = reports;
        self.heard.clear();
        let machine = Machine { mtu_file: self.mtu_file.clone(), bpf_pins: Some(self.bpf_pins()) };
        let sender = Mutex::new(sender);
        let running = self.host.run(move || {
            start_on(settings, &machine, move |report| {
                let _ = sender.lock().expect("lock").send(report);
            })
        });
        self.running = Some(running.expect("the dataplane starts"));
    }

    pub(crate) fn send(&self, messages: Vec<ToDataplane>) {
        let running = self.running.as_ref().expect("it runs");
        running.sender().send(Event::Messages(messages)).expect("it listens");
    }

    /// Where this host pins BPF programs and maps.
    pub(crate) fn bpf_pins(&self) -> PathBuf {
        self.mtu_file.with_extension("bpf")
    }

    /// Sends messages and waits until the loop has processed them.
    pub(crate) fn send_and_wait(&self, messages: Vec<ToDataplane>) {
        let batches = || {
            let page = self.metrics.page();
            let line = page.lines().find(|line| line.starts_with("felix_int_dataplane_msg_batch_size_count"));
            line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0)
        };
        let before: f64 = batches();
        self.send(messages);
        let end = Instant::now() + PATIENCE;
        while batches() <= before {
            assert!(Instant::now() < end, "the loop does not take messages");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn mtu(&self) -> String {
        std::fs::read_to_string(&self.mtu_file).expect("the MTU is written")
    }

    /// Waits for a report.
    pub(crate) fn wait_for(&mut self, what: &str, wanted: impl Fn(&FromDataplane) -> bool) {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            match self.reports.recv_timeout(Duration::from_millis(200)) {
                Ok(report) => {
                    let found = wanted(&report);
                    self.heard.push(report);
                    if found {
                        return;
                    }
                }
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(error) => panic!("waiting for {what}: {error}; heard {:?}", self.heard),
            }
        }
        panic!("no report: {what}; heard {:?}", self.heard);
    }

    /// Returns all reports so far.
    pub(crate) fn heard(&mut self) -> &[FromDataplane] {
        self.heard.extend(self.reports.try_iter());
        &self.heard
    }

    /// Waits until a shell prints the wanted text.
    pub(crate) fn wait_to_see(&self, script: &str, wanted: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let seen = self.host.try_shell(script, "").unwrap_or_else(|error| error);
            if wanted(&seen) {
                return seen;
            }
            assert!(Instant::now() < end, "`{script}` still prints\n{seen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends the dataplane.
    pub(crate) fn stop(&mut self) -> Result<(), DataplaneError> {
        let running = self.running.take().expect("it runs");
        let _ = running.sender().send(Event::Stop);
        running.wait()
    }

    /// Waits for the dataplane to end by itself.
    pub(crate) fn wait_for_end(&mut self) -> Result<(), DataplaneError> {
        let running = self.running.take().expect("it runs");
        let _still_open = running.sender();
        running.wait()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.running.is_some() {
            let _ = self.stop();
        }
        let _ = std::fs::remove_file(&self.mtu_file);
        let _ = std::fs::remove_dir_all(self.bpf_pins());
    }
}

/// A program that reports the events on a host, for as long as this value lives.
pub(crate) struct Listener {
    child: Child,
    output: File,
}

impl Listener {
    pub(crate) fn new(host: &Host, program: &[&str]) -> Self {
        let output = tempfile::tempfile().expect("a file");
        let child = Command::new("ip")
            .args(["netns", "exec", host.name()])
            .args(program)
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a second handle"))
            .stderr(output.try_clone().expect("a third handle"))
            .spawn()
            .expect("ip runs");
        Self { child, output }
    }

    /// Everything it has printed.
    pub(crate) fn heard(&self) -> String {
        let length = self.output.metadata().expect("a length").len();
        let mut bytes = vec![0; usize::try_from(length).expect("it fits into memory")];
        self.output.read_exact_at(&mut bytes, 0).expect("it is as long as it says");
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The identity of one of the workloads.
pub(crate) fn workload_id(number: usize) -> WorkloadEndpointId {
    WorkloadEndpointId {
        orchestrator: "k8s".into(),
        workload: format!("shop/{number}").into(),
        endpoint: "eth0".into(),
    }
}

/// The workloads of the host, with their addresses.
pub(crate) fn workloads(backend: Backend) -> Vec<WorkloadEndpoint> {
    let workloads = shop::world(backend).workloads.into_iter().enumerate();
    let with_address = |(place, endpoint): (usize, WorkloadEndpoint)| {
        let number = place + 1;
        WorkloadEndpoint {
            mac: format!("ca:fe:00:00:00:0{number}"),
            ipv4_nets: vec![format!("10.66.1.{number}/32").parse().expect("a network")],
            ..endpoint
        }
    };
    workloads.map(with_address).collect()
}

pub(crate) fn route(dst: &str, types: RouteTypes) -> Route {
    Route {
        dst: dst.parse().expect("a network"),
        types,
        ip_pool_type: IpPoolType::Vxlan,
        dst_node_name: Some("n1".into()),
        dst_node_ip: Some([10, 65, 0, 1].into()),
        same_subnet: false,
        nat_outgoing: true,
        local_workload: false,
        tunnel_type: TunnelType::default(),
        borrowed: false,
    }
}

fn vtep(number: u8, mac: &str) -> VxlanTunnelEndpoint {
    VxlanTunnelEndpoint {
        mac: mac.to_owned(),
        ipv4: Some([10, 66, number, 0].into()),
        parent_device_ipv4: Some([10, 65, 0, number].into()),
        ..VxlanTunnelEndpoint::default()
    }
}

/// All messages of the calculation about the host, without the final one.
pub(crate) fn messages(backend: Backend) -> Vec<ToDataplane> {
    let world = shop::world(backend);
    let mut messages = Vec::new();
    let fixed = ["network-ip-pools", "masq-ipam-pools", "all-vxlan-net", "this-host", "dscp-src-net"];
    for (id, set_type, members) in sets().into_iter().filter(|(id, ..)| !fixed.contains(id)) {
        messages.push(ToDataplane::IpSetUpdate { id: id.into(), set_type, members });
    }
    messages.extend(world.policies.into_iter().map(|(id, policy)| ToDataplane::PolicyUpdate(id, policy)));
    let profiles = world.profiles.into_iter();
    messages.extend(profiles.map(|(name, profile)| ToDataplane::ProfileUpdate(name, Arc::new(profile))));
    for (place, endpoint) in workloads(backend).into_iter().enumerate() {
        messages.push(ToDataplane::WorkloadEndpointUpdate(workload_id(place + 1), Box::new(endpoint)));
    }
    for (name, endpoint) in world.hosts {
        messages.push(ToDataplane::HostEndpointUpdate(
            Text::from(format!("n1-{name}")).into(),
            Box::new(endpoint),
        ));
    }
    let remote = Route {
        dst_node_name: Some("n2".into()),
        dst_node_ip: Some([10, 65, 0, 2].into()),
        ..route("10.66.2.0/26", RouteTypes::REMOTE_WORKLOAD)
    };
    messages.extend([
        ToDataplane::VtepUpdate("n1".into(), vtep(1, "66:40:b3:ea:b6:3f")),
        ToDataplane::VtepUpdate("n2".into(), vtep(2, "66:40:24:34:76:fc")),
        ToDataplane::RouteUpdate(route("10.66.1.0/26", RouteTypes::LOCAL_WORKLOAD)),
        ToDataplane::RouteUpdate(Route {
            local_workload: true,
            ..route("10.66.1.1/32", RouteTypes::LOCAL_WORKLOAD)
        }),
        ToDataplane::RouteUpdate(route("10.66.1.0/32", RouteTypes::LOCAL_TUNNEL)),
        ToDataplane::RouteUpdate(Route {
            types: RouteTypes::REMOTE_TUNNEL,
            dst: "10.66.2.0/32".parse().expect("a network"),
            ..remote.clone()
        }),
        ToDataplane::RouteUpdate(remote),
        ToDataplane::HostMetadataUpdate(
            "n1".into(),
            HostMetadata { ipv4_addr: "10.65.0.1/24".to_owned(), ..HostMetadata::default() },
        ),
        ToDataplane::IpamPoolUpdate(IpamPool {
            cidr: "10.66.0.0/16".parse().expect("a network"),
            masquerade: true,
            ipip_mode: api::IPIPMode::Never,
            vxlan_mode: api::VXLANMode::Always,
            allowed_uses: vec![api::IPPoolAllowedUse::Workload, api::IPPoolAllowedUse::Tunnel],
        }),
    ]);
    messages
}
