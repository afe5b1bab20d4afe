//! Limits of bandwidth on a real kernel, as `tc` shows them.

use crate::host::Host;
use netlink::tc::{Client, ticks_in_microsecond};
use netlink::{Handle, Kernel as _};
use routing::bandwidth::BandwidthDriver;
use routing::limits::{Bandwidth, Limit, Limits, device_name};
use std::collections::BTreeSet;

#[test]
fn buckets_and_redirections_are_added_and_removed() {
    let host = Host::new();
    host.shell("ip link add cali1 type veth peer name pod1; ip link set pod1 up; ip link set cali1 up");
    let (mut kernel, mut driver) = host.run(|| {
        let client = Client::open().expect("traffic control");
        (Handle::open().expect("netlink"), BandwidthDriver::new(client, ticks_in_microsecond()))
    });
    let mut bandwidth = Bandwidth::default();
    let mut apply = |bandwidth: &mut Bandwidth, is_new: bool| {
        if is_new {
            let client = host.run(|| Client::open().expect("traffic control"));
            driver = BandwidthDriver::new(client, ticks_in_microsecond());
        }
        let failures = driver.apply(&mut kernel, bandwidth, || BTreeSet::from(["cali1".into()]));
        assert_eq!(failures, Vec::<String>::new());
    };
    let limit = |rate| Some(Limit { rate, burst: 80_000, ..Limit::default() });
    let peak = limit(3_000_000).map(|limit| Limit { peak_rate: 5_000_000, minimum_burst: 2000, ..limit });
    let device = device_name("cali1");
    bandwidth.set(&"cali1".into(), Limits { ingress: limit(1_000_000), egress: peak });
    apply(&mut bandwidth, false);
    let shown = host.shell("tc qdisc show");
    assert!(shown.contains("qdisc tbf 1: dev cali1 root") && shown.contains("rate 1Mbit"), "{shown}");
    assert!(shown.contains(&format!("qdisc tbf 1: dev {device} root")), "{shown}");
    assert!(shown.contains("rate 3Mbit") && shown.contains("peakrate 5Mbit"), "{shown}");
    assert!(shown.contains("qdisc ingress ffff: dev cali1"), "{shown}");
    let filters = host.shell("tc filter show dev cali1 ingress");
    assert!(filters.contains(&format!("Egress Redirect to device {device}")), "{filters}");
    // The next Felix reads everything and finds it in order, although the kernel does not report the minimum burst.
    apply(&mut bandwidth, true);
    assert_eq!(host.shell("tc filter show dev cali1 ingress"), filters);
    bandwidth.set(&"cali1".into(), Limits { ingress: limit(2_000_000), egress: None });
    apply(&mut bandwidth, false);
    let shown = host.shell("tc qdisc show");
    assert!(
        shown.contains("rate 2Mbit") && !shown.contains("ingress") && !shown.contains("bwcali"),
        "{shown}"
    );
    bandwidth.set(&"cali1".into(), Limits::default());
    apply(&mut bandwidth, false);
    assert!(!host.shell("tc qdisc show").contains("tbf"));
    let mut kernel = host.run(|| Handle::open().expect("netlink"));
    assert!(kernel.link(&device.as_str().into()).expect("links").is_none());
}
