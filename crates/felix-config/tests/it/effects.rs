//! Checks that parameters which work according to the table are read by code that acts on them, that parameters without
//! effect are not, and that parameters which only the eBPF dataplane reads are marked as such.
//!
//! This is found by searching the source: a field counts as read where Felix or the dataplane contain `config.field`,
//! or call a method of `derived` that contains `self.field`. Tests, comments and the table do not count.

use felix_config::kinds::NoSurroundings;
use felix_config::{Config, Effect, PARAMETERS, Source, Sources, resolve, without_bpf, without_effect};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Not written by users.
const ELSEWHERE: [&str; 4] = ["VXLANTunnelMACAddr", "VXLANTunnelMACAddrV6", "ClusterGUID", "CalicoVersion"];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder of crates").to_owned()
}

/// The code of a file without tests, comments and white space.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).expect("a source file");
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    lines.flat_map(|line| line.split_whitespace()).collect()
}

/// Collects the source files below a folder, without test files.
fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && name != "tests" {
            sources(&path, into);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            into.push(path);
        }
    }
}

/// Whether the code has this word after one of these prefixes, and not as the beginning of a longer word.
fn says(code: &str, beginnings: &[&str], word: &str, is_call: bool) -> bool {
    beginnings.iter().any(|beginning| {
        let wanted = format!("{beginning}{word}");
        code.match_indices(&wanted).any(|(place, _)| {
            let next = code[place + wanted.len()..].chars().next().unwrap_or(' ');
            let is_longer = next.is_alphanumeric() || next == '_';
            !is_longer && (next == '(') == is_call
        })
    })
}

const CONFIG: [&str; 2] = ["config.", "config()."];

/// The folder of the code that reads the eBPF dataplane's parameters.
const BPF: &str = "dataplane/src/runner/bpf";

/// The code that acts on parameters: that of the eBPF dataplane, and all other.
fn consumers() -> [String; 2] {
    let mut files = Vec::new();
    for consumer in ["felix", "dataplane"] {
        sources(&crates().join(consumer).join("src"), &mut files);
    }
    let (bpf, others): (Vec<PathBuf>, Vec<PathBuf>) = files.into_iter().partition(|file| {
        file.starts_with(crates().join(BPF)) || file == &crates().join(format!("{BPF}.rs"))
    });
    [bpf, others].map(|files| files.iter().map(|file| code(file)).collect::<Vec<_>>().join("\n"))
}

/// The methods of `derived` that consumers call, directly or through each other: name and body.
fn derived_in_use(consumers: &str) -> BTreeMap<String, String> {
    let text = code(&crates().join("felix-config/src/derived.rs"));
    let methods: BTreeMap<String, String> = text
        .split("pubfn")
        .skip(1)
        .filter_map(|method| Some((method.split_once('(')?.0.to_owned(), method.to_owned())))
        .collect();
    let mut used: BTreeSet<&String> =
        methods.keys().filter(|name| says(consumers, &CONFIG, name, true)).collect();
    loop {
        let called: Vec<&String> = methods
            .keys()
            .filter(|name| !used.contains(name))
            .filter(|name| used.iter().any(|user| says(&methods[*user], &["self."], name, true)))
            .collect();
        if called.is_empty() {
            break;
        }
        used.extend(called);
    }
    methods
        .iter()
        .filter(|(name, _)| used.contains(name))
        .map(|(name, body)| (name.clone(), body.clone()))
        .collect()
}

#[test]
fn effects_in_the_table_match_the_code() {
    let readers = consumers().map(|code| (derived_in_use(&code), code));
    assert!(readers[1].0.contains_key("route_tables"), "{:?}", readers[1].0.keys());
    let mut wrong = Vec::new();
    for parameter in PARAMETERS {
        let [by_bpf, by_others] = readers.each_ref().map(|(derived, code)| {
            says(code, &CONFIG, parameter.field, false)
                || derived.values().any(|body| says(body, &["self."], parameter.field, false))
        });
        let is_right = match parameter.effect {
            Effect::Works => by_others,
            // Other code may prepare what the eBPF dataplane needs.
            Effect::Bpf => by_bpf || by_others,
            Effect::Idle | Effect::Elsewhere => !by_bpf && !by_others,
        };
        if !is_right {
            let name = parameter.name;
            wrong.push(format!(
                "{name}: {:?}; read by eBPF: {by_bpf}, by others: {by_others}",
                parameter.effect
            ));
        }
        let is_elsewhere = parameter.effect == Effect::Elsewhere;
        assert_eq!(is_elsewhere, ELSEWHERE.contains(&parameter.name), "{}", parameter.name);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn with(texts: &[(&str, &str)]) -> Config {
    let mut sources = Sources::default();
    let texts = texts.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    sources.set(Source::EnvironmentVariable, texts);
    resolve(&sources, &NoSurroundings).expect("a configuration").config
}

#[test]
fn parameters_without_effect_are_named() {
    assert_eq!(without_effect(&with(&[])), Vec::<&str>::new());
    let defaults =
        [("AWSSrcDstCheck", "DoNothing"), ("SidecarAccelerationEnabled", "false"), ("BPFEnabled", "no")];
    assert_eq!(without_effect(&with(&defaults)), Vec::<&str>::new(), "defaults, said aloud");
    let set = with(&[
        ("awssrcdstcheck", "Disable"),
        ("SidecarAccelerationEnabled", "true"),
        ("DebugPort", "6060"),
        ("UsageReportingEnabled", "false"),
        ("LogPrefix", "mine"),
        ("ClusterGUID", "abc"),
    ]);
    assert_eq!(without_effect(&set), ["AWSSrcDstCheck", "SidecarAccelerationEnabled", "DebugPort"]);
}

#[test]
fn ebpf_parameters_are_named_while_ebpf_is_off() {
    let set = [
        ("BPFExtToServiceConnmark", "0x80"),
        ("BPFLogLevel", "Debug"),
        ("XDPEnabled", "false"),
        ("GenericXDPEnabled", "true"),
    ];
    let names = ["BPFLogLevel", "BPFExtToServiceConnmark", "GenericXDPEnabled"];
    assert_eq!(without_bpf(&with(&set)), names);
    assert_eq!(without_effect(&with(&set)), Vec::<&str>::new());
    let mut on = set.to_vec();
    on.push(("BPFEnabled", "true"));
    assert_eq!(without_bpf(&with(&on)), Vec::<&str>::new());
    let defaults = [("BPFLogLevel", "off"), ("XDPEnabled", "true"), ("BPFMapSizeRoute", "262144")];
    assert_eq!(without_bpf(&with(&defaults)), Vec::<&str>::new(), "defaults, said aloud");
}
