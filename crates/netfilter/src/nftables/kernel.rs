//! The kernel operations that the driver needs: read a table, read a chain, commit a transaction.

use netlink::netfilter::Result;
use netlink::netfilter::nft::{
    ChainFound, Change, Client, CommitRefused, ElementFound, RuleFound, SetFound, Table,
};

/// The content of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Its chains.
    pub chains: Vec<ChainFound>,
    /// Their rules, in order within each chain.
    pub rules: Vec<RuleFound>,
    /// Its maps with their entries.
    pub maps: Vec<(SetFound, Vec<ElementFound>)>,
    /// The names of its flow tables.
    pub flow_tables: Vec<String>,
}

/// The operations on a table.
pub trait Kernel {
    /// Reads a table; an empty answer when it does not exist.
    ///
    /// # Errors
    /// When the kernel cannot be read.
    fn read(&mut self, table: &Table) -> Result<Snapshot>;

    /// Reads the rules of one chain; none when it does not exist.
    ///
    /// # Errors
    /// When the kernel cannot be read.
    fn read_chain(&mut self, table: &Table, chain: &str) -> Result<Vec<RuleFound>>;

    /// Carries out all changes or none.
    ///
    /// # Errors
    /// The outer error when the kernel cannot be reached; the inner one names the refused changes.
    fn commit(&mut self, table: &Table, changes: &[Change])
    -> Result<std::result::Result<(), CommitRefused>>;
}

impl Kernel for Client {
    fn read(&mut self, table: &Table) -> Result<Snapshot> {
        let chains = self.chains(table)?;
        let rules = self.rules(table, None)?;
        let mut maps = Vec::new();
        for set in self.sets(table)?.into_iter().filter(|set| set.map) {
            let elements = self.elements(table, &set)?;
            maps.push((set, elements));
        }
        // Kernels without flow tables have none of ours.
        let flow_tables = self.flow_tables(table).unwrap_or_default();
        Ok(Snapshot { chains, rules, maps, flow_tables })
    }

    fn read_chain(&mut self, table: &Table, chain: &str) -> Result<Vec<RuleFound>> {
        self.rules(table, Some(chain))
    }

    fn commit(
        &mut self,
        table: &Table,
        changes: &[Change],
    ) -> Result<std::result::Result<(), CommitRefused>> {
        Client::commit(self, table, changes)
    }
}
