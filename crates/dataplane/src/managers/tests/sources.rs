//! `BPFOverlayHostSourceIP: HostAddress`: tunnels by which the host sends with its own address.

use super::{
    Backend, News, Route, RouteFilter, RouteTypes, Scene, VxlanManager, VxlanSettings, VxlanTunnelEndpoint,
    route,
};
use netlink::{Family, Kernel as _};

#[test]
fn a_tunnel_without_an_address_is_used_by_that_of_the_host() {
    let mut scene = Scene::new(Backend::Iptables);
    let settings = VxlanSettings {
        host: "n1".into(),
        vni: 4096,
        port: 4789,
        mtu: 1450,
        protocol: 80,
        sends_as_host: true,
        external: Vec::new(),
    };
    scene.interface("vxlan.calico", &[]);
    scene.interface("eth0", &["10.65.0.1/32", "10.65.0.9/32"]);
    let mut vxlan = VxlanManager::new(settings, scene.of_v4());
    let end = |number: u8, host: u8| VxlanTunnelEndpoint {
        mac: "66:00:00:00:00:01".to_owned(),
        ipv4: Some([10, 66, number, 0].into()),
        parent_device_ipv4: Some([10, 65, 0, host].into()),
        ..VxlanTunnelEndpoint::default()
    };
    let blocks = [
        route("10.66.2.0/26", "n2", RouteTypes::REMOTE_WORKLOAD),
        Route { same_subnet: true, ..route("10.66.3.0/26", "n2", RouteTypes::REMOTE_WORKLOAD) },
    ];
    for block in &blocks {
        scene.hear(&mut vxlan, &News::Route(&block.dst, Some(block)));
    }
    scene.hear(&mut vxlan, &News::Vtep(&"n2".into(), Some(&end(2, 2))));
    for own in [1, 9] {
        scene.hear(&mut vxlan, &News::Vtep(&"n1".into(), Some(&end(1, own))));
        let device = vxlan.wanted_device(&scene.world.interfaces).expect("known");
        assert_eq!(device.address, None);
        scene.write(&mut vxlan);
        scene.routes();
        let found = scene.kernel.routes(&RouteFilter::all(Family::V4)).expect("routes");
        let sources: Vec<_> = found.iter().map(|route| route.source).collect();
        assert_eq!(sources, [Some([10, 65, 0, own].into()), None], "{found:?}");
    }
}
