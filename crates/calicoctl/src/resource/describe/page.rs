//! An object and the facts about it, as readable text.

use super::rules;
use crate::ipam::usage::{BlockUse, PoolUse, percent};
use ::explain::{Applying, Direction};
use api::meta::StringMap;
use api::yaml::go_float;
use api::{Resource, Rule};
use serde_json::Value;
use std::fmt::Write as _;

/// The column where values begin.
const COLUMN: usize = 20;

/// The facts that are printed with an object.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// The endpoints that a policy selects.
    pub(super) endpoints: Option<Vec<String>>,
    /// The policies that apply to an endpoint.
    pub(super) policies: Option<Vec<Applying>>,
    /// The policies of a tier.
    pub(super) members: Option<Vec<String>>,
    /// How full a pool is.
    pub(super) pool: Option<PoolUse>,
    /// The blocks of a node.
    pub(super) blocks: Option<Vec<BlockUse>>,
}

/// The description of an object.
pub(super) fn text(resource: &Resource, facts: &Facts) -> String {
    let mut page = Page(String::new());
    let metadata = resource.metadata();
    page.field("Name", resource.name());
    if resource.kind().is_namespaced() {
        page.field("Namespace", resource.namespace());
    }
    page.map("Labels", &metadata.labels);
    page.map("Annotations", &metadata.annotations);
    page.field("Kind", resource.kind().as_str());
    if let Some(time) = &metadata.creation_timestamp {
        page.field("Created", time.as_str());
    }
    if metadata.deletion_timestamp.is_some() {
        page.field("Status", "being deleted");
    }
    let value = serde_json::to_value(resource).unwrap_or_default();
    let mut spec = value.get("spec").cloned().unwrap_or_default();
    policy(&mut page, resource, &mut spec);
    page.spec(&spec);
    if let Some(status) = value.get("status").filter(|status| !is_empty(status)) {
        page.section("Status", yaml(status).lines());
    }
    page.facts(facts);
    page.0
}

/// Prints the fields that every kind of policy has, and removes them from the spec.
fn policy(page: &mut Page, resource: &Resource, spec: &mut Value) {
    let (ingress, egress): (&[Rule], &[Rule]) = match resource {
        Resource::NetworkPolicy(object) => (&object.spec.ingress, &object.spec.egress),
        Resource::GlobalNetworkPolicy(object) => (&object.spec.ingress, &object.spec.egress),
        Resource::StagedNetworkPolicy(object) => (&object.spec.ingress, &object.spec.egress),
        Resource::StagedGlobalNetworkPolicy(object) => (&object.spec.ingress, &object.spec.egress),
        Resource::Profile(object) => (&object.spec.ingress, &object.spec.egress),
        _ => return,
    };
    let Value::Object(fields) = spec else { return };
    let mut types = Vec::new();
    if let Some(Value::Array(words)) = fields.remove("types") {
        types.extend(words.iter().filter_map(Value::as_str).map(str::to_owned));
        page.field("Types", &types.join(", "));
    }
    if let Some(order) = fields.remove("order") {
        page.field("Order", &order.as_f64().map_or_else(|| order.to_string(), go_float));
    }
    for (name, title) in [("tier", "Tier"), ("selector", "Selector")] {
        if let Some(Value::String(text)) = fields.remove(name) {
            page.field(title, &text);
        }
    }
    for (name, title, rules) in [("ingress", "Ingress", ingress), ("egress", "Egress", egress)] {
        fields.remove(name);
        let lines: Vec<String> =
            rules.iter().enumerate().map(|(place, rule)| format!("{place}. {}", rules::line(rule))).collect();
        if !lines.is_empty() {
            page.section(&format!("{title} rules"), lines.iter().map(String::as_str));
        } else if types.iter().any(|word| word == title) {
            page.section(&format!("{title} rules"), ["none: the tier's default action decides"].into_iter());
        }
    }
}

struct Page(String);

impl Page {
    fn field(&mut self, name: &str, value: &str) {
        // A long name is still followed by a space.
        let name = format!("{name}: ");
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{}", format!("{name:<COLUMN$}{value}").trim_end());
    }

    fn map(&mut self, name: &str, map: &StringMap) {
        let mut title = name;
        if map.is_empty() {
            self.field(name, "<none>");
        }
        for (key, value) in map {
            if title.is_empty() {
                let _ = writeln!(self.0, "{}", format!("{:COLUMN$}{key}={value}", "").trim_end());
            } else {
                self.field(title, &format!("{key}={value}"));
            }
            title = "";
        }
    }

    fn section<'a>(&mut self, title: &str, lines: impl Iterator<Item = &'a str>) {
        let _ = writeln!(self.0, "{title}:");
        for line in lines {
            let _ = writeln!(self.0, "{}", format!("  {line}").trim_end());
        }
    }

    /// The fields of a spec: plain ones as lines, others as sections below them.
    fn spec(&mut self, spec: &Value) {
        let Value::Object(fields) = spec else { return };
        for (name, value) in fields.iter().filter(|(_, value)| !is_empty(value)) {
            match value {
                Value::String(text) => self.field(&title(name), text),
                Value::Bool(_) | Value::Number(_) => self.field(&title(name), &value.to_string()),
                Value::Array(items) if items.iter().all(Value::is_string) => {
                    let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
                    self.field(&title(name), &items.join(", "));
                }
                _ => {}
            }
        }
        for (name, value) in fields.iter().filter(|(_, value)| !is_empty(value)) {
            let is_section = match value {
                Value::Array(items) => !items.iter().all(Value::is_string),
                other => other.is_object(),
            };
            if is_section {
                self.section(&title(name), yaml(value).lines());
            }
        }
    }

    fn facts(&mut self, facts: &Facts) {
        if let Some(endpoints) = &facts.endpoints {
            let title = format!("Selected endpoints ({})", endpoints.len());
            self.section(&title, or_none(endpoints.iter().map(String::as_str)));
        }
        if let Some(policies) = &facts.policies {
            let lines: Vec<String> = policies.iter().map(applying).collect();
            self.section(
                &format!("Policies ({})", policies.len()),
                or_none(lines.iter().map(String::as_str)),
            );
        }
        if let Some(members) = &facts.members {
            self.section(
                &format!("Policies ({})", members.len()),
                or_none(members.iter().map(String::as_str)),
            );
        }
        if let Some(pool) = &facts.pool {
            let PoolUse { capacity, in_use, reserved, available, .. } = pool;
            let share = percent(*in_use, *capacity);
            self.field(
                "Addresses",
                &format!(
                    "{capacity}, of which {in_use} in use ({share}%), {reserved} reserved, {available} free"
                ),
            );
            self.blocks(&pool.blocks, true);
        }
        if let Some(blocks) = &facts.blocks {
            self.blocks(blocks, false);
        }
    }

    fn blocks(&mut self, blocks: &[BlockUse], with_owner: bool) {
        let width = blocks.iter().map(|block| block.cidr.to_string().len()).max().unwrap_or(0);
        let line = |block: &BlockUse| {
            let cidr = block.cidr.to_string();
            let owner = match (with_owner, block.owner.as_str()) {
                (false, _) => String::new(),
                (true, "") => ", belongs to no node".to_owned(),
                (true, owner) => format!(", {owner}"),
            };
            format!("{cidr:<width$}  {} of {} in use{owner}", block.in_use, block.capacity)
        };
        let lines: Vec<String> = blocks.iter().map(line).collect();
        self.section(&format!("Blocks ({})", blocks.len()), or_none(lines.iter().map(String::as_str)));
    }
}

fn applying(policy: &Applying) -> String {
    let words: Vec<&str> = policy
        .directions
        .iter()
        .map(|direction| match direction {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        })
        .collect();
    let staged = if policy.staged { " (staged: not enforced)" } else { "" };
    format!("tier {}: {}, {}{staged}", policy.tier, policy.policy, words.join(" and "))
}

fn or_none<'a>(lines: impl Iterator<Item = &'a str>) -> impl Iterator<Item = &'a str> {
    let mut lines = lines.peekable();
    let none = lines.peek().is_none().then_some("<none>");
    lines.chain(none)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

fn yaml(value: &Value) -> String {
    api::yaml::to_string(value)
}

/// A field's name as a title, like kubectl: `natOutgoing` becomes `Nat Outgoing`, `cidr` becomes `CIDR`.
fn title(name: &str) -> String {
    if matches!(name, "cidr" | "mac" | "pod" | "bgp") {
        return match name {
            "pod" => "Pod".to_owned(),
            other => other.to_uppercase(),
        };
    }
    let mut out = String::new();
    let mut previous: Option<char> = None;
    for character in name.chars() {
        match previous {
            None => out.extend(character.to_uppercase()),
            Some(before) if character.is_uppercase() && before.is_lowercase() => {
                out.push(' ');
                out.push(character);
            }
            Some(_) => out.push(character),
        }
        previous = Some(character);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Kind;

    fn object(kind: Kind, json: &str) -> Resource {
        Resource::from_json(kind, json.as_bytes()).expect("an object")
    }

    #[test]
    fn a_policy_shows_its_rules_as_lines_and_its_endpoints() {
        let policy = object(
            Kind::NetworkPolicy,
            r#"{"metadata":{"name":"web","namespace":"shop","labels":{"a":"1","b":"2"}},"spec":{"tier":"default","order":10,"selector":"app == 'web'","types":["Ingress","Egress"],"ingress":[{"action":"Allow","protocol":"TCP","destination":{"ports":[80]}},{"action":"Deny"}],"serviceAccountSelector":"x == 'y'"}}"#,
        );
        let facts = Facts { endpoints: Some(vec!["pod shop/web-1".to_owned()]), ..Facts::default() };
        assert_eq!(
            text(&policy, &facts),
            "Name:               web\nNamespace:          shop\nLabels:             a=1\n                    b=2\n\
             Annotations:        <none>\nKind:               NetworkPolicy\nTypes:              Ingress, Egress\n\
             Order:              10\nTier:               default\nSelector:           app == 'web'\n\
             Ingress rules:\n  0. Allow TCP to port 80\n  1. Deny\n\
             Egress rules:\n  none: the tier's default action decides\n\
             Service Account Selector: x == 'y'\nSelected endpoints (1):\n  pod shop/web-1\n"
        );
    }

    #[test]
    fn a_pool_shows_its_blocks_and_their_use() {
        let pool = object(
            Kind::IPPool,
            r#"{"metadata":{"name":"p"},"spec":{"cidr":"10.0.0.0/24","natOutgoing":true,"allowedUses":["Workload","Tunnel"]}}"#,
        );
        let block = BlockUse {
            cidr: "10.0.0.0/26".parse().expect("a range"),
            owner: "n1".to_owned(),
            capacity: 64,
            in_use: 3,
            reserved: 0,
        };
        let usage = PoolUse {
            name: "p".to_owned(),
            cidr: Some("10.0.0.0/24".parse().expect("a range")),
            block_size: 26,
            disabled: false,
            capacity: 256,
            in_use: 3,
            reserved: 0,
            available: 253,
            blocks: vec![block],
        };
        let page = text(&pool, &Facts { pool: Some(usage), ..Facts::default() });
        for expected in [
            "CIDR:               10.0.0.0/24\n",
            "Nat Outgoing:       true\n",
            "Allowed Uses:       Workload, Tunnel\n",
            "Addresses:          256, of which 3 in use (1%), 0 reserved, 253 free\nBlocks (1):\n  10.0.0.0/26  3 of 64 in use, n1\n",
        ] {
            assert!(page.contains(expected), "{expected} is not in\n{page}");
        }
    }

    #[test]
    fn an_endpoint_shows_its_policies() {
        let endpoint = object(
            Kind::WorkloadEndpoint,
            r#"{"metadata":{"name":"w","namespace":"shop"},"spec":{"node":"n1","ipNetworks":["10.0.0.1/32"],"ports":[{"name":"http","protocol":"TCP","port":80}]}}"#,
        );
        let applying = Applying {
            tier: "default".to_owned(),
            policy: "NetworkPolicy shop/web".to_owned(),
            directions: vec![Direction::Ingress],
            staged: true,
        };
        let page = text(&endpoint, &Facts { policies: Some(vec![applying]), ..Facts::default() });
        assert!(page.contains("Ip Networks:        10.0.0.1/32\n"), "{page}");
        assert!(page.contains("    name: http\n"), "{page}");
        let line = "Policies (1):\n  tier default: NetworkPolicy shop/web, ingress (staged: not enforced)\n";
        assert!(page.ends_with(line), "{page}");
        let none = text(&endpoint, &Facts { policies: Some(Vec::new()), ..Facts::default() });
        assert!(none.ends_with("Policies (0):\n  <none>\n"), "{none}");
    }
}
