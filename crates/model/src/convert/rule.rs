//! Rules of policies and profiles.
//!
//! A rule with a part that cannot be read denies what it might have matched. The parts that can be read stay; the
//! others are dropped, and the action becomes `Deny`. Dropping a part must never make the rule match less:
//!
//! - A positive condition (`nets`, `ports`, `selector`, `protocol`, ...) is dropped whole, even if only one of its items
//!   is unreadable: that item might have been any address or port.
//! - Of a negative condition (`notNets`, `notPorts`) only the unreadable items are dropped: fewer exceptions match
//!   more.
//! - Ports and ICMP types have no meaning without a protocol, so they are dropped with it.
//! - The condition that keeps a rule within its namespace stays, whatever happens to the selector beside it.
//!
//! A `Log` rule decides nothing; one that cannot be read is left out. A field that this version does not know counts as
//! a part that cannot be read: it may be a condition.

use super::Faults;
use super::selectors::{
    all_means_any_namespace, global_means_no_namespace, has_service_account_name, in_namespace,
    over_namespace, over_service_account, read,
};
use crate::feed::{IcmpMatch, OriginalMatches, Port, PortRange, Protocol, Rule, RuleAction, RuleEnd};
use crate::key::IpVersion;
use api::codec::Extra;
use api::scalars::IpOrCidr;
use api::{Action, EntityRule, ICMPFields, ServiceAccountMatch, ServiceMatch};
use ipnet::IpNet;
use selector::Selector;
use std::fmt;

/// The reason for a field that this version does not know, or that has a value it cannot have.
const UNKNOWN: &str = "this version cannot read this field; the rule denies what it might match";
const DENIES: &str = "the rule denies what it might match";

/// Converts the list of rules at `place`, for a policy in this namespace (empty for global policies).
#[must_use]
pub fn rules(rules: Vec<api::Rule>, namespace: &str, place: &str, faults: &mut Faults) -> Vec<Rule> {
    let mut converted = Vec::with_capacity(rules.len());
    for (index, rule) in rules.into_iter().enumerate() {
        let (rule, own) = convert(rule, namespace);
        if !own.is_empty() {
            faults.add_below(&format!("{place}[{index}]"), own);
        }
        converted.extend(rule);
    }
    converted
}

/// The rule that replaces a list of rules that cannot be read at all.
#[must_use]
pub fn deny_everything() -> Rule {
    Rule { action: RuleAction::Deny, ..Rule::default() }
}

/// Converts one rule, and reports what cannot be read. An unreadable rule that only logs gives no rule.
fn convert(rule: api::Rule, namespace: &str) -> (Option<Rule>, Faults) {
    let mut faults = Faults::new();
    let faults_of = &mut faults;
    let action = match rule.action {
        Action::Allow => Some(RuleAction::Allow),
        Action::Deny => Some(RuleAction::Deny),
        Action::Log => Some(RuleAction::Log),
        Action::Pass => Some(RuleAction::Pass),
        Action::Unset | Action::Other(_) => {
            faults_of.add("action", format!("'{}' is not an action; {DENIES}", rule.action));
            None
        }
    };
    unknown_fields("", &rule.extra, faults_of);
    let ip_version = match rule.ip_version {
        None => None,
        Some(4) => Some(IpVersion::V4),
        Some(6) => Some(IpVersion::V6),
        Some(other) => {
            faults_of.add("ipVersion", format!("{other} is neither 4 nor 6; {DENIES}"));
            None
        }
    };
    let had_protocol = rule.protocol.is_some() || rule.extra.contains_key("protocol");
    let protocol = protocol("protocol", rule.protocol, faults_of);
    let not_protocol = self::protocol("notProtocol", rule.not_protocol, faults_of);
    let ports = PortUse::of(protocol, had_protocol);
    let icmp = icmp("icmp", rule.icmp, protocol, faults_of);
    let not_icmp = self::icmp("notICMP", rule.not_icmp, protocol, faults_of);
    let source = end("source", rule.source, namespace, ports, faults_of);
    let destination = end("destination", rule.destination, namespace, ports, faults_of);
    let http = rule.http;
    if let Some(http) = &http
        && (!http.extra.is_empty() || http.paths.iter().any(|path| !path.extra.is_empty()))
    {
        faults_of.add("http", UNKNOWN);
    }
    let annotations = rule.metadata.map(|metadata| metadata.annotations).unwrap_or_default();
    let mut converted = Rule {
        action: action.unwrap_or_default(),
        ip_version,
        protocol,
        not_protocol,
        icmp,
        not_icmp,
        source,
        destination,
        http,
        annotations,
    };
    if faults.is_empty() {
        return (Some(converted), faults);
    }
    if action == Some(RuleAction::Log) {
        return (None, faults);
    }
    converted.action = RuleAction::Deny;
    // A proxy checks this condition. The kernel cannot, so it denies without it.
    converted.http = None;
    (Some(converted), faults)
}

/// The path of a field in a rule. It is only written out when something is wrong, which is hardly ever.
#[derive(Clone, Copy)]
struct Field<'a>(&'a str, &'static str);

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

fn unknown_fields(place: impl fmt::Display, extra: &Extra, faults: &mut Faults) {
    for name in extra.keys() {
        faults.add(format!("{place}{name}"), UNKNOWN);
    }
}

/// Converts a protocol; `None` if it cannot be read.
fn protocol(place: &str, written: Option<api::scalars::Protocol>, faults: &mut Faults) -> Option<Protocol> {
    let written = match Protocol::try_from(written?) {
        Ok(Protocol::Number(0)) => "0".to_owned(),
        Ok(protocol) => return Some(protocol),
        Err(written) => written.to_string(),
    };
    faults.add(place, format!("'{written}' is not a protocol; {DENIES}"));
    None
}

/// Converts an ICMP message; `None` if it cannot be read or comes with another protocol.
fn icmp(
    place: &str,
    icmp: Option<Box<ICMPFields>>,
    protocol: Option<Protocol>,
    faults: &mut Faults,
) -> Option<IcmpMatch> {
    let icmp = *icmp?;
    let small = |value: Option<i64>| value.map(u8::try_from).transpose();
    let is_icmp = matches!(protocol, Some(Protocol::Icmp | Protocol::Icmpv6 | Protocol::Number(1 | 58)));
    let reason = match (small(icmp.icmp_type), small(icmp.code)) {
        _ if !icmp.extra.is_empty() => UNKNOWN.to_owned(),
        (Ok(Some(255)) | Err(_), _) | (_, Err(_)) => {
            format!("a type is at most 254 and a code at most 255; {DENIES}")
        }
        (Ok(None), Ok(Some(_))) => format!("a code without a type means nothing; {DENIES}"),
        _ if !is_icmp => format!("needs protocol ICMP or ICMPv6; {DENIES}"),
        (Ok(icmp_type), Ok(code)) => return icmp_type.map(|icmp_type| IcmpMatch { icmp_type, code }),
    };
    faults.add(place, reason);
    None
}

/// The kinds of ports that a rule can have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PortUse {
    /// Numbers and names: the protocol has ports.
    All,
    /// Only names, which imply their own protocol.
    Named,
    /// None: the protocol could not be read, or has no ports.
    None,
}

impl PortUse {
    fn of(protocol: Option<Protocol>, had_protocol: bool) -> Self {
        match protocol {
            Some(Protocol::Tcp | Protocol::Udp | Protocol::Sctp | Protocol::Number(6 | 17 | 132)) => {
                Self::All
            }
            None if !had_protocol => Self::Named,
            _ => Self::None,
        }
    }

    /// Returns the port, if the rule can have it.
    fn take(self, port: &api::scalars::Port) -> Option<Port> {
        use api::scalars::Port as Written;
        match port {
            Written::Range { min, max } if self == Self::All && min <= max => {
                Some(Port::Range(PortRange { first: *min, last: *max }))
            }
            Written::Named(name) if self != Self::None && !name.is_empty() => Some(Port::Named(name.clone())),
            _ => None,
        }
    }
}

fn end(place: &str, entity: EntityRule, namespace: &str, ports: PortUse, faults: &mut Faults) -> RuleEnd {
    let at = |field| Field(place, field);
    unknown_fields(at(""), &entity.extra, faults);
    let selector = joined_selector(place, &entity, namespace, faults);
    let not_selector =
        not_selector(selector.as_ref(), entity.not_selector.as_str()).unwrap_or_else(|reason| {
            faults.add(at("notSelector").to_string(), format!("{reason}; {DENIES}"));
            None
        });
    let original = original_matches(&entity);
    RuleEnd {
        nets: nets(at("nets"), &entity.nets, Sign::Positive, faults),
        not_nets: nets(at("notNets"), &entity.not_nets, Sign::Negative, faults),
        selector,
        not_selector,
        ports: port_list(at("ports"), &entity.ports, ports, Sign::Positive, faults),
        not_ports: port_list(at("notPorts"), &entity.not_ports, ports, Sign::Negative, faults),
        service: service(at("services"), entity.services, namespace, faults),
        original,
    }
}

/// Converts the negated selector. The joined selectors must also keep the limits of the language, because they become
/// one set.
fn not_selector(selector: Option<&Selector>, text: &str) -> Result<Option<Selector>, String> {
    let negated = read(text)?;
    if let (Some(selector), Some(negated)) = (selector, &negated) {
        read(&format!("({selector}) && (!({negated}))"))?;
    }
    Ok(negated)
}

/// Whether a list contains what must match, or what must not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    Positive,
    Negative,
}

fn nets(place: Field<'_>, nets: &[IpOrCidr], sign: Sign, faults: &mut Faults) -> Vec<IpNet> {
    let mut parsed = Vec::with_capacity(nets.len());
    for (index, net) in nets.iter().enumerate() {
        match net.parse() {
            Ok(network) => parsed.push(network.masked()),
            Err(reason) => faults.add(format!("{place}[{index}]"), format!("{reason}; {DENIES}")),
        }
    }
    if sign == Sign::Positive && parsed.len() < nets.len() {
        parsed.clear();
    }
    parsed
}

fn port_list(
    place: Field<'_>,
    ports: &[api::scalars::Port],
    usable: PortUse,
    sign: Sign,
    faults: &mut Faults,
) -> Vec<Port> {
    let mut kept = Vec::with_capacity(ports.len());
    for (index, port) in ports.iter().enumerate() {
        if let Some(port) = usable.take(port) {
            kept.push(port);
        } else {
            let reason = match port {
                api::scalars::Port::Other(_) => format!("'{port}' is not a port; {DENIES}"),
                _ => format!("'{port}' needs protocol TCP, UDP or SCTP; {DENIES}"),
            };
            faults.add(format!("{place}[{index}]"), reason);
        }
    }
    if sign == Sign::Positive && kept.len() < ports.len() {
        kept.clear();
    }
    kept
}

/// Returns the service; without a namespace it is one of the policy's own.
fn service(
    place: Field<'_>,
    service: Option<Box<ServiceMatch>>,
    namespace: &str,
    faults: &mut Faults,
) -> Option<(String, String)> {
    let service = *service?;
    if !service.extra.is_empty() {
        unknown_fields(format_args!("{place}."), &service.extra, faults);
        return None;
    }
    if service.name.is_empty() {
        faults.add(format!("{place}.name"), format!("no service is named; {DENIES}"));
        return None;
    }
    let namespace = if service.namespace.is_empty() { namespace.to_owned() } else { service.namespace };
    Some((namespace, service.name))
}

/// Joins the selectors of a rule end: `(namespaces) && ((service accounts) && (endpoints))`.
fn joined_selector(
    place: &str,
    entity: &EntityRule,
    namespace: &str,
    faults: &mut Faults,
) -> Option<Selector> {
    let mut fault = |field: &str, reason: String| {
        faults.add(format!("{place}.{field}"), format!("{reason}; {DENIES}"));
    };
    let own_namespace = || if namespace.is_empty() { String::new() } else { in_namespace(namespace) };
    let namespaces = if entity.namespace_selector.is_empty() {
        own_namespace()
    } else {
        match over_namespace(&entity.namespace_selector) {
            Ok(text) => global_means_no_namespace(&all_means_any_namespace(&text)),
            // Any namespace might have been meant.
            Err(reason) => {
                fault("namespaceSelector", reason);
                String::new()
            }
        }
    };
    let accounts = match entity.service_accounts.as_deref().map(service_accounts) {
        Some(Ok(text)) => text,
        Some(Err((field, reason))) => {
            fault(field, reason);
            String::new()
        }
        None => String::new(),
    };
    // Text that is a selector only together with its neighbours is not a selector.
    let own = read(entity.selector.as_str()).unwrap_or_else(|reason| {
        fault("selector", reason);
        None
    });
    let endpoints = if own.is_some() { entity.selector.as_str() } else { "" };
    let inner = match (accounts.as_str(), endpoints) {
        ("", one) | (one, "") => one.to_owned(),
        (accounts, endpoints) => format!("({accounts}) && ({endpoints})"),
    };
    // Without any selector, a rule of a namespace applies to addresses everywhere.
    let is_about_endpoints = !entity.selector.is_empty()
        || !entity.not_selector.is_empty()
        || !entity.namespace_selector.is_empty()
        || entity.service_accounts.as_ref().is_some_and(|accounts| !is_empty(accounts));
    let joined = match (namespaces.as_str(), inner.as_str()) {
        (_, "") if !is_about_endpoints => return None,
        ("", inner) if inner == endpoints => return own,
        (namespaces, "") => namespaces.to_owned(),
        ("", inner) => inner.to_owned(),
        (namespaces, inner) => format!("({namespaces}) && ({inner})"),
    };
    read(&joined).unwrap_or_else(|reason| {
        fault("selector", format!("joined with its namespace: {reason}"));
        read(&namespaces).unwrap_or_default()
    })
}

fn is_empty(accounts: &ServiceAccountMatch) -> bool {
    accounts.names.is_empty() && accounts.selector.is_empty()
}

/// Returns the condition on service accounts; empty if there is none. An error names the field.
fn service_accounts(accounts: &ServiceAccountMatch) -> Result<String, (&'static str, String)> {
    if !accounts.extra.is_empty() {
        return Err(("serviceAccounts", UNKNOWN.to_owned()));
    }
    let by_label = if accounts.selector.is_empty() {
        String::new()
    } else {
        over_service_account(&accounts.selector).map_err(|reason| ("serviceAccounts.selector", reason))?
    };
    if accounts.names.is_empty() {
        return Ok(by_label);
    }
    let by_name =
        has_service_account_name(&accounts.names).map_err(|reason| ("serviceAccounts.names", reason))?;
    Ok(if by_label.is_empty() { by_name } else { format!("({by_label}) && ({by_name})") })
}

fn original_matches(entity: &EntityRule) -> Option<Box<OriginalMatches>> {
    let accounts = entity.service_accounts.as_deref();
    let original = OriginalMatches {
        selector: entity.selector.as_str().to_owned(),
        namespace_selector: entity.namespace_selector.as_str().to_owned(),
        not_selector: entity.not_selector.as_str().to_owned(),
        service_account_names: accounts.map(|accounts| accounts.names.clone()).unwrap_or_default(),
        service_account_selector: accounts
            .map(|accounts| accounts.selector.as_str().to_owned())
            .unwrap_or_default(),
    };
    (original != OriginalMatches::default()).then(|| Box::new(original))
}
