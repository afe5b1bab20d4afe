//! Port mappings in nftables: one table per family, shared with the reference plugin; the comment of a container's
//! rules is its id.
//!
//! ```text
//! prerouting, output: to an address of this host ─► hostports_all ─► hostip_hostports, hostports: a rule per port
//! masquerading (postrouting): container to itself, localhost to container
//! ```

use super::config::{Mapping, Settings};
use crate::frame::failure;
use cni_protocol::error::Result;
use netlink::netfilter::nft::{
    BaseChain, ChainKind, Change, Client, CompareOperator, Data, Expression, Family, FibResult, Hook,
    MetaKey, NatKind, PayloadBase, Register, Rule, Table, Verdict, fib_flags, nat_flags,
};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

const TABLE: &str = "cni_hostport";
const ALL: &str = "hostports_all";
/// Older versions of the reference plugin put rules with a host address here.
const WITH_ADDRESS: &str = "hostip_hostports";
const PORTS: &str = "hostports";
const MASQUERADING: &str = "masquerading";
const DESTINATION_PRIORITY: i32 = -100;
const SOURCE_PRIORITY: i32 = 100;
/// The routing table's type of an address of this host.
const LOCAL: u32 = 2;
/// The maximum length of a rule's comment.
const COMMENT_LENGTH: usize = 128;

pub(super) fn add(settings: &Settings, address: IpAddr) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| {
        failure(format!("unable to set up nftables rules for port mappings: {error}"))
    };
    let mut client = Client::open().map_err(|error| failed(&error))?;
    let table = table(address.is_ipv4());
    let mut changes = base(settings.snat);
    changes.extend(removals(&mut client, &table, &settings.container)?);
    changes.extend(rules(settings, address).into_iter().map(Change::AppendRule));
    match client.commit(&table, &changes) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(refused)) => Err(failed(&refused)),
        Err(error) => Err(failed(&error)),
    }
}

pub(super) fn delete(container: &str) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| failure(format!("error deleting nftables rules: {error}"));
    // A kernel without nftables has no rules of ours.
    let Ok(mut client) = Client::open() else { return Ok(()) };
    for v4 in [true, false] {
        let table = table(v4);
        let changes = removals(&mut client, &table, container)?;
        match client.commit(&table, &changes) {
            Ok(Ok(())) => {}
            Ok(Err(refused)) => return Err(failed(&refused)),
            Err(error) => return Err(failed(&error)),
        }
    }
    Ok(())
}

pub(super) fn check(settings: &Settings, address: IpAddr) -> Result<()> {
    let mut client = Client::open().map_err(|error| failure(error.to_string()))?;
    let wanted = rules(settings, address);
    for chain in [PORTS, MASQUERADING] {
        let found = found(&mut client, &table(address.is_ipv4()), chain, &settings.container)?.len();
        if found < wanted.iter().filter(|rule| &*rule.chain == chain).count() {
            return Err(failure(format!("missing hostport rules in {chain:?} chain")));
        }
    }
    Ok(())
}

fn table(v4: bool) -> Table {
    Table::new(if v4 { Family::Ip } else { Family::Ip6 }, TABLE)
}

/// The container's rules in a chain, by handle.
fn found(client: &mut Client, table: &Table, chain: &str, container: &str) -> Result<Vec<u64>> {
    let rules = client
        .rules(table, Some(chain))
        .map_err(|error| failure(format!("could not list rules in table {TABLE}: {error}")))?;
    let is_containers = |comment: Option<&str>| comment == Some(comment_of(container));
    Ok(rules.iter().filter(|rule| is_containers(rule.comment.as_deref())).map(|rule| rule.handle).collect())
}

fn removals(client: &mut Client, table: &Table, container: &str) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    for chain in [PORTS, WITH_ADDRESS, MASQUERADING] {
        let handles = found(client, table, chain, container)?.into_iter();
        changes.extend(handles.map(|handle| Change::DeleteRule { chain: chain.into(), handle }));
    }
    Ok(changes)
}

fn comment_of(container: &str) -> &str {
    // Ids are ASCII, so every index is a character boundary.
    container.get(..COMMENT_LENGTH).unwrap_or(container)
}

/// The chains that all containers share. The rules that lead to them are rewritten each time: another version of the
/// plugin may have written them differently.
fn base(snat: bool) -> Vec<Change> {
    let plain = |name: &str| Change::AddChain { name: name.into(), base: None };
    let jump = |chain: &str, to: &str, before: Vec<Expression>| {
        let mut expressions = before;
        expressions.push(Expression::Verdict(Verdict::Jump(to.into())));
        Change::AppendRule(Rule { chain: chain.into(), expressions, comment: "".into() })
    };
    let mut changes = vec![Change::AddTable, plain(PORTS), plain(WITH_ADDRESS), plain(ALL)];
    changes.push(Change::FlushChain(ALL.into()));
    changes.push(jump(ALL, WITH_ADDRESS, Vec::new()));
    changes.push(jump(ALL, PORTS, Vec::new()));
    for (name, hook) in [("prerouting", Hook::Prerouting), ("output", Hook::Output)] {
        let base = BaseChain { kind: ChainKind::Nat, hook, priority: DESTINATION_PRIORITY };
        changes.push(Change::AddChain { name: name.into(), base: Some(base) });
        changes.push(Change::FlushChain(name.into()));
        let to_this_host = vec![
            Expression::Fib {
                flags: fib_flags::DESTINATION,
                result: FibResult::AddressType,
                register: Register::FIRST,
            },
            equals(Data::host_u32(LOCAL)),
        ];
        changes.push(jump(name, ALL, to_this_host));
    }
    if snat {
        let base = BaseChain { kind: ChainKind::Nat, hook: Hook::Postrouting, priority: SOURCE_PRIORITY };
        changes.push(Change::AddChain { name: MASQUERADING.into(), base: Some(base) });
    }
    changes
}

/// The container's own rules.
fn rules(settings: &Settings, address: IpAddr) -> Vec<Rule> {
    let comment: Arc<str> = comment_of(&settings.container).into();
    let rule =
        |chain: &str, expressions| Rule { chain: chain.into(), expressions, comment: Arc::clone(&comment) };
    let mappings = settings.mappings.iter().filter(|mapping| mapping.is_for(address));
    let mut rules: Vec<Rule> = mappings.map(|mapping| rule(PORTS, translate(mapping, address))).collect();
    if !settings.snat {
        return rules;
    }
    let masquerade = |source: Option<IpAddr>| {
        let mut expressions = source.map(|source| end(source, true)).unwrap_or_default();
        expressions.extend(end(address, false));
        expressions.push(Expression::Masquerade { ports: None, flags: 0 });
        rule(MASQUERADING, expressions)
    };
    if settings.masquerade_all {
        rules.push(masquerade(None));
        return rules;
    }
    rules.push(masquerade(Some(address)));
    if address.is_ipv4() {
        rules.push(masquerade(Some(Ipv4Addr::LOCALHOST.into())));
    }
    rules
}

fn translate(mapping: &Mapping, address: IpAddr) -> Vec<Expression> {
    let mut expressions = mapping.destination().map(|host| end(host, false)).unwrap_or_default();
    expressions.extend([
        Expression::Meta { key: MetaKey::TransportProtocol, register: Register::FIRST },
        equals(Data::new(&[mapping.protocol.number()])),
        Expression::Payload { base: PayloadBase::Transport, offset: 2, length: 2, register: Register::FIRST },
        equals(Data::new(&mapping.host_port.to_be_bytes())),
        Expression::Load { data: Data::new(&octets(address)), register: Register::FIRST },
        Expression::Load {
            data: Data::new(&mapping.container_port.to_be_bytes()),
            register: Register::SECOND,
        },
        Expression::Nat {
            kind: NatKind::Destination,
            family: table(address.is_ipv4()).family.number(),
            address: Register::FIRST,
            port: Some(Register::SECOND),
            port_last: None,
            flags: nat_flags::PORTS,
        },
    ]);
    expressions
}

/// Continues if the packet's source or destination is this address.
fn end(address: IpAddr, source: bool) -> Vec<Expression> {
    let (offset, length) = match (address, source) {
        (IpAddr::V4(_), true) => (12, 4),
        (IpAddr::V4(_), false) => (16, 4),
        (IpAddr::V6(_), true) => (8, 16),
        (IpAddr::V6(_), false) => (24, 16),
    };
    vec![
        Expression::Payload { base: PayloadBase::Network, offset, length, register: Register::FIRST },
        equals(Data::new(&octets(address))),
    ]
}

fn equals(data: Data) -> Expression {
    Expression::Compare { register: Register::FIRST, operator: CompareOperator::Equal, data }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
