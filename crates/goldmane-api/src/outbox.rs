//! Flows on their way to a server, as a pure state machine.
//!
//! A server answers each flow with a receipt, in order. Flows are sent ahead of their receipts, up to a window. After a
//! reconnect everything of the last minutes is sent again, with or without a receipt: the server may be a new one that
//! knows nothing, or the same, which counts each flow once. Bounded: when there is no room the oldest flow is dropped,
//! and counted as lost if it never had a receipt.

use std::collections::VecDeque;

/// How long a flow is kept for another connection, in seconds.
const KEPT: i64 = 300;

#[derive(Debug)]
struct Kept<F> {
    flow: F,
    added: i64,
    has_receipt: bool,
}

/// Flows that were sent or wait to be sent.
#[derive(Debug)]
pub struct Outbox<F> {
    flows: VecDeque<Kept<F>>,
    /// How many of them were sent over the current connection.
    sent: usize,
    /// How many of those have no receipt on this connection yet.
    waiting: usize,
    most: usize,
    window: usize,
    lost: u64,
}

impl<F: Clone> Outbox<F> {
    /// Creates an outbox that keeps at most `most` flows and sends at most `window` of them ahead of receipts.
    #[must_use]
    pub fn new(most: usize, window: usize) -> Self {
        let (most, window) = (most.max(1), window.max(1));
        Self { flows: VecDeque::new(), sent: 0, waiting: 0, most, window, lost: 0 }
    }

    /// Adds a flow to send.
    pub fn push(&mut self, flow: F, now: i64) {
        self.forget(now);
        while self.flows.len() >= self.most {
            self.drop_oldest();
        }
        self.flows.push_back(Kept { flow, added: now, has_receipt: false });
    }

    /// Starts over on a new connection: every kept flow will be sent on it.
    pub fn connected(&mut self, now: i64) {
        self.forget(now);
        (self.sent, self.waiting) = (0, 0);
    }

    /// The next flows to send; none while the window is full.
    pub fn take_next(&mut self) -> Vec<F> {
        let room = self.window - self.waiting.min(self.window);
        let flows: Vec<F> =
            self.flows.iter().skip(self.sent).take(room).map(|kept| kept.flow.clone()).collect();
        self.sent += flows.len();
        self.waiting += flows.len();
        flows
    }

    /// Handles a receipt for the oldest flow on this connection that had none.
    pub fn receipt(&mut self) {
        // Flows that were dropped in the meantime get receipts, too.
        let Some(place) = self.sent.checked_sub(self.waiting) else { return self.waiting -= 1 };
        if self.waiting == 0 {
            return;
        }
        self.waiting -= 1;
        if let Some(kept) = self.flows.get_mut(place) {
            kept.has_receipt = true;
        }
    }

    /// The number of flows that have never had a receipt.
    #[must_use]
    pub fn unsafe_flows(&self) -> usize {
        self.flows.iter().filter(|kept| !kept.has_receipt).count()
    }

    /// The number of lost flows.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Drops flows that are safe and old.
    fn forget(&mut self, now: i64) {
        while self.flows.front().is_some_and(|kept| kept.has_receipt && now - kept.added >= KEPT) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(kept) = self.flows.pop_front() {
            self.lost += u64::from(!kept.has_receipt);
            // Removing a flow that was not sent yet leaves no gap.
            self.sent = self.sent.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_window_of_two_and_a_reconnect() {
        let mut outbox = Outbox::new(10, 2);
        outbox.connected(0);
        for flow in 0..4 {
            outbox.push(flow, 0);
        }
        assert_eq!(outbox.take_next(), [0, 1]);
        assert_eq!(outbox.take_next(), [0; 0]);
        outbox.receipt();
        assert_eq!(outbox.take_next(), [2]);
        outbox.receipt();
        assert_eq!(outbox.unsafe_flows(), 2);
        outbox.connected(1);
        assert_eq!(outbox.take_next(), [0, 1], "from the beginning");
        outbox.receipt();
        outbox.receipt();
        assert_eq!(outbox.take_next(), [2, 3]);
        outbox.receipt();
        outbox.receipt();
        outbox.receipt();
        outbox.connected(KEPT);
        assert_eq!((outbox.take_next(), outbox.unsafe_flows(), outbox.lost()), (vec![], 0, 0));
    }

    #[test]
    fn the_oldest_is_lost_and_counted_when_there_is_no_room() {
        let mut outbox = Outbox::new(3, 10);
        for flow in 0..5 {
            outbox.push(flow, 0);
        }
        outbox.connected(0);
        assert_eq!((outbox.take_next(), outbox.lost()), (vec![2, 3, 4], 2));
        // Two more flows are added while the receipts are on their way.
        outbox.push(5, 0);
        outbox.push(6, 0);
        assert_eq!(outbox.take_next(), [5, 6]);
        (0..5).for_each(|_| outbox.receipt());
        assert_eq!((outbox.unsafe_flows(), outbox.lost()), (0, 4));
    }

    proptest! {
        /// In any sequence of events, a server that counts each flow once ends up with all of them, except the lost
        /// ones.
        #[test]
        fn every_flow_arrives(steps in prop::collection::vec(0..5u8, 0..200), most in 1..40usize, window in 1..8usize) {
            let mut outbox = Outbox::new(most, window);
            let (mut arrived, mut wire) = (std::collections::BTreeSet::new(), VecDeque::new());
            let mut next_flow = 0;
            outbox.connected(0);
            for step in steps.into_iter().chain(std::iter::repeat_n(2, 400)) {
                match step {
                    0 | 1 => {
                        outbox.push(next_flow, 0);
                        next_flow += 1;
                    }
                    2 => {
                        wire.extend(outbox.take_next());
                        if let Some(flow) = wire.pop_front() {
                            arrived.insert(flow);
                            outbox.receipt();
                        }
                    }
                    3 => wire.extend(outbox.take_next()),
                    _ => {
                        // Everything on the wire is gone, including receipts.
                        wire.clear();
                        outbox.connected(0);
                    }
                }
                prop_assert!(wire.len() <= window);
            }
            prop_assert_eq!(outbox.unsafe_flows(), 0);
            let missing = (0..next_flow).filter(|flow| !arrived.contains(flow)).count() as u64;
            prop_assert!(missing <= outbox.lost());
        }
    }
}
