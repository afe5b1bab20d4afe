//! Random interleavings of many hosts: assign, release, crash between any two operations of the store, edits of pools
//! and settings. After every step: no address has two owners, nothing is lost, no handle counts too little. When
//! everything has settled: nothing is left that `calicoctl ipam check` would report as a problem.

use crate::fixtures::{node, pool, pool_key, records, request};
use crate::sim::{Fault, Sim, SimClock, poll_once, run};
use api::BlockAffinityState;
use datastore::Backend;
use futures::future::BoxFuture;
use ipam::{AssignIp, Ipam, Owner, Release};
use ipam_core::{Block, Repair, structure};
use model::{BlockAffinity, HandleId, IpamConfig, IpamHandle, Key, KvPair, Value};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::task::Poll;

const HOSTS: [&str; 3] = ["n0", "n1", "n2"];
const POOLS: [&str; 2] = ["pool-a", "pool-b"];
/// Two processes of each host.
const PROCESSES: usize = 2 * HOSTS.len();

#[derive(Clone, Copy, Debug)]
enum Op {
    Assign {
        process: usize,
        count: usize,
        block_limit: u32,
    },
    AssignNamed {
        process: usize,
        place: u8,
    },
    /// One of the handles so far, by its holder's process or another one.
    ReleaseHandle {
        process: usize,
        handle: usize,
    },
    ReleaseAddresses {
        process: usize,
        handle: usize,
    },
    /// A repeated request for a handle that is in use: then only consistency is checked.
    Again {
        process: usize,
        handle: usize,
    },
    ReleaseHost {
        process: usize,
        must_be_empty: bool,
    },
    ReleasePool {
        process: usize,
        pool: usize,
    },
    Pool {
        pool: usize,
        state: PoolState,
    },
    Config {
        strict: bool,
        cooldown: i32,
    },
    Later {
        seconds: i64,
    },
    Crash {
        process: usize,
    },
    Cancel {
        task: usize,
    },
    /// A later write fails, or its answer is lost.
    Fault {
        fault: Fault,
    },
}

#[derive(Clone, Copy, Debug)]
enum PoolState {
    Open,
    Disabled,
    Gone,
    OnlyFirstHost,
}

fn pool_entry(number: usize, state: PoolState) -> KvPair {
    let (disabled, selector) = match state {
        PoolState::Disabled => (true, "all()"),
        PoolState::OnlyFirstHost => (false, "first == 'yes'"),
        PoolState::Open | PoolState::Gone => (false, "all()"),
    };
    // Four blocks of two addresses, and two blocks of four.
    let (cidr, size) = [("10.0.0.0/29", 31), ("10.1.0.0/29", 30)][number];
    let spec = format!(
        r#"{{"cidr":"{cidr}","blockSize":{size},"disabled":{disabled},"nodeSelector":"{selector}"}}"#
    );
    pool(POOLS[number], &spec)
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let process = 0..PROCESSES;
    let op = prop_oneof![
        8 => (process.clone(), 1..4_usize, 0..4_u32)
            .prop_map(|(process, count, block_limit)| Op::Assign { process, count, block_limit }),
        2 => (process.clone(), 0..16_u8).prop_map(|(process, place)| Op::AssignNamed { process, place }),
        5 => (process.clone(), 0..40_usize).prop_map(|(process, handle)| Op::ReleaseHandle { process, handle }),
        2 => (process.clone(), 0..40_usize).prop_map(|(process, handle)| Op::ReleaseAddresses { process, handle }),
        2 => (process.clone(), 0..40_usize).prop_map(|(process, handle)| Op::Again { process, handle }),
        2 => (process.clone(), any::<bool>())
            .prop_map(|(process, must_be_empty)| Op::ReleaseHost { process, must_be_empty }),
        1 => (process.clone(), 0..2_usize).prop_map(|(process, pool)| Op::ReleasePool { process, pool }),
        2 => (0..2_usize, prop_oneof![
            Just(PoolState::Open), Just(PoolState::Disabled), Just(PoolState::Gone), Just(PoolState::OnlyFirstHost),
        ]).prop_map(|(pool, state)| Op::Pool { pool, state }),
        1 => (any::<bool>(), 0..2_i32).prop_map(|(strict, cooldown)| Op::Config { strict, cooldown: cooldown * 30 }),
        1 => (0..100_i64).prop_map(|seconds| Op::Later { seconds }),
        1 => process.prop_map(|process| Op::Crash { process }),
        1 => (0..64_usize).prop_map(|task| Op::Cancel { task }),
        1 => any::<bool>().prop_map(|before| Op::Fault { fault: if before { Fault::Before } else { Fault::After } }),
    ];
    prop::collection::vec(op, 1..24)
}

/// A task's result.
enum Outcome {
    Assigned {
        handle: HandleId,
        addresses: Vec<IpAddr>,
        since: usize,
    },
    Done,
    /// It returned an error after its last attempt: two tasks that work on one handle in lockstep can keep each other
    /// from finishing, because waiting takes no time here. The caller has to repeat the call.
    GaveUp,
}

struct Task {
    process: usize,
    future: BoxFuture<'static, Outcome>,
}

/// The store, all tasks that work on it, and the expected state.
struct World {
    sim: Arc<Sim>,
    clock: Arc<SimClock>,
    ipams: Vec<Ipam>,
    tasks: Vec<Option<Task>>,
    /// Handles in creation order, and whether only one task ever touched each.
    handles: Vec<HandleId>,
    contested: BTreeSet<HandleId>,
    /// The holders of addresses that have not been given up since.
    held: BTreeMap<IpAddr, HandleId>,
    /// The step since which each pool assigns nothing.
    closed: BTreeMap<usize, usize>,
    step: usize,
    /// Whether a task crashed, or gave up with an error.
    had_crash: bool,
}

impl World {
    fn new(has_transactions: bool) -> Self {
        let sim = Sim::new(has_transactions, true);
        let clock = Arc::new(SimClock::default());
        for (number, host) in HOSTS.iter().enumerate() {
            let labels: &[(&str, &str)] = if number == 0 { &[("first", "yes")] } else { &[] };
            let node = node(host, labels);
            sim.set(&node.key.clone(), Some(node));
        }
        for number in 0..POOLS.len() {
            let entry = pool_entry(number, PoolState::Open);
            sim.set(&entry.key.clone(), Some(entry));
        }
        let backend: Arc<dyn Backend> = Arc::clone(&sim) as Arc<dyn Backend>;
        let ipams = (0..PROCESSES)
            .map(|_| Ipam::with_clock(Arc::clone(&backend), Arc::clone(&clock) as Arc<dyn ipam::Clock>))
            .collect();
        Self {
            sim,
            clock,
            ipams,
            tasks: Vec::new(),
            handles: Vec::new(),
            contested: BTreeSet::new(),
            held: BTreeMap::new(),
            closed: BTreeMap::new(),
            step: 0,
            had_crash: false,
        }
    }

    fn start(&mut self, process: usize, future: impl Future<Output = Outcome> + Send + 'static) {
        self.tasks.push(Some(Task { process, future: Box::pin(future) }));
    }

    fn assign(&mut self, process: usize, handle: HandleId, count: usize, block_limit: u32) {
        let (ipam, since) = (self.ipams[process].clone(), self.step);
        let host = HOSTS[process / 2];
        let mut request = request(host, &handle, count);
        request.max_blocks_per_host = block_limit;
        // Like the CNI plugin: no two requests have the same attributes.
        request.attributes.insert("timestamp".to_owned(), format!("{}", self.step));
        self.start(process, async move {
            let addresses = match ipam.auto_assign(&request).await {
                Ok(assigned) => assigned.addresses().collect(),
                Err(_) => Vec::new(),
            };
            Outcome::Assigned { handle, addresses, since }
        });
    }

    /// The handle of an operation; its addresses are no longer expected to be held.
    fn give_up(&mut self, handle: usize) -> Option<HandleId> {
        let handle = self.handles.get(handle % self.handles.len().max(1))?.clone();
        self.held.retain(|_, holder| *holder != handle);
        self.contested.insert(handle.clone());
        Some(handle)
    }

    fn perform(&mut self, op: Op) {
        self.step += 1;
        match op {
            Op::Assign { process, count, block_limit } => {
                let handle = HandleId::from(format!("h{}", self.handles.len()));
                self.handles.push(handle.clone());
                self.assign(process, handle, count, block_limit);
            }
            Op::AssignNamed { process, place } => {
                let handle = HandleId::from(format!("h{}", self.handles.len()));
                self.handles.push(handle.clone());
                let address: IpAddr =
                    format!("10.{}.0.{}", place / 8, place % 8).parse().expect("an address");
                let (ipam, since) = (self.ipams[process].clone(), self.step);
                let mut request = AssignIp::new(address, HOSTS[process / 2]);
                request.handle = Some(handle.clone());
                self.start(process, async move {
                    let is_ours = ipam.assign_ip(&request).await.is_ok();
                    let addresses = if is_ours { vec![address] } else { Vec::new() };
                    Outcome::Assigned { handle, addresses, since }
                });
            }
            Op::Again { process, handle } => {
                if let Some(handle) = self.give_up(handle) {
                    self.assign(process, handle, 1, 0);
                }
            }
            Op::ReleaseHandle { process, handle } => {
                let Some(handle) = self.give_up(handle) else { return };
                let ipam = self.ipams[process].clone();
                self.start(process, async move {
                    match ipam.release_by_handle(&handle).await {
                        Err(error) if !error.is_does_not_exist() => Outcome::GaveUp,
                        _ => Outcome::Done,
                    }
                });
            }
            Op::ReleaseAddresses { process, handle } => {
                let handle = handle % self.handles.len().max(1);
                let Some(name) = self.handles.get(handle).cloned() else { return };
                let releases: Vec<Release> = self
                    .held
                    .iter()
                    .filter(|(_, holder)| **holder == name)
                    .map(|(address, _)| Release {
                        address: *address,
                        handle: Some(name.clone()),
                        sequence_number: None,
                    })
                    .collect();
                self.give_up(handle);
                let ipam = self.ipams[process].clone();
                self.start(process, async move {
                    match ipam.release_ips(&releases).await {
                        Ok(released) if released.failure.is_none() => Outcome::Done,
                        _ => Outcome::GaveUp,
                    }
                });
            }
            Op::ReleaseHost { process, must_be_empty } => {
                let ipam = self.ipams[process].clone();
                let owner =
                    Owner { affinity_type: model::AffinityType::Host, host: HOSTS[process / 2].to_owned() };
                self.start(process, async move {
                    drop(ipam.release_host_affinities(&owner, must_be_empty).await);
                    Outcome::Done
                });
            }
            Op::ReleasePool { process, pool } => {
                let ipam = self.ipams[process].clone();
                let range = ["10.0.0.0/29", "10.1.0.0/29"][pool].parse().expect("a range");
                self.start(process, async move {
                    drop(ipam.release_pool_affinities(range).await);
                    Outcome::Done
                });
            }
            Op::Pool { pool, state } => {
                let entry = match state {
                    PoolState::Gone => None,
                    state => Some(pool_entry(pool, state)),
                };
                self.sim.set(&pool_key(POOLS[pool]), entry);
                match state {
                    PoolState::Disabled | PoolState::Gone => {
                        self.closed.entry(pool).or_insert(self.step);
                    }
                    PoolState::Open | PoolState::OnlyFirstHost => drop(self.closed.remove(&pool)),
                }
            }
            Op::Config { strict, cooldown } => {
                let config = IpamConfig {
                    strict_affinity: strict,
                    auto_allocate_blocks: true,
                    ip_cooldown_seconds: cooldown,
                    ..IpamConfig::default()
                };
                self.sim.set(&Key::IpamConfig, Some(KvPair::new(Key::IpamConfig, Value::IpamConfig(config))));
            }
            Op::Fault { fault } => {
                self.sim.fail_next(fault);
                self.had_crash = true;
            }
            Op::Later { seconds } => self.clock.advance(seconds),
            Op::Crash { process } => {
                for slot in &mut self.tasks {
                    if slot.as_ref().is_some_and(|task| task.process == process) {
                        *slot = None;
                        self.had_crash = true;
                    }
                }
                let backend = Arc::clone(&self.sim) as Arc<dyn Backend>;
                self.ipams[process] =
                    Ipam::with_clock(backend, Arc::clone(&self.clock) as Arc<dyn ipam::Clock>);
            }
            Op::Cancel { task } => {
                let count = self.tasks.len().max(1);
                if let Some(slot) = self.tasks.get_mut(task % count)
                    && slot.take().is_some()
                {
                    self.had_crash = true;
                }
            }
        }
    }

    /// Runs one task to its next stop. False when it has ended.
    fn go_on(&mut self, place: usize) -> bool {
        let Some(slot) = self.tasks.get_mut(place) else { return false };
        let Some(task) = slot else { return false };
        let Poll::Ready(outcome) = poll_once(&mut task.future) else {
            self.check();
            return true;
        };
        *slot = None;
        if matches!(outcome, Outcome::GaveUp) {
            self.had_crash = true;
        }
        if let Outcome::Assigned { handle, addresses, since } = outcome {
            for address in addresses {
                for (pool, closed) in &self.closed {
                    let range: ipnet::IpNet = ["10.0.0.0/29", "10.1.0.0/29"][*pool].parse().expect("a range");
                    assert!(
                        *closed > since || !range.contains(&address),
                        "{address} for {handle} of a pool that was closed before"
                    );
                }
                if self.contested.contains(&handle) {
                    continue;
                }
                let other = self.held.insert(address, handle.clone());
                assert_eq!(other, None, "{address} was given to {handle} too");
            }
        }
        self.check();
        false
    }

    /// Checks what must be true at every moment.
    fn check(&self) {
        let records = records(&self.sim.dump());
        let now = ipam::Clock::now(&*self.clock);
        let mut holders: BTreeMap<IpAddr, HandleId> = BTreeMap::new();
        for block in records.blocks.values() {
            assert_eq!(structure::problem(block, now), None, "{block:?}");
            let mut counts: BTreeMap<HandleId, i64> = BTreeMap::new();
            for allocation in Block::new(block).allocations().filter(|allocation| !allocation.is_resting()) {
                let handle = HandleId::from(allocation.handle_id().expect("every request has a handle"));
                *counts.entry(handle.clone()).or_default() += 1;
                assert_eq!(holders.insert(allocation.address, handle), None);
            }
            for (handle, count) in counts {
                let counted =
                    records.handles.get(&handle).and_then(|blocks| blocks.get(&block.cidr.to_string()));
                assert!(
                    counted.is_some_and(|counted| *counted >= count),
                    "{handle} has {count} addresses of {} and counts {counted:?}",
                    block.cidr
                );
            }
        }
        for (address, handle) in &self.held {
            assert_eq!(holders.get(address), Some(handle), "{address} is lost");
        }
    }

    /// Runs all tasks to their end.
    fn finish(&mut self) {
        for _ in 0..4_000 {
            let mut is_busy = false;
            for place in 0..self.tasks.len() {
                is_busy |= self.go_on(place);
            }
            if !is_busy {
                return;
            }
        }
        panic!("the tasks do not end");
    }

    /// Carries out what `ipam check --fix` would do. No other task writes now.
    fn repair(&self) -> Vec<Repair> {
        let repairs = records(&self.sim.dump()).repairs();
        for repair in &repairs {
            let (key, value) = match repair.clone() {
                Repair::DeleteHandle { handle_id } => (Key::IpamHandle { handle_id }, None),
                Repair::SetHandle { handle_id, to, .. } => {
                    let handle =
                        IpamHandle { handle_id: handle_id.clone(), block: to, ..IpamHandle::default() };
                    (Key::IpamHandle { handle_id }, Some(Value::IpamHandle(handle)))
                }
                Repair::DeleteClaim { claim, .. } => (Key::BlockAffinity(claim), None),
                Repair::CreateClaim { claim } => {
                    let affinity =
                        BlockAffinity { state: BlockAffinityState::Confirmed, ..BlockAffinity::default() };
                    (Key::BlockAffinity(claim), Some(Value::BlockAffinity(affinity)))
                }
                Repair::DeleteBlock { cidr } => (Key::Block { cidr }, None),
                Repair::RewriteBlock { block } => {
                    (Key::Block { cidr: block.cidr }, Some(Value::Block(*block)))
                }
            };
            self.sim.set(&key, value.map(|value| KvPair::new(key.clone(), value)));
        }
        repairs
    }
}

fn check_case(has_transactions: bool, ops: Vec<Op>, schedule: &[u8]) {
    let mut world = World::new(has_transactions);
    let mut schedule = schedule.iter().copied().cycle();
    for op in ops {
        world.perform(op);
        world.check();
        for _ in 0..schedule.next().unwrap_or_default() % 12 {
            let count = world.tasks.len().max(1);
            world.go_on(usize::from(schedule.next().unwrap_or_default()) % count);
        }
    }
    world.finish();
    world.check();
    world.sim.heal();

    // Everything has settled: no task is running any more.
    let repairs = records(&world.sim.dump()).repairs();
    if !world.had_crash {
        let serious: Vec<String> =
            repairs.iter().filter(|repair| is_serious(repair)).map(ToString::to_string).collect();
        assert_eq!(serious, Vec::<String>::new(), "no client crashed");
    }
    for repair in &repairs {
        if let Repair::SetHandle { handle_id, from, to } = repair {
            let from = from.as_ref().unwrap_or_else(|| panic!("{handle_id} is missing"));
            for (block, count) in to {
                assert!(from.get(block).is_some_and(|counted| counted >= count), "{repair}");
            }
        }
    }
    world.repair();
    assert_eq!(records(&world.sim.dump()).repairs(), Vec::new());
    world.check();

    // Everything can be released, and nothing is left behind.
    let ipam = world.ipams[0].clone();
    for handle in world.handles.clone() {
        world.held.retain(|_, holder| *holder != handle);
        let outcome = run(Box::pin(ipam.release_by_handle(&handle)));
        assert!(
            outcome.as_ref().is_ok_and(|()| true) || outcome.is_err_and(|error| error.is_does_not_exist())
        );
    }
    let left = records(&world.sim.dump());
    assert_eq!(left.handles, BTreeMap::new());
    world.clock.advance(3600);
    for cidr in left.blocks.keys() {
        run(Box::pin(ipam.collect_rested(*cidr))).expect("collecting");
    }
    for block in records(&world.sim.dump()).blocks.values() {
        assert!(Block::new(block).is_empty(), "{block:?}");
        assert_eq!(block.unallocated.len(), block.allocations.len());
    }
}

/// Without a crash only a claim may be left that its host would notice the next time.
fn is_serious(repair: &Repair) -> bool {
    !matches!(repair, Repair::DeleteClaim { .. })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(800),
        max_shrink_iters: 1500,
        ..ProptestConfig::default()
    })]

    #[test]
    fn with_transactions(ops in ops(), schedule in prop::collection::vec(any::<u8>(), 64..512)) {
        check_case(true, ops, &schedule);
    }

    #[test]
    fn without_transactions(ops in ops(), schedule in prop::collection::vec(any::<u8>(), 64..512)) {
        check_case(false, ops, &schedule);
    }
}
