//! A machine on the host's subnet and a pod whose address is in that subnet: the host answers for the pod, announces
//! when it starts to, and packets arrive. The address of a load balancer is tested as well.

use crate::host::Host;
use crate::lab::{Lab, config, settings, workload_id};
use api::LocalSubnetL2Reachability;
use felix_config::{Config, Interval};
use messages::{
    Encapsulation, FromDataplane, HostMetadata, IpamPool, Profile, Rule, Service, ToDataplane,
    WorkloadEndpoint,
};
use model::feed::RuleAction;
use rules::Backend;
use std::sync::Arc;
use std::time::Duration;

const POD: [&str; 2] = ["10.65.0.77", "fd00:65::77"];
const BALANCED: &str = "10.65.0.200";
/// The hardware addresses of the host, and of no host.
const HOST: &str = "02:00:00:00:00:01";
const NOBODY: &str = "02:00:00:00:00:99";

/// The host, a machine on its subnet, and a pod.
struct Subnet {
    lab: Lab,
    machine: Host,
    pod: Host,
}

impl Subnet {
    fn new(reachability: LocalSubnetL2Reachability, refresh: i32) -> Self {
        let (mut lab, machine, pod) = (Lab::new(), Host::new(), Host::new());
        lab.host.shell(&format!(
            "ip addr add fd00:65::1/64 dev eth0 nodad
             ip route add default via 10.65.0.2
             ip link set wire0 netns {}
             ip link set pod001 netns {}",
            machine.name(),
            pod.name()
        ));
        machine.shell(
            "ip addr add 10.65.0.2/24 dev wire0
             ip addr add fd00:65::2/64 dev wire0 nodad
             ip link set wire0 up",
        );
        pod.shell(
            "ip addr add 10.65.0.77/32 dev pod001
             ip addr add fd00:65::77/128 dev pod001 nodad
             ip link set pod001 up
             ip route add 169.254.1.1 dev pod001
             ip route add default via 169.254.1.1",
        );
        let config = Config {
            ipv6_support: true,
            local_subnet_l2_reachability: Some(reachability),
            local_subnet_l2_reachability_refresh_interval: Interval::from_secs(refresh),
            ..config(Backend::Nftables)
        };
        lab.start_with(settings(config, Encapsulation::default(), &lab.metrics.clone()));
        lab.send(vec![
            ToDataplane::ProfileUpdate("open".into(), Arc::new(open())),
            ToDataplane::HostMetadataUpdate("n1".into(), node()),
            pool("10.65.0.0/24"),
            pool("fd00:65::/64"),
            ToDataplane::InSync,
        ]);
        lab.wait_for("in sync", |report| *report == FromDataplane::InSync);
        Self { lab, machine, pod }
    }

    /// Makes the machine believe that an address is somewhere else.
    fn mistake(&self, address: &str) {
        self.machine.shell(&format!("ip neigh replace {address} lladdr {NOBODY} nud stale dev wire0"));
    }

    /// Waits until the machine knows that the host has an address.
    fn wait_until_known(&self, address: &str) {
        let end = std::time::Instant::now() + Duration::from_secs(30);
        loop {
            let known = self.machine.shell(&format!("ip neigh show {address}"));
            if known.contains(HOST) {
                return;
            }
            assert!(std::time::Instant::now() < end, "{address}: {known}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Whether the machine reaches an address.
    fn reaches(&self, address: &str) -> bool {
        self.machine.try_shell(&format!("busybox ping -c 1 -W 1 {address}"), "").is_ok()
    }

    /// Waits until a pod answers the machine. The first answers may be lost, because the kernel checks for a second or
    /// two that no other host has the host's own address on the pod's interface, and does not advertise it until then.
    fn wait_until_reached(&self, address: &str) {
        let end = std::time::Instant::now() + Duration::from_secs(30);
        while !self.reaches(address) {
            let known = self.machine.shell("ip neigh; ip -6 neigh");
            assert!(std::time::Instant::now() < end, "{address}: {known}");
        }
    }

    fn listeners(&self, count: usize) {
        self.lab.wait_to_see("cat /proc/net/packet", |seen| seen.lines().count() == count + 1);
    }
}

fn open() -> Profile {
    let rule = Rule { action: RuleAction::Allow, ..Rule::default() };
    Profile { inbound_rules: vec![rule.clone()], outbound_rules: vec![rule] }
}

fn node() -> HostMetadata {
    HostMetadata {
        ipv4_addr: "10.65.0.1/24".to_owned(),
        ipv6_addr: "fd00:65::1/64".to_owned(),
        ..HostMetadata::default()
    }
}

fn pool(cidr: &str) -> ToDataplane {
    ToDataplane::IpamPoolUpdate(IpamPool {
        cidr: cidr.parse().expect("a network"),
        masquerade: false,
        ipip_mode: api::IPIPMode::Never,
        vxlan_mode: api::VXLANMode::Never,
        allowed_uses: vec![],
    })
}

fn pod() -> ToDataplane {
    let net = |text: &str| text.parse::<std::net::IpAddr>().expect("an address").into();
    let endpoint = WorkloadEndpoint {
        state: "active".to_owned(),
        name: "cali00000000001".into(),
        profile_ids: vec!["open".into()],
        ipv4_nets: vec![net(POD[0])],
        ipv6_nets: vec![net(POD[1])],
        ..WorkloadEndpoint::default()
    };
    ToDataplane::WorkloadEndpointUpdate(workload_id(1), Box::new(endpoint))
}

fn service() -> Service {
    Service {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        service_type: "LoadBalancer".to_owned(),
        cluster_ips: vec![],
        loadbalancer_ip: String::new(),
        external_ips: vec![],
        loadbalancer_ingress_ips: vec![BALANCED.to_owned()],
        ports: vec![],
    }
}

#[test]
fn a_machine_on_the_subnet_reaches_a_pod() {
    let mut subnet = Subnet::new(LocalSubnetL2Reachability::PodsAndLoadBalancers, 0);
    subnet.listeners(0);
    POD.iter().for_each(|address| subnet.mistake(address));
    // The kernel accepts no change of a neighbour within a second of the last one.
    std::thread::sleep(Duration::from_millis(1500));
    subnet.lab.send(vec![pod()]);
    POD.iter().for_each(|address| subnet.wait_until_known(address));
    subnet.listeners(1);
    // IPv6 of the pod uses the host's address on its interface.
    let gateway = subnet.lab.host.shell("cat /sys/class/net/cali00000000001/address");
    let gateway: netlink::MacAddress = gateway.trim().parse().expect("a hardware address");
    subnet.pod.shell(&format!("ip -6 route add default via {} dev pod001", gateway.link_local()));
    for address in POD {
        // The machine sends a request, because it has no entry any more.
        subnet.machine.shell("ip neigh flush all; ip -6 neigh flush all");
        subnet.wait_until_reached(address);
        subnet.wait_until_known(address);
    }

    // A load balancer's address: nothing is behind it here, and the machine learns where it is.
    subnet.lab.send(vec![ToDataplane::ServiceUpdate(service())]);
    assert!(!subnet.reaches("10.65.0.201"));
    assert!(!subnet.machine.shell("ip neigh show 10.65.0.201").contains(HOST), "no host has it");
    let end = std::time::Instant::now() + Duration::from_secs(30);
    while !subnet.machine.shell(&format!("ip neigh show {BALANCED}")).contains(HOST) {
        assert!(std::time::Instant::now() < end, "no answer for {BALANCED}");
        let _ = subnet.reaches(BALANCED);
    }

    // Nothing is left to answer for.
    let removed = ToDataplane::ServiceRemove("shop".into(), "web".into());
    subnet.lab.send(vec![removed, ToDataplane::WorkloadEndpointRemove(workload_id(1))]);
    subnet.listeners(0);
    subnet.machine.shell("ip neigh flush all; ip -6 neigh flush all");
    assert!(!POD.iter().any(|address| subnet.reaches(address)));

    // It returns while the link is down, and is announced when the link is up again.
    subnet.lab.host.shell("ip link set eth0 down");
    subnet.lab.send(vec![pod()]);
    subnet.lab.wait_for("workload up", |report| {
        matches!(report, FromDataplane::WorkloadEndpointStatus { status: Some("up"), .. })
    });
    subnet.mistake(POD[0]);
    std::thread::sleep(Duration::from_millis(1500));
    subnet.lab.host.shell("ip link set eth0 up");
    subnet.wait_until_known(POD[0]);
    assert!(subnet.lab.stop().is_ok());
    subnet.listeners(0);
}

#[test]
fn addresses_are_announced_regularly() {
    let mut subnet = Subnet::new(LocalSubnetL2Reachability::PodsAndLoadBalancers, 1);
    subnet.lab.send(vec![pod()]);
    for _ in 0..2 {
        subnet.mistake(POD[0]);
        subnet.wait_until_known(POD[0]);
    }
    assert!(subnet.lab.stop().is_ok());
}

#[test]
fn by_default_the_host_answers_only_for_itself() {
    let mut subnet = Subnet::new(LocalSubnetL2Reachability::Disabled, 1);
    subnet.lab.send(vec![pod(), ToDataplane::ServiceUpdate(service())]);
    subnet.lab.wait_for("workload up", |report| {
        matches!(report, FromDataplane::WorkloadEndpointStatus { status: Some("up"), .. })
    });
    assert!(!subnet.reaches(POD[0]) && !subnet.reaches(BALANCED));
    subnet.listeners(0);
}
