//! Assignments based on facts read in advance: what others did since then is noticed before it can do harm.

use crate::fixtures::{node, pool, pool_key, records, request};
use crate::sim::{Sim, SimClock, run};
use datastore::Backend;
use ipam::{Assigned, AutoAssign, Error, Ipam};
use ipnet::IpNet;
use model::{IpVersion, IpamConfig, Key, KvPair, Value};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Processes on one store; each has its own address management, like plugins.
struct Store(Arc<Sim>);

impl Store {
    fn new(has_transactions: bool) -> Self {
        let sim = Sim::new(has_transactions, false);
        for entry in [node("n1", &[]), node("n2", &[])] {
            sim.set(&entry.key.clone(), Some(entry));
        }
        sim.set(&pool_key("pool"), Some(pool("pool", r#"{"cidr":"10.0.0.0/28","blockSize":30}"#)));
        Self(sim)
    }

    fn process(&self) -> Ipam {
        let clock: Arc<dyn ipam::Clock> = Arc::new(SimClock::default());
        Ipam::with_clock(Arc::clone(&self.0) as Arc<dyn Backend>, clock)
    }

    fn blocks(&self) -> usize {
        records(&self.0.dump()).blocks.len()
    }

    fn configure(&self, change: impl FnOnce(&mut IpamConfig)) {
        let mut config = ipam::default_config();
        change(&mut config);
        self.0.set(&Key::IpamConfig, Some(KvPair::new(Key::IpamConfig, Value::IpamConfig(config))));
    }
}

/// Reads ahead, runs `meanwhile`, and assigns.
fn assign(store: &Store, wanted: &AutoAssign, meanwhile: impl FnOnce()) -> Result<Assigned, Error> {
    let process = store.process();
    let ahead = run(Box::pin(process.look_ahead("n1", &[IpVersion::V4])))?;
    meanwhile();
    run(Box::pin(process.auto_assign_after(Some(ahead), wanted)))
}

fn both(check: impl Fn(&Store)) {
    for has_transactions in [true, false] {
        let store = Store::new(has_transactions);
        check(&store);
        let repairs = records(&store.0.dump()).repairs();
        assert!(repairs.is_empty(), "{repairs:?}");
    }
}

#[test]
fn a_block_claimed_meanwhile_by_another_process_of_the_host_is_used() {
    both(|store| {
        let other = store.process();
        let assigned = assign(store, &request("n1", "a", 1), || {
            let first = run(Box::pin(other.auto_assign(&request("n1", "b", 1))));
            assert_eq!(first.expect("an address").ipv4.len(), 1);
        });
        assert_eq!(assigned.expect("an address").ipv4.len(), 1);
        assert_eq!(store.blocks(), 1, "one block is enough for two addresses");
    });
}

#[test]
fn addresses_taken_meanwhile_are_not_assigned_again() {
    both(|store| {
        let other = store.process();
        run(Box::pin(other.auto_assign(&request("n1", "first", 1)))).expect("a block");
        let mut taken: BTreeSet<IpNet> = BTreeSet::new();
        let assigned = assign(store, &request("n1", "a", 2), || {
            let all = run(Box::pin(other.auto_assign(&request("n1", "b", 2)))).expect("addresses");
            taken.extend(all.ipv4);
        });
        let got = assigned.expect("addresses").ipv4;
        assert!(got.len() == 2 && got.iter().all(|net| !taken.contains(net)), "{got:?} {taken:?}");
    });
}

#[test]
fn settings_changed_meanwhile_apply() {
    both(|store| {
        let other = store.process();
        // The other host has the whole pool: only borrowing could help.
        run(Box::pin(other.auto_assign(&request("n2", "b", 13)))).expect("addresses");
        let refused =
            assign(store, &request("n1", "a", 1), || store.configure(|config| config.strict_affinity = true));
        let refused = refused.expect("an answer");
        assert!(refused.ipv4.is_empty(), "{refused:?}");
        let served = assign(store, &request("n1", "a", 1), || {
            store.configure(|config| config.strict_affinity = false);
        });
        assert_eq!(served.expect("an answer").ipv4.len(), 1);
    });
}

#[test]
fn facts_of_another_host_are_not_used() {
    both(|store| {
        let process = store.process();
        let ahead = run(Box::pin(process.look_ahead("n2", &[IpVersion::V4]))).expect("facts");
        let wanted = request("n1", "a", 1);
        let assigned = run(Box::pin(process.auto_assign_after(Some(ahead), &wanted))).expect("an address");
        let block = assigned.ipv4[0].trunc();
        let claims = records(&store.0.dump()).claims;
        assert!(claims.keys().any(|claim| claim.host == "n1" && claim.cidr == block), "{claims:?}");
    });
}
