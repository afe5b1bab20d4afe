//! The values of the maps.

use super::{Bytes, DIMENSIONS, ListId, ROW_WORDS, Reader, SEGMENT_RULES};

/// One bit for each rule of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row(pub [u64; ROW_WORDS]);

/// The effect of a rule of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Action {
    /// Allows the packet.
    Allow = 1,
    /// Denies the packet.
    Deny = 2,
    /// The next tier decides.
    Pass = 3,
    /// Logs the packet; evaluation continues with the next rule.
    Log = 4,
    /// The list has no opinion.
    None = 5,
}

/// A rule's data after its conditions matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleEntry {
    /// Its id in counters; 0 for none.
    pub id: u64,
    /// Where [`Action::Pass`] continues: an index within the whole list.
    pub next: u32,
    /// Its effect.
    pub action: Action,
}

/// The head of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The number of its rules.
    pub rules: u16,
    /// The dimensions in which its rules have conditions.
    pub dimensions: u8,
    /// The dimensions in which any rule of the list has conditions.
    pub list_dimensions: u8,
    /// Whether it is the last segment.
    pub last: bool,
    /// The rules that only log.
    pub log: Row,
    /// By dimension: the row of all values without a row of their own.
    pub defaults: [Row; DIMENSIONS],
}

/// The lists of an interface, for one IP version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// For traffic to the endpoint.
    pub ingress: ListId,
    /// For traffic from the endpoint.
    pub egress: ListId,
    /// For packets forwarded into a host endpoint.
    pub forward_ingress: ListId,
    /// For packets forwarded out of a host endpoint.
    pub forward_egress: ListId,
    /// Before destination NAT.
    pub pre_dnat: ListId,
    /// Before connection tracking, ingress.
    pub untracked_ingress: ListId,
    /// Before connection tracking, egress.
    pub untracked_egress: ListId,
    /// What staged policies would decide, ingress.
    pub pending_ingress: ListId,
    /// What staged policies would decide, egress.
    pub pending_egress: ListId,
}

impl Row {
    /// The first `rules` bits.
    #[must_use]
    pub fn first(rules: usize) -> Self {
        Self::from_start(0, rules)
    }

    /// The bits from `start` up to, not including, `end`.
    #[must_use]
    pub fn from_start(start: usize, end: usize) -> Self {
        let below = |bit: usize, word: usize| match bit.saturating_sub(word * 64) {
            64.. => u64::MAX,
            bits => (1 << bits) - 1,
        };
        let mut row = Self::default();
        for (number, word) in row.0.iter_mut().enumerate() {
            *word = below(end, number) & !below(start, number);
        }
        row
    }

    /// Whether a bit is set.
    #[must_use]
    pub fn get(&self, bit: usize) -> bool {
        self.0[bit / 64] >> (bit % 64) & 1 == 1
    }

    /// Sets or clears a bit.
    pub fn set(&mut self, bit: usize, value: bool) {
        let mask = 1 << (bit % 64);
        match value {
            true => self.0[bit / 64] |= mask,
            false => self.0[bit / 64] &= !mask,
        }
    }
}

impl Action {
    fn of(number: u8) -> Option<Self> {
        [Self::Allow, Self::Deny, Self::Pass, Self::Log, Self::None]
            .into_iter()
            .find(|action| *action as u8 == number)
    }
}

impl Reader<'_> {
    fn row(&mut self) -> Option<Row> {
        let mut row = Row::default();
        for word in &mut row.0 {
            *word = self.u64()?;
        }
        Some(row)
    }
}

impl Bytes for Row {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.iter().for_each(|word| word.encode(out));
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut bytes = Reader(bytes);
        let row = bytes.row()?;
        bytes.end()?;
        Some(row)
    }
}

impl Bytes for RuleEntry {
    fn encode(&self, out: &mut Vec<u8>) {
        self.id.encode(out);
        self.next.encode(out);
        out.extend([self.action as u8, 0, 0, 0]);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut bytes = Reader(bytes);
        let entry = Self { id: bytes.u64()?, next: bytes.u32()?, action: Action::of(bytes.u8()?)? };
        bytes.zeros::<3>()?;
        bytes.end()?;
        Some(entry)
    }
}

impl Bytes for Segment {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.rules.to_le_bytes());
        out.extend([self.dimensions, self.list_dimensions, u8::from(self.last), 0, 0, 0]);
        self.log.encode(out);
        self.defaults.iter().for_each(|row| row.encode(out));
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut bytes = Reader(bytes);
        let rules = bytes.u16().filter(|rules| (1..=SEGMENT_RULES).contains(&usize::from(*rules)))?;
        let (dimensions, list_dimensions) = (bytes.u8()?, bytes.u8()?);
        let last = match bytes.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        bytes.zeros::<3>()?;
        let log = bytes.row()?;
        let mut defaults = [Row::default(); DIMENSIONS];
        for row in &mut defaults {
            *row = bytes.row()?;
        }
        bytes.end()?;
        Some(Self { rules, dimensions, list_dimensions, last, log, defaults })
    }
}

impl Lists {
    /// All lists, in the order of the bytes.
    #[must_use]
    pub fn all(&self) -> [ListId; 9] {
        [
            self.ingress,
            self.egress,
            self.forward_ingress,
            self.forward_egress,
            self.pre_dnat,
            self.untracked_ingress,
            self.untracked_egress,
            self.pending_ingress,
            self.pending_egress,
        ]
    }
}

impl From<[ListId; 9]> for Lists {
    fn from(all: [ListId; 9]) -> Self {
        let [ingress, egress, forward_ingress, forward_egress, pre_dnat, rest @ ..] = all;
        let [untracked_ingress, untracked_egress, pending_ingress, pending_egress] = rest;
        Self {
            ingress,
            egress,
            forward_ingress,
            forward_egress,
            pre_dnat,
            untracked_ingress,
            untracked_egress,
            pending_ingress,
            pending_egress,
        }
    }
}

impl Bytes for Lists {
    fn encode(&self, out: &mut Vec<u8>) {
        self.all().iter().for_each(|list| list.encode(out));
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut bytes = Reader(bytes);
        let mut all = [ListId::NONE; 9];
        for list in &mut all {
            *list = ListId(bytes.u64()?);
        }
        bytes.end()?;
        Some(all.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_have_the_documented_bytes() {
        let row = |word: u64| Row([word; ROW_WORDS]);
        let segment = Segment {
            rules: 0x0102,
            dimensions: 0b10_0101,
            list_dimensions: 0b11_1111,
            last: true,
            log: row(9),
            defaults: [0, 1, 2, 3, 4, 5].map(row),
        };
        let bytes = segment.to_bytes();
        assert_eq!(bytes.len(), 904);
        assert_eq!(bytes[..9], [2, 1, 0b10_0101, 0b11_1111, 1, 0, 0, 0, 9]);
        for dimension in 0..6_u8 {
            let at = 136 + 128 * usize::from(dimension);
            assert_eq!(bytes[at..at + 9], [dimension, 0, 0, 0, 0, 0, 0, 0, dimension]);
        }
        assert_eq!(Segment::decode(&bytes), Some(segment));
        for (at, value) in [(5, 1), (4, 2), (1, 5)] {
            let mut foreign = bytes.clone();
            foreign[at] = value;
            assert_eq!(Segment::decode(&foreign), None, "byte {at}");
        }
    }

    #[test]
    fn rules_and_lists_have_the_documented_bytes() {
        let entry = RuleEntry { id: 0x0807_0605_0403_0201, next: 0x0c0b_0a09, action: Action::Pass };
        let bytes = entry.to_bytes();
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 3, 0, 0, 0]);
        assert_eq!(RuleEntry::decode(&bytes), Some(entry));
        assert_eq!(RuleEntry::decode(&[0; 16]), None, "no such action");
        let lists = Lists::from([1, 2, 3, 4, 5, 6, 7, 8, 9].map(ListId));
        let bytes = lists.to_bytes();
        assert_eq!(bytes.len(), 72);
        assert_eq!((bytes[0], bytes[32], bytes[64]), (1, 5, 9));
        assert_eq!(lists.pre_dnat, ListId(5));
        assert_eq!(Lists::decode(&bytes), Some(lists));
    }

    #[test]
    fn bits_have_the_documented_positions() {
        let mut row = Row::default();
        row.set(65, true);
        assert_eq!(row.to_bytes()[8], 2);
        assert!(row.get(65) && !row.get(64));
        for (start, end) in [(0, 0), (0, 1), (3, 64), (63, 65), (64, 1024), (1000, 1024), (0, 1024)] {
            let row = Row::from_start(start, end);
            for bit in 0..SEGMENT_RULES {
                assert_eq!(row.get(bit), (start..end).contains(&bit), "{bit} of {start}..{end}");
            }
        }
    }
}
