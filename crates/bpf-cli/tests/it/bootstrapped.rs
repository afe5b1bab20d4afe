//! The entries of the API's service.

use crate::given::Given;
use bpf_cli::bootstrap;

fn written(given: &mut Given, services: &str, endpoints: &str) -> Result<String, String> {
    bootstrap(services, endpoints, given).map_err(|error| error.to_string())?;
    Ok(given.prints("nat dump"))
}

#[test]
fn the_service_of_the_api_is_written_next_to_others() {
    let mut given = Given::default().with("cali_v4_nat_fe3", []).with("cali_v4_nat_be", []);
    given.prints("nat set front 10.96.0.99 6789 tcp 0 1");
    given.prints("nat set back 0 0 10.1.0.1 6789");
    let expected = "\
10.96.0.1 port 443 proto 6 id 1 count 2 local 0
\t1:0\t 172.16.0.1:6443
\t1:1\t 172.16.0.2:6443
10.96.0.99 port 6789 proto 6 id 0 count 1 local 0
\t0:0\t 10.1.0.1:6789
";
    for _ in 0..2 {
        let found = written(&mut given, "10.96.0.1:443", "172.16.0.1:6443, 172.16.0.2:6443");
        assert_eq!(found.as_deref(), Ok(expected), "the same again when it runs again");
    }
    // One backend fewer: the frontend no longer refers to the last one.
    let fewer = written(&mut given, "10.96.0.1:443", "172.16.0.3:6443").expect("entries");
    assert!(
        fewer.starts_with("10.96.0.1 port 443 proto 6 id 1 count 1 local 0\n\t1:0\t 172.16.0.3:6443\n10.96"),
        "{fewer}"
    );
}

#[test]
fn both_ip_versions_have_maps_of_their_own() {
    let mut given = Given::default();
    bootstrap("10.96.0.1:443,[fd96::1]:443", "172.16.0.1:6443,[fd16::1]:6443", &mut given).expect("entries");
    let made: Vec<_> =
        given.made.iter().map(|one| (one.name.as_str(), one.key, one.value, one.entries)).collect();
    assert_eq!(
        made,
        [
            ("cali_v4_nat_fe3", 16, 20, 65_536),
            ("cali_v4_nat_be", 8, 8, 262_144),
            ("cali_v6_nat_fe3", 40, 20, 65_536),
            ("cali_v6_nat_be", 8, 20, 262_144),
        ]
    );
    assert_eq!(
        given.prints("nat dump -6"),
        "fd96::1 port 443 proto 6 id 0 count 1 local 0\n\t0:0\t [fd16::1]:6443\n"
    );
}

#[test]
fn nothing_is_written_for_invalid_addresses() {
    for (services, endpoints, why) in [
        ("10.96.0.1", "172.16.0.1:6443", "KUBERNETES_SERVICE_IPS_PORTS: \"10.96.0.1\" is not an address"),
        ("10.96.0.1:443", "172.16.0.1:6443,", "KUBERNETES_APISERVER_ENDPOINTS: \"\" is not an address"),
        ("10.96.0.1:443,[fd96::1]:443", "172.16.0.1:6443", "has no IPv6 address, but the service has one"),
    ] {
        let mut given = Given::default();
        let error = bootstrap(services, endpoints, &mut given).expect_err(services).to_string();
        assert!(error.contains(why), "{error}");
        assert!(given.made.is_empty() && given.maps.is_empty());
    }
}
