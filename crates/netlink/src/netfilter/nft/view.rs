//! A borrowed view of a rule in the kernel's answer, for rules that the nft variant of iptables wrote.
//!
//! That variant stores what nftables cannot express as matches and targets of the older filter, with their names and
//! their bytes. Of those only the comment is understood here; the meaning of a rule is not.

use super::change::comment_of;
use crate::wire::{Attribute, attributes};

/// A rule of some table, borrowed from the kernel's answer.
#[derive(Clone, Copy, Debug)]
pub struct RuleView<'a> {
    /// Its chain.
    pub chain: &'a str,
    /// The number that identifies it.
    pub handle: u64,
    expressions: &'a [u8],
    notes: &'a [u8],
}

impl<'a> RuleView<'a> {
    /// Reads the attributes of a rule; `None` when it belongs to another table.
    pub(super) fn read(payload: &'a [u8], table: &str) -> Option<Self> {
        let (mut chain, mut handle, mut expressions, mut notes) = (None, None, &[][..], &[][..]);
        for attribute in attributes(payload) {
            match attribute.number {
                1 if attribute.str() != Some(table) => return None,
                2 => chain = attribute.str(),
                3 => handle = attribute.u64_be(),
                4 => expressions = attribute.value,
                7 => notes = attribute.value,
                _ => {}
            }
        }
        Some(Self { chain: chain?, handle: handle?, expressions, notes })
    }

    /// The names and contents of its expressions, in order.
    fn expressions(self) -> impl Iterator<Item = (&'a str, Attribute<'a>)> {
        attributes(self.expressions).filter_map(|element| {
            let part = |number| element.attributes().find(|one| one.number == number);
            Some((part(1)?.str()?, part(2)?))
        })
    }

    /// The names and bytes of its matches (`match`) or targets (`target`) of the older filter, in order.
    fn extensions(self, kind: &'static str) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.expressions().filter(move |(name, _)| *name == kind).filter_map(|(_, content)| {
            let part = |number| content.attributes().find(|one| one.number == number);
            Some((part(1)?.str()?, part(3).map_or(&[][..], |info| info.value)))
        })
    }

    /// The comment in nftables' own form.
    #[must_use]
    pub fn own_comment(self) -> Option<&'a str> {
        comment_of(self.notes)
    }

    /// Its comments in order: those that are matches, and the one in nftables' own form.
    pub fn comments(self) -> impl Iterator<Item = &'a str> {
        let matches = self.extensions("match").filter(|(name, _)| *name == "comment");
        let text = |(_, value): (&str, &'a [u8])| Attribute { number: 0, value }.str();
        matches.filter_map(text).chain(self.own_comment())
    }

    /// Whether it has this match of the older filter.
    #[must_use]
    pub fn has_match(self, wanted: &str) -> bool {
        self.extensions("match").any(|(name, _)| name == wanted)
    }

    /// Whether it masquerades, in either form.
    #[must_use]
    pub fn masquerades(self) -> bool {
        self.extensions("target").any(|(name, _)| name == "MASQUERADE")
            || self.expressions().any(|(name, _)| name == "masq")
    }

    /// The chains that it jumps or goes to.
    pub fn targets(self) -> impl Iterator<Item = &'a str> {
        self.expressions().filter(|(name, _)| *name == "immediate").filter_map(|(_, content)| {
            let part = |from: Attribute<'a>, number| from.attributes().find(|one| one.number == number);
            part(part(part(content, 2)?, 2)?, 2)?.str()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::RuleView;
    use crate::wire::Writer;

    fn expression(writer: &mut Writer, name: &str, content: impl FnOnce(&mut Writer)) {
        writer.nested(1, |element| {
            element.text(1, name).nested(2, content);
        });
    }

    #[test]
    fn a_rule_of_iptables_is_read() {
        let mut writer = Writer::default();
        writer.text(1, "filter").text(2, "FORWARD").bytes(3, &7_u64.to_be_bytes()).nested(4, |list| {
            expression(list, "match", |content| {
                content.text(1, "comment").u32(2, 0).bytes(3, b"cali:abc\0\0\0\0");
            });
            expression(list, "match", |content| {
                content.text(1, "comment").u32(2, 0).bytes(3, b"why\0");
            });
            expression(list, "counter", |_| {});
            expression(list, "immediate", |content| {
                content.u32(1, 0).nested(2, |data| {
                    data.nested(2, |verdict| {
                        verdict.bytes(1, &(-3_i32).to_be_bytes()).text(2, "cali-FORWARD");
                    });
                });
            });
        });
        writer.bytes(7, b"\x00\x02x\x00");
        let bytes = writer.finish();
        let rule = RuleView::read(&bytes, "filter").expect("a rule");
        assert_eq!((rule.chain, rule.handle, rule.own_comment()), ("FORWARD", 7, Some("x")));
        assert_eq!(rule.comments().collect::<Vec<_>>(), ["cali:abc", "why", "x"]);
        assert_eq!(rule.targets().collect::<Vec<_>>(), ["cali-FORWARD"]);
        assert!(rule.has_match("comment") && !rule.has_match("set") && !rule.masquerades());
        assert!(RuleView::read(&bytes, "nat").is_none());
        // Truncated parts are absent.
        for end in 0..bytes.len() {
            if let Some(rule) = RuleView::read(&bytes[..end], "filter") {
                assert!(rule.comments().count() + rule.targets().count() <= 4);
            }
        }
    }

    #[test]
    fn both_forms_of_masquerading() {
        for (name, inner) in [("masq", ""), ("target", "MASQUERADE")] {
            let mut writer = Writer::default();
            writer.text(1, "nat").text(2, "POSTROUTING").bytes(3, &7_u64.to_be_bytes()).nested(4, |list| {
                expression(list, name, |content| {
                    content.text(1, inner);
                });
            });
            let bytes = writer.finish();
            assert!(RuleView::read(&bytes, "nat").is_some_and(RuleView::masquerades), "{name}");
        }
    }
}
