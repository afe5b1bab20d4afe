//! `ipam show`, compared with what Calico printed for the same records.

use super::{cni, cni_in_etcd, embedded_with, golden, put};

#[test]
fn pools_blocks_and_addresses_are_shown_like_calico() {
    let (_etcd, etcd) = cni_in_etcd();
    for shell in [cni(), etcd] {
        golden("show-blocks.txt", &shell.run("ipam show --show-blocks").text());
        golden("show.txt", &shell.run("ipam show").text());
        golden("show-free-address.txt", &shell.run("ipam show --ip=172.16.0.0").text());
        golden("show-address.txt", &shell.run("ipam show --ip=172.16.165.136").text());
        assert_eq!(
            shell.run("ipam show --ip=::ffff:172.16.165.136").text(),
            shell.run("ipam show --ip 172.16.165.136").text()
        );
    }
}

#[test]
fn reservations_and_blocks_without_a_pool() {
    let shell = cni();
    put(
        &shell,
        &[
            (
                "/calico/resources/v3/projectcalico.org/ipreservations/r",
                r#"{"kind":"IPReservation","apiVersion":"projectcalico.org/v3","metadata":{"name":"r","uid":"3c1dcd0f-0b0b-4d43-8a7a-0b1f6b1f2f10","creationTimestamp":"2026-11-15T19:48:00Z"},"spec":{"reservedCIDRs":["172.16.128.0/17","172.16.165.136/30","172.16.165.137/32"]}}"#,
            ),
            (
                "/calico/ipam/v2/assignment/ipv6/block/fd00::ff00-127",
                r#"{"cidr":"fd00::ff00/127","affinity":null,"allocations":[0,0],"unallocated":[],"attributes":[{"secondary":{"pod":"p","namespace":"ns"}}],"sequenceNumber":5,"sequenceNumberForAllocation":{"0":4,"1":4},"deleted":false}"#,
            ),
        ],
    );
    golden("show-reserved.txt", &shell.run("ipam show --show-blocks").text());
}

#[test]
fn borrowed_addresses() {
    let shell = embedded_with(&[(
        "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-29",
        r#"{"cidr":"10.0.0.0/29","affinity":"host:n1","allocations":[0,1,2,3,4,null,null,null],"unallocated":[5,6,7],"attributes":[{"handle_id":"a","secondary":{"node":"n1"}},{"handle_id":"b","secondary":{"node":"n2","pod":"web","namespace":"shop"}},{"handle_id":"c","secondary":{"node":"n2","vmi-name":"vm","namespace":"shop"}},{"handle_id":"d","secondary":{"node":"n3","type":"vxlanTunnelAddress"}},{"handle_id":"e"}],"sequenceNumber":9,"sequenceNumberForAllocation":{},"deleted":false}"#,
    )]);
    golden("show-borrowed.txt", &shell.run("ipam show --show-borrowed").text());
    let nothing = cni();
    golden("show-borrowed-none.txt", &nothing.run("ipam show --show-borrowed").text());
}

#[test]
fn holders_without_records_and_resting_addresses() {
    let shell = embedded_with(&[
        (
            "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-30",
            r#"{"cidr":"10.0.0.0/30","affinity":"host:n1","allocations":[0,1,2,9],"unallocated":[],"attributes":[{"handle_id":"a\r\neth0","alternateOwnerAttrs":{"pod":"target"}},{},{"releasedAt":"2126-01-01T00:00:00Z"}],"sequenceNumber":9,"sequenceNumberForAllocation":{},"deleted":false}"#,
        ),
        ("/calico/ipam/v2/config", r#"{"auto_allocate_blocks":true,"ipCooldownSeconds":60}"#),
    ]);
    assert_eq!(
        shell.run("ipam show --ip=10.0.0.0").text(),
        "IP 10.0.0.0 is in use\nHandle ID: a\nNo Active Owner attributes defined\nAlternate Owner Attributes:\n  pod: target\n"
    );
    for address in ["10.0.0.1", "10.0.0.3"] {
        assert_eq!(
            shell.run(&format!("ipam show --ip={address}")).text(),
            format!("IP {address} is in use\nHandle ID: <none>\nNo Active Owner attributes defined\n")
        );
    }
    assert_eq!(shell.run("ipam show --ip=10.0.0.2").error(), "address 10.0.0.2 is in cooldown\n");
    assert_eq!(
        shell.run("ipam show --ip=10.0.0").error(),
        "Error executing command: invalid IP address specified: 10.0.0\n"
    );
}

#[test]
fn pools_are_shown_as_maps() {
    let mut shell = cni();
    golden("show-map.txt", &shell.run("ipam show --map").text());
    shell.colours = true;
    let coloured = shell.run("ipam show --map=text").text();
    assert!(coloured.contains("\u{1b}[48;5;"), "{coloured}");
    let page = shell.run("ipam show --map=html").text();
    assert!(page.starts_with("<!doctype html>") && page.contains("172.16.165.136/29"), "{page}");
    let file = shell.path("map.html").display().to_string();
    assert_eq!(shell.run(&format!("ipam show --html={file}")).text(), format!("Wrote {file}\n"));
    let written = std::fs::read_to_string(&file).expect("the page");
    assert!(written.contains("<th scope=\"row\">172.16.165.136/29</th><td>node-a</td>"), "{written}");
    assert!(shell.run("ipam show --html=/nonexistent/map.html").error().starts_with("cannot write the page"));
    assert!(shell.run("ipam show --map --show-blocks").error().contains("cannot be used with"));
}
