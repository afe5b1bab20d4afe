//! Leftovers from before: of another dataplane, and of missed events.

use crate::lab::{Lab, config, messages};
use felix_config::{Config, Interval};
use messages::ToDataplane;
use rules::Backend;
use std::time::{Duration, Instant};

/// Devices and pins of Calico's BPF dataplane are removed; foreign pins, and disciplines without a program of Calico's,
/// stay.
#[test]
fn leftovers_of_a_bpf_dataplane_are_removed() {
    for backend in [Backend::Iptables, Backend::Nftables] {
        let mut lab = Lab::new();
        let pins = lab.bpf_pins();
        for pin in ["tc/globals/cali_v4_ct", "tcx/eth0_ingress", "ctlb/calico_connect_v4", "tc/globals/mine"]
        {
            let path = pins.join(pin);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, "").expect("written");
        }
        lab.host.shell("ip link add bpfin.cali type veth peer name bpfout.cali");
        lab.start(config(backend));
        let mut all = messages(backend);
        all.push(ToDataplane::InSync);
        lab.send(all);
        lab.wait_to_see("ip -o link", |seen| !seen.contains("bpfin.cali") && !seen.contains("bpfout.cali"));
        // The devices are removed after the pins.
        for (pin, stays) in
            [("tc/globals/cali_v4_ct", false), ("tcx/eth0_ingress", false), ("tc/globals/mine", true)]
        {
            assert_eq!(pins.join(pin).exists(), stays, "{pin}");
        }
        assert!(lab.host.shell("nft list ruleset").contains("cali"), "our own rules are there by then");
        assert!(lab.stop().is_ok());
    }
}

/// When the kernel's event queue overflows, everything is read again: also the neighbours of the tunnel device, for
/// which there are no events.
#[test]
fn neighbours_are_restored_after_lost_events() {
    // Longer than the flood below takes on a busy machine.
    let delay = Interval::from_secs(8);
    let mut lab = Lab::new();
    lab.start(Config { debug_simulate_dataplane_apply_delay: delay, ..config(Backend::Nftables) });
    let mut all = messages(Backend::Nftables);
    all.push(ToDataplane::InSync);
    lab.send(all);
    let neighbours = "ip neigh show dev vxlan.calico nud permanent";
    lab.wait_to_see(neighbours, |seen| seen.contains("10.66.2.0"));
    let mut flood = String::new();
    for number in 0..8000 {
        let (high, low) = (number / 250, number % 250 + 1);
        flood += &format!("addr add 10.200.{high}.{low}/32 dev lo\naddr del 10.200.{high}.{low}/32 dev lo\n");
    }
    let end = Instant::now() + Duration::from_secs(240);
    loop {
        lab.host.shell("ip neigh flush nud permanent dev vxlan.calico");
        assert!(!lab.host.shell(neighbours).contains("10.66.2.0"));
        // The loop is asleep, and receives nothing, until the delay is over.
        lab.send(vec![messages(Backend::Nftables).swap_remove(0)]);
        lab.host.feed("ip -batch -", &flood);
        let looked = Instant::now() + Duration::from_secs(24);
        while Instant::now() < looked {
            if lab.host.shell(neighbours).contains("10.66.2.0") {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(Instant::now() < end, "the neighbours of the tunnel device are gone for good");
    }
}
