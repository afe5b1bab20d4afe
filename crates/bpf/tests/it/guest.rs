//! The same on an older kernel, Debian 12's 6.1: one without tcx, and with a verifier of 2022.

use crate::{objects, random, traffic};
use bpf::interface::Version;
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
        traffic::walk("old", false).expect("connections");
    });
}
