//! The same tests on other kernels, in guests: the oldest supported for eBPF (5.10), one without tcx (6.1), and one
//! with it (6.12). Each has its own verifier, so programs are loaded, walked through and used by real connections on
//! all of them.

use crate::{fragments, objects, random, services, traffic, xdp};
use bpf::XdpMode;
use bpf::interface::Version;
use bpf::layout::{V4, V6};
use testkit::guest::Guest;

/// Runs only some of the combinations, as the processor is emulated.
fn check(test: &str, series: &'static str) {
    Guest::new(&format!("guest::{test}")).kernel(series).program("ip").run(|| {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
        assert!(release.starts_with(&format!("{series}.")), "{release}");
        bpf::probe::raise_memory_limit().expect("room for maps");
        for version in [Version::V4, Version::V6] {
            objects::load(version, 4).expect("programs");
            random::agree(version, 4).expect("the same verdicts");
        }
        objects::load_sockets().expect("programs of sockets");
        objects::load_at_driver().expect("programs at drivers");
        services::local::<V4>().expect("a service of IPv4");
        services::local::<V6>().expect("a service of IPv6");
        traffic::walk("old", false).expect("connections");
        traffic::forgotten("frg").expect("the straight way");
        fragments::wire::<V4>("fr4").expect("fragments of IPv4");
        fragments::wire::<V6>("fr6").expect("fragments of IPv6");
        for (name, mode) in [("xdn", XdpMode::Native), ("xdg", XdpMode::Generic)] {
            xdp::wire(name, mode).expect("packets at drivers");
        }
    });
}

#[test]
fn linux_5_10_takes_the_programs() {
    check("linux_5_10_takes_the_programs", "5.10");
}

#[test]
fn linux_6_1_takes_the_programs() {
    check("linux_6_1_takes_the_programs", "6.1");
}

#[test]
fn linux_6_12_takes_the_programs() {
    check("linux_6_12_takes_the_programs", "6.12");
}

/// Workloads' devices may be of this kind (`device_type: netkit`), which not every kernel supports.
#[test]
fn netkit_devices_meet_programs() {
    Guest::new("guest::netkit_devices_meet_programs").kernel("6.12").program("ip").run(|| {
        bpf::probe::raise_memory_limit().expect("room for maps");
        traffic::walk_netkit("nk").expect("workloads with netkit devices");
    });
}
