//! Live migrations of virtual machines: the endpoint that a machine moves to has no routes until the machine is there, and
//! afterwards, for a while, routes that win over those of its old place.

use messages::{LiveMigrationRole, WorkloadEndpointId};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How the routes of an endpoint are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// As always.
    Normal,
    /// Not at all: the machine is not here yet.
    Suppressed,
    /// With the metric that wins.
    Elevated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The machine moves here.
    Target,
    /// It is here, and routes settle until then.
    Settling(Instant),
}

/// All migrations of endpoints of this host.
#[derive(Debug)]
pub struct Migrations {
    settling: Duration,
    roles: BTreeMap<WorkloadEndpointId, LiveMigrationRole>,
    states: BTreeMap<WorkloadEndpointId, State>,
}

impl Migrations {
    /// No migrations; routes settle for so long.
    #[must_use]
    pub fn new(settling: Duration) -> Self {
        Self { settling, roles: BTreeMap::new(), states: BTreeMap::new() }
    }

    /// An endpoint has this role.
    pub fn update(&mut self, id: &WorkloadEndpointId, role: LiveMigrationRole, now: Instant) {
        let old = match role {
            LiveMigrationRole::None => self.roles.remove(id),
            _ => self.roles.insert(id.clone(), role),
        };
        if old.unwrap_or_default() == role {
            return;
        }
        match (self.states.get(id), role) {
            (None, LiveMigrationRole::Target) => {
                self.states.insert(id.clone(), State::Target);
            }
            (Some(State::Target), LiveMigrationRole::None) => {
                self.states.insert(id.clone(), State::Settling(now + self.settling));
            }
            // The machine moves on.
            (Some(_), LiveMigrationRole::Source) => {
                self.states.remove(id);
            }
            (None, LiveMigrationRole::None | LiveMigrationRole::Source)
            | (Some(State::Settling(_)), LiveMigrationRole::None)
            | (Some(_), LiveMigrationRole::Target) => {}
        }
    }

    /// An endpoint is gone.
    pub fn remove(&mut self, id: &WorkloadEndpointId) {
        self.roles.remove(id);
        self.states.remove(id);
    }

    /// How the routes of an endpoint are made.
    #[must_use]
    pub fn routing(&self, id: &WorkloadEndpointId) -> Routing {
        match self.states.get(id) {
            None => Routing::Normal,
            Some(State::Target) => Routing::Suppressed,
            Some(State::Settling(_)) => Routing::Elevated,
        }
    }

    /// The endpoints whose routes have settled by now, and when the next ones will have.
    pub fn settled(&mut self, now: Instant) -> (Vec<WorkloadEndpointId>, Option<Instant>) {
        let (mut done, mut next) = (Vec::new(), None);
        for (id, state) in &self.states {
            match state {
                State::Settling(until) if *until <= now => done.push(id.clone()),
                State::Settling(until) => next = next.into_iter().chain([*until]).min(),
                State::Target => {}
            }
        }
        done.iter().for_each(|id| {
            self.states.remove(id);
        });
        (done, next)
    }
}

#[cfg(test)]
mod tests {
    use super::{Migrations, Routing};
    use messages::{LiveMigrationRole as Role, WorkloadEndpointId};
    use std::time::{Duration, Instant};

    #[test]
    fn to_a_target_and_on() {
        let id = WorkloadEndpointId {
            orchestrator: "k8s".into(),
            workload: "a/b".into(),
            endpoint: "eth0".into(),
        };
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        let mut all = Migrations::new(30 * second);
        all.update(&id, Role::None, begin);
        assert_eq!(all.routing(&id), Routing::Normal);
        all.update(&id, Role::Target, begin);
        assert_eq!(all.routing(&id), Routing::Suppressed);
        all.update(&id, Role::None, begin);
        assert_eq!(all.routing(&id), Routing::Elevated);
        assert_eq!(all.settled(begin + 29 * second), (vec![], Some(begin + 30 * second)));
        assert_eq!(all.settled(begin + 30 * second), (vec![id.clone()], None));
        assert_eq!(all.routing(&id), Routing::Normal);
        all.update(&id, Role::Target, begin);
        all.update(&id, Role::Source, begin);
        assert_eq!(all.routing(&id), Routing::Normal);
    }
}
