//! Live migrations of virtual machines: the endpoint that a machine moves to has no routes until the machine has
//! arrived. Afterwards, for a while, its routes win over those of the old place.
//!
//! | event | moving here | here | settling |
//! | --- | --- | --- | --- |
//! | the machine announces itself | here | | |
//! | the migration is over | settling | settling | |
//! | the time is over | | | no migration |
//! | the machine moves on, or the endpoint is gone | no migration | no migration | no migration |
//!
//! Without a migration, only the message that a machine moves here starts one. This module only provides the interfaces
//! to listen on; another one listens. The arrival of a machine, however it is detected, is reported once, by its name.

use super::{Manager, News, World};
use crate::desired::Desired;
use messages::{InterfaceName, LiveMigrationRole, Text, WorkloadEndpoint, WorkloadEndpointId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How the routes of an endpoint are programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Routing {
    /// As usual.
    Normal,
    /// Not at all: the machine has not arrived yet.
    Suppressed,
    /// With the metric that wins.
    Elevated,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// The machine of this name moves here, and will be behind this interface.
    Target { interface: InterfaceName, machine: Text },
    /// It has announced itself, and the migration is not over yet.
    Here,
    /// It has arrived, and routes settle until this time.
    Settling(Instant),
}

/// All migrations of endpoints of this host.
#[derive(Debug)]
pub(crate) struct Migrations {
    settling: Duration,
    roles: BTreeMap<WorkloadEndpointId, LiveMigrationRole>,
    states: BTreeMap<WorkloadEndpointId, State>,
    arrived: Vec<(WorkloadEndpointId, Text)>,
    /// Endpoints whose routing may differ from what was written.
    unsettled: BTreeSet<WorkloadEndpointId>,
}

impl Migrations {
    /// A manager without migrations; routes settle for this long.
    #[must_use]
    pub(crate) fn new(settling: Duration) -> Self {
        Self {
            settling,
            roles: BTreeMap::new(),
            states: BTreeMap::new(),
            arrived: Vec::new(),
            unsettled: BTreeSet::new(),
        }
    }

    fn update(&mut self, id: &WorkloadEndpointId, endpoint: &WorkloadEndpoint, now: Instant) {
        self.unsettled.insert(id.clone());
        let role = endpoint.live_migration_role;
        let target = || State::Target {
            interface: endpoint.name.as_str().into(),
            machine: endpoint.live_migration_vmi_name.as_str().into(),
        };
        let old = match role {
            LiveMigrationRole::None => self.roles.remove(id),
            _ => self.roles.insert(id.clone(), role),
        };
        if old.unwrap_or_default() == role {
            if let Some(state @ State::Target { .. }) = self.states.get_mut(id) {
                *state = target();
            }
            return;
        }
        match (self.states.get(id), role) {
            (None, LiveMigrationRole::Target) => {
                self.states.insert(id.clone(), target());
            }
            (Some(State::Target { .. }), LiveMigrationRole::None) => {
                // Its announcement was missed.
                self.announced(id);
                self.states.insert(id.clone(), State::Settling(now + self.settling));
            }
            (Some(State::Here), LiveMigrationRole::None) => {
                self.states.insert(id.clone(), State::Settling(now + self.settling));
            }
            // The machine moves away.
            (Some(_), LiveMigrationRole::Source) => {
                self.states.remove(id);
            }
            (None, LiveMigrationRole::None | LiveMigrationRole::Source)
            | (Some(State::Settling(_)), LiveMigrationRole::None)
            | (Some(_), LiveMigrationRole::Target) => {}
        }
    }

    fn remove(&mut self, id: &WorkloadEndpointId) {
        self.unsettled.insert(id.clone());
        self.roles.remove(id);
        self.states.remove(id);
    }

    /// The endpoints whose machines have not arrived yet, and the interfaces on which they will announce themselves.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = (&WorkloadEndpointId, &InterfaceName)> {
        self.states.iter().filter_map(|(id, state)| match state {
            State::Target { interface, .. } => Some((id, interface)),
            State::Here | State::Settling(_) => None,
        })
    }

    /// Records that a machine announced itself; returns whether that was awaited, so that its routes change.
    fn announced(&mut self, id: &WorkloadEndpointId) -> bool {
        let Some(state @ State::Target { .. }) = self.states.get_mut(id) else { return false };
        self.unsettled.insert(id.clone());
        if let State::Target { machine, .. } = std::mem::replace(state, State::Here)
            && !machine.is_empty()
        {
            self.arrived.push((id.clone(), machine));
        }
        true
    }

    /// The machines that have arrived since the last call, and their endpoints.
    pub(crate) fn take_arrived(&mut self) -> Vec<(WorkloadEndpointId, Text)> {
        std::mem::take(&mut self.arrived)
    }

    /// How the routes of an endpoint are programmed.
    #[must_use]
    pub(crate) fn routing(&self, id: &WorkloadEndpointId) -> Routing {
        match self.states.get(id) {
            None => Routing::Normal,
            Some(State::Target { .. }) => Routing::Suppressed,
            Some(State::Here | State::Settling(_)) => Routing::Elevated,
        }
    }

    /// The endpoints whose routes have settled by now, and the time when the next ones will have.
    fn settled(&mut self, now: Instant) -> (Vec<WorkloadEndpointId>, Option<Instant>) {
        let (mut done, mut next) = (Vec::new(), None);
        for (id, state) in &self.states {
            match state {
                State::Settling(until) if *until <= now => done.push(id.clone()),
                State::Settling(until) => next = next.into_iter().chain([*until]).min(),
                State::Target { .. } | State::Here => {}
            }
        }
        done.iter().for_each(|id| {
            self.states.remove(id);
        });
        (done, next)
    }
}

impl Manager for Migrations {
    fn hear(&mut self, news: &News<'_>, now: Instant, _: &mut Desired) {
        match *news {
            News::Workload(id, Some(endpoint)) => self.update(id, endpoint, now),
            News::Workload(id, None) => self.remove(id),
            News::Announced(id) => _ = self.announced(id),
            _ => {}
        }
    }

    fn write(&mut self, world: &mut World, _: &mut Desired) {
        let (settled, next) = self.settled(world.now);
        self.unsettled.extend(settled);
        for id in std::mem::take(&mut self.unsettled) {
            let new = Some(self.routing(&id)).filter(|routing| *routing != Routing::Normal);
            let old = match new {
                Some(new) => world.routing.insert(id.clone(), new),
                None => world.routing.remove(&id),
            };
            if old != new {
                world.changed.routing.insert(id);
            }
        }
        next.into_iter().for_each(|next| world.wake(next));
    }
}

#[cfg(test)]
mod tests {
    use super::{Migrations, Routing};
    use messages::{LiveMigrationRole as Role, WorkloadEndpoint, WorkloadEndpointId};
    use std::time::{Duration, Instant};

    const SECOND: Duration = Duration::from_secs(1);

    fn id() -> WorkloadEndpointId {
        WorkloadEndpointId { orchestrator: "k8s".into(), workload: "a/b".into(), endpoint: "eth0".into() }
    }

    fn endpoint(role: Role, interface: &str) -> WorkloadEndpoint {
        WorkloadEndpoint {
            name: interface.into(),
            live_migration_role: role,
            live_migration_vmi_name: "db".to_owned(),
            ..WorkloadEndpoint::default()
        }
    }

    fn awaited(all: &Migrations) -> Vec<&str> {
        all.awaited().map(|(_, interface)| &**interface).collect()
    }

    /// Steps and, after each, the routing and whether an announcement is awaited:
    /// `T`arget, `S`ource, `N`o role, `A`nnounced, `W`ait until settled, `R`emoved.
    fn check(steps: &str, expected: &[(Routing, bool)]) {
        let (begin, id) = (Instant::now(), id());
        let mut all = Migrations::new(30 * SECOND);
        let mut now = begin;
        let mut before = Routing::Normal;
        for (step, (routing, listens)) in steps.chars().zip(expected) {
            match step {
                'T' => all.update(&id, &endpoint(Role::Target, "cali1"), now),
                'S' => all.update(&id, &endpoint(Role::Source, "cali1"), now),
                'N' => all.update(&id, &endpoint(Role::None, "cali1"), now),
                'A' => assert_eq!(all.announced(&id), *routing == Routing::Elevated && !listens, "{steps}"),
                'W' => {
                    now += 30 * SECOND;
                    all.settled(now);
                }
                'R' => all.remove(&id),
                other => panic!("{other}"),
            }
            assert_eq!(
                (all.routing(&id), !awaited(&all).is_empty()),
                (*routing, *listens),
                "{step} of {steps}"
            );
            let comes = before == Routing::Suppressed && *routing == Routing::Elevated;
            assert_eq!(all.take_arrived().len(), usize::from(comes), "{step} of {steps}");
            before = *routing;
        }
    }

    #[test]
    fn every_step_of_every_state() {
        use Routing::{Elevated, Normal, Suppressed};
        let (base, target, elevated) = ((Normal, false), (Suppressed, true), (Elevated, false));
        // No migration.
        check("NASWR", &[base; 5]);
        // Moving here.
        check("TTWT", &[target; 4]);
        check("TN", &[target, elevated]);
        check("TS", &[target, base]);
        check("TR", &[target, base]);
        // Here, for as long as the migration takes.
        check("TAW", &[target, elevated, elevated]);
        check("TAT", &[target, elevated, elevated]);
        check("TAS", &[target, elevated, base]);
        check("TAR", &[target, elevated, base]);
        check("TAN", &[target, elevated, elevated]);
        // Settling.
        check("TANW", &[target, elevated, elevated, base]);
        check("TNW", &[target, elevated, base]);
        check("TNS", &[target, elevated, base]);
        check("TNR", &[target, elevated, base]);
        check("TNT", &[target, elevated, elevated]);
        // And once more.
        check("TANWSNT", &[target, elevated, elevated, base, base, base, target]);
    }

    #[test]
    fn routes_settle_for_as_long_as_configured() {
        let (begin, id) = (Instant::now(), id());
        let mut all = Migrations::new(30 * SECOND);
        all.update(&id, &endpoint(Role::Target, "cali1"), begin);
        assert_eq!(all.settled(begin + 100 * SECOND), (vec![], None), "a machine may take its time");
        all.update(&id, &endpoint(Role::None, "cali1"), begin);
        assert_eq!(all.settled(begin + 29 * SECOND), (vec![], Some(begin + 30 * SECOND)));
        assert_eq!(all.settled(begin + 30 * SECOND), (vec![id.clone()], None));
        assert_eq!(all.routing(&id), Routing::Normal);
    }

    #[test]
    fn only_the_awaited_announcement_matters_and_its_interface_is_known() {
        let (now, id) = (Instant::now(), id());
        let mut all = Migrations::new(SECOND);
        assert!(!all.announced(&id));
        all.update(&id, &endpoint(Role::Target, "cali1"), now);
        assert_eq!(awaited(&all), ["cali1"]);
        all.update(&id, &endpoint(Role::Target, "cali2"), now);
        assert_eq!(awaited(&all), ["cali2"], "the endpoint got another interface");
        assert!(all.announced(&id));
        assert!(!all.announced(&id), "once is enough");
        assert_eq!(all.take_arrived(), [(id.clone(), "db".into())]);
        assert_eq!(all.take_arrived(), []);
    }
}
