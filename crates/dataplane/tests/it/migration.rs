//! A virtual machine moves to a host: its route exists as soon as it announces itself, and listening ends as soon as
//! possible.

use crate::lab::{Lab, config, messages, workload_id, workloads};
use felix_config::{Config, Interval};
use messages::{FromDataplane, LiveMigrationRole, ToDataplane, WorkloadEndpoint};
use rules::Backend;

const ROUTE: &str = "ip route show 10.66.1.1";
const OTHER_ROUTE: &str = "ip route show 10.66.1.2";

/// The first workload, with this role in a migration.
fn machine(role: LiveMigrationRole) -> ToDataplane {
    numbered(1, role)
}

fn numbered(number: usize, role: LiveMigrationRole) -> ToDataplane {
    let endpoint = WorkloadEndpoint {
        live_migration_role: role,
        live_migration_vmi_name: "db".to_owned(),
        ..workloads(Backend::Nftables).swap_remove(number - 1)
    };
    ToDataplane::WorkloadEndpointUpdate(workload_id(number), Box::new(endpoint))
}

/// Checks how many sockets listen to frames: the first line is the heading.
fn listeners(lab: &Lab, count: usize) {
    lab.wait_to_see("cat /proc/net/packet", |seen| seen.lines().count() == count + 1);
}

/// The machine behind the first workload's interface announces itself.
fn announce(lab: &Lab, mac: &str) {
    lab.host.shell(&format!("ip link set pod001 address {mac}"));
}

#[test]
fn a_machine_that_announces_itself_is_reached_at_once() {
    let mut lab = Lab::new();
    lab.start(Config {
        live_migration_route_convergence_time: Interval::from_secs(2),
        ..config(Backend::Nftables)
    });
    lab.host.shell(
        "ip addr add 192.0.2.1/24 dev pod001
         echo 1 > /proc/sys/net/ipv4/conf/pod001/arp_notify
         ip addr add 192.0.3.1/24 dev pod002
         echo 1 > /proc/sys/net/ipv4/conf/pod002/arp_notify",
    );
    lab.send(messages(Backend::Nftables));
    lab.send(vec![ToDataplane::InSync]);
    lab.wait_for("in sync", |report| *report == FromDataplane::InSync);
    lab.wait_to_see(ROUTE, |seen| seen.contains("dev cali00000000001"));
    listeners(&lab, 0);

    // It will arrive, and until then has no route, whatever other frames are received.
    lab.send(vec![machine(LiveMigrationRole::Target)]);
    lab.wait_to_see(ROUTE, str::is_empty);
    listeners(&lab, 2);
    lab.host.shell("ip link set pod002 address 02:00:00:00:02:01");
    let _ = lab.host.try_shell("busybox ping -c 1 -W 1 -I pod001 192.0.2.9", "");
    assert_eq!(lab.host.shell(ROUTE), "", "neither another's announcement nor a question is one");
    listeners(&lab, 2);

    announce(&lab, "02:00:00:00:01:01");
    let elevated = |seen: &str| seen.contains("dev cali00000000001") && seen.contains("metric 512");
    lab.wait_to_see(ROUTE, elevated);
    lab.wait_for("the machine", |report| {
        *report == FromDataplane::MachineArrived { id: workload_id(1), machine: "db".into() }
    });
    listeners(&lab, 0);
    // Another machine arrives later, and its migration ends: when its route has settled, so has the first one's.
    lab.send(vec![numbered(2, LiveMigrationRole::Target)]);
    lab.wait_to_see(OTHER_ROUTE, str::is_empty);
    listeners(&lab, 2);
    lab.host.shell("ip link set pod002 address 02:00:00:00:02:02");
    lab.wait_to_see(OTHER_ROUTE, |seen| seen.contains("metric 512"));
    lab.send(vec![numbered(2, LiveMigrationRole::None)]);
    lab.wait_to_see(OTHER_ROUTE, |seen| !seen.is_empty() && !seen.contains("metric 512"));
    assert!(elevated(&lab.host.shell(ROUTE)), "for as long as the migration takes");

    // The migration is over, and routes settle.
    lab.send(vec![machine(LiveMigrationRole::None)]);
    lab.wait_to_see(ROUTE, |seen| seen.contains("dev cali00000000001") && !elevated(seen));
    assert!(lab.stop().is_ok());
}

#[test]
fn an_interface_that_appears_late_is_listened_to() {
    let mut lab = Lab::new();
    lab.start(config(Backend::Nftables));
    lab.host.shell("ip link del cali00000000001");
    lab.send(messages(Backend::Nftables));
    lab.send(vec![machine(LiveMigrationRole::Target), ToDataplane::InSync]);
    lab.wait_for("in sync", |report| *report == FromDataplane::InSync);
    listeners(&lab, 0);
    lab.host.shell(
        "ip link add cali00000000001 type veth peer name pod001
         ip addr add 192.0.2.1/24 dev pod001
         echo 1 > /proc/sys/net/ipv4/conf/pod001/arp_notify
         ip link set pod001 up
         ip link set cali00000000001 up",
    );
    listeners(&lab, 2);
    announce(&lab, "02:00:00:00:01:01");
    lab.wait_to_see(ROUTE, |seen| seen.contains("metric 512"));
    // The machine that is here moves away.
    lab.send(vec![machine(LiveMigrationRole::Source)]);
    lab.wait_to_see(ROUTE, |seen| seen.contains("dev cali00000000001") && !seen.contains("metric 512"));
    // Another machine is awaited, and the endpoint is removed.
    lab.send(vec![machine(LiveMigrationRole::None), machine(LiveMigrationRole::Target)]);
    listeners(&lab, 2);
    lab.send(vec![ToDataplane::WorkloadEndpointRemove(workload_id(1))]);
    listeners(&lab, 0);
}
