//! Flows on their way to a server, as a pure machine.
//!
//! A server answers each flow with a receipt, in order. Flows are sent ahead of their receipts, up to a window. After a
//! reconnect everything of the last minutes is sent once more, receipt or not: the server may be another one, which knows
//! nothing, or the same, which counts each flow once. Bounded: where there is no room the oldest flow goes, and is counted
//! as lost if no receipt had come for it.

use std::collections::VecDeque;

/// How long a flow is kept for the next connection, in seconds.
const KEPT: i64 = 300;

#[derive(Debug)]
struct Kept<F> {
    flow: F,
    added: i64,
    has_receipt: bool,
}

/// Flows that were sent or are to be sent.
#[derive(Debug)]
pub struct Outbox<F> {
    flows: VecDeque<Kept<F>>,
    /// How many of them were sent over the present connection.
    sent: usize,
    /// How many of those have no receipt of this connection yet.
    waiting: usize,
    most: usize,
    window: usize,
    lost: u64,
}

impl<F: Clone> Outbox<F> {
    /// Keeps at most so many flows, of which so many are sent ahead of their receipts.
    #[must_use]
    pub fn new(most: usize, window: usize) -> Self {
        let (most, window) = (most.max(1), window.max(1));
        Self { flows: VecDeque::new(), sent: 0, waiting: 0, most, window, lost: 0 }
    }

    /// A flow to send.
    pub fn push(&mut self, flow: F, now: i64) {
        self.forget(now);
        while self.flows.len() >= self.most {
            self.drop_oldest();
        }
        self.flows.push_back(Kept { flow, added: now, has_receipt: false });
    }

    /// A connection was made: everything that is kept goes over it.
    pub fn connected(&mut self, now: i64) {
        self.forget(now);
        (self.sent, self.waiting) = (0, 0);
    }

    /// The next flows to send; none while too many have no receipt.
    pub fn take_next(&mut self) -> Vec<F> {
        let room = self.window - self.waiting.min(self.window);
        let flows: Vec<F> =
            self.flows.iter().skip(self.sent).take(room).map(|kept| kept.flow.clone()).collect();
        self.sent += flows.len();
        self.waiting += flows.len();
        flows
    }

    /// A receipt came, for the oldest flow of this connection that had none.
    pub fn receipt(&mut self) {
        // Flows that were dropped meanwhile get their receipts, too.
        let Some(place) = self.sent.checked_sub(self.waiting) else { return self.waiting -= 1 };
        if self.waiting == 0 {
            return;
        }
        self.waiting -= 1;
        if let Some(kept) = self.flows.get_mut(place) {
            kept.has_receipt = true;
        }
    }

    /// How many flows have never had a receipt.
    #[must_use]
    pub fn unsafe_flows(&self) -> usize {
        self.flows.iter().filter(|kept| !kept.has_receipt).count()
    }

    /// How many flows were lost.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Lets go of what is safe and old.
    fn forget(&mut self, now: i64) {
        while self.flows.front().is_some_and(|kept| kept.has_receipt && now - kept.added >= KEPT) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(kept) = self.flows.pop_front() {
            self.lost += u64::from(!kept.has_receipt);
            // A flow that was not sent yet leaves no gap.
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
        // Two more go in while the receipts are on their way.
        outbox.push(5, 0);
        outbox.push(6, 0);
        assert_eq!(outbox.take_next(), [5, 6]);
        (0..5).for_each(|_| outbox.receipt());
        assert_eq!((outbox.unsafe_flows(), outbox.lost()), (0, 4));
    }

    proptest! {
        /// Whatever happens, a server that takes each flow once has all of them in the end, but for those that were lost.
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
                        // What is on the wire is gone, and so are its receipts.
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
