//! Tests of the state machine: every transition of RFC 4271 as a row, then collisions, restarts and refreshes.

mod any_history;
mod restart;
mod stories;
mod transitions;

use super::{Action, Direction, Event, Moment, Random, Session, Settings};
use bgp_wire::{
    Asn, Capability, Cause, Family, GracefulRestart, GracefulRestartFamily, Message, Notification, Open,
    RouterId, Update,
};
use std::time::Duration;

pub(super) const LOCAL: RouterId = RouterId(0x0a00_0005);
pub(super) const LOWER: RouterId = RouterId(0x0a00_0001);
pub(super) const HIGHER: RouterId = RouterId(0x0a00_0009);

pub(super) fn settings() -> Settings {
    let mut settings = Settings::new(Asn(65000), Asn(65000), LOCAL, Family::Ipv4);
    settings.families = [true, true];
    settings.hold_time = 90;
    settings
}

/// An OPEN of the peer with everything that is required.
pub(super) fn open(id: RouterId) -> Open {
    let mut open = Open::new(Asn(65000), 90, id);
    open.capabilities.extend([
        Capability::Multiprotocol(Family::Ipv4),
        Capability::Multiprotocol(Family::Ipv6),
        Capability::RouteRefresh,
        Capability::EnhancedRouteRefresh,
    ]);
    open
}

/// An OPEN of a peer with graceful restart.
pub(super) fn restarting_open(restarting: bool, forwarding: bool) -> Open {
    let families = Family::ALL.map(|family| GracefulRestartFamily { family, forwarding });
    let restart =
        GracefulRestart { restarting, notification: false, restart_time: 60, families: families.into() };
    let mut open = open(LOWER);
    open.capabilities.push(Capability::GracefulRestart(restart));
    open
}

/// A session with its clock, and its actions in words.
pub(super) struct Bench {
    pub(super) session: Session,
    pub(super) now: Moment,
    random: Random,
}

impl Bench {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            session: Session::new(settings, false),
            now: Duration::from_secs(1000),
            random: Random::new(7),
        }
    }

    /// Passes an event to the session; returns its actions.
    pub(super) fn tell(&mut self, event: Event) -> Vec<String> {
        let mut actions = Vec::new();
        let tick = matches!(event, Event::Tick);
        self.session.handle(event, self.now, &mut self.random, &mut actions);
        if tick {
            check_deadline(self);
        }
        actions.iter().filter_map(words).collect()
    }

    pub(super) fn admit(&mut self) -> (super::Admission, Vec<String>) {
        let mut actions = Vec::new();
        let admission = self.session.admit(self.now, &mut self.random, &mut actions);
        (admission, actions.iter().filter_map(words).collect())
    }

    /// Advances to the next deadline.
    pub(super) fn wait(&mut self) -> Vec<String> {
        self.now = self.session.deadline().expect("a deadline");
        self.tell(Event::Tick)
    }

    pub(super) fn later(&mut self, seconds: u64) -> Vec<String> {
        self.now += Duration::from_secs(seconds);
        self.tell(Event::Tick)
    }

    pub(super) fn hear(&mut self, direction: Direction, message: Message) -> Vec<String> {
        self.tell(Event::Received(direction, Ok(message)))
    }

    /// Brings the session to Connect.
    pub(super) fn connect(&mut self) {
        self.tell(Event::Start);
        assert_eq!(self.wait(), ["connect"]);
    }

    /// Brings the session up over our own connection.
    pub(super) fn establish(&mut self, open: Open) -> Vec<String> {
        self.connect();
        self.tell(Event::Connected);
        self.hear(Direction::Outgoing, Message::Open(open));
        self.hear(Direction::Outgoing, Message::Keepalive)
    }
}

/// After a tick there is nothing left to do at the same time: a shell that sleeps until the deadline never spins.
fn check_deadline(bench: &mut Bench) {
    let mut actions = Vec::new();
    bench.session.handle(Event::Tick, bench.now, &mut bench.random, &mut actions);
    assert_eq!(actions, [], "a second tick at the same time finds something to do");
}

fn way(direction: Direction) -> &'static str {
    match direction {
        Direction::Outgoing => "out",
        Direction::Incoming => "in",
    }
}

/// An action in words; changes of state are checked in the state itself.
fn words(action: &Action) -> Option<String> {
    Some(match action {
        Action::Connect => "connect".into(),
        Action::Send(direction, message) => {
            let message = match message {
                Message::Open(_) => "OPEN".to_owned(),
                Message::Update(_) => "UPDATE".to_owned(),
                Message::Notification(notification) => notification.to_string(),
                Message::Keepalive => "KEEPALIVE".to_owned(),
                Message::RouteRefresh(refresh) => format!("REFRESH {} {:?}", refresh.family, refresh.phase),
                Message::UnknownRefresh => "?".to_owned(),
            };
            format!("{}: {message}", way(*direction))
        }
        Action::Close(direction) => format!("close {}", way(*direction)),
        Action::Up(direction, _) => format!("up {}", way(*direction)),
        Action::Down { keep, .. } => match keep {
            [false, false] => "down".into(),
            [true, true] => "down, routes kept".into(),
            _ => format!("down, kept {keep:?}"),
        },
        Action::Routes(_) => "routes".into(),
        Action::EndOfRib(family) => format!("end {family}"),
        Action::MarkStale(family) => format!("mark {family}"),
        Action::SweepStale(family) => format!("sweep {family}"),
        Action::SendAgain(family, marks) => format!("again {family} {marks}"),
        Action::Changed { .. } => return None,
        Action::Warn(text) => format!("warn: {text}"),
    })
}

pub(super) fn update() -> Message {
    let withdrawn = vec!["10.0.0.0/8".parse::<ipnet::IpNet>().unwrap().into()];
    Message::Update(Box::new(Update { withdrawn, ..Update::default() }))
}

pub(super) fn end_of(family: Family) -> Message {
    Message::Update(Box::new(Update { end_of_rib: Some(family), ..Update::default() }))
}

pub(super) fn notification(cause: Cause) -> Notification {
    cause.into()
}
