//! Evaluates one endpoint's policy for one packet: tier by tier, policy by policy, rule by rule, then its profiles.

use crate::clauses::{Owned, ask, rule_text};
use crate::manifest::UNSCHEDULED;
use crate::report::{Direction, Hook, Outcome, PolicyReport, RuleReport, Stage, TierReport};
use crate::settings::{Failsafe, NodeSettings};
use crate::world::{Item, Policy, PolicyRule, World};
use api::{Action, StagedAction};

/// Whether staged policies count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Staged {
    /// They are only reported.
    Tried,
    /// As if each were enforced, in place of the policy that it stages.
    Enforced,
}

/// Evaluates policy for one packet.
pub(crate) struct Walker<'w> {
    pub(crate) world: &'w World<'w>,
    pub(crate) owned: Owned<'w>,
    pub(crate) staged: Staged,
    /// Whether to record why rules do not match.
    pub(crate) detail: bool,
}

/// The result of evaluating a list of rules.
enum Asked {
    Decided(Action, String),
    Nothing,
}

const IPIP: u8 = 4;
const UDP: u8 = 17;

impl<'w> Walker<'w> {
    /// Evaluates an endpoint at a hook.
    pub(crate) fn stage(&self, item: &Item, hook: Hook, direction: Direction) -> Stage {
        let mut stage = Stage {
            place: place(item, hook, direction),
            hook,
            outcome: Outcome::Through,
            decided_by: String::new(),
            tiers: Vec::new(),
            profiles: Vec::new(),
            not_selecting: Vec::new(),
        };
        let settings = self.world.settings(&item.node);
        if let Some((outcome, reason)) = self.before_policy(&settings, hook, direction) {
            return Stage { outcome, decided_by: reason, ..stage };
        }
        if self.detail {
            stage.not_selecting = self
                .candidates(hook, direction)
                .filter(|policy| !selects(policy, item))
                .map(|policy| why_not(policy, item))
                .collect();
        }
        for tier in &self.world.tiers {
            let policies: Vec<&Policy> = self
                .candidates(hook, direction)
                .filter(|policy| policy.tier == tier.name && selects(policy, item))
                .collect();
            if policies.is_empty() {
                continue;
            }
            let mut report = TierReport { name: tier.name.clone(), policies: Vec::new(), end: None };
            let mut asked = Vec::new();
            let mut decision = None;
            for policy in policies {
                let counts = self.counts(policy);
                let (policy_report, found) = self.policy(policy, direction, !counts);
                report.policies.push(policy_report);
                if !counts {
                    continue;
                }
                asked.push(policy.name());
                if let Asked::Decided(action, rule) = found {
                    decision = Some((action, format!("{rule} of {} (tier {})", policy.name(), tier.name)));
                    break;
                }
            }
            let passes = tier.passes || matches!(hook, Hook::Untracked | Hook::BeforeTranslation);
            match decision {
                Some((Action::Allow, rule)) => {
                    stage.tiers.push(report);
                    return Stage { outcome: Outcome::Allow, decided_by: rule, ..stage };
                }
                Some((Action::Deny, rule)) => {
                    stage.tiers.push(report);
                    return Stage { outcome: Outcome::Deny, decided_by: rule, ..stage };
                }
                Some((_, rule)) => {
                    report.end = Some(format!("passed to the next tier by {rule}"));
                }
                None if asked.is_empty() => {
                    report.end = Some("all its policies here are staged, so it decides nothing".to_owned());
                }
                None if passes => {
                    report.end = Some("no rule matches; packets pass on to the next tier".to_owned());
                }
                None => {
                    let missing = if tier.exists { "" } else { " (there is no such tier, so it denies)" };
                    report.end =
                        Some(format!("no rule matches, and the tier's default action is Deny{missing}"));
                    stage.tiers.push(report);
                    let decided_by =
                        format!("denied at the end of tier {}: {}{missing}", tier.name, none_match(&asked));
                    return Stage { outcome: Outcome::Deny, decided_by, ..stage };
                }
            }
            stage.tiers.push(report);
        }
        if matches!(hook, Hook::Workload | Hook::Host) {
            self.profiles(item, direction, &mut stage);
        } else {
            "no rule decides here".clone_into(&mut stage.decided_by);
        }
        stage
    }

    /// Whether anything can be decided for the endpoint at this hook.
    pub(crate) fn has_policy(&self, item: &Item, hook: Hook, direction: Direction) -> bool {
        self.candidates(hook, direction).any(|policy| selects(policy, item))
    }

    /// Fixed decisions before policy.
    fn before_policy(
        &self,
        settings: &NodeSettings,
        hook: Hook,
        direction: Direction,
    ) -> Option<(Outcome, String)> {
        let packet = &self.owned.packet;
        if hook == Hook::Workload && direction == Direction::Egress {
            if packet.protocol == IPIP && !settings.allow_ipip_from_workloads {
                let reason = "workloads may not send IP in IP packets (allowIPIPPacketsFromWorkloads)";
                return Some((Outcome::Deny, reason.to_owned()));
            }
            if packet.protocol == UDP
                && packet.destination_port == settings.vxlan_port
                && !settings.allow_vxlan_from_workloads
            {
                let reason = "workloads may not send VXLAN packets (allowVXLANPacketsFromWorkloads)";
                return Some((Outcome::Deny, reason.to_owned()));
            }
        }
        if !matches!(hook, Hook::Host | Hook::BeforeTranslation | Hook::Untracked) {
            return None;
        }
        let inbound = (&settings.failsafe_inbound, "failsafeInboundHostPorts");
        let outbound = (&settings.failsafe_outbound, "failsafeOutboundHostPorts");
        let ((list, setting), (replies, _), other) = match direction {
            Direction::Ingress => (inbound, outbound, packet.source),
            Direction::Egress => (outbound, inbound, packet.destination),
        };
        let fits = |safe: &&Failsafe, port: u16| {
            safe.protocol == packet.protocol
                && safe.port == port
                && safe.net.is_none_or(|net| net.contains(&other))
        };
        // Without connection tracking, replies must be allowed by their source port.
        let reply = || replies.iter().find(|safe| hook == Hook::Untracked && fits(safe, packet.source_port));
        let safe = list.iter().find(|safe| fits(safe, packet.destination_port)).or_else(reply)?;
        // Only this hook is passed; the next one decides again.
        let outcome = if hook == Hook::Host { Outcome::Allow } else { Outcome::Through };
        Some((outcome, format!("port {} is one of {setting}", safe.port)))
    }

    /// The policies that apply at a hook.
    fn candidates(&self, hook: Hook, direction: Direction) -> impl Iterator<Item = &'w Policy> {
        self.world.policies.iter().filter(move |policy| {
            let plain = !policy.do_not_track && !policy.pre_dnat;
            let here = match hook {
                Hook::Workload | Hook::Host => plain,
                Hook::Forward => plain && policy.apply_on_forward,
                Hook::Untracked => policy.do_not_track,
                Hook::BeforeTranslation => {
                    policy.pre_dnat && !policy.do_not_track && direction == Direction::Ingress
                }
                Hook::Fixed => false,
            };
            here && policy.rules(direction).is_some() && policy.staged != Some(StagedAction::Delete)
        })
    }

    /// Whether a policy's rules decide.
    fn counts(&self, policy: &Policy) -> bool {
        match (self.staged, &policy.staged) {
            (Staged::Tried, action) => action.is_none(),
            (Staged::Enforced, Some(action)) => *action != StagedAction::Ignore,
            (Staged::Enforced, None) => !self.world.policies.iter().any(|other| {
                other.staged.as_ref().is_some_and(|action| *action != StagedAction::Ignore)
                    && other.stands_for() == policy.identity
            }),
        }
    }

    fn policy(&self, policy: &Policy, direction: Direction, tried: bool) -> (PolicyReport, Asked) {
        let rules = policy.rules(direction).unwrap_or_default();
        let (mut reports, asked) = self.rules(rules);
        if self.detail {
            let left_out = policy.left_out.iter().filter(|left_out| left_out.direction == direction);
            reports.extend(left_out.map(|left_out| RuleReport {
                place: left_out.place.clone(),
                text: "left out".to_owned(),
                matches: false,
                failed: vec![left_out.reason.clone()],
            }));
        }
        let decision = match &asked {
            Asked::Decided(action, _) => Some(action.to_string()),
            Asked::Nothing => None,
        };
        (PolicyReport { name: policy.name(), staged: tried, rules: reports, decision }, asked)
    }

    fn rules(&self, rules: &[PolicyRule]) -> (Vec<RuleReport>, Asked) {
        let mut reports = Vec::new();
        for rule in rules {
            let answer = ask(self.world, rule, &self.owned, self.detail);
            let unreadable = !answer.unreadable.is_empty();
            if self.detail {
                let mut text = rule_text(rule);
                if unreadable {
                    text.push_str(&format!(
                        " (cannot be read, and so denies what it might match: {})",
                        answer.unreadable.join("; ")
                    ));
                }
                reports.push(RuleReport {
                    place: rule.place.clone(),
                    text,
                    matches: answer.matches,
                    failed: answer.failed,
                });
            }
            if answer.matches && answer.action != Action::Log {
                let text = format!("rule {} ({})", rule.place, rule_text(rule));
                return (reports, Asked::Decided(answer.action, text));
            }
        }
        (reports, Asked::Nothing)
    }

    fn profiles(&self, item: &Item, direction: Direction, stage: &mut Stage) {
        for name in &item.profiles {
            let Some(profile) = self.world.profiles.get(name) else {
                stage.outcome = Outcome::Deny;
                stage.decided_by = format!("profile {name} does not exist, so it denies everything");
                return;
            };
            let rules = match direction {
                Direction::Ingress => &profile.ingress,
                Direction::Egress => &profile.egress,
            };
            let (reports, asked) = self.rules(rules);
            let (decision, rule) = match asked {
                Asked::Decided(action, rule) => (Some(action), rule),
                Asked::Nothing => (None, String::new()),
            };
            stage.profiles.push(PolicyReport {
                name: format!("Profile {name}"),
                staged: false,
                rules: reports,
                decision: decision.as_ref().map(ToString::to_string),
            });
            match decision {
                Some(Action::Allow) => stage.outcome = Outcome::Allow,
                Some(Action::Deny) => stage.outcome = Outcome::Deny,
                _ => continue,
            }
            let why = if stage.tiers.is_empty() { "no policy selects it" } else { "no tier decided" };
            stage.decided_by = format!("{why}, so profile {name} decides: {rule}{}", owner(name));
            return;
        }
        stage.outcome = Outcome::Deny;
        stage.decided_by = match item.profiles.as_slice() {
            [] => "no policy decides, and it has no profile".to_owned(),
            [profile] => format!("no policy decides, and no rule of profile {profile} matches"),
            profiles => {
                format!("no policy decides, and no rule of the profiles {} matches", profiles.join(", "))
            }
        };
    }
}

/// States that these policies select the endpoint and none of their rules match.
fn none_match(policies: &[String]) -> String {
    match policies {
        [one] => format!("{one} selects it, but none of its rules match"),
        [first @ .., last] => {
            format!("{} and {last} select it, but none of their rules match", first.join(", "))
        }
        [] => "no policy selects it".to_owned(),
    }
}

/// The origin of a profile, for users who never wrote one.
fn owner(profile: &str) -> String {
    use model::kubernetes::profile::{ProfileOwner, profile_owner};
    match profile_owner(profile) {
        Some(ProfileOwner::Namespace(name)) => format!(" (what namespace {name} allows without policy)"),
        Some(ProfileOwner::ServiceAccount { namespace, name }) => {
            format!(" (what service account {namespace}/{name} allows without policy)")
        }
        None => String::new(),
    }
}

fn selects(policy: &Policy, item: &Item) -> bool {
    policy.selection.faults.is_empty() && policy.selection.selects(&item.labels)
}

fn why_not(policy: &Policy, item: &Item) -> String {
    let name = policy.name();
    if let Some(fault) = policy.selection.faults.first() {
        return format!("{name}: selects nothing, because its {fault}");
    }
    let failing = policy.selection.failing(&item.labels).join(" and ");
    let has = policy.selection.looked_at(&item.labels);
    if has.is_empty() { format!("{name}: {failing}") } else { format!("{name}: {failing} ({has})") }
}

fn place(item: &Item, hook: Hook, direction: Direction) -> String {
    let kind = match hook {
        Hook::Workload | Hook::Host | Hook::Fixed => "",
        Hook::Forward => "forwarded packets, ",
        Hook::BeforeTranslation => "before destinations are translated (preDNAT), ",
        Hook::Untracked => "before connections are tracked (doNotTrack), ",
    };
    let node = match item.node.as_str() {
        "" | UNSCHEDULED => String::new(),
        node => format!(" on node {node}"),
    };
    format!("{kind}{} of {}{node}", direction.as_str(), item.name)
}
