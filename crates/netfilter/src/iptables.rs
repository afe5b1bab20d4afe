//! The iptables driver: chains of our own in the four tables of a family, and hooks in the kernel's chains.
//!
//! Tables are read with `iptables-save`, or from the kernel itself where iptables is based on nftables. They are
//! compared by the hash in each rule's comment, and changed with one `iptables-restore --noflush` per table and apply.
//! Foreign rules are neither kept in memory nor touched. A driver that wants nothing removes all rules and chains of
//! ours: this is how the unused variant is cleaned.
//!
//! No other programs are started, and these two only in this mode.

mod backend;
mod commands;
mod look;
mod plan;
mod save;
mod table;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use backend::is_installed;
pub use backend::{Backend, Found, choose, parse_version, probe};
pub use commands::{CommandFailed, Commands, Programs};
pub use table::TableMetrics;

use crate::driver::{Applied, ApplyError, DriverFigure, RuleDriver, number, total};
use crate::refused::{Refused, SetFaults};
use api::ChainInsert;
use messages::InterfaceName;
use netlink::netfilter::nft;
use rules::tree::ChainName;
use rules::tree::{Chain, IpVersion, KernelChain, Table, VerdictMap};
use std::time::{Duration, Instant};
use table::TableDriver;

/// The settings of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The variant of the commands.
    pub backend: Backend,
    /// Where hooks are put in the kernel's chains.
    pub insert_mode: ChainInsert,
    /// How often tables are read again without a reason; `None` for never.
    pub refresh: Option<Duration>,
    /// How soon after a write the table is checked for another program's overwrites.
    pub post_write_check: Duration,
    /// How much is written at once, and the pauses after failures.
    pub portions: Portions,
}

/// How work is split into batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portions {
    /// The approximate number of lines in a transaction of new chains.
    pub lines: usize,
    /// The first pause before a batch is retried; later pauses are longer.
    pub pause: Duration,
}

impl Default for Portions {
    fn default() -> Self {
        // The nft variant is fastest with 250 to 1,000 lines.
        Self { lines: 500, pause: Duration::from_millis(2) }
    }
}

/// A driver that removes our rules from a variant that is not used (any more); apply it once. `None` if there can be
/// none: its programs are not installed, or its modules are not loaded and a query would load them.
#[must_use]
pub fn cleaner(version: IpVersion, backend: Backend, lock: Option<Duration>) -> Option<Driver<Programs>> {
    if !backend.is_available(version) || !backend::may_be_asked(backend, version) {
        return None;
    }
    let settings = Settings {
        backend,
        insert_mode: ChainInsert::Insert,
        refresh: None,
        post_write_check: Duration::from_secs(5),
        portions: Portions::default(),
    };
    Some(Driver::new(Programs::new(version, backend, lock), version, &settings))
}

/// The driver of one family's tables.
#[derive(Debug)]
pub struct Driver<C> {
    commands: C,
    version: IpVersion,
    backend: Backend,
    tables: Vec<(Table, TableDriver)>,
}

impl<C: Commands> Driver<C> {
    /// A driver that wants none of our rules in any table.
    pub fn new(commands: C, version: IpVersion, settings: &Settings) -> Self {
        let tables = Table::ALL.into_iter().map(|layer| (layer, TableDriver::new(layer, settings))).collect();
        Self { commands, version, backend: settings.backend, tables }
    }

    /// The IP version.
    #[must_use]
    pub fn version(&self) -> IpVersion {
        self.version
    }

    /// The helper programs.
    pub fn commands(&mut self) -> &mut C {
        &mut self.commands
    }

    /// The counters of a table.
    #[must_use]
    pub fn metrics(&self, layer: Table) -> TableMetrics {
        self.tables
            .iter()
            .find(|(one, _)| *one == layer)
            .map(|(_, table)| table.metrics())
            .unwrap_or_default()
    }

    /// The nftables tables in which foreign changes can be seen as they happen ([`netlink::netfilter::watch`]); empty
    /// with the older variant, whose changes the kernel does not announce.
    #[must_use]
    pub fn watched(&self) -> Vec<nft::Table> {
        match self.backend {
            Backend::Legacy => Vec::new(),
            Backend::Nft => Table::ALL.iter().map(|layer| look::table(self.version, *layer)).collect(),
        }
    }

    fn table(&mut self, layer: Table) -> Option<&mut TableDriver> {
        self.tables.iter_mut().find(|(one, _)| *one == layer).map(|(_, table)| table)
    }
}

impl<C: Commands> RuleDriver for Driver<C> {
    fn update_chain(&mut self, layer: Table, chain: Chain) {
        if let Some(table) = self.table(layer) {
            table.update_chain(chain);
        }
    }

    fn keep_chain(&mut self, layer: Table, name: &ChainName, keep: bool) {
        if let Some(table) = self.table(layer) {
            table.keep_chain(name, keep);
        }
    }

    fn remove_chain(&mut self, layer: Table, name: &ChainName) {
        if let Some(table) = self.table(layer) {
            table.remove_chain(name);
        }
    }

    fn set_kernel_chain(&mut self, layer: Table, chain: KernelChain) {
        if let Some(table) = self.table(layer) {
            table.set_hook(chain);
        }
    }

    fn update_map(&mut self, _: Table, _: VerdictMap) {}

    fn set_map_entry(&mut self, _: Table, _: &str, _: &InterfaceName, _: Option<&ChainName>) {}

    fn remove_map(&mut self, _: Table, _: &str) {}

    fn invalidate(&mut self) {
        self.tables.iter_mut().for_each(|(_, table)| table.invalidate());
    }

    fn undisturbed(&mut self) {
        // Changes of the older variant are not announced.
        if self.backend == Backend::Nft {
            self.tables.iter_mut().for_each(|(_, table)| table.undisturbed());
        }
    }

    fn set_faults(&mut self, faults: &SetFaults) {
        self.tables.iter_mut().for_each(|(_, table)| table.set_faults(faults));
    }

    fn retry_refused(&mut self) {
        self.tables.iter_mut().for_each(|(_, table)| table.retry_refused());
    }

    fn apply(&mut self, now: Instant) -> Result<Applied, ApplyError> {
        let mut applied = Applied::default();
        let mut failure = None;
        for (_, table) in &mut self.tables {
            match table.apply(&mut self.commands, now) {
                Ok(wrote) => applied.wrote |= wrote,
                // Continues with the other tables all the same.
                Err(error) => failure = failure.or(Some(error)),
            }
            let again = table.again_in(now);
            applied.again_in = applied.again_in.into_iter().chain(again).min();
        }
        failure.map_or(Ok(applied), Err)
    }

    fn refused(&self) -> Vec<Refused> {
        let mut all = Vec::new();
        self.tables.iter().for_each(|(_, table)| table.refused(&mut all));
        all.sort();
        all
    }

    fn figures(&self) -> Vec<DriverFigure> {
        let mut figures = Vec::new();
        for layer in Table::ALL {
            let metrics = self.metrics(layer);
            let labels = format!("ip_version=\"{}\",table=\"{layer}\"", self.version());
            figures.extend([
                ("felix_iptables_chains", labels.clone(), number(metrics.chains)),
                ("felix_iptables_rules", labels.clone(), number(metrics.rules)),
                ("felix_iptables_lines_executed", labels, total(metrics.lines)),
                ("felix_iptables_save_calls", String::new(), total(metrics.save_calls)),
                ("felix_iptables_save_errors", String::new(), total(metrics.save_errors)),
                ("felix_iptables_restore_calls", String::new(), total(metrics.restore_calls)),
                ("felix_iptables_restore_errors", String::new(), total(metrics.restore_errors)),
            ]);
        }
        figures
    }
}
