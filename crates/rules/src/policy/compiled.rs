//! Compiles the policies of a tier into few lookups, in place of a chain of jumps.
//!
//! Consecutive rules with the same action are a union: whichever of them matches, the outcome is the same, so their
//! order does not matter. Such a run, over all policies of an endpoint's tier and direction, becomes one lookup for
//! each combination of protocol and ports (a [`Class`]) in its rules. A class that many rules have with different
//! addresses gets a set of all their addresses ([`UnionSet`]); if there are many classes, they are found by port
//! through a tree ([`ports`]). Rules with more conditions than protocol, destination ports and the other side's
//! addresses stay separate rules at the end of their run. A rule that writes a log line ends a run, because it must see
//! the packets that no earlier rule decided.
//!
//! A union's name is derived from its content, so its meaning never changes. All chains that need the same union share
//! it, and it is filled before a rule names it. A chain's name is derived from the list of its policies.
//!
//! This cannot report single rules: where verdicts are reported for flow logs, policies keep their own chains.

mod classes;
mod ports;

use super::conditions::Conditions;
use super::{OwnerKind, log_prefix};
use crate::names::{Direction, RUN_ALLOW, RUN_DENY, RUN_PASS, policy_id};
use crate::renderer::{Renderer, goto, jump, mark_not_clear, protocol_number};
use crate::tree::{Action, Chain, ChainName, End, IpVersion, Match, Rule, Table};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use classes::{Class, Sources};
use ipnet::IpNet;
use messages::{IpSetId, Policy, PolicyId};
use model::feed::RuleAction;
use model::v1::PolicyKey;
use sha2::{Digest, Sha224};
use std::collections::{BTreeMap, BTreeSet};

/// Up to this number of sources of a class are looked up one by one: they cost nothing measurable, and no set has to be
/// maintained for them.
const FEW_SOURCES: usize = 8;
/// More sources than this are divided among several unions, so that a change of one source writes only a part of the
/// members.
const SOURCES_IN_UNION: usize = 128;
/// The greatest number of such unions.
const MAX_UNIONS: usize = 16;

/// The enforced policies of one tier and direction that an endpoint has, in order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicySequence {
    /// The direction of packets.
    pub direction: Direction,
    /// The policies.
    pub policies: Vec<PolicyId>,
}

impl PolicySequence {
    /// The name of the chain that packets are sent to.
    #[must_use]
    pub fn chain_name(&self) -> ChainName {
        self.part_name("")
    }

    /// The name of a chain that this one leads to.
    fn part_name(&self, part: &str) -> ChainName {
        let mut text = format!("{}\n{part}\n", self.direction.as_str());
        for policy in &self.policies {
            text.push_str(&policy_id(policy));
            text.push('\n');
        }
        let prefix = match self.direction {
            Direction::Inbound => "cali-ci-",
            Direction::Outbound => "cali-co-",
        };
        let room = crate::iptables::MAX_CHAIN_NAME - prefix.len();
        format!("{prefix}{}", short_hash(&text, room)).into()
    }
}

/// A set of everything in some sets and networks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnionSet {
    /// Its id, in the form of other sets' ids.
    pub id: IpSetId,
    /// The networks that it contains.
    pub nets: BTreeSet<IpNet>,
    /// The ids of the sets whose members it contains.
    pub sets: BTreeSet<IpSetId>,
}

/// The result of compiling the policies of a sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompiledPolicies {
    /// The chains; the first has the sequence's name.
    pub chains: Vec<Chain>,
    /// The unions that the chains name, by id.
    pub unions: BTreeMap<IpSetId, UnionSet>,
    /// The sets that are part of a union if they are small enough.
    pub sets: BTreeSet<IpSetId>,
}

/// A part of a sequence; everything before it is decided first.
enum Part {
    /// Rules with the same action, in any order.
    Run(Run),
    /// A rule that decides nothing.
    Log(Vec<Rule>),
}

#[derive(Default)]
struct Run {
    action: RuleAction,
    classes: BTreeMap<Class, Sources>,
    /// Rules that cannot be a lookup, rendered as in a chain of their own.
    others: Vec<Vec<Rule>>,
}

impl Renderer {
    /// Whether the policies of workload endpoints are compiled.
    #[must_use]
    pub fn compiles_policies(&self) -> bool {
        self.config.compile_policies && !self.config.flow_logs
    }

    /// The chains that end runs. All sequences lead to them.
    #[must_use]
    pub fn verdict_chains(&self) -> [Chain; 3] {
        let marks = &self.config.marks;
        let mark = |name: &str, bit| Chain::new(name, vec![Rule::always(Action::SetMark(bit))]);
        let deny =
            vec![Rule::always(Action::SetMark(marks.drop)), Rule::always(self.deny(Table::Filter).into())];
        [mark(RUN_ALLOW, marks.accept), mark(RUN_PASS, marks.pass), Chain::new(RUN_DENY, deny)]
    }

    /// Compiles the policies of a sequence, which must be in its order. An unknown policy matches nothing. `is_large`
    /// returns whether a set is too large to be part of a union.
    pub fn compile<'a>(
        &self,
        sequence: &PolicySequence,
        policy: impl Fn(&PolicyKey) -> Option<&'a Policy>,
        version: IpVersion,
        is_large: impl Fn(&str) -> bool,
    ) -> CompiledPolicies {
        let mut compiled = CompiledPolicies::default();
        let mut entry: Vec<Rule> = Vec::new();
        for (place, part) in self.parts(sequence, policy, version).into_iter().enumerate() {
            match part {
                Part::Log(rules) => entry.extend(rules),
                Part::Run(run) => {
                    self.render_run(sequence, place, run, version, &is_large, &mut entry, &mut compiled);
                }
            }
        }
        if entry.is_empty() {
            entry.push(Rule::default());
        }
        entry[0].comments.push(format!("{} policies, compiled", sequence.policies.len()).into());
        compiled.chains.insert(0, Chain::new(sequence.chain_name(), entry));
        compiled
    }

    /// The rules of all policies, split where their order begins to matter.
    fn parts<'a>(
        &self,
        sequence: &PolicySequence,
        policy: impl Fn(&PolicyKey) -> Option<&'a Policy>,
        version: IpVersion,
    ) -> Vec<Part> {
        let direction = sequence.direction;
        let mut parts: Vec<Part> = Vec::new();
        for key in &sequence.policies {
            let Some(policy) = policy(key) else { continue };
            let id = policy_id(key);
            let owner = super::Owner {
                kind: OwnerKind::Policy,
                id: &id,
                direction,
                untracked: false,
                log_prefix: self.policy_log_prefix(key, &policy.tier),
                comment: log_prefix::full_name(key).into(),
            };
            let rules = match direction {
                Direction::Inbound => &policy.inbound_rules,
                Direction::Outbound => &policy.outbound_rules,
            };
            for (index, rule) in rules.iter().enumerate() {
                let Some(conditions) = Conditions::of(rule, version, self.backend()) else { continue };
                let itself = || self.policy_rule(rule, index, (version, self.deny(Table::Filter)), &owner);
                if rule.action == RuleAction::Log {
                    parts.push(Part::Log(itself()));
                    continue;
                }
                if !matches!(parts.last(), Some(Part::Run(run)) if run.action == rule.action) {
                    parts.push(Part::Run(Run { action: rule.action, ..Run::default() }));
                }
                let Some(Part::Run(run)) = parts.last_mut() else { continue };
                match conditions.class(rule, direction) {
                    Some((class, sources)) => run.classes.entry(class).or_default().extend(sources),
                    None => {
                        let mut rules = itself();
                        rules.iter_mut().for_each(|rule| rule.comments.clear());
                        if !run.others.contains(&rules) {
                            run.others.push(rules);
                        }
                    }
                }
            }
        }
        parts
    }

    #[expect(clippy::too_many_arguments, reason = "one step of `compile`, split off for its length")]
    fn render_run(
        &self,
        sequence: &PolicySequence,
        place: usize,
        run: Run,
        version: IpVersion,
        is_large: &impl Fn(&str) -> bool,
        entry: &mut Vec<Rule>,
        compiled: &mut CompiledPolicies,
    ) {
        let end = match sequence.direction {
            Direction::Inbound => End::Source,
            Direction::Outbound => End::Destination,
        };
        let verdict = goto(match run.action {
            RuleAction::Allow => RUN_ALLOW,
            RuleAction::Pass => RUN_PASS,
            RuleAction::Deny | RuleAction::Log => RUN_DENY,
        });
        let mut with_ports: BTreeMap<u8, Vec<ports::Entry>> = BTreeMap::new();
        for (class, sources) in run.classes {
            let sources = lookups(sources, end, version, is_large, compiled);
            match class {
                Class { protocol: Some(number), ports } if !ports.is_empty() => {
                    with_ports.entry(number).or_default().push(ports::Entry { ports, sources });
                }
                Class { protocol, .. } => {
                    let protocol = protocol.map(protocol_number);
                    entry.extend(sources.into_iter().map(|source| {
                        Rule::when(
                            protocol.clone().into_iter().chain(source).collect::<Vec<_>>(),
                            verdict.clone(),
                        )
                    }));
                }
            }
        }
        for (number, entries) in with_ports {
            let name = |level: usize, index: usize| {
                sequence.part_name(&format!("{version} {place} {number} {level} {index}"))
            };
            match ports::tree(number, &entries, &verdict, name) {
                None => entry.extend(ports::flat(number, &entries, &verdict)),
                Some((root, chains)) => {
                    compiled.chains.extend(chains);
                    entry.push(Rule::when([protocol_number(number)], jump(root)));
                    let decided = self.config.marks.accept | self.config.marks.pass;
                    if run.action != RuleAction::Deny {
                        entry.push(Rule::when([mark_not_clear(decided)], Action::Return));
                    }
                }
            }
        }
        entry.extend(run.others.into_iter().flatten());
    }
}

/// The conditions on addresses of which any may match; `None` among them stands for no condition.
fn lookups(
    sources: Sources,
    end: End,
    version: IpVersion,
    is_large: &impl Fn(&str) -> bool,
    compiled: &mut CompiledPolicies,
) -> Vec<Option<Match>> {
    if sources.any {
        return vec![None];
    }
    compiled.sets.extend(sources.sets.iter().cloned());
    let set = |id: &str| Some(crate::renderer::ip_set(version, end, id, false));
    let (large, small): (BTreeSet<IpSetId>, BTreeSet<IpSetId>) =
        sources.sets.into_iter().partition(|id| is_large(id));
    let mut all: Vec<Option<Match>> = large.iter().map(|id| set(id)).collect();
    if small.len() + sources.nets.len() <= FEW_SOURCES {
        all.extend(small.iter().map(|id| set(id)));
        all.extend(sources.nets.into_iter().map(|net| Some(Match::Net { end, net, negated: false })));
        return all;
    }
    for union in unions(small, sources.nets) {
        all.push(set(&union.id));
        compiled.unions.insert(union.id.clone(), union);
    }
    all
}

/// Divides sources among unions, each by its own name, so that a change of one leaves the other unions as they are.
fn unions(sets: BTreeSet<IpSetId>, nets: BTreeSet<IpNet>) -> Vec<UnionSet> {
    let count = (sets.len() + nets.len()).div_ceil(SOURCES_IN_UNION).next_power_of_two().min(MAX_UNIONS);
    let place = |name: &str| usize::from(Sha224::digest(name)[0]) % count;
    let mut all = vec![(BTreeSet::new(), BTreeSet::new()); count];
    for id in sets {
        all[place(&id)].0.insert(id);
    }
    for net in nets {
        all[place(&net.to_string())].1.insert(net);
    }
    let union = |(sets, nets): (BTreeSet<IpSetId>, BTreeSet<IpNet>)| {
        let names = sets.iter().map(|id: &IpSetId| id.to_string()).chain(nets.iter().map(IpNet::to_string));
        let text = names.collect::<Vec<_>>().join("\n");
        // The names of sets in the kernel have no room for more.
        UnionSet { id: format!("u:{}", short_hash(&text, 23)).into(), nets, sets }
    };
    all.into_iter().filter(|(sets, nets)| !sets.is_empty() || !nets.is_empty()).map(union).collect()
}

fn short_hash(text: &str, length: usize) -> String {
    let mut hash = URL_SAFE_NO_PAD.encode(Sha224::digest(text));
    hash.truncate(length);
    hash
}
