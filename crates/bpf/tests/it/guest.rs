//! The same on an older kernel, Debian 12's 6.1: one without tcx, and with a verifier of 2022.

use crate::{objects, random, services, traffic};
use bpf::interface::Version;
use bpf::layout::{V4, V6};
use testkit::guest::Guest;

#[test]
fn an_older_kernel_takes_the_programs() {
    let guest = Guest::new("guest::an_older_kernel_takes_the_programs").program("ip");
    guest.run(|| {
        for version in [Version::V4, Version::V6] {
            // An emulated processor has time for some.
            objects::load(version, 4).expect("programs");
            random::agree(version, 4).expect("the same verdicts");
        }
        objects::load_sockets().expect("programs of sockets");
        services::local::<V4>().expect("a service of IPv4");
        services::local::<V6>().expect("a service of IPv6");
        traffic::walk("old", false).expect("connections");
    });
}
