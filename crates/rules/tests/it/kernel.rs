//! Real packet filters in their own network namespace, which the kernel removes with the last process in it.

use crate::world::{Rendered, World};
use messages::IpSetMember;
use rules::tree::{Chain, IpVersion, Rule, SetName, Table};
use rules::{Backend, iptables, nftables};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// Sets by their names in the kernel. All of them are created before rules are programmed.
pub(crate) type Sets = BTreeMap<SetName, Vec<IpSetMember>>;

/// The program that takes the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    IptablesNft,
    IptablesLegacy,
    Nft,
}

impl Program {
    pub(crate) const ALL: [Self; 3] = [Self::IptablesNft, Self::IptablesLegacy, Self::Nft];

    pub(crate) fn backend(self) -> Backend {
        match self {
            Self::Nft => Backend::Nftables,
            _ => Backend::Iptables,
        }
    }
}

/// Programs tables of the world, and checks that the number of rules in the kernel is that of rendered rules.
pub(crate) fn program(world: &World, tables: &[Table], version: IpVersion, sets: &Sets, program: Program) {
    let tables: Vec<_> = tables.iter().map(|table| (*table, world.render(*table, version))).collect();
    match program {
        Program::Nft => program_nft(&tables, version, sets),
        Program::IptablesNft => program_iptables(&tables, version, sets, "nft"),
        Program::IptablesLegacy => program_iptables(&tables, version, sets, "legacy"),
    }
}

fn program_iptables(tables: &[(Table, Rendered)], version: IpVersion, sets: &Sets, variant: &str) {
    let mut input = String::new();
    let mut expected = 0;
    for (table, rendered) in tables {
        let _ = writeln!(input, "*{table}");
        for name in rendered.chains.keys() {
            let _ = writeln!(input, ":{name} - [0:0]");
        }
        let mut add = |chain: &str, rules: &[Rule], hashes: Vec<rules::RuleHash>| {
            for (rule, hash) in rules.iter().zip(hashes) {
                let _ = writeln!(input, "{}", iptables::render_append(chain, rule, hash));
                expected += 1;
            }
        };
        for Chain { name, rules } in rendered.chains.values() {
            add(name, rules, iptables::hashes(name, rules));
        }
        for chain in &rendered.kernel {
            add(chain.name, &chain.inserted, iptables::hashes(chain.name, &chain.inserted));
            add(chain.name, &chain.appended, iptables::appended_hashes(chain.name, &chain.appended));
        }
        let _ = writeln!(input, "COMMIT");
    }
    let family = if version == IpVersion::V6 { "ip6tables" } else { "iptables" };
    let mut ipsets = String::new();
    for (name, members) in sets {
        let ports = members.iter().any(|member| matches!(member, IpSetMember::IpAndPort { .. }));
        let set_type = if ports { "hash:ip,port" } else { "hash:net" };
        let inet = if version == IpVersion::V6 { "inet6" } else { "inet" };
        let _ = writeln!(ipsets, "create {name} {set_type} family {inet}");
        for member in members {
            let _ = writeln!(ipsets, "add {name} {member}");
        }
    }
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("rules"), &input).expect("written");
    std::fs::write(directory.path().join("ipsets"), ipsets).expect("written");
    let script = format!(
        "ipset restore < ipsets && {family}-{variant}-restore --noflush --wait 30 < rules && \
         {family}-{variant}-save | grep -c '^-A'"
    );
    let found = in_namespace(directory.path(), &script).unwrap_or_else(|error| {
        panic!("{variant} refuses the rules: {error}\n{}", around_error(&input, &error));
    });
    assert_eq!(found.trim(), expected.to_string(), "rules in the kernel, {family} {variant}");
}

fn program_nft(tables: &[(Table, Rendered)], version: IpVersion, sets: &Sets) {
    let family = nftables::Family::from(version);
    let ip = family.as_str();
    let mut input = format!("add table {ip} calico\n");
    let mut expected = 0;
    for (name, members) in sets {
        let name = nftables::set_name(name);
        let address = if version == IpVersion::V6 { "ipv6_addr" } else { "ipv4_addr" };
        let ports = members.iter().any(|member| matches!(member, IpSetMember::IpAndPort { .. }));
        let set_type = match ports {
            true => format!("type {address} . inet_proto . inet_service"),
            false => format!("type {address}; flags interval"),
        };
        let _ = writeln!(input, "add set {ip} calico {name} {{ {set_type}; }}");
        for member in members {
            let member = match member {
                IpSetMember::IpAndPort { address, protocol, port } => {
                    format!("{address} . {protocol} . {port}")
                }
                member => member.to_string(),
            };
            let _ = writeln!(input, "add element {ip} calico {name} {{ {member} }}");
        }
    }
    for (table, rendered) in tables {
        for chain in &rendered.kernel {
            let (kind, priority) = match (table, chain.name) {
                (Table::Filter, _) => ("filter", 0),
                (Table::Mangle, _) => ("filter", -150),
                (Table::Raw, _) => ("filter", -300),
                (Table::Nat, "PREROUTING") => ("nat", -100),
                (Table::Nat, _) => ("nat", 110),
            };
            let hook = chain.name.to_lowercase();
            let name = nftables::chain_name(*table, chain.name);
            let _ = writeln!(
                input,
                "add chain {ip} calico {name} {{ type {kind} hook {hook} priority {priority}; }}"
            );
        }
        for name in rendered.chains.keys() {
            let _ = writeln!(input, "add chain {ip} calico {}", nftables::chain_name(*table, name));
        }
        for map in &rendered.maps {
            let name = nftables::chain_name(*table, &map.name);
            let _ = writeln!(input, "add map {ip} calico {name} {{ type ifname : verdict; }}");
            for (interface, chain) in &map.entries {
                let chain = nftables::chain_name(*table, chain);
                let _ =
                    writeln!(input, "add element {ip} calico {name} {{ \"{interface}\" : goto {chain} }}");
            }
        }
    }
    for (table, rendered) in tables {
        let mut add = |chain: &str, rules: &[Rule], hashes: Vec<rules::RuleHash>| {
            let name = nftables::chain_name(*table, chain);
            for (rule, hash) in rules.iter().zip(hashes) {
                let text = nftables::rule_text(*table, family, rule);
                let comment = nftables::comment(rule, hash);
                let _ = writeln!(input, "add rule {ip} calico {name} {text} comment \"{comment}\"");
                expected += 1;
            }
        };
        for Chain { name, rules } in rendered.chains.values() {
            add(name, rules, nftables::hashes(*table, family, name, rules));
        }
        for chain in &rendered.kernel {
            let inserted = nftables::hashes(*table, family, chain.name, &chain.inserted);
            add(chain.name, &chain.inserted, inserted);
            let appended = nftables::appended_hashes(*table, family, chain.name, &chain.appended);
            add(chain.name, &chain.appended, appended);
        }
    }
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("rules"), &input).expect("written");
    let script = "nft -f rules && nft list ruleset | grep -c 'comment \"cali:'";
    let found = in_namespace(directory.path(), script).unwrap_or_else(|error| {
        panic!("nft refuses the rules: {error}\n{}", around_error(&input, &error));
    });
    assert_eq!(found.trim(), expected.to_string(), "rules in the kernel, nft {ip}");
}

/// The line that a program rejected, if its message has the number.
fn around_error(input: &str, error: &str) -> String {
    let number = error
        .split_once("rules:")
        .or_else(|| error.split_once("line: "))
        .or_else(|| error.split_once("line "))
        .and_then(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<usize>().ok());
    number.and_then(|number| input.lines().nth(number.saturating_sub(1))).unwrap_or_default().to_owned()
}

/// Runs a shell in its own namespace.
fn in_namespace(directory: &Path, script: &str) -> Result<String, String> {
    for program in ["unshare", "iptables-nft-restore", "iptables-legacy-restore", "nft", "ipset"] {
        let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .chain(["/usr/sbin".into(), "/sbin".into()])
            .any(|place| place.join(program).exists());
        assert!(found, "{program} is missing: run scripts/setup.sh (packages iptables, nftables, ipset)");
    }
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    let output = Command::new("unshare")
        .args(if is_root { ["--net"].as_slice() } else { ["--net", "--map-root-user"].as_slice() })
        .args(["sh", "-ec", &format!("export PATH=$PATH:/usr/sbin:/sbin; {script}")])
        .current_dir(directory)
        .output()
        .map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).chars().take(2000).collect()),
    }
}
