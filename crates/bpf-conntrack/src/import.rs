//! Converts flows that Linux knows from before there were programs into entries: an answer after the switch is then not
//! treated as a new flow, and a flow to a service stays with its backend.
//!
//! Both ends' policy allowed such a flow while netfilter judged it, so both legs are approved. Refuses flows whose
//! source and destination were both translated: programs do not know what masqueraded the source.

use bpf::layout::Family;
use bpf::layout::conntrack::{Entry, Key, Leg, Tracking, Value, flags};

/// An address and a port.
type End<F> = (<F as Family>::Address, u16);

/// A flow as Linux knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow<F: Family> {
    /// Its protocol's number.
    pub protocol: u8,
    /// The end that opened it.
    pub source: End<F>,
    /// The destination as the source sees it.
    pub destination: End<F>,
    /// The end that answers in place of the destination.
    pub backend: Option<End<F>>,
    /// The source as the destination sees it, if translated.
    pub hidden: Option<End<F>>,
}

impl<F: Family> Flow<F> {
    /// Its entries, as if a packet had passed at time `now`.
    #[must_use]
    pub fn entries(&self, now: u64) -> Vec<(Key<F>, Value<F>)> {
        let value = |flags, entry| Value { rst_seen: 0, last_seen: now, flags, entry };
        let plain = |source, bits| {
            let (key, tracking, side) = self.tracking(source, self.destination);
            (key, value(bits | side, Entry::Normal(tracking)))
        };
        match (self.backend, self.hidden) {
            (None, None) => vec![plain(self.source, 0)],
            // One entry for the workload's side of the translation, one for the host's.
            (None, Some(hidden)) => vec![plain(self.source, flags::NAT_OUTGOING), plain(hidden, 0)],
            (Some(backend), None) => {
                let (key, tracking, side) = self.tracking(self.source, backend);
                let tracking = Tracking {
                    original_address: self.destination.0,
                    original_port: self.destination.1,
                    original_source: self.source.0,
                    original_source_port: self.source.1,
                    ..tracking
                };
                let stub = Key::new(self.protocol, self.source, self.destination).0;
                vec![(key, value(side, Entry::Reverse(tracking))), (stub, value(0, Entry::Forward(key, 0)))]
            }
            (Some(_), Some(_)) => Vec::new(),
        }
    }

    /// The key and state of a flow between these ends, and the flag for its direction.
    fn tracking(&self, source: End<F>, destination: End<F>) -> (Key<F>, Tracking<F>, u32) {
        let (key, is_b) = Key::new(self.protocol, source, destination);
        let answers = Leg { approved: true, ..Leg::default() };
        let opens = Leg { opener: true, ..answers };
        let (a_to_b, b_to_a) = if is_b { (answers, opens) } else { (opens, answers) };
        let side = if is_b { flags::SOURCE_IS_B } else { 0 };
        (key, Tracking { a_to_b, b_to_a, ..Tracking::default() }, side)
    }
}

#[cfg(test)]
mod tests {
    use super::Flow;
    use bpf::layout::V4;
    use bpf::layout::conntrack::{Entry, Key, flags};

    const POD: ([u8; 4], u16) = ([10, 65, 0, 9], 40_000);
    const SERVICE: ([u8; 4], u16) = ([10, 96, 0, 1], 53);
    const BACKEND: ([u8; 4], u16) = ([10, 65, 0, 2], 5353);
    const NODE: ([u8; 4], u16) = ([192, 0, 2, 1], 50_000);

    fn flow() -> Flow<V4> {
        Flow { protocol: 17, source: POD, destination: SERVICE, backend: None, hidden: None }
    }

    #[test]
    fn a_plain_flow_is_one_entry_that_both_ends_have_approved() {
        let entries = flow().entries(7);
        let [(key, value)] = entries.as_slice() else { panic!("{entries:?}") };
        let (expected, is_b) = Key::new(17, POD, SERVICE);
        let Entry::Normal(tracking) = value.entry else { panic!("{value:?}") };
        let (from, to) =
            if is_b { (tracking.b_to_a, tracking.a_to_b) } else { (tracking.a_to_b, tracking.b_to_a) };
        assert_eq!((*key, value.last_seen, value.flags & flags::SOURCE_IS_B != 0), (expected, 7, is_b));
        assert!(from.approved && from.opener && to.approved && !to.opener);
    }

    #[test]
    fn a_flow_to_a_service_is_known_by_its_backend_and_found_by_the_service() {
        let entries = Flow { backend: Some(BACKEND), ..flow() }.entries(7);
        let [(key, value), (stub, forward)] = entries.as_slice() else { panic!("{entries:?}") };
        assert_eq!((*key, *stub), (Key::new(17, POD, BACKEND).0, Key::new(17, POD, SERVICE).0));
        let Entry::Reverse(tracking) = value.entry else { panic!("{value:?}") };
        assert_eq!((tracking.original_address, tracking.original_port), SERVICE);
        assert_eq!((tracking.original_source, tracking.original_source_port), POD);
        assert_eq!(forward.entry, Entry::Forward(*key, 0));
    }

    #[test]
    fn a_masqueraded_flow_is_known_on_both_sides_of_the_translation() {
        let entries = Flow { hidden: Some(NODE), ..flow() }.entries(7);
        let keys: Vec<_> = entries.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, [Key::new(17, POD, SERVICE).0, Key::new(17, NODE, SERVICE).0]);
        let is_hidden = |place: usize| entries[place].1.flags & flags::NAT_OUTGOING != 0;
        assert!(is_hidden(0) && !is_hidden(1));
        assert_eq!(Flow { hidden: Some(NODE), backend: Some(BACKEND), ..flow() }.entries(7), []);
    }
}
