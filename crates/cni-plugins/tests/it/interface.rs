//! The effects of the other plugins on a container's interfaces.

use crate::bed::Bed;
use anyhow::Result;
use cni_plugins::ReferencePlugin::{Bandwidth, Loopback, Tuning};
use serde_json::{Value, json};

#[test]
fn loopback_goes_up_and_down() -> Result<()> {
    let bed = Bed::new()?;
    bed.container.batch("link set lo down")?;
    assert!(bed.ours(Loopback, "CHECK", json!({})).is_err());
    let mut result = bed.ours(Loopback, "ADD", json!({"prevResult": null}))?;
    let mut theirs = bed.theirs(Loopback, "ADD", json!({"prevResult": null}))?;
    for either in [&mut result, &mut theirs] {
        assert_eq!(either["ips"][0]["address"], "127.0.0.1/8");
        either["interfaces"][0].as_object_mut().map(|interface| interface.remove("sandbox"));
        // Empty, and only printed by some builds.
        either.as_object_mut().map(|result| result.remove("dns"));
    }
    assert_eq!(result, theirs);
    bed.ours(Loopback, "CHECK", json!({}))?;
    bed.ours(Loopback, "DEL", json!({}))?;
    assert!(bed.ours(Loopback, "CHECK", json!({})).is_err());
    // As a later plugin of a chain it passes the result through.
    assert_eq!(bed.ours(Loopback, "ADD", json!({}))?["ips"], bed.previous()["ips"]);
    bed.container.batch("address add 10.9.9.9/32 dev lo")?;
    let error = bed.ours(Loopback, "ADD", json!({})).unwrap_err();
    assert_eq!(error.to_string(), "loopback interface found with non-loopback address \"10.9.9.9\"");
    Ok(())
}

fn interface(bed: &Bed) -> Result<Value> {
    let shown: Value = serde_json::from_str(&bed.container.shell("ip -j -d link show eth0")?)?;
    let link = &shown[0];
    let has = |flag: &str| link["flags"].as_array().is_some_and(|flags| flags.iter().any(|one| one == flag));
    Ok(json!({
        "mac": link["address"], "mtu": link["mtu"], "queue": link["txqlen"],
        "promisc": has("PROMISC"), "allmulti": has("ALLMULTI"),
    }))
}

#[test]
fn an_interface_is_tuned_and_restored() -> Result<()> {
    let bed = Bed::new()?;
    let folder = tempfile::tempdir()?;
    let conf = json!({
        "dataDir": folder.path(), "mtu": 1400, "promisc": true, "allmulti": true, "txQLen": 77,
        "mac": "02:00:00:00:00:01", "runtimeConfig": {"mac": "02:00:00:00:00:02"},
        "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1", "net/core/somaxconn": "500"},
    });
    let before = interface(&bed)?;
    let result = bed.ours(Tuning, "ADD", conf.clone())?;
    assert_eq!(result["interfaces"][1]["mac"], "02:00:00:00:00:02");
    assert_eq!(
        interface(&bed)?,
        json!({"mac": "02:00:00:00:00:02", "mtu": 1400, "queue": 77, "promisc": true, "allmulti": true})
    );
    let sysctls =
        bed.container.shell("cat /proc/sys/net/ipv4/conf/eth0/arp_filter /proc/sys/net/core/somaxconn")?;
    assert_eq!(sysctls, "1\n500\n");
    bed.ours(Tuning, "CHECK", conf.clone())?;
    bed.container.set("net/core/somaxconn", "501")?;
    let error = bed.ours(Tuning, "CHECK", conf.clone()).unwrap_err();
    let expected =
        "Error: Tuning configured value of /proc/sys/net/core/somaxconn is 500, current value is 501";
    assert_eq!(error.to_string(), expected);
    // A second ADD must not forget the settings before the first.
    bed.ours(Tuning, "ADD", conf.clone())?;
    bed.ours(Tuning, "DEL", conf.clone())?;
    assert_eq!(interface(&bed)?, before);
    bed.ours(Tuning, "DEL", conf)?;
    let error = bed.ours(Tuning, "ADD", json!({"sysctl": {"kernel.panic": "1"}})).unwrap_err();
    assert_eq!(error.to_string(), "invalid net sysctl key: \"kernel.panic\"");
    Ok(())
}

#[test]
fn a_file_of_the_reference_plugin_is_read() -> Result<()> {
    let bed = Bed::new()?;
    let folder = tempfile::tempdir()?;
    let conf = json!({"dataDir": folder.path(), "mtu": 1400, "mac": "02:00:00:00:00:01"});
    let before = interface(&bed)?;
    bed.theirs(Tuning, "ADD", conf.clone())?;
    assert_eq!(interface(&bed)?["mtu"], 1400);
    bed.ours(Tuning, "DEL", conf)?;
    assert_eq!(interface(&bed)?, before);
    Ok(())
}

/// Whether the error is this kernel's message for an unsupported kind of device.
fn has_no_devices(error: &anyhow::Error) -> bool {
    let text = error.to_string();
    text.contains("adding link") && (text.contains("not supported") || text.contains("Unknown device type"))
}

#[test]
fn both_directions_are_limited() -> Result<()> {
    let bed = Bed::new()?;
    let conf = json!({"ingressRate": 8_000_000, "ingressBurst": 80_000, "egressRate": 16_000_000, "egressBurst": 160_000});
    let result = match bed.ours(Bandwidth, "ADD", conf.clone()) {
        Err(error) if has_no_devices(&error) => {
            eprintln!("limits of what a container sends were left out: this kernel has no ifb devices");
            let receives = json!({"ingressRate": 8_000_000, "ingressBurst": 80_000});
            bed.ours(Bandwidth, "ADD", receives.clone())?;
            bed.theirs(Bandwidth, "CHECK", receives.clone())?;
            return bed.ours(Bandwidth, "CHECK", receives).map(drop);
        }
        outcome => outcome?,
    };
    let device = result["interfaces"][2]["name"].as_str().unwrap_or_default().to_owned();
    assert!(device.starts_with("bwp") && device.len() == 15, "{result}");
    let towards = bed.host.shell("tc qdisc show dev cali0")?;
    assert!(towards.contains("tbf") && towards.contains("8Mbit") && towards.contains("ingress"), "{towards}");
    let back = bed.host.shell(&format!("tc qdisc show dev {device}"))?;
    assert!(back.contains("tbf") && back.contains("16Mbit"), "{back}");
    bed.ours(Bandwidth, "CHECK", conf.clone())?;
    bed.theirs(Bandwidth, "CHECK", conf.clone())?;
    bed.ours(Bandwidth, "ADD", conf.clone())?;
    bed.theirs(Bandwidth, "DEL", conf.clone())?;
    assert!(bed.host.shell(&format!("ip link show {device}")).is_err());
    bed.ours(Bandwidth, "DEL", conf)?;
    let error = bed.ours(Bandwidth, "ADD", json!({"ingressRate": 1})).unwrap_err();
    assert_eq!(error.to_string(), "if rate is set, burst must also be set");
    Ok(())
}
