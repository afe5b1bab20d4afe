//! Priority of sources, `none`, mistakes and unknown names.

use super::*;
use crate::kinds::NoSurroundings;
use api::{IptablesBackend, Severity};
use proptest::prelude::*;

/// Builds sources from rows of source, name and text.
fn sources(rows: &[(Source, &str, &str)]) -> Sources {
    let mut sources = Sources::default();
    for source in Source::STRONGEST_FIRST {
        let of_source = rows.iter().filter(|(of, _, _)| *of == source);
        sources.set(source, of_source.map(|(_, name, text)| ((*name).into(), (*text).into())).collect());
    }
    sources
}

fn resolved(rows: &[(Source, &str, &str)]) -> Effective {
    resolve(&sources(rows), &NoSurroundings).unwrap()
}

use Source::{
    ConfigFile as File, DatastoreGlobal as Global, DatastorePerHost as Host,
    DatastorePerSelector as Selected, EnvironmentVariable as Env,
};

#[test]
fn the_strongest_source_wins() {
    let rows = [
        (Global, "LogPrefix", "global"),
        (Selected, "LogPrefix", "selected"),
        (Host, "LogPrefix", "host"),
        (File, "logPREFIX", "file"),
        (Env, "logprefix", "env"),
    ];
    assert_eq!(resolved(&[]).config.log_prefix, "calico-packet");
    for count in 1..=rows.len() {
        let effective = resolved(&rows[..count]);
        assert_eq!(effective.config.log_prefix, rows[count - 1].2);
        assert_eq!(
            effective.texts.into_iter().collect::<Vec<_>>(),
            [("LogPrefix".to_owned(), rows[count - 1].2.to_owned())]
        );
    }
}

#[test]
fn none_is_a_value_and_an_empty_text_is_not() {
    let effective = resolved(&[
        (Global, "FailsafeInboundHostPorts", "none"),
        (Global, "LogSeverityFile", "NONE"),
        (Global, "MTUIfacePattern", "None"),
        (Global, "IpInIpEnabled", "true"),
        (Host, "IpInIpEnabled", "none"),
        (Global, "VXLANPort", "none"),
        (Env, "iptablesbackend", ""),
        (Global, "IptablesBackend", "nft"),
    ]);
    let config = &effective.config;
    assert!(config.failsafe_inbound_host_ports.is_empty());
    assert_eq!(config.log_severity_file, None);
    assert_eq!((config.mtu_iface_pattern.as_ref(), config.ipip_enabled, config.vxlan_port), (None, None, 0));
    assert_eq!(config.iptables_backend, Some(IptablesBackend::NFT), "an empty text is not a value");
    assert_eq!(effective.texts["FailsafeInboundHostPorts"], "none");
    assert_eq!(effective.notices, []);
}

#[test]
fn mandatory_parameters_refuse_none_even_where_they_are_overridden() {
    let rows = [(Global, "InterfacePrefix", "none"), (Env, "InterfacePrefix", "tap")];
    let error = resolve(&sources(&rows), &NoSurroundings).unwrap_err();
    assert_eq!(error, ConfigError::NoneRefused { parameter: "InterfacePrefix", source_of_text: Global });
    // This does not only concern fatal ones.
    let error = resolve(&sources(&[(File, "MaxIpsetSize", "none")]), &NoSurroundings).unwrap_err();
    assert_eq!(error.to_string(), "MaxIpsetSize: non-zero field cannot be set to none (from config file)");
}

#[test]
fn a_mistake_is_replaced_by_the_default_and_still_overrides() {
    let effective = resolved(&[
        (Global, "LogSeverityScreen", "DEBUG"),
        (Env, "logseverityscreen", "loud"),
        (Global, "HealthPort", "70000"),
        (Env, "healthport", "9000"),
    ]);
    assert_eq!(effective.config.log_severity_screen, Some(Severity::Info));
    assert_eq!(effective.texts["LogSeverityScreen"], "loud");
    assert_eq!(effective.config.health_port, 9000, "an overridden mistake changes nothing");
    let told: Vec<String> = effective.notices.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "Replacing invalid value with default: failed to parse config parameter LogSeverityScreen; value \
             \"loud\": unknown option (from environment variable)",
            "Replacing invalid value with default: failed to parse config parameter HealthPort; value \"70000\": \
             value must be at most 65535 (from datastore (global))",
        ]
    );
}

#[test]
fn fatal_mistakes_are_errors_even_where_they_are_overridden() {
    let rows =
        [(Global, "DefaultEndpointToHostAction", "Allow"), (Env, "DefaultEndpointToHostAction", "accept")];
    let error = resolve(&sources(&rows), &NoSurroundings).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to parse config parameter DefaultEndpointToHostAction; value \"Allow\": unknown option (from \
         datastore (global))"
    );
    let effective = resolved(&rows[1..]);
    assert_eq!(effective.config.default_endpoint_to_host_action, Some(api::EndpointToHost::Accept));
}

#[test]
fn local_parameters_are_not_taken_from_the_datastore() {
    let effective = resolved(&[
        (Global, "EtcdAddr", "evil:1"),
        (Host, "FelixHostname", "someone-else"),
        (File, "FelixHostname", "me"),
    ]);
    assert_eq!(effective.config.etcd_addr, "127.0.0.1:2379");
    assert_eq!(effective.config.felix_hostname, "me");
    assert!(!effective.texts.contains_key("EtcdAddr"));
    let told: Vec<String> = effective.notices.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "Ignoring local-only configuration FelixHostname=\"someone-else\" from datastore (per-host)",
            "Ignoring local-only configuration EtcdAddr=\"evil:1\" from datastore (global)",
        ]
    );
}

#[test]
fn unknown_names_are_kept_as_texts() {
    let effective =
        resolved(&[(Global, "FutureParameter", "a"), (Env, "futureparameter", "b"), (Global, "Other", "c")]);
    let texts: Vec<(&str, &str)> =
        effective.texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    assert_eq!(texts, [("Other", "c"), ("futureparameter", "b")]);
    assert_eq!(effective.notices.len(), 3);
    assert_eq!(effective.config, resolved(&[]).config);
}

proptest! {
    /// Any text in any source has a result, which does not depend on weaker sources if a stronger one has a valid value
    /// for the parameter.
    #[test]
    fn any_text_has_a_result(
        index in 0..PARAMETERS.len(),
        text in prop_oneof![any::<String>(), "[ -~]{0,12}|[0-9]{1,6}|tcp:[0-9]{1,5}|[0-9.]{7,12}/[0-9]{1,2}"],
        weaker in prop_oneof![any::<String>(), "[ -~]{0,12}"],
    ) {
        let name = PARAMETERS[index].name;
        let alone = resolve(&sources(&[(Env, name, &text)]), &NoSurroundings);
        let both = resolve(&sources(&[(Env, name, &text), (Global, name, &weaker)]), &NoSurroundings);
        if let (Ok(alone), Ok(both)) = (&alone, &both)
            && !text.is_empty()
        {
            prop_assert_eq!(&alone.config, &both.config);
        }
    }
}
