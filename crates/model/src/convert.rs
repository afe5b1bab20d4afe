//! Converts stored resources into the values of a feed: policies with their namespace and service-account selectors
//! joined in, endpoints with parsed addresses, settings one by one.
//!
//! | resource | feed value | module |
//! |---|---|---|
//! | every policy kind, Profile rules | [`feed::Policy`](crate::feed::Policy), [`feed::Rule`](crate::feed::Rule) | [`policy`], [`rule`] |
//! | WorkloadEndpoint, HostEndpoint | endpoints | [`endpoint`] |
//! | NetworkSet, GlobalNetworkSet, IPPool, Tier | the same, parsed | [`set`] |
//! | Node | settings, WireGuard keys, addresses | [`node`] |
//! | BGPPeer, LiveMigration | themselves, with their selectors parsed | [`object`] |
//!
//! Nothing here fails. Whatever cannot be read is reported in [`Faults`]. The value that is returned with faults is the
//! one to fall back on when there is no earlier, readable version: it restricts at least as much as the user can have
//! meant. The caller, who knows what was there before, decides which of the two to use.

pub mod endpoint;
pub mod node;
pub mod object;
pub mod policy;
pub mod rule;
pub mod salvage;
mod selectors;
pub mod set;
#[cfg(test)]
mod tests;

use std::fmt;

/// One field that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its path in the object, such as `spec.ingress[0].source.nets[1]`.
    pub path: String,
    /// What is wrong with it, and how it is treated instead.
    pub reason: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.reason)
    }
}

/// Everything about an object that could not be read. It is empty for almost every object, and then does not allocate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// No faults so far.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether everything could be read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The faults, in the order in which they were found.
    pub fn iter(&self) -> std::slice::Iter<'_, Fault> {
        self.0.iter()
    }

    /// Adds a field that could not be read; only once, even if several values of the feed need the field.
    pub fn add(&mut self, path: impl Into<String>, reason: impl Into<String>) {
        self.push(Fault { path: path.into(), reason: reason.into() });
    }

    /// Adds other faults of the same object.
    pub fn append(&mut self, other: Self) {
        other.0.into_iter().for_each(|fault| self.push(fault));
    }

    fn push(&mut self, fault: Fault) {
        if !self.0.contains(&fault) {
            self.0.push(fault);
        }
    }

    /// Adds the faults of the part of the object at `place`.
    fn add_below(&mut self, place: &str, part: Self) {
        for fault in part.0 {
            self.0.push(Fault { path: format!("{place}.{}", fault.path), reason: fault.reason });
        }
    }
}

/// All faults in one sentence.
impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}
