//! Objects of `apiVersion: v1` (Calico before 3.0) in the current version.
//!
//! What changed: names lost capitals and underscores, tags became labels without a value, actions, protocols and
//! directions were capitalised, and identifying fields (a pool's CIDR, a peer's address) moved into the spec.

use super::names;
use api::Kind;
use api::kind::API_VERSION;
use ipnet::IpNet;
use serde_json::{Map, Value, json};
use std::net::IpAddr;

type Fields = Map<String, Value>;

/// Converts the object to the current version; `None` for an unknown kind.
///
/// # Errors
/// When the object cannot be converted.
pub(super) fn convert(kind: &str, object: &Value) -> Result<Option<(Kind, Value)>, String> {
    let empty = Fields::new();
    let part = |name: &str| object.get(name).and_then(Value::as_object).unwrap_or(&empty);
    let (metadata, spec) = (part("metadata"), part("spec"));
    let (kind, metadata, spec) = match kind.to_lowercase().as_str() {
        "ippool" => ip_pool(metadata, spec)?,
        "bgppeer" => bgp_peer(metadata, spec)?,
        "policy" => policy(metadata, spec)?,
        "profile" => profile(metadata, spec)?,
        "hostendpoint" => host_endpoint(metadata, spec)?,
        "node" => node(metadata, spec)?,
        "workloadendpoint" => {
            return Err("workload endpoints are created by the orchestrator and are not converted".to_owned());
        }
        _ => return Ok(None),
    };
    let value = json!({"apiVersion": API_VERSION, "kind": kind.as_str(), "metadata": metadata, "spec": spec});
    Ok(Some((kind, value)))
}

type Converted = (Kind, Fields, Fields);

fn ip_pool(metadata: &Fields, spec: &Fields) -> Result<Converted, String> {
    let cidr: IpNet =
        required(metadata, "cidr")?.parse().map_err(|_| "metadata.cidr is not a network".to_owned())?;
    let cidr = cidr.trunc();
    let ipip = spec.get("ipip").and_then(Value::as_object);
    let is_enabled = ipip.is_some_and(|ipip| truth(ipip, "enabled"));
    let mode = match ipip.map(|ipip| text(ipip, "mode").to_lowercase()) {
        _ if !is_enabled => "Never",
        Some(mode) if mode == "cross-subnet" => "CrossSubnet",
        _ => "Always",
    };
    let new = fields(json!({
        "cidr": cidr.to_string(),
        "ipipMode": mode,
        "natOutgoing": truth(spec, "nat-outgoing"),
        "disabled": truth(spec, "disabled"),
        "nodeSelector": "all()",
        "blockSize": if cidr.addr().is_ipv4() { 26 } else { 122 },
    }));
    Ok((Kind::IPPool, named(&cidr.to_string().replace(['.', ':', '/'], "-")), new))
}

fn bgp_peer(metadata: &Fields, spec: &Fields) -> Result<Converted, String> {
    let address: IpAddr =
        required(metadata, "peerIP")?.parse().map_err(|_| "metadata.peerIP is not an address".to_owned())?;
    let mut new = fields(json!({"peerIP": address.to_string()}));
    copy(spec, "asNumber", &mut new);
    let own = names::of_address(address);
    let name = match (text(metadata, "scope"), text(metadata, "node")) {
        ("global", "") => own,
        ("global", _) => return Err("a global peer has no metadata.node".to_owned()),
        ("node", "") => return Err("metadata.node is missing".to_owned()),
        ("node", node) => {
            let node = names::node_name(node);
            new.insert("node".to_owned(), node.clone().into());
            format!("{node}.{own}")
        }
        _ => return Err("metadata.scope must be global or node".to_owned()),
    };
    Ok((Kind::BGPPeer, named(&name), new))
}

fn policy(metadata: &Fields, spec: &Fields) -> Result<Converted, String> {
    let mut new = Fields::new();
    copy(spec, "order", &mut new);
    copy(spec, "doNotTrack", &mut new);
    copy(spec, "preDNAT", &mut new);
    let selector = selector(text(spec, "selector"), "");
    if !selector.is_empty() {
        new.insert("selector".to_owned(), selector.into());
    }
    // Such policies always applied to forwarded traffic; now that must be explicit.
    if truth(spec, "doNotTrack") || truth(spec, "preDNAT") {
        new.insert("applyOnForward".to_owned(), true.into());
    }
    let ingress = rules(spec, "ingress")?;
    let egress = rules(spec, "egress")?;
    let types = match spec.get("types").and_then(Value::as_array).filter(|types| !types.is_empty()) {
        None if egress.is_empty() => vec!["Ingress"],
        None if ingress.is_empty() => vec!["Egress"],
        None => vec!["Ingress", "Egress"],
        Some(types) => {
            let one = |value: &Value| match value.as_str().unwrap_or_default().to_lowercase().as_str() {
                "ingress" => Ok("Ingress"),
                "egress" => Ok("Egress"),
                _ => Err(format!("invalid policy type: {value}")),
            };
            types.iter().map(one).collect::<Result<Vec<_>, _>>()?
        }
    };
    new.insert("types".to_owned(), json!(types));
    insert_list(&mut new, "ingress", ingress);
    insert_list(&mut new, "egress", egress);
    let mut about = named(&names::name_without_dots(required(metadata, "name")?));
    copy(metadata, "annotations", &mut about);
    Ok((Kind::GlobalNetworkPolicy, about, new))
}

fn profile(metadata: &Fields, spec: &Fields) -> Result<Converted, String> {
    let name = profile_name(required(metadata, "name")?);
    let mut labels = metadata.get("labels").and_then(Value::as_object).cloned().unwrap_or_default();
    for tag in strings(metadata, "tags") {
        if let Some(value) = labels.insert(tag.clone(), "".into()) {
            return Err(format!(
                "profile {name} has the tag {tag} and a label of that name ({value}): rename one of them"
            ));
        }
    }
    let mut new = Fields::new();
    if !labels.is_empty() {
        new.insert("labelsToApply".to_owned(), Value::Object(labels));
    }
    insert_list(&mut new, "ingress", rules(spec, "ingress")?);
    insert_list(&mut new, "egress", rules(spec, "egress")?);
    Ok((Kind::Profile, named(&name), new))
}

fn host_endpoint(metadata: &Fields, spec: &Fields) -> Result<Converted, String> {
    let node = names::node_name(required(metadata, "node")?);
    let name = names::name(&format!("{node}.{}", required(metadata, "name")?));
    let mut new = fields(json!({"node": node}));
    copy(spec, "interfaceName", &mut new);
    // IPv4 addresses come first.
    let (mut addresses, sixes): (Vec<String>, Vec<String>) =
        strings(spec, "expectedIPs").into_iter().partition(|address| !address.contains(':'));
    addresses.extend(sixes);
    insert_list(&mut new, "expectedIPs", addresses.into_iter().map(Value::from).collect());
    let profiles = strings(spec, "profiles").iter().map(|name| profile_name(name).into()).collect();
    insert_list(&mut new, "profiles", profiles);
    let mut ports = spec.get("ports").and_then(Value::as_array).cloned().unwrap_or_default();
    for port in ports.iter_mut().filter_map(Value::as_object_mut) {
        capitalise_protocol(port, "protocol");
    }
    insert_list(&mut new, "ports", ports);
    let mut about = named(&name);
    copy(metadata, "labels", &mut about);
    Ok((Kind::HostEndpoint, about, new))
}

fn node(metadata: &Fields, spec: &Fields) -> Result<Converted, String> {
    let mut new = Fields::new();
    if let Some(bgp) = spec.get("bgp").and_then(Value::as_object) {
        if text(bgp, "ipv4Address").is_empty() && text(bgp, "ipv6Address").is_empty() {
            return Err("spec.bgp needs ipv4Address or ipv6Address".to_owned());
        }
        new.insert("bgp".to_owned(), Value::Object(bgp.clone()));
    }
    copy(spec, "orchRefs", &mut new);
    Ok((Kind::Node, named(&names::node_name(required(metadata, "name")?)), new))
}

fn rules(spec: &Fields, name: &str) -> Result<Vec<Value>, String> {
    let Some(rules) = spec.get(name).and_then(Value::as_array) else { return Ok(Vec::new()) };
    rules
        .iter()
        .enumerate()
        .map(|(index, value)| rule(value).map_err(|reason| format!("spec.{name}[{index}]: {reason}")))
        .collect()
}

fn rule(value: &Value) -> Result<Value, String> {
    let old = value.as_object().ok_or("expected an object")?;
    let mut new = Fields::new();
    let action = match text(old, "action").to_lowercase().as_str() {
        "" | "allow" => "Allow",
        "deny" => "Deny",
        "log" => "Log",
        "pass" | "next-tier" => "Pass",
        other => return Err(format!("unknown action {other}")),
    };
    new.insert("action".to_owned(), action.into());
    for name in ["ipVersion", "icmp", "notICMP", "protocol", "notProtocol"] {
        copy(old, name, &mut new);
    }
    capitalise_protocol(&mut new, "protocol");
    capitalise_protocol(&mut new, "notProtocol");
    for name in ["source", "destination"] {
        let Some(side) = old.get(name).and_then(Value::as_object) else { continue };
        let side = entity(side)?;
        if !side.is_empty() {
            new.insert(name.to_owned(), Value::Object(side));
        }
    }
    Ok(Value::Object(new))
}

/// Converts one side of a rule: single networks join the lists, tags join the selectors.
fn entity(old: &Fields) -> Result<Fields, String> {
    let mut new = Fields::new();
    for (many, one) in [("nets", "net"), ("notNets", "notNet")] {
        let single = Some(text(old, one).to_owned()).filter(|net| !net.is_empty());
        let mut nets = Vec::new();
        for net in single.into_iter().chain(strings(old, many)) {
            nets.push(masked(&net)?.into());
        }
        insert_list(&mut new, many, nets);
    }
    for (name, tag) in [("selector", "tag"), ("notSelector", "notTag")] {
        let merged = selector(text(old, name), text(old, tag));
        if !merged.is_empty() {
            new.insert(name.to_owned(), merged.into());
        }
    }
    copy(old, "ports", &mut new);
    copy(old, "notPorts", &mut new);
    Ok(new)
}

fn masked(net: &str) -> Result<String, String> {
    let parsed: Option<IpNet> = net.parse().ok().or_else(|| net.parse::<IpAddr>().ok().map(IpNet::from));
    parsed.map(|net| net.trunc().to_string()).ok_or_else(|| format!("{net} is not a network"))
}

/// The selector with current label names, and the tag as a further condition.
fn selector(old: &str, tag: &str) -> String {
    let new = old.replace("calico/k8s_ns", api::words::LABEL_NAMESPACE);
    match (new.as_str(), tag) {
        (_, "") => new,
        ("", tag) => format!("{tag} == ''"),
        (selector, tag) => format!("({selector}) && {tag} == ''"),
    }
}

fn profile_name(old: &str) -> String {
    match old.strip_prefix("k8s_ns.") {
        Some(namespace) => names::name(&format!("{}{namespace}", api::words::NAMESPACE_PROFILE_PREFIX)),
        None => names::name(old),
    }
}

fn capitalise_protocol(fields: &mut Fields, name: &str) {
    const PROTOCOLS: [&str; 6] = ["TCP", "UDP", "ICMP", "ICMPv6", "SCTP", "UDPLite"];
    if let Some(Value::String(text)) = fields.get_mut(name)
        && let Some(known) = PROTOCOLS.iter().find(|known| known.eq_ignore_ascii_case(text))
    {
        (*known).clone_into(text);
    }
}

fn named(name: &str) -> Fields {
    fields(json!({"name": name}))
}

fn fields(value: Value) -> Fields {
    match value {
        Value::Object(fields) => fields,
        _ => Fields::new(),
    }
}

fn text<'a>(fields: &'a Fields, name: &str) -> &'a str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn required<'a>(metadata: &'a Fields, name: &str) -> Result<&'a str, String> {
    Some(text(metadata, name))
        .filter(|text| !text.is_empty())
        .ok_or_else(|| format!("metadata.{name} is missing"))
}

fn truth(fields: &Fields, name: &str) -> bool {
    fields.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn strings(fields: &Fields, name: &str) -> Vec<String> {
    let items = fields.get(name).and_then(Value::as_array);
    items.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn copy(from: &Fields, name: &str, to: &mut Fields) {
    if let Some(value) = from.get(name).filter(|value| !value.is_null()) {
        to.insert(name.to_owned(), value.clone());
    }
}

fn insert_list(fields: &mut Fields, name: &str, items: Vec<Value>) {
    if !items.is_empty() {
        fields.insert(name.to_owned(), Value::Array(items));
    }
}
