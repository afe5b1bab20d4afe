//! Tables of variables and the settings that they result in.

use super::*;
use daemon::Variables;
use daemon::log::LevelFilter;

fn read(variables: &[(&str, &str)]) -> Settings {
    Settings::read(&Variables::new(variables.iter().copied())).expect("usable variables")
}

#[test]
fn unset_variables_mean_the_defaults() {
    let settings = read(&[]);
    assert_eq!(settings.nodename_file, PathBuf::from("/var/lib/calico/nodename"));
    assert_eq!(settings.shutdown_file, PathBuf::from("/var/lib/calico/shutdownTS"));
    assert_eq!(settings.backend(), Backend::Bird);
    assert_eq!(settings.ipv4, AddressSetting::Unset);
    assert_eq!(settings.ipv4_method, "first-found");
    assert_eq!((settings.felix_health_host.as_str(), settings.felix_health_port), ("localhost", 9099));
    assert_eq!(settings.poll_interval, Duration::from_secs(60));
    assert_eq!(settings.cni_service_account, "calico-cni-plugin");
    assert_eq!(settings.node_user_id, 1000);
    assert!(settings.manage_cni && settings.ipv6_support && settings.ipv4_pool_nat_outgoing);
    assert!(!settings.ipv6_pool_nat_outgoing && !settings.wait_for_datastore && !settings.no_default_pools);
}

#[test]
fn the_variables_of_a_gke_node_are_read() {
    let settings = read(&[
        ("CALICO_MANAGE_CNI", "true"),
        ("CALICO_DISABLE_FILE_LOGGING", "true"),
        ("CALICO_NETWORKING_BACKEND", "none"),
        ("FELIX_HEALTHENABLED", "true"),
        ("FELIX_IPV6SUPPORT", "false"),
        ("IP", "autodetect"),
        ("IP_AUTODETECTION_METHOD", "kubernetes-internal-ip"),
        ("NO_DEFAULT_POOLS", "true"),
        ("NODENAME", "gke-a"),
        ("WAIT_FOR_DATASTORE", "true"),
        // Ignored without networking.
        ("AS", "nonsense"),
    ]);
    assert_eq!(settings.backend(), Backend::None);
    assert_eq!(settings.ipv4, AddressSetting::Autodetect);
    assert_eq!(settings.as_number, None);
    assert!(settings.no_default_pools && settings.wait_for_datastore && settings.felix_health);
    assert!(!settings.ipv6_support);
}

#[test]
fn switches_take_calicos_words() {
    for (value, expected) in [
        ("false", false),
        ("FALSE", false),
        ("0", false),
        ("no", false),
        ("n", false),
        ("f", false),
        ("true", true),
        ("anything", true),
    ] {
        let settings =
            read(&[("CALICO_IPV4POOL_NAT_OUTGOING", value), ("CALICO_IPV6POOL_NAT_OUTGOING", value)]);
        assert_eq!(settings.ipv4_pool_nat_outgoing, expected, "{value}");
        assert_eq!(settings.ipv6_pool_nat_outgoing, expected, "{value}");
    }
    // Other variables require exactly one word.
    assert!(!read(&[("WAIT_FOR_DATASTORE", "yes")]).wait_for_datastore);
    assert!(read(&[("NO_DEFAULT_POOLS", "True")]).no_default_pools);
    assert!(!read(&[("CALICO_MANAGE_CNI", "false")]).manage_cni);
}

#[test]
fn addresses_and_backends_are_parsed() {
    for (value, expected) in [
        ("autodetect", AddressSetting::Autodetect),
        ("none", AddressSetting::Leave),
        ("10.0.0.1/24", AddressSetting::Given("10.0.0.1/24".into())),
    ] {
        assert_eq!(read(&[("IP", value)]).ipv4, expected);
        assert_eq!(read(&[("IP6", value)]).ipv6, expected);
    }
    for (variables, expected) in [
        (vec![("CALICO_NETWORKING_BACKEND", "vxlan")], Backend::Vxlan),
        (vec![("CALICO_NETWORKING_BACKEND", "gobgp")], Backend::Bird),
        (vec![("CALICO_NETWORKING", "false"), ("CALICO_NETWORKING_BACKEND", "bird")], Backend::None),
        (vec![("CALICO_NETWORKING", "true"), ("CALICO_NETWORKING_BACKEND", "none")], Backend::Bird),
    ] {
        assert_eq!(read(&variables).backend(), expected, "{variables:?}");
    }
}

#[test]
fn this_program_speaks_bgp_unless_bird_is_selected() {
    for (value, expected) in [
        (vec![], BgpSpeaker::Native),
        (vec![("TORTIE_BGP_SPEAKER", "native")], BgpSpeaker::Native),
        (vec![("TORTIE_BGP_SPEAKER", "bird")], BgpSpeaker::Bird),
        (vec![("TORTIE_BGP_SPEAKER", "frr")], BgpSpeaker::Native),
    ] {
        assert_eq!(read(&value).bgp_speaker, expected, "{value:?}");
    }
}

#[test]
fn all_mistakes_are_reported_together() {
    let variables = Variables::new([("AS", "1.2.3"), ("FELIX_HEALTHPORT", "70000"), ("NODE_USER_ID", "me")]);
    let mistakes = Settings::read(&variables).expect_err("mistakes");
    let text = mistakes.to_string();
    assert_eq!(mistakes.0.len(), 3, "{text}");
    for name in ["AS=1.2.3", "FELIX_HEALTHPORT=70000", "NODE_USER_ID=me"] {
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn an_invalid_interval_or_level_does_not_keep_a_node_down() {
    let settings = read(&[("AUTODETECT_POLL_INTERVAL", "often"), ("CALICO_STARTUP_LOGLEVEL", "loud")]);
    assert_eq!(settings.poll_interval, Duration::from_secs(60));
    assert_eq!(settings.log_level, LevelFilter::INFO);
    assert_eq!(read(&[("AUTODETECT_POLL_INTERVAL", "1m30s")]).poll_interval, Duration::from_secs(90));
    assert_eq!(read(&[("CALICO_STARTUP_LOGLEVEL", "WARNING")]).log_level, LevelFilter::WARN);
}

#[test]
fn the_table_is_sorted_and_renders_as_a_page() {
    let names: Vec<&str> = VARIABLES.iter().map(|variable| variable.name).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(names, sorted);
    assert!(
        settings::page(VARIABLES)
            .contains("| `FELIX_HEALTHPORT` | `9099` | The port on which Felix serves its health. |")
    );
}
