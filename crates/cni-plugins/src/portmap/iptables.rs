//! Port mappings using the programs `iptables-save` and `iptables-restore`, in the chains of the reference plugin.
//!
//! The changes are a pure function of the current rules ([`additions`], [`removals`]); they are passed to the kernel as
//! one input of `iptables-restore`, so that a table is never incomplete.

use super::config::{Protocol, Settings};
use crate::frame::failure;
use crate::names::hashed;
use cni_protocol::error::Result;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::net::IpAddr;
use std::process::{Command, Stdio};

const DNAT: &str = "CNI-HOSTPORT-DNAT";
const SET_MARK: &str = "CNI-HOSTPORT-SETMARK";
const MASQUERADE: &str = "CNI-HOSTPORT-MASQ";
const CHAIN_LENGTH: usize = 28;
const COMMENT_LENGTH: usize = 255;
/// The maximum number of ports in one rule.
const PORTS_IN_RULE: usize = 15;

pub(super) fn add(settings: &Settings, address: IpAddr) -> Result<()> {
    let v4 = address.is_ipv4();
    let Some(saved) = save(v4)? else { return Err(missing(v4)) };
    restore(v4, &additions(&saved, settings, address))
}

/// Removes the container's chains. If iptables is not `expected`, a host without it has no chains.
pub(super) fn delete(settings: &Settings, expected: bool) -> Result<()> {
    let chain = chain_name(settings);
    let mut usable = 0;
    for v4 in [true, false] {
        let Some(saved) = save(v4).or_else(|error| if expected { Err(error) } else { Ok(None) })? else {
            continue;
        };
        usable += 1;
        let script = removals(&saved, &chain);
        if !script.is_empty() {
            restore(v4, &script)?;
        }
    }
    if expected && usable == 0 { Err(missing(true)) } else { Ok(()) }
}

pub(super) fn check(settings: &Settings, address: IpAddr) -> Result<()> {
    let v4 = address.is_ipv4();
    let Some(saved) = save(v4)? else { return Err(missing(v4)) };
    let chain = chain_name(settings);
    let is_led_to = lines(&saved, DNAT).any(|line| line.ends_with(&format!("-j {chain}")));
    let found = lines(&saved, &chain).count();
    if !is_led_to || found < container_rules(settings, address).len() {
        return Err(failure(format!("chain {chain} is not complete in iptables table nat")));
    }
    Ok(())
}

fn missing(v4: bool) -> cni_protocol::CniError {
    failure(format!("the iptables backend was requested, but {} was not found", program(v4, "save")))
        .with_details(
            "install iptables on this host, or set \"backend\": \"nftables\", which needs no program",
        )
}

fn program(v4: bool, what: &str) -> String {
    format!("{}-{what}", if v4 { "iptables" } else { "ip6tables" })
}

/// The nat table as the program prints it; `None` when the program does not exist.
fn save(v4: bool) -> Result<Option<String>> {
    let program = program(v4, "save");
    match Command::new(&program).args(["-t", "nat"]).stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => {
            Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
        }
        Ok(output) => Err(failure(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failure(format!("{program}: {error}"))),
    }
}

fn restore(v4: bool, script: &str) -> Result<()> {
    let program = program(v4, "restore");
    let failed = |error: std::io::Error| failure(format!("{program}: {error}"));
    let mut child = Command::new(&program)
        .args(["--noflush", "--wait"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(script.as_bytes()).map_err(failed)?;
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    Err(failure(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

/// The container's own chain.
fn chain_name(settings: &Settings) -> String {
    hashed("CNI-DN-", &format!("{}{}", settings.network, settings.container), CHAIN_LENGTH)
}

/// The rules of a chain, as printed.
fn lines<'a>(saved: &'a str, chain: &str) -> impl Iterator<Item = &'a str> {
    let start = format!("-A {chain} ");
    saved.lines().filter(move |line| line.starts_with(&start))
}

fn has_chain(saved: &str, chain: &str) -> bool {
    let start = format!(":{chain} ");
    saved.lines().any(|line| line.starts_with(&start))
}

fn additions(saved: &str, settings: &Settings, address: IpAddr) -> String {
    let chain = chain_name(settings);
    let mut script = String::from("*nat\n");
    let mut rules = Vec::new();
    // Declaring a chain empties it: chains that all containers share are declared only if they are missing.
    let mut shared = |name: &str, content: &[String], entries: &[(&str, String)], prepend: bool| {
        if !has_chain(saved, name) {
            let _ = writeln!(script, ":{name} - [0:0]");
            rules.extend(content.iter().map(|rule| format!("-A {name} {rule}")));
        }
        for (entry, rule) in entries {
            if !lines(saved, entry).any(|line| line.ends_with(&format!("-j {name}"))) {
                let place = if prepend { "-I" } else { "-A" };
                rules.push(format!("{place} {entry} {rule}-j {name}"));
            }
        }
    };
    if settings.snat && settings.external_mark_chain.is_none() {
        let mark = 1_u32 << settings.mark_bit;
        let set = format!(
            "-m comment --comment \"CNI portfwd masquerade mark\" -j MARK --set-xmark {mark:#x}/{mark:#x}"
        );
        shared(SET_MARK, &[set], &[], false);
        let masquerade = format!("-m mark --mark {mark:#x}/{mark:#x} -j MASQUERADE");
        let entry = "-m comment --comment \"CNI portfwd requiring masquerade\" ".to_owned();
        // Before other plugins' masquerading, which would take the packets.
        shared(MASQUERADE, &[masquerade], &[("POSTROUTING", entry)], true);
    }
    let local = || "-m addrtype --dst-type LOCAL ".to_owned();
    shared(DNAT, &[], &[("PREROUTING", local()), ("OUTPUT", local())], false);
    let _ = writeln!(script, ":{chain} - [0:0]");
    rules.extend(container_rules(settings, address).into_iter().map(|rule| format!("-A {chain} {rule}")));
    for line in led_to(saved, &chain) {
        rules.push(line);
    }
    rules.extend(entries(settings, address).into_iter().map(|rule| format!("-A {DNAT} {rule} -j {chain}")));
    for rule in rules {
        let _ = writeln!(script, "{rule}");
    }
    script.push_str("COMMIT\n");
    script
}

/// The input that removes a container's chain; empty when it does not exist.
fn removals(saved: &str, chain: &str) -> String {
    if !has_chain(saved, chain) {
        return String::new();
    }
    let mut script = format!("*nat\n:{chain} - [0:0]\n");
    for line in led_to(saved, chain) {
        let _ = writeln!(script, "{line}");
    }
    let _ = write!(script, "-X {chain}\nCOMMIT\n");
    script
}

/// Deletions of the rules that jump to a chain.
fn led_to(saved: &str, chain: &str) -> Vec<String> {
    let end = format!("-j {chain}");
    lines(saved, DNAT).filter(|line| line.ends_with(&end)).map(|line| line.replacen("-A", "-D", 1)).collect()
}

/// The rules that lead to the container's chain, without the jump.
fn entries(settings: &Settings, address: IpAddr) -> Vec<String> {
    let mut comment = format!("dnat name: \\\"{}\\\" id: \\\"{}\\\"", settings.network, settings.container);
    if comment.len() > COMMENT_LENGTH {
        comment.truncate(COMMENT_LENGTH - 3);
        comment.push_str("...");
    }
    let mut by_protocol: BTreeMap<Protocol, Vec<String>> = BTreeMap::new();
    for mapping in &settings.mappings {
        by_protocol.entry(mapping.protocol).or_default().push(mapping.host_port.to_string());
    }
    let conditions = if address.is_ipv4() { &settings.conditions_v4 } else { &settings.conditions_v6 };
    let mut rules = Vec::new();
    for (protocol, ports) in by_protocol {
        for some in ports.chunks(PORTS_IN_RULE) {
            let mut rule = format!(
                "-p {} -m comment --comment \"{comment}\" -m multiport --destination-ports {}",
                protocol.as_str(),
                some.join(",")
            );
            for word in conditions {
                let _ = write!(rule, " {}", quoted(word));
            }
            rules.push(rule);
        }
    }
    rules
}

/// A word of a condition, quoted so that it cannot end the line or the word.
fn quoted(word: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "-_./:!,=".contains(it);
    if word.chars().all(is_plain) && !word.is_empty() {
        return word.to_owned();
    }
    let inner: String = word
        .chars()
        .filter(|it| !it.is_control())
        .flat_map(|it| ['\\'].into_iter().filter(move |_| matches!(it, '"' | '\\')).chain([it]))
        .collect();
    format!("\"{inner}\"")
}

/// The rules of the container's chain.
fn container_rules(settings: &Settings, address: IpAddr) -> Vec<String> {
    let mark = settings.external_mark_chain.as_deref().unwrap_or(SET_MARK);
    let (everywhere, host) = if address.is_ipv4() { ("0.0.0.0/0", 32) } else { ("::/0", 128) };
    let mut rules = Vec::new();
    for mapping in settings.mappings.iter().filter(|mapping| mapping.is_for(address)) {
        let protocol = mapping.protocol.as_str();
        let mut base = format!("-p {protocol} -m {protocol} --dport {}", mapping.host_port);
        if let Some(destination) = mapping.destination() {
            let _ = write!(base, " -d {destination}");
        }
        if settings.snat {
            let own = format!("{address}/{host}");
            let source = if settings.masquerade_all { everywhere } else { &own };
            rules.push(format!("{base} -s {source} -j {}", quoted(mark)));
            if address.is_ipv4() && !settings.masquerade_all {
                rules.push(format!("{base} -s 127.0.0.1 -j {}", quoted(mark)));
            }
        }
        let target = match address {
            IpAddr::V4(address) => format!("{address}:{}", mapping.container_port),
            IpAddr::V6(address) => format!("[{address}]:{}", mapping.container_port),
        };
        rules.push(format!("{base} -j DNAT --to-destination {target}"));
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::{additions, chain_name, removals};
    use crate::portmap::config::{Backend, Mapping, Protocol, Settings};

    fn settings() -> Settings {
        Settings {
            network: "net".to_owned(),
            container: "c1".to_owned(),
            backend: Backend::Iptables,
            mappings: vec![
                Mapping { host_port: 8080, container_port: 80, protocol: Protocol::Tcp, host_ip: None },
                Mapping {
                    host_port: 53,
                    container_port: 5353,
                    protocol: Protocol::Udp,
                    host_ip: Some("192.0.2.1".parse().unwrap()),
                },
            ],
            snat: true,
            masquerade_all: false,
            mark_bit: 13,
            external_mark_chain: None,
            conditions_v4: vec!["!".to_owned(), "-s".to_owned(), "a b\"\n".to_owned()],
            conditions_v6: Vec::new(),
        }
    }

    #[test]
    fn a_first_container_creates_the_shared_chains() {
        let chain = chain_name(&settings());
        let expected = format!(
            "*nat
:CNI-HOSTPORT-SETMARK - [0:0]
:CNI-HOSTPORT-MASQ - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
:{chain} - [0:0]
-A CNI-HOSTPORT-SETMARK -m comment --comment \"CNI portfwd masquerade mark\" -j MARK --set-xmark 0x2000/0x2000
-A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE
-I POSTROUTING -m comment --comment \"CNI portfwd requiring masquerade\" -j CNI-HOSTPORT-MASQ
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A {chain} -p tcp -m tcp --dport 8080 -s 10.0.0.2/32 -j CNI-HOSTPORT-SETMARK
-A {chain} -p tcp -m tcp --dport 8080 -s 127.0.0.1 -j CNI-HOSTPORT-SETMARK
-A {chain} -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.0.0.2:80
-A {chain} -p udp -m udp --dport 53 -d 192.0.2.1 -s 10.0.0.2/32 -j CNI-HOSTPORT-SETMARK
-A {chain} -p udp -m udp --dport 53 -d 192.0.2.1 -s 127.0.0.1 -j CNI-HOSTPORT-SETMARK
-A {chain} -p udp -m udp --dport 53 -d 192.0.2.1 -j DNAT --to-destination 10.0.0.2:5353
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment \"dnat name: \\\"net\\\" id: \\\"c1\\\"\" -m multiport --destination-ports 8080 ! -s \"a b\\\"\" -j {chain}
-A CNI-HOSTPORT-DNAT -p udp -m comment --comment \"dnat name: \\\"net\\\" id: \\\"c1\\\"\" -m multiport --destination-ports 53 ! -s \"a b\\\"\" -j {chain}
COMMIT
"
        );
        assert_eq!(
            additions("*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n", &settings(), "10.0.0.2".parse().unwrap()),
            expected
        );
    }

    #[test]
    fn existing_chains_stay_and_jumps_are_removed_before_their_chain() {
        let chain = chain_name(&settings());
        assert_eq!(chain.len(), 28);
        let saved = format!(
            ":CNI-HOSTPORT-DNAT - [0:0]\n:CNI-HOSTPORT-MASQ - [0:0]\n:CNI-HOSTPORT-SETMARK - [0:0]\n:{chain} - [0:0]\n\
             -A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT\n\
             -A POSTROUTING -m comment --comment \"x\" -j CNI-HOSTPORT-MASQ\n\
             -A CNI-HOSTPORT-DNAT -p tcp -j {chain}\n-A CNI-HOSTPORT-DNAT -p tcp -j CNI-DN-other\n"
        );
        let script = additions(&saved, &settings(), "10.0.0.2".parse().unwrap());
        assert!(!script.contains(":CNI-HOSTPORT"), "{script}");
        assert!(!script.contains("PREROUTING") && script.contains("-A OUTPUT"), "{script}");
        assert!(script.contains(&format!("-D CNI-HOSTPORT-DNAT -p tcp -j {chain}\n")), "{script}");
        assert!(!script.contains("CNI-DN-other"), "{script}");
        assert_eq!(
            removals(&saved, &chain),
            format!("*nat\n:{chain} - [0:0]\n-D CNI-HOSTPORT-DNAT -p tcp -j {chain}\n-X {chain}\nCOMMIT\n")
        );
        assert_eq!(removals(&saved, "CNI-DN-unknown"), "");
    }
}
