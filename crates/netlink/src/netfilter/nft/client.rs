//! Reading tables and committing transactions.

use super::change::{
    Change, GET_CHAIN, GET_ELEMENTS, GET_FLOW_TABLE, GET_GENERATION, GET_RULE, GET_SET, GET_TABLE, encode,
};
use super::expression::Verdict;
use super::set::{
    ELEMENT_INTERVAL_END, Element, FLAG_ANONYMOUS, FLAG_INTERVAL, FLAG_MAP, Key, KeyType, SetNumbers,
};
use super::{Family, RuleView, Table};
use crate::datagram::Request;
use crate::netfilter::socket::{BatchRefused, Socket};
use crate::netfilter::{Error, NFTABLES, Refusal, Result, header};
use crate::wire::{Attribute, Writer, attributes, split_header};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An existing chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainFound {
    /// Its name.
    pub name: String,
    /// The hook's number, the priority and the kind, of a base chain.
    pub base: Option<(u32, i32, String)>,
}

/// An existing rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFound {
    /// Its chain.
    pub chain: String,
    /// The number that identifies it.
    pub handle: u64,
    /// Its comment.
    pub comment: Option<String>,
}

/// An existing set or map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetFound {
    /// Its name.
    pub name: String,
    /// The type of its members; `None` for a type that we never create.
    pub key: Option<KeyType>,
    /// Whether members are ranges.
    pub interval: bool,
    /// Whether it is a map.
    pub map: bool,
}

/// An existing member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ElementFound {
    /// A member that we could have written.
    Known(Element),
    /// A member with a verdict or a form that we never write.
    Foreign(Key),
}

/// A transaction that was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kernel refused the transaction{}", describe(.refused, .whole))]
pub struct CommitRefused {
    /// The refused changes by index, in order; each once, with the first reason.
    pub refused: Vec<(usize, Refusal)>,
    /// A refusal of the whole transaction that names no change.
    pub whole: Option<Refusal>,
}

fn describe(refused: &[(usize, Refusal)], whole: &Option<Refusal>) -> String {
    match (refused.first(), whole) {
        (Some((index, refusal)), _) => format!(" at change {index}: {refusal}"),
        (None, Some(refusal)) => format!(": {refusal}"),
        (None, None) => String::new(),
    }
}

/// A client of the nftables of one network namespace.
#[derive(Debug)]
pub struct Client {
    socket: Socket,
    numbers: SetNumbers,
    commits: Arc<AtomicU64>,
}

impl Client {
    /// Connects to the nftables of this thread's network namespace.
    ///
    /// # Errors
    /// When the kernel does not provide a socket.
    pub fn open() -> Result<Self> {
        Ok(Self { socket: Socket::open()?, numbers: SetNumbers::random(), commits: Arc::default() })
    }

    /// The port that the kernel names as the origin of our changes.
    #[must_use]
    pub fn port(&self) -> u32 {
        self.socket.port()
    }

    /// The number of transactions carried out so far; keeps counting.
    #[must_use]
    pub fn commits(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.commits)
    }

    /// Carries out all changes, or none.
    ///
    /// # Errors
    /// The outer error when the socket fails; the inner one names the changes that the kernel refused.
    pub fn commit(
        &mut self,
        table: &Table,
        changes: &[Change],
    ) -> Result<std::result::Result<(), CommitRefused>> {
        if changes.is_empty() {
            return Ok(Ok(()));
        }
        let mut batch = self.socket.start_batch(NFTABLES);
        let mut starts = Vec::with_capacity(changes.len());
        let mut requests = Vec::new();
        for change in changes {
            starts.push(batch.len());
            encode(table, change, &mut self.numbers, &mut requests);
            requests.drain(..).for_each(|request| batch.push(&request));
        }
        let outcome = self.socket.send_batch(batch)?.map_err(|refused| by_change(&refused, &starts));
        if outcome.is_ok() {
            self.commits.fetch_add(1, Ordering::Relaxed);
        }
        Ok(outcome)
    }

    /// Returns the families and names of all tables.
    ///
    /// # Errors
    /// When the kernel or the socket fails.
    pub fn tables(&mut self) -> Result<Vec<(u8, String)>> {
        self.socket.dump("list tables", &request(GET_TABLE, Writer::new(&header(0, 0))), |_, payload| {
            let (start, rest) = split_header::<4>(payload)?;
            Some((start[0], text(rest, 1)?))
        })
    }

    /// Returns the chains of a table; empty when the table does not exist.
    ///
    /// # Errors
    /// When the kernel or the socket fails.
    pub fn chains(&mut self, table: &Table) -> Result<Vec<ChainFound>> {
        self.dump(table, "list chains", GET_CHAIN, &[], |rest| {
            let mut found = ChainFound { name: text(rest, 3)?, base: None };
            if text(rest, 1)? != *table.name {
                return None;
            }
            if let Some(hook) = attribute(rest, 4) {
                let part = |number| hook.attributes().find(|one| one.number == number)?.u32_be();
                let priority = i32::from_be_bytes(part(2)?.to_be_bytes());
                found.base = Some((part(1)?, priority, text(rest, 7)?));
            }
            Some(found)
        })
    }

    /// Returns the rules of a table, or of one of its chains, in order; empty when the table or chain does not exist.
    ///
    /// # Errors
    /// When the kernel or the socket fails.
    pub fn rules(&mut self, table: &Table, chain: Option<&str>) -> Result<Vec<RuleFound>> {
        self.look_at_rules(table, chain, |rule| {
            let comment = rule.own_comment().map(str::to_owned);
            Some(RuleFound { chain: rule.chain.to_owned(), handle: rule.handle, comment })
        })
    }

    /// Returns what `convert` makes of the rules of a table, or of one of its chains, in order; empty when the table or
    /// chain does not exist. If other programs change the table in the meantime, `convert` sees rules more than once.
    ///
    /// # Errors
    /// When the kernel or the socket fails.
    pub fn look_at_rules<T>(
        &mut self,
        table: &Table,
        chain: Option<&str>,
        mut convert: impl FnMut(RuleView<'_>) -> Option<T>,
    ) -> Result<Vec<T>> {
        let filter: Vec<(u16, &str)> = chain.map(|chain| (2, chain)).into_iter().collect();
        self.dump(table, "list rules", GET_RULE, &filter, |rest| {
            let rule = RuleView::read(rest, &table.name)?;
            // Kernels without the filter send everything.
            if chain.is_none_or(|chain| chain == rule.chain) { convert(rule) } else { None }
        })
    }

    /// Returns the kernel's generation number of nftables, which each transaction of any program increments.
    ///
    /// # Errors
    /// When the kernel or the socket fails.
    pub fn generation(&mut self) -> Result<u32> {
        let request = request(GET_GENERATION, Writer::new(&header(0, 0)));
        let what = || "read nftables' generation".to_owned();
        let mut found = None;
        let answers = self.socket.exchange(&[request], |_, payload| {
            let rest = split_header::<4>(payload).map_or(&[][..], |(_, rest)| rest);
            found = attribute(rest, 1).and_then(|one| one.u32_be()).or(found);
        })?;
        for answer in answers {
            answer.map_err(|refusal| Error::Refused { what: what(), refusal })?;
        }
        found.ok_or_else(|| Error::Unreadable { what: what(), reason: "it has no number".to_owned() })
    }

    /// Returns the named sets and maps of a table; empty when the table does not exist.
    ///
    /// # Errors
    /// When the kernel or the socket fails.
    pub fn sets(&mut self, table: &Table) -> Result<Vec<SetFound>> {
        self.dump(table, "list sets", GET_SET, &[], |rest| {
            if text(rest, 1)? != *table.name {
                return None;
            }
            let number = |wanted| attribute(rest, wanted).and_then(|one| one.u32_be());
            let flags = number(3).unwrap_or(0);
            if flags & FLAG_ANONYMOUS != 0 {
                return None;
            }
            Some(SetFound {
                name: text(rest, 2)?,
                key: number(4).and_then(KeyType::from_number),
                interval: flags & FLAG_INTERVAL != 0,
                map: flags & FLAG_MAP != 0,
            })
        })
    }

    /// Returns the names of a table's flow tables; empty on kernels without flow tables.
    ///
    /// # Errors
    /// When the kernel or the socket fails.
    pub fn flow_tables(&mut self, table: &Table) -> Result<Vec<String>> {
        self.dump(table, "list flow tables", GET_FLOW_TABLE, &[], |rest| {
            (text(rest, 1)? == *table.name).then(|| text(rest, 2)).flatten()
        })
    }

    /// Returns the members of a set or map; empty when the set does not exist.
    ///
    /// # Errors
    /// When the kernel or the socket fails.
    pub fn elements(&mut self, table: &Table, set: &SetFound) -> Result<Vec<ElementFound>> {
        let raw = self.dump(table, "list elements", GET_ELEMENTS, &[(2, &set.name)], |rest| {
            let list = attribute(rest, 3)?;
            Some(list.attributes().filter_map(|one| RawElement::read(&one)).collect::<Vec<_>>())
        })?;
        Ok(assemble(raw.into_iter().flatten(), set.interval))
    }

    fn dump<T>(
        &mut self,
        table: &Table,
        what: &str,
        kind: u16,
        filter: &[(u16, &str)],
        mut convert: impl FnMut(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>> {
        let mut writer = Writer::new(&header(table.family.number(), 0));
        writer.text(1, &table.name);
        for (number, value) in filter {
            writer.text(*number, value);
        }
        let what = format!("{what} of table {table}");
        let found = self.socket.dump(&what, &request(kind, writer), |_, payload| {
            let (start, rest) = split_header::<4>(payload)?;
            (start[0] == table.family.number()).then(|| convert(rest)).flatten()
        });
        match found {
            Err(Error::Refused { refusal, .. }) if refusal.is_missing() => Ok(Vec::new()),
            found => found,
        }
    }

    /// Whether `family` has a table of this name with a chain in it.
    ///
    /// # Errors
    /// When the kernel or the socket fails.
    pub fn has_chains(&mut self, family: Family, name: &str) -> Result<bool> {
        Ok(!self.chains(&Table::new(family, name))?.is_empty())
    }
}

fn by_change(refused: &BatchRefused, starts: &[usize]) -> CommitRefused {
    let mut seen = BTreeSet::new();
    let mut by_change = Vec::new();
    for (message, refusal) in &refused.messages {
        let change = starts.partition_point(|start| start <= message).saturating_sub(1);
        if seen.insert(change) {
            by_change.push((change, refusal.clone()));
        }
    }
    CommitRefused { refused: by_change, whole: refused.whole.clone() }
}

/// An element as the kernel sends it.
struct RawElement {
    key: Key,
    ends: bool,
    /// The verdict of a map's element: `None` if it has none, `Some(None)` for one that we never write.
    verdict: Option<Option<Verdict>>,
}

impl RawElement {
    fn read(element: &Attribute<'_>) -> Option<Self> {
        let (mut key, mut ends, mut verdict) = (None, false, None);
        for attribute in element.attributes() {
            match attribute.number {
                1 => {
                    let value = attribute.attributes().find(|one| one.number == 1);
                    key = value.and_then(|one| Key::new(one.value));
                }
                2 => verdict = Some(read_verdict(&attribute)),
                3 => ends = attribute.u32_be().unwrap_or(0) & ELEMENT_INTERVAL_END != 0,
                _ => {}
            }
        }
        Some(Self { key: key?, ends, verdict })
    }
}

fn read_verdict(data: &Attribute<'_>) -> Option<Verdict> {
    let verdict = data.attributes().find(|one| one.number == 2)?;
    let (mut code, mut chain) = (None, None);
    for attribute in verdict.attributes() {
        match attribute.number {
            1 => code = attribute.u32_be().map(|code| i32::from_be_bytes(code.to_be_bytes())),
            2 => chain = attribute.text(),
            _ => {}
        }
    }
    Verdict::from_parts(code?, chain.as_deref())
}

/// Assembles ranges from their starts and ends.
fn assemble(raw: impl Iterator<Item = RawElement>, interval: bool) -> Vec<ElementFound> {
    let mut found = Vec::new();
    let (mut starts, mut ends) = (BTreeSet::new(), BTreeSet::new());
    for element in raw {
        match element {
            RawElement { key, ends: true, .. } => {
                ends.insert(key);
            }
            RawElement { key, verdict: None, .. } if interval => {
                starts.insert(key);
            }
            RawElement { key, verdict: None, .. } => found.push(ElementFound::Known(Element::Single(key))),
            RawElement { key, verdict: Some(Some(verdict)), .. } => {
                found.push(ElementFound::Known(Element::Verdict(key, verdict)));
            }
            RawElement { key, verdict: Some(None), .. } => found.push(ElementFound::Foreign(key)),
        }
    }
    for start in starts {
        use std::ops::Bound::{Excluded, Unbounded};
        // Ranges are disjoint: the next end belongs to this start. Without an end, the range extends to the last key.
        let end = ends.range((Excluded(start), Unbounded)).next().and_then(|end| end.previous());
        found.push(ElementFound::Known(Element::Range(start, end.unwrap_or_else(|| start.last()))));
    }
    found.sort();
    found
}

fn request(kind: u16, writer: Writer) -> Request {
    Request { message_type: (NFTABLES << 8) | kind, flags: 0, payload: writer.finish() }
}

fn attribute(payload: &[u8], number: u16) -> Option<Attribute<'_>> {
    attributes(payload).find(|attribute| attribute.number == number)
}

fn text(payload: &[u8], number: u16) -> Option<String> {
    attribute(payload, number)?.text()
}
