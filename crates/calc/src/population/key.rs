//! Keys of endpoints and network sets as short runs of bytes: words that repeat (hosts, orchestrators, interfaces) are
//! symbols, everything else is text.

use crate::bytes::put_number;
use crate::symbols::{Symbol, Symbols};
use messages::NodeName;
use model::v1::{HostEndpointKey, WorkloadEndpointKey};

/// The key of an item that can be in a set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ItemKey<'a> {
    Workload { host: &'a NodeName, orchestrator: &'a str, workload: &'a str, endpoint: &'a str },
    Host { host: &'a NodeName, endpoint: &'a str },
    NetworkSet { name: &'a str },
}

impl<'a> From<&'a WorkloadEndpointKey> for ItemKey<'a> {
    fn from(key: &'a WorkloadEndpointKey) -> Self {
        let WorkloadEndpointKey { host, orchestrator, workload, endpoint } = key;
        Self::Workload { host, orchestrator, workload, endpoint }
    }
}

impl<'a> From<&'a HostEndpointKey> for ItemKey<'a> {
    fn from(HostEndpointKey { host, endpoint }: &'a HostEndpointKey) -> Self {
        Self::Host { host, endpoint }
    }
}

impl<'a> ItemKey<'a> {
    /// The host that it is on, for endpoints.
    pub(crate) fn host(&self) -> Option<&'a NodeName> {
        match *self {
            Self::Workload { host, .. } | Self::Host { host, .. } => Some(host),
            Self::NetworkSet { .. } => None,
        }
    }

    fn words(&self) -> ([&'a str; 3], usize) {
        match *self {
            Self::Workload { host, orchestrator, endpoint, .. } => ([host, orchestrator, endpoint], 3),
            Self::Host { host, .. } => ([host, "", ""], 1),
            Self::NetworkSet { .. } => ([""; 3], 0),
        }
    }

    fn finish(&self, symbols: &[Symbol], out: &mut Vec<u8>) {
        let (kind, rest) = match *self {
            Self::Workload { workload, .. } => (0, workload),
            Self::Host { endpoint, .. } => (1, endpoint),
            Self::NetworkSet { name } => (2, name),
        };
        out.push(kind);
        for symbol in symbols {
            put_number(out, symbol.0.into());
        }
        out.extend_from_slice(rest.as_bytes());
    }

    /// Packs the key and acquires references to its words.
    pub(crate) fn acquire(&self, words: &mut Symbols, out: &mut Vec<u8>) {
        let (texts, count) = self.words();
        let mut symbols = [Symbol(0); 3];
        for (symbol, text) in symbols.iter_mut().zip(texts).take(count) {
            *symbol = words.acquire(text);
        }
        self.finish(symbols.get(..count).unwrap_or_default(), out);
    }

    /// Packs the key if all its words are known; otherwise no item has it.
    pub(crate) fn pack_known(&self, words: &Symbols, out: &mut Vec<u8>) -> Option<()> {
        let (texts, count) = self.words();
        let mut symbols = [Symbol(0); 3];
        for (symbol, text) in symbols.iter_mut().zip(texts).take(count) {
            *symbol = words.find(text)?;
        }
        self.finish(symbols.get(..count)?, out);
        Some(())
    }

    /// Releases the references.
    pub(crate) fn release(&self, words: &mut Symbols) {
        let (texts, count) = self.words();
        for text in texts.into_iter().take(count) {
            if let Some(symbol) = words.find(text) {
                words.release(symbol);
            }
        }
    }
}
