//! The policies of a tier as few lookups in the place of a chain of jumps.
//!
//! Rules that follow one another and do the same are a union: whichever of them matches, the packet fares the same, so
//! their order means nothing. Such a run, over all policies of an endpoint's tier and direction, becomes one lookup for each
//! combination of protocol and ports (a [`Class`]) that its rules have. A class that many rules have with different
//! addresses gets a set of all their addresses ([`UnionSet`]); many classes are found by port through a tree ([`ports`]).
//! Rules that say more than protocol, destination ports and the other side's addresses stay rules of their own at the
//! end of their run. A rule that writes a log line ends a run: it must see the packets that nothing before it decided.
//!
//! A union's name follows from what it is made of, so it never means anything else, is shared by all chains that ask for
//! the same, and is filled before a rule names it. A chain's name follows from the list of its policies.
//!
//! It refuses reports of single rules: where verdicts are reported for flow logs, policies keep their own chains.

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

/// Up to so many sources of a class are looked up one by one: they cost nothing that can be measured, and no set has to
/// be kept for them.
const FEW_SOURCES: usize = 8;
/// More sources than this are divided over several unions, so that a change of one of them writes a part of the members.
const SOURCES_IN_UNION: usize = 128;
/// Over so many unions at most.
const MAX_UNIONS: usize = 16;

/// The enforced policies of one tier and direction that an endpoint has, in order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicySequence {
    /// Whether they are for packets to or from the endpoint.
    pub direction: Direction,
    /// The policies.
    pub policies: Vec<PolicyId>,
}

impl PolicySequence {
    /// The chain that packets are sent to.
    #[must_use]
    pub fn chain_name(&self) -> ChainName {
        self.part_name("")
    }

    /// A chain that this one leads to.
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

/// A set of everything that some sets and networks have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnionSet {
    /// Its id, as other sets have.
    pub id: IpSetId,
    /// The networks that are always in it.
    pub nets: BTreeSet<IpNet>,
    /// The ids of the sets whose members are in it.
    pub sets: BTreeSet<IpSetId>,
}

/// What the policies of a sequence are compiled into.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompiledPolicies {
    /// The chains; the first has the sequence's name.
    pub chains: Vec<Chain>,
    /// The unions that they name, by id.
    pub unions: BTreeMap<IpSetId, UnionSet>,
    /// The sets that would be, or are, in a union, depending on their size.
    pub sets: BTreeSet<IpSetId>,
}

/// A part of a sequence that comes after all before it.
enum Part {
    /// Rules of one action, in any order.
    Run(Run),
    /// A rule that decides nothing.
    Log(Vec<Rule>),
}

#[derive(Default)]
struct Run {
    action: RuleAction,
    classes: BTreeMap<Class, Sources>,
    /// Rules that are no lookup, as they are rendered in a chain of their own.
    others: Vec<Vec<Rule>>,
}

impl Renderer {
    /// Whether the policies of workload endpoints are compiled.
    #[must_use]
    pub fn compiles_policies(&self) -> bool {
        self.config.compile_policies && !self.config.flow_logs
    }

    /// The chains that end runs. Every sequence leads to them.
    #[must_use]
    pub fn verdict_chains(&self) -> [Chain; 3] {
        let marks = &self.config.marks;
        let mark = |name: &str, bit| Chain::new(name, vec![Rule::always(Action::SetMark(bit))]);
        let deny =
            vec![Rule::always(Action::SetMark(marks.drop)), Rule::always(self.deny(Table::Filter).into())];
        [mark(RUN_ALLOW, marks.accept), mark(RUN_PASS, marks.pass), Chain::new(RUN_DENY, deny)]
    }

    /// Compiles the policies of a sequence, which are given in its order. A policy that is not known matches nothing.
    /// `is_large` tells the sets that are too large to be in a union.
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

    /// The rules of all policies, divided where their order begins to matter.
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

/// The conditions on addresses of which any may be met; `None` among them stands for no condition.
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

/// Divides sources over unions, each by its own name, so that a change of one leaves the other unions alone.
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
        // The kernel's names of sets have room for so much.
        UnionSet { id: format!("u:{}", short_hash(&text, 23)).into(), nets, sets }
    };
    all.into_iter().filter(|(sets, nets)| !sets.is_empty() || !nets.is_empty()).map(union).collect()
}

fn short_hash(text: &str, length: usize) -> String {
    let mut hash = URL_SAFE_NO_PAD.encode(Sha224::digest(text));
    hash.truncate(length);
    hash
}
