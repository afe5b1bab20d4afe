//! Removes ended connections every ten seconds, in its own thread: a pass over a large map must not delay policy. This
//! includes flows to backends that services no longer have, and affinities with such backends.
//!
//! Does not lock services for longer than a query takes.

use crate::error::Error;
use crate::limits::LIMITS;
use crate::maps::folder;
use crate::services::Shared;
use crate::usage::{Growth, Usages};
use bpf::layout::limits::{Limit, LimitKey};
use bpf::layout::{Family, V4, V6};
use bpf::{Layout as _, Map, Table};
use bpf_conntrack::{Alone, Destinations, Paced, Report, Sweep, Timeouts, sweep, sweep_direct};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

/// The pause between passes, as in Calico.
const PAUSE: Duration = Duration::from_secs(10);
/// After each batch of entries the thread sleeps as long as the batch took, so that a pass uses at most half a core.
const SHARE: u32 = 1;
/// Every how many passes the map of untracked connections is swept: its entries are removed when connections end, with
/// few exceptions.
const DIRECT_PASSES: u32 = 6;

/// The thread, which ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Sweeper {
    removed: Sender<Vec<IpAddr>>,
    usages: Usages,
}

impl Sweeper {
    /// Opens the maps of connections by their pins, and starts the thread. `services` are those that programs serve.
    pub(crate) fn start(
        root: &Path,
        with_v6: bool,
        timeouts: Timeouts,
        services: Option<(Shared<V4>, Option<Shared<V6>>)>,
    ) -> Result<Self, Error> {
        let folder = folder(root);
        let (of_v4, of_v6) = services.map_or((None, None), |(v4, v6)| (Some(v4), v6));
        let v4 = Flows::open(&folder, ["cali_v4_ct4", "cali_v4_nat_aff", "bpfp_v4_direct"], of_v4)?;
        let v6 = with_v6
            .then(|| Flows::open(&folder, ["cali_v6_ct4", "cali_v6_nat_aff", "bpfp_v6_direct"], of_v6));
        let v6 = v6.transpose()?;
        let (removed, news) = channel();
        let usages = Usages::default();
        let found = usages.clone();
        let work = move || {
            let mut sweeps = (Sweeps::<V4>::new(timeouts), Sweeps::<V6>::new(timeouts));
            while let Some(addresses) = wait(&news) {
                let of_v4 = addresses.iter().filter_map(|address| match address {
                    IpAddr::V4(address) => Some(address.octets()),
                    IpAddr::V6(_) => None,
                });
                let of_v6 = addresses.iter().filter_map(|address| match address {
                    IpAddr::V6(address) => Some(address.octets()),
                    IpAddr::V4(_) => None,
                });
                v4.pass(&mut sweeps.0, of_v4.collect(), &found);
                v6.iter().for_each(|flows| flows.pass(&mut sweeps.1, of_v6.clone().collect(), &found));
            }
        };
        let thread = std::thread::Builder::new().name("conntrack-sweep".into()).spawn(work);
        thread.map_err(|error| Error::File {
            what: "starting a thread for connections".to_owned(),
            reason: error,
        })?;
        Ok(Self { removed, usages })
    }

    /// The findings of passes over the maps of both IP versions.
    pub(crate) fn usages(&self) -> Usages {
        self.usages.clone()
    }

    /// Resets TCP connections of these addresses at their next packet.
    pub(crate) fn workloads_removed(&self, addresses: Vec<IpAddr>) {
        // Fails only if the thread is gone, which has logged why.
        let _ = self.removed.send(addresses);
    }
}

/// Waits for the next pass; returns the addresses removed in the meantime, or `None` if the thread is to end.
fn wait(news: &Receiver<Vec<IpAddr>>) -> Option<Vec<IpAddr>> {
    let until = Instant::now() + PAUSE;
    let mut all = Vec::new();
    loop {
        match news.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(addresses) => all.extend(addresses),
            Err(RecvTimeoutError::Timeout) => break,
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
    loop {
        match news.try_recv() {
            Ok(addresses) => all.extend(addresses),
            Err(TryRecvError::Empty) => return Some(all),
            Err(TryRecvError::Disconnected) => return None,
        }
    }
}

/// What passes over the maps of one IP version remember.
struct Sweeps<F: Family> {
    timeouts: Timeouts,
    connections: Sweep<F>,
    alone: Alone<F>,
    passes: u32,
    growth: Growth,
}

impl<F: Family> Sweeps<F> {
    fn new(timeouts: Timeouts) -> Self {
        let (connections, growth) = (Sweep::new(timeouts), Growth::default());
        Self { timeouts, connections, alone: Alone::default(), passes: 0, growth }
    }
}

/// The maps of one IP version.
struct Flows<F: Family> {
    connections: Map,
    affinities: Map,
    limits: Map,
    direct: Map,
    services: Option<Shared<F>>,
}

impl<F: Family> Flows<F> {
    fn open(
        folder: &Path,
        [connections, affinities, direct]: [&str; 3],
        services: Option<Shared<F>>,
    ) -> Result<Self, Error> {
        let open = |name: &str| Map::open(&folder.join(name));
        let limits = open(LIMITS)?;
        Ok(Self {
            connections: open(connections)?,
            affinities: open(affinities)?,
            limits,
            direct: open(direct)?,
            services,
        })
    }

    fn pass(&self, sweeps: &mut Sweeps<F>, removed: BTreeSet<F::Address>, usages: &Usages) {
        let begin = Instant::now();
        let mut breath = Breath(begin);
        sweeps.passes = sweeps.passes.wrapping_add(1);
        if !removed.is_empty() || sweeps.passes.is_multiple_of(DIRECT_PASSES) {
            let kept = (&mut sweeps.alone, &sweeps.timeouts);
            if let Err(error) = sweep_direct(&self.direct, &self.connections, kept, &removed, &mut breath) {
                tracing::warn!(%error, "cannot sweep untracked connections; trying again");
            }
        }
        let of_connections = &mut sweeps.connections;
        of_connections.workloads_removed(removed);
        let report = match &self.services {
            Some(services) => sweep(&self.connections, of_connections, services, &mut breath),
            None => sweep(&self.connections, of_connections, &NoServices, &mut breath),
        };
        if let Ok(report) = &report {
            let (cleaned, room) =
                (report.deleted.values().sum::<u64>(), self.connections.definition().entries);
            let took = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
            usages.set(F::NUMBER, sweeps.growth.after(report.entries, cleaned, room, took));
        }
        if let Ok(report) = &report
            && let Err(error) = self.recount(report)
        {
            tracing::warn!(%error, "cannot recount connections of workloads with limits");
        }
        match report {
            Ok(report) if !report.deleted.is_empty() || report.resets > 0 => {
                tracing::debug!(?report, version = F::NUMBER, "connections that have ended");
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "cannot sweep connections; trying again"),
        }
        if let Err(error) = self.pass_affinities(breath.now()) {
            tracing::warn!(%error, "cannot sweep session affinities; trying again");
        }
    }

    /// Corrects the numbers of connections where programs lost count, for example because no workload's program saw a
    /// reset.
    fn recount(&self, report: &Report) -> Result<(), Error> {
        let table = Table::<LimitKey, Limit>::new(&self.limits)?;
        for (key, limit) in self.limits.entries()? {
            let (key, limit) = (LimitKey::read(&key), Limit::read(&limit));
            let count = report.limited.get(&(key.device, key.is_to_workload)).copied().unwrap_or_default();
            if u32::from(key.family) == u32::from(F::NUMBER) && count != limit.count {
                table.set(&key, &Limit { count, ..limit })?;
            }
        }
        Ok(())
    }

    fn pass_affinities(&self, now: u64) -> Result<(), Error> {
        let Some(services) = &self.services else { return Ok(()) };
        let stale = services.stale_affinities(&self.affinities.entries()?, now);
        if !stale.is_empty() {
            self.affinities.remove_many(&stale)?;
        }
        Ok(())
    }
}

/// Reads the programs' clock, and pauses after each batch.
pub(crate) struct Breath(Instant);

impl Breath {
    /// Nanoseconds of the clock that programs use.
    pub(crate) fn clock() -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let nanoseconds = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
        u64::try_from(nanoseconds).unwrap_or_default()
    }
}

impl Paced for Breath {
    fn now(&self) -> u64 {
        Self::clock()
    }

    fn after_batch(&mut self, _: usize) -> bool {
        std::thread::sleep(self.0.elapsed() * SHARE);
        self.0 = Instant::now();
        true
    }
}

/// No address belongs to a service.
struct NoServices;

impl<F: Family> Destinations<F> for NoServices {
    fn has_backend(&self, _: (F::Address, u16), _: (F::Address, u16), _: u8) -> bool {
        true
    }

    fn is_service(&self, _: F::Address, _: u16, _: u8) -> bool {
        false
    }

    fn generation(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_ends_with_its_value() {
        let (sender, news) = channel();
        sender.send(vec![IpAddr::from([10, 0, 0, 1])]).unwrap();
        drop(sender);
        assert_eq!(wait(&news), None);
    }
}
