//! Which connections may be in a handshake. Pure.
//!
//! The number of concurrent handshakes is limited; other connections wait until places become free. Places are shared
//! by the machines that clients connect from: a machine that holds many loses its oldest to one that holds fewer, so
//! that strangers who connect and stay silent only delay themselves. Clients that all connect from one machine take
//! nothing from each other. If strangers connect from more machines than there are places, machines take turns: a
//! client waits for one handshake of each machine that has waited longer, however many connections these have.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};

/// A machine that clients connect from. One with IPv6 has a whole /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Source(IpAddr);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address => address,
        })
    }
}

/// The decision about a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Its handshake begins.
    Begin,
    /// It waits.
    Wait,
    /// It is closed.
    Refuse,
}

/// The consequences of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// The decision about it.
    pub verdict: Verdict,
    /// Another connection that is closed in favour of it.
    pub closed: Option<u64>,
}

#[derive(Debug)]
struct Held {
    running: VecDeque<u64>,
    waiting: VecDeque<u64>,
    /// When this machine had its last turn, or its first connection arrived, by [`Handshakes::events`].
    since: u64,
}

/// Connections in their handshake or waiting for it.
#[derive(Debug)]
pub(crate) struct Handshakes {
    most: usize,
    most_waiting: usize,
    running: usize,
    waiting: usize,
    /// The number of arrivals and turns so far.
    events: u64,
    sources: HashMap<Source, Held>,
    places: HashMap<u64, Source>,
}

impl Handshakes {
    /// Allows this many handshakes at once, and this many waiting connections.
    #[must_use]
    pub(crate) fn new(most: usize, most_waiting: usize) -> Self {
        let (sources, places) = (HashMap::new(), HashMap::new());
        Self { most, most_waiting, running: 0, waiting: 0, events: 0, sources, places }
    }

    /// Adds a new connection; later ones have higher numbers.
    pub(crate) fn arrive(&mut self, id: u64, source: Source) -> Arrival {
        let own = self.sources.get(&source).map_or((0, 0), |held| (held.running.len(), held.waiting.len()));
        self.events += 1;
        let now = self.events;
        let mut closed = None;
        let verdict = if self.running < self.most {
            Verdict::Begin
        } else if let Some(richest) = self.richest(|held| held.running.len(), own.0) {
            closed = self.remove(richest, |held| held.running.front().copied());
            Verdict::Begin
        } else if self.waiting < self.most_waiting {
            Verdict::Wait
        } else if let Some(richest) = self.richest(|held| held.waiting.len(), own.1) {
            closed = self.remove(richest, |held| held.waiting.back().copied());
            Verdict::Wait
        } else {
            Verdict::Refuse
        };
        match verdict {
            Verdict::Begin => {
                self.running += 1;
                let held = self.held(id, source);
                held.running.push_back(id);
                held.since = now;
            }
            Verdict::Wait => {
                self.waiting += 1;
                self.held(id, source).waiting.push_back(id);
            }
            Verdict::Refuse => {}
        }
        Arrival { verdict, closed }
    }

    fn held(&mut self, id: u64, source: Source) -> &mut Held {
        self.places.insert(id, source);
        let since = self.events;
        let none = || Held { running: VecDeque::new(), waiting: VecDeque::new(), since };
        self.sources.entry(source).or_insert_with(none)
    }

    /// The source that has the most, if it would still have no fewer than one that has `own` and gets one of them.
    fn richest(&self, count: impl Fn(&Held) -> usize, own: usize) -> Option<Source> {
        let richest = self.sources.iter().max_by_key(|(_, held)| count(held));
        richest.filter(|(_, held)| count(held) >= own + 2).map(|(source, _)| *source)
    }

    fn remove(&mut self, source: Source, choose: impl Fn(&Held) -> Option<u64>) -> Option<u64> {
        let id = choose(self.sources.get(&source)?)?;
        self.forget(id);
        Some(id)
    }

    /// Removes a connection; returns whether it was in its handshake.
    fn forget(&mut self, id: u64) -> bool {
        let Some(source) = self.places.remove(&id) else { return false };
        let Some(held) = self.sources.get_mut(&source) else { return false };
        let was_running = take(&mut held.running, id);
        if was_running {
            self.running -= 1;
        } else if take(&mut held.waiting, id) {
            self.waiting -= 1;
        }
        if held.running.is_empty() && held.waiting.is_empty() {
            self.sources.remove(&source);
        }
        was_running
    }

    /// Records the end of a handshake, however it ended; returns the connection whose handshake begins now. The machine
    /// with the fewest is next, and among several the one that has waited longest for a turn.
    pub(crate) fn over(&mut self, id: u64) -> Option<u64> {
        if !self.forget(id) {
            return None;
        }
        self.events += 1;
        let waiting = self.sources.values_mut().filter(|held| !held.waiting.is_empty());
        let held = waiting.min_by_key(|held| (held.running.len(), held.since))?;
        let next = held.waiting.pop_front()?;
        held.running.push_back(next);
        held.since = self.events;
        self.waiting -= 1;
        self.running += 1;
        Some(next)
    }

    /// Removes a waiting connection, because the process cannot open more files: the newest of the machine that has the
    /// most.
    pub(crate) fn shed(&mut self) -> Option<u64> {
        let (source, _) = self.sources.iter().max_by_key(|(_, held)| held.waiting.len())?;
        self.remove(*source, |held| held.waiting.back().copied())
    }

    /// The number of connections in their handshake, and of those waiting.
    #[cfg(test)]
    fn counts(&self) -> (usize, usize) {
        (self.running, self.waiting)
    }
}

fn take(ids: &mut VecDeque<u64>, id: u64) -> bool {
    let place = ids.iter().position(|one| *one == id);
    place.is_some_and(|place| ids.remove(place).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(last: u8) -> Source {
        IpAddr::from([10, 0, 0, last]).into()
    }

    const BEGIN: Arrival = Arrival { verdict: Verdict::Begin, closed: None };
    const WAIT: Arrival = Arrival { verdict: Verdict::Wait, closed: None };
    const REFUSE: Arrival = Arrival { verdict: Verdict::Refuse, closed: None };

    #[test]
    fn clients_of_one_machine_wait_for_each_other() {
        let mut handshakes = Handshakes::new(2, 2);
        let arrivals: Vec<Arrival> = (1..=5).map(|id| handshakes.arrive(id, source(1))).collect();
        assert_eq!(arrivals, [BEGIN, BEGIN, WAIT, WAIT, REFUSE]);
        assert_eq!(handshakes.over(2), Some(3));
        assert_eq!(handshakes.over(2), None, "only once");
        assert_eq!(handshakes.over(4), None, "it only waited");
        assert_eq!((handshakes.over(1), handshakes.over(3), handshakes.counts()), (None, None, (0, 0)));
        assert!(handshakes.sources.is_empty() && handshakes.places.is_empty());
    }

    #[test]
    fn a_machine_with_many_connections_loses_its_oldest_to_one_with_few() {
        let mut handshakes = Handshakes::new(4, 4);
        for id in 1..=8 {
            handshakes.arrive(id, source(1));
        }
        let begins = |closed| Arrival { verdict: Verdict::Begin, closed: Some(closed) };
        assert_eq!(handshakes.arrive(9, source(2)), begins(1));
        assert_eq!(handshakes.arrive(10, source(3)), begins(2));
        // Two, one and one: no machine has two more than another.
        let waits = Arrival { verdict: Verdict::Wait, closed: Some(8) };
        assert_eq!(handshakes.arrive(11, source(2)), waits);
        assert_eq!(handshakes.counts(), (4, 4));
        assert_eq!(handshakes.over(1), None, "its place was given away");
        // The machine with the fewest is next, although others have waited longer.
        assert_eq!(handshakes.over(9), Some(11));
        assert_eq!(handshakes.over(10), Some(5));
    }

    #[test]
    fn clients_of_many_machines_take_nothing_from_each_other() {
        let mut handshakes = Handshakes::new(3, 100);
        let arrivals: Vec<Arrival> = (1..=6).map(|id| handshakes.arrive(u64::from(id), source(id))).collect();
        assert_eq!(arrivals, [BEGIN, BEGIN, BEGIN, WAIT, WAIT, WAIT]);
        assert_eq!(handshakes.over(2), Some(4), "in the order in which they came");
        assert_eq!(handshakes.shed().map(|id| id > 4), Some(true));
        assert_eq!(handshakes.counts(), (3, 1));
    }

    /// Strangers from five times as many machines as there are places, each with as many connections as allowed,
    /// reconnect whenever they are dropped: a genuine client waits for one turn of each of them.
    #[test]
    fn machines_take_turns() {
        const MACHINES: u8 = 20;
        const HONEST: u8 = 99;
        let mut handshakes = Handshakes::new(4, 1000);
        let (mut of, mut running) = (Vec::new(), VecDeque::new());
        let mut arrive = |handshakes: &mut Handshakes, running: &mut VecDeque<u64>, last| {
            let id = of.len() as u64;
            of.push(last);
            let arrival = handshakes.arrive(id, source(last));
            running.retain(|one| Some(*one) != arrival.closed);
            running.extend((arrival.verdict == Verdict::Begin).then_some(id));
            of.clone()
        };
        for last in (1..=MACHINES).flat_map(|last| [last; 10]) {
            arrive(&mut handshakes, &mut running, last);
        }
        let mut of = arrive(&mut handshakes, &mut running, HONEST);
        let mut turns = 0;
        while !running.iter().any(|id| of.get(usize::try_from(*id).unwrap()) == Some(&HONEST)) {
            let ended = running.pop_front().unwrap();
            running.extend(handshakes.over(ended));
            of = arrive(&mut handshakes, &mut running, of[usize::try_from(ended).unwrap()]);
            turns += 1;
            assert!(turns <= usize::from(MACHINES) + 1, "others had several turns");
        }
    }

    #[test]
    fn one_machine_has_one_place_whatever_its_addresses() {
        let of = |text: &str| Source::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(of("fd00::1"), of("fd00::ffff:1"));
        assert_ne!(of("fd00:0:0:1::1"), of("fd00::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
