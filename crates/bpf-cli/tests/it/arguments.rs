//! Invalid arguments are reported.

use crate::given::Given;

#[test]
fn invalid_arguments_are_refused() {
    let mut given = Given::default().with("cali_v4_nat_fe3", []).with("cali_v4_nat_be", []);
    for (line, part) in [
        ("nat dump 10.0.0.1", "not 1 words"),
        ("nat dump 10.0.0.1 80 bogus", "unknown protocol \"bogus\""),
        ("nat dump 10.0.0.1 99999 tcp", "\"99999\" is not a number in its range"),
        ("nat dump not-an-ip 80 tcp", "is not an IPv4 address"),
        ("nat dump fd00::1 80 tcp", "is not an IPv4 address"),
        ("nat dump 9.9.9.9 80 tcp", "9.9.9.9 port 80 proto tcp is not in cali_v4_nat_fe3"),
        ("conntrack dump", "cali_v4_ct4 does not exist"),
        ("policy dump cali1 sideways", "invalid value"),
        ("nonsense", "unrecognized subcommand"),
    ] {
        let error = given.run(line).expect_err(line);
        assert!(error.contains(part), "{line}: {error}");
    }
    assert_eq!(given.prints("version"), "Version:            v1\n");
    assert_eq!(given.prints("--log-level debug nat dump"), "");
}

#[test]
fn a_map_of_another_layout_is_not_read() {
    let mut given = Given::default().with("cali_v4_routes", [(vec![0; 8], vec![0; 4])]);
    assert_eq!(
        given.run("routes dump"),
        Err("cali_v4_routes has keys or values of 4 bytes, not 8".to_owned())
    );
}
