//! Renders BGPFilters as functions.

use bgp::intent::filter::{
    Action, Filter, FilterName, FilterRule, Operation, Operator, PeerType, PrefixMatch, RouteSource,
};
use bgp::{Community, IpVersion};
use data_encoding::HEXUPPER;
use sha2::{Digest, Sha256};

/// The maximum length of a function's name.
const LONGEST_SYMBOL: usize = 64;
/// The number of digest letters in a shortened name.
const DIGEST_LETTERS: usize = 16;

/// The direction of routes.
#[derive(Clone, Copy)]
pub(super) enum Direction {
    Import,
    Export,
}

impl Direction {
    fn as_str(self) -> &'static str {
        match self {
            Self::Import => "import",
            Self::Export => "export",
        }
    }

    fn rules(self, filter: &Filter, version: IpVersion) -> &[FilterRule] {
        match self {
            Self::Import => filter.import(version),
            Self::Export => filter.export(version),
        }
    }
}

/// The functions of all filters, used or not.
pub(super) fn functions<'a>(filters: impl Iterator<Item = &'a Filter>, version: IpVersion) -> Vec<String> {
    let mut lines = Vec::new();
    for filter in filters {
        let mut titled = false;
        for direction in [Direction::Import, Direction::Export] {
            let rules = direction.rules(filter, version);
            if rules.is_empty() {
                continue;
            }
            if !titled {
                lines.push(format!("# v{version} BGPFilter {}", filter.name));
                titled = true;
            }
            let name = symbol(&filter.name, direction, version);
            let argument = if has_peer_type(rules) { "bool is_same_as" } else { "" };
            lines.push(format!("function {name}({argument}) {{"));
            lines.extend(rules.iter().map(|rule| format!("  {}", guarded(rule))));
            lines.push("}".to_owned());
        }
    }
    if lines.is_empty() {
        lines.push(format!("# No v{version} BGPFilters configured"));
    }
    lines
}

/// The call of a filter's function in a session.
pub(super) fn call(filter: &Filter, direction: Direction, version: IpVersion, internal: bool) -> String {
    let argument =
        if has_peer_type(direction.rules(filter, version)) { internal.to_string() } else { String::new() };
    format!("{}({argument});", symbol(&filter.name, direction, version))
}

/// `'bgp_NAME_importFilterV4'`; a name that is too long is replaced by its beginning and a digest.
fn symbol(name: &FilterName, direction: Direction, version: IpVersion) -> String {
    let ending = format!("_{}FilterV{version}", direction.as_str());
    let room = LONGEST_SYMBOL - "bgp_".len() - ending.len();
    let name = if name.0.len() <= room {
        name.0.clone()
    } else {
        let digest = HEXUPPER.encode(&Sha256::digest(name.0.as_bytes()));
        let kept = room - 1 - DIGEST_LETTERS;
        let beginning: String = name.0.chars().take(kept).collect();
        format!("{beginning}_{}", &digest[..DIGEST_LETTERS])
    };
    format!("'bgp_{name}{ending}'")
}

fn has_peer_type(rules: &[FilterRule]) -> bool {
    rules.iter().any(|rule| rule.peer_type.is_some())
}

fn guarded(rule: &FilterRule) -> String {
    let statement = statement(rule);
    match rule.peer_type {
        None => statement,
        Some(PeerType::Internal) => format!("if (is_same_as) then {{ {statement} }}"),
        Some(PeerType::External) => format!("if (!is_same_as) then {{ {statement} }}"),
    }
}

fn statement(rule: &FilterRule) -> String {
    let mut body: Vec<String> = rule.operations.iter().flat_map(operation).collect();
    body.push(match rule.action {
        Action::Accept => "accept;".to_owned(),
        Action::Reject => "reject;".to_owned(),
    });
    let (conditions, body) = (conditions(rule), body.join(" "));
    if conditions.is_empty() { body } else { format!("if ({}) then {{ {body} }}", conditions.join("&&")) }
}

fn conditions(rule: &FilterRule) -> Vec<String> {
    let mut conditions = Vec::new();
    conditions.extend(rule.prefix.map(prefix));
    conditions.extend(rule.source.map(|source| match source {
        RouteSource::RemotePeers => "((defined(source))&&(source ~ [ RTS_BGP ]))".to_owned(),
    }));
    conditions.extend(
        rule.interface.as_ref().map(|pattern| format!("((defined(ifname))&&(ifname ~ \"{pattern}\"))")),
    );
    conditions.extend(rule.community.map(|community| match community {
        Community::Standard(..) => format!("({} ~ bgp_community)", tuple(community)),
        Community::Large(..) => format!("({} ~ bgp_large_community)", tuple(community)),
    }));
    if !rule.as_path_prefix.is_empty() {
        let numbers: Vec<String> = rule.as_path_prefix.iter().map(ToString::to_string).collect();
        conditions.push(format!("(bgp_path ~ [= {} * =])", numbers.join(" ")));
    }
    conditions.extend(rule.priority.map(|priority| {
        format!("(defined(bgp_local_pref)&&(bgp_local_pref = {}))", priority.local_preference())
    }));
    conditions
}

fn prefix(prefix: PrefixMatch) -> String {
    let operator = match prefix.operator {
        Operator::Equal => "=",
        Operator::NotEqual => "!=",
        Operator::In => "~",
        Operator::NotIn => "!~",
    };
    match prefix.lengths {
        None => format!("(net {operator} {})", prefix.prefix),
        Some(lengths) => format!("(net {operator} [ {}{{{},{}}} ])", prefix.prefix, lengths.min, lengths.max),
    }
}

/// BIRD prepends one number to the path at a time, so the last one comes first.
fn operation(operation: &Operation) -> Vec<String> {
    match operation {
        Operation::AddCommunity(community) => vec![add_community(*community)],
        Operation::PrependAsPath(numbers) => {
            numbers.iter().rev().map(|number| format!("bgp_path.prepend({number});")).collect()
        }
        Operation::SetPriority(priority) => {
            vec![format!("bgp_local_pref = {};", priority.local_preference())]
        }
    }
}

/// The statement that adds a community to a route.
pub(super) fn add_community(community: Community) -> String {
    match community {
        Community::Standard(..) => format!("bgp_community.add({});", tuple(community)),
        Community::Large(..) => format!("bgp_large_community.add({});", tuple(community)),
    }
}

fn tuple(community: Community) -> String {
    match community {
        Community::Standard(first, second) => format!("({first}, {second})"),
        Community::Large(first, second, third) => format!("({first}, {second}, {third})"),
    }
}
