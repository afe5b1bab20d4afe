//! Lists and maps whose items are separated by commas.

use super::patterns::is_go_space;
use super::texts::is_interface;
use super::{Kind, Refusal, Surroundings};
use crate::go_numbers;
use crate::values::{Interval, PortProtocol, ProtoPort};
use api::scalars::{Duration, IpOrCidr};
use ipnet::IpNet;
use std::collections::BTreeMap;

/// The items of a list, trimmed, without empty ones.
fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(|item| item.trim_matches(' ')).filter(|item| !item.is_empty())
}

/// Ports with protocol and peers.
pub(crate) struct PortList;

impl Kind for PortList {
    type Value = Vec<ProtoPort>;

    fn parse(&self, text: &str, _around: &dyn Surroundings) -> Result<Vec<ProtoPort>, Refusal> {
        items(text).map(proto_port).collect()
    }

    fn accepts(&self) -> String {
        "`protocol:net:port`, `protocol:port` or `port`, separated by commas; `tcp` or `udp`, IPv6 nets in brackets"
            .to_owned()
    }
}

fn proto_port(item: &str) -> Result<ProtoPort, Refusal> {
    let form = "ports should be <protocol>:<net>:<number> or <protocol>:<number> or <number>";
    // An IPv6 network contains colons, so it is in brackets.
    let (bracketed, item) = match item.split_once('[') {
        Some((before, rest)) => {
            let (net, after) = rest.split_once("]:").ok_or_else(|| Refusal::value(form))?;
            (Some(net), format!("{before}{after}"))
        }
        None => (None, item.to_owned()),
    };
    let parts: Vec<&str> = item.split(':').collect();
    let (protocol, net, port) = match *parts {
        [port] => ("tcp", bracketed, port),
        [protocol, port] => (protocol, bracketed, port),
        [protocol, net, port] => (protocol, Some(net), port),
        _ => return Err(Refusal::value(form)),
    };
    let protocol = match protocol.to_lowercase().as_str() {
        "tcp" => PortProtocol::Tcp,
        "udp" => PortProtocol::Udp,
        other => return Err(Refusal::Value(format!("unknown protocol: {other}"))),
    };
    let port = go_numbers::decimal(port).ok_or_else(|| Refusal::value("ports should be integers"))?;
    let port = u16::try_from(port).map_err(|_| Refusal::value("ports must be in range 0-65535"))?;
    let net = match net.filter(|net| !net.is_empty()) {
        Some(net) => {
            let parsed = IpOrCidr::from(net).parse();
            Some(parsed.map_err(|_| Refusal::Value(format!("invalid CIDR or IP {net}")))?.masked())
        }
        None => None,
    };
    Ok(ProtoPort { protocol, port, net })
}

/// Networks.
pub(crate) struct CidrList;

impl Kind for CidrList {
    type Value = Vec<IpNet>;

    fn parse(&self, text: &str, _around: &dyn Surroundings) -> Result<Vec<IpNet>, Refusal> {
        text.split(',')
            .map(|item| (item, item.trim_matches(' ')))
            .filter(|(_, trimmed)| !trimmed.is_empty())
            .map(|(item, trimmed)| {
                let refused = |_| Refusal::Part(item.to_owned(), format!("invalid CIDR or IP {trimmed}"));
                IpOrCidr::from(trimmed).parse().map(|network| network.masked()).map_err(refused)
            })
            .collect()
    }

    fn accepts(&self) -> String {
        "networks or addresses, separated by commas".to_owned()
    }
}

/// Interfaces.
pub(crate) struct InterfaceFilters;

impl Kind for InterfaceFilters {
    type Value = Vec<String>;

    fn parse(&self, text: &str, _around: &dyn Surroundings) -> Result<Vec<String>, Refusal> {
        let filter = |item: &str| {
            is_interface(item)
                .then(|| item.to_owned())
                .ok_or_else(|| Refusal::value("invalid entry does not match regex ^[a-zA-Z0-9:._+-]{1,15}$"))
        };
        items(text).map(filter).collect()
    }

    fn accepts(&self) -> String {
        "names of interfaces, separated by commas; `+` at the end of one stands for any rest".to_owned()
    }
}

/// URLs of servers.
pub(crate) struct EndpointList;

impl Kind for EndpointList {
    type Value = Vec<String>;

    fn parse(&self, text: &str, _around: &dyn Surroundings) -> Result<Vec<String>, Refusal> {
        items(text).map(endpoint).collect()
    }

    fn accepts(&self) -> String {
        "URLs such as `https://host:port`, separated by commas".to_owned()
    }
}

/// A URL with only scheme, host and port; returned with a slash at its end.
fn endpoint(item: &str) -> Result<String, Refusal> {
    let invalid = || Refusal::Value(format!("{item} is not a valid URL"));
    let unsupported =
        || Refusal::value("endpoint contained unsupported URL part; expected http(s)://hostname:port only.");
    let has_forbidden = |character: char| character.is_ascii_control() || character == ' ';
    if item.contains(has_forbidden) {
        return Err(invalid());
    }
    let is_scheme = |text: &str| {
        text.starts_with(|first: char| first.is_ascii_alphabetic())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    let Some((scheme, rest)) = item.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) else {
        // `host:port` parses as a scheme and an opaque part; `1.2.3.4:port` does not even do that.
        return Err(match item.split_once(':') {
            Some((scheme, _)) if !is_scheme(scheme) => invalid(),
            _ => unsupported(),
        });
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if !matches!(path, "" | "/") || authority.contains('@') {
        return Err(unsupported());
    }
    let port = match authority.rsplit_once(']') {
        Some((_, after)) if !after.is_empty() => after.strip_prefix(':').ok_or_else(invalid)?,
        Some(_) => "",
        None => authority.split_once(':').map_or("", |(_, port)| port),
    };
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid());
    }
    Ok(format!("{}://{authority}/", scheme.to_lowercase()))
}

/// A map of texts.
pub(crate) struct KeyValues;

impl Kind for KeyValues {
    type Value = BTreeMap<String, String>;

    fn parse(&self, text: &str, _around: &dyn Surroundings) -> Result<BTreeMap<String, String>, Refusal> {
        key_values(text)
    }

    fn accepts(&self) -> String {
        "`key=value`, separated by commas".to_owned()
    }
}

/// A map of durations.
pub(crate) struct KeyDurations;

impl Kind for KeyDurations {
    type Value = BTreeMap<String, Interval>;

    fn parse(&self, text: &str, _around: &dyn Surroundings) -> Result<BTreeMap<String, Interval>, Refusal> {
        let pairs = key_values(text)?.into_iter();
        pairs.map(|(key, value)| Ok((key, duration(value.trim()).map_err(Refusal::Whole)?))).collect()
    }

    fn accepts(&self) -> String {
        "`key=duration`, separated by commas; a duration such as `90s` or `1h30m`".to_owned()
    }
}

fn key_values(text: &str) -> Result<BTreeMap<String, String>, Refusal> {
    let mut values = BTreeMap::new();
    if text.trim().is_empty() {
        return Ok(values);
    }
    let mut invalid = Vec::new();
    for item in text.split(',').filter(|item| !item.is_empty()) {
        match key_value(item) {
            Some((key, value)) => {
                values.insert(key.to_owned(), value.to_owned());
            }
            None => invalid.push(item),
        }
    }
    if invalid.is_empty() {
        Ok(values)
    } else {
        Err(Refusal::Whole(format!("invalid items [{}]", invalid.join(" "))))
    }
}

/// Splits an item into the word before its first `=` and the rest of that line.
fn key_value(item: &str) -> Option<(&str, &str)> {
    let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    item.match_indices('=').find_map(|(place, _)| {
        let before = &item[..place];
        let key = &before[before
            .rfind(|character| !is_word(character))
            .map_or(0, |last| last + before[last..].chars().next().map_or(1, char::len_utf8))..];
        let value = item[place + 1..].split('\n').next().unwrap_or_default();
        (!key.is_empty()).then_some((key, value))
    })
}

/// Parses a duration in Go's format; it may be negative.
fn duration(text: &str) -> Result<Interval, String> {
    let (is_negative, magnitude) = match text.strip_prefix('-') {
        Some(magnitude) if !magnitude.starts_with(['+', '-']) => (true, magnitude),
        Some(_) => return Err(format!("time: invalid duration \"{text}\"")),
        None => (false, text),
    };
    let parsed = Duration::from(magnitude.trim_end_matches(is_go_space)).parse()?;
    let nanos = i64::try_from(parsed.as_nanos()).map_err(|_| format!("time: invalid duration \"{text}\""))?;
    Ok(Interval::from_nanos(if is_negative { -nanos } else { nanos }))
}
