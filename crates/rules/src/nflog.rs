//! The texts that accompany packets reported for flow logs. A listener reads from them the verdict and the rule that
//! decided; the crate `flows` parses them.

use crate::names::{Direction, is_plain, limited_id};

/// A text of this length or more is shortened with a hash. That includes a text that is exactly as long as shortened
/// ones, so that none can be mistaken for a shortened one.
pub const SHORTENED_LENGTH: usize = 63;
const KEPT: usize = 10;

/// The verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet is allowed.
    Allow,
    /// It is dropped or rejected.
    Deny,
    /// The next tier decides.
    Pass,
}

impl Verdict {
    fn letter(self) -> char {
        match self {
            Self::Allow => 'A',
            Self::Deny => 'D',
            Self::Pass => 'P',
        }
    }
}

/// The owner of the rule that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerKind {
    /// A policy.
    Policy,
    /// A profile.
    Profile,
}

impl OwnerKind {
    fn letter(self) -> char {
        match self {
            Self::Policy => 'P',
            Self::Profile => 'R',
        }
    }
}

fn direction_letter(direction: Direction) -> char {
    match direction {
        Direction::Inbound => 'I',
        Direction::Outbound => 'E',
    }
}

/// A rule decided.
#[must_use]
pub fn rule_prefix(
    verdict: Verdict,
    owner: OwnerKind,
    direction: Direction,
    index: usize,
    id: &str,
) -> String {
    let letters = [verdict.letter(), owner.letter(), direction_letter(direction)];
    shortened(format!("{}{index}|{id}", String::from_iter(letters)))
}

/// The end of a tier decided.
#[must_use]
pub fn tier_prefix(verdict: Verdict, direction: Direction, tier: &str) -> String {
    let letters = [verdict.letter(), OwnerKind::Policy.letter(), direction_letter(direction)];
    shortened(format!("{}|{tier}", String::from_iter(letters)))
}

/// No profile decided.
#[must_use]
pub fn no_profile_prefix(direction: Direction) -> String {
    String::from_iter([Verdict::Deny.letter(), OwnerKind::Profile.letter(), direction_letter(direction)])
}

fn shortened(text: String) -> String {
    let text = match is_plain(&text) {
        true => text,
        // It is written in a rule without quotes.
        false => {
            text.chars().map(|one| if is_plain(one.encode_utf8(&mut [0; 4])) { one } else { '_' }).collect()
        }
    };
    if text.len() < SHORTENED_LENGTH {
        return text;
    }
    let room = SHORTENED_LENGTH - 2 * KEPT - 1;
    let hash = limited_id("", &text, room);
    // It is all ASCII, so it can be cut anywhere.
    format!("{}{hash}_{}", &text[..KEPT], &text[text.len() - KEPT..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_texts_stay() {
        let rule = rule_prefix(Verdict::Allow, OwnerKind::Policy, Direction::Inbound, 0, "np/ns/name");
        assert_eq!(rule, "API0|np/ns/name");
        let rule = rule_prefix(Verdict::Deny, OwnerKind::Profile, Direction::Outbound, 12, "kns.default");
        assert_eq!(rule, "DRE12|kns.default");
        assert_eq!(tier_prefix(Verdict::Pass, Direction::Outbound, "default"), "PPE|default");
        assert_eq!(no_profile_prefix(Direction::Inbound), "DRI");
    }

    /// Values that Calico computed.
    #[test]
    fn known_hashes() {
        let id = "gnp/abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0";
        let text = rule_prefix(Verdict::Deny, OwnerKind::Policy, Direction::Inbound, 88, id);
        assert_eq!(text, "DPI88|gnp/_12IXaBPahNM7a7dZhI8zg6PStmHsgneYaax8LVSIq_RSTUVWXYZ0");
        let tier = "tier-012345678901234567890123456789012345678901234567890123";
        let text = tier_prefix(Verdict::Deny, Direction::Inbound, tier);
        assert_eq!(text, "DPI|tier-0_phEfG4Vhbq2xh4TQsePNa2X9YRj5peCVw1FgaNSbd_4567890123");
    }

    #[test]
    fn long_texts_are_shortened_to_one_length() {
        for length in [62, 63, 64, 300] {
            let id = "x".repeat(length - "API0|".len());
            let text = rule_prefix(Verdict::Allow, OwnerKind::Policy, Direction::Inbound, 0, &id);
            assert_eq!(text.len(), length.min(63));
            assert_eq!(text.contains('_'), length > 62);
        }
    }
}
