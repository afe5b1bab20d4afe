//! Programs on interfaces. A link that is pinned outlives this process, and a filter does anyway: an interface that had a program
//! has one until another takes its place.
//!
//! Pins are `tcx/<interface>_<number>_<direction>_v<version>`; the kernel takes no dots in names of pins, and the number tells
//! an interface from one of the same name before it. Filters of others stay where they are; ours take the first two places
//! that are free.

use crate::error::Error;
use crate::files;
use crate::programs::{Hook, Kind, Programs, number};
use bpf::Link;
use bpf::clsact::{Direction, Filter, Filters};
use bpf::interface::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// How programs are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By links beside others' programs.
    Links,
    /// By filters of traffic control.
    Filters,
}

/// What names of programs begin with that are ours, or Calico's.
const OURS: [&str; 2] = ["cali_", "calico_"];

/// The programs that are on interfaces.
#[derive(Debug)]
pub(crate) struct Attachments {
    way: Way,
    folder: PathBuf,
    attached: BTreeMap<u32, Attached>,
    /// Whether what an earlier process or Calico attached elsewhere was looked for.
    is_clean: bool,
}

#[derive(Debug)]
struct Attached {
    kind: Kind,
    pins: BTreeSet<String>,
    /// They hold the attachments as much as the pins do.
    _links: Vec<Link>,
}

impl Attachments {
    pub(crate) fn new(root: &Path, way: Way) -> Result<Self, Error> {
        let folder = root.join("tcx");
        files::make_folder(&folder)?;
        Ok(Self { way, folder, attached: BTreeMap::new(), is_clean: false })
    }

    pub(crate) fn way(&self) -> Way {
        self.way
    }

    /// Whether an interface has its programs.
    pub(crate) fn has(&self, index: u32, kind: Kind) -> bool {
        self.attached.get(&index).is_some_and(|attached| attached.kind == kind)
    }

    /// Gives an interface its programs, in the place of those that it has.
    pub(crate) fn attach(
        &mut self,
        name: &str,
        index: u32,
        kind: Kind,
        programs: &Programs,
    ) -> Result<(), Error> {
        let (mut pins, mut links) = (BTreeSet::new(), Vec::new());
        for hook in Hook::BOTH {
            match self.way {
                Way::Links => {
                    for version in programs.versions() {
                        let pin = pin_name(name, index, hook, version);
                        links.push(self.link(&pin, index, kind, hook, version, programs)?);
                        pins.insert(pin);
                    }
                }
                Way::Filters => filter(index, kind, hook, programs)?,
            }
        }
        self.attached.insert(index, Attached { kind, pins, _links: links });
        Ok(())
    }

    fn link(
        &self,
        pin: &str,
        index: u32,
        kind: Kind,
        hook: Hook,
        version: Version,
        programs: &Programs,
    ) -> Result<Link, Error> {
        let program = programs.entry(kind, hook, version)?;
        let path = self.folder.join(pin);
        if path.exists() {
            match Link::open(&path).and_then(|link| link.replace(program).map(|()| link)) {
                Ok(link) => return Ok(link),
                // The interface that it was for is gone, most likely.
                Err(error) => tracing::info!(%error, "an attachment is made again"),
            }
            files::unpin(&path)?;
        }
        let link = match hook {
            Hook::Ingress => Link::ingress(program, index)?,
            Hook::Egress => Link::egress(program, index)?,
        };
        link.pin(&path)?;
        Ok(link)
    }

    /// Takes programs off every interface but these, and forgets those that are gone. `there` are all interfaces.
    pub(crate) fn keep_only(&mut self, wanted: &BTreeSet<u32>, there: &BTreeSet<u32>) -> Result<(), Error> {
        let left: Vec<u32> = self.attached.keys().filter(|index| !wanted.contains(index)).copied().collect();
        for index in left.iter().filter(|index| self.way == Way::Filters && there.contains(index)) {
            remove_filters(*index)?;
        }
        for index in &left {
            for pin in self.attached.remove(index).into_iter().flat_map(|old| old.pins) {
                files::unpin(&self.folder.join(pin))?;
            }
        }
        if std::mem::replace(&mut self.is_clean, true) {
            return Ok(());
        }
        let ours: BTreeSet<&String> = self.attached.values().flat_map(|one| &one.pins).collect();
        for pin in files::names(&self.folder).iter().filter(|pin| !ours.contains(pin)) {
            files::unpin(&self.folder.join(pin))?;
        }
        let kept = |index: &&u32| self.way == Way::Filters && wanted.contains(index);
        there.iter().filter(|index| !kept(index)).try_for_each(|index| remove_filters(*index))
    }
}

fn pin_name(interface: &str, index: u32, hook: Hook, version: Version) -> String {
    let plain: String = interface.chars().filter(|letter| *letter != '.').collect();
    format!("{plain}_{index}_{}_v{}", hook.word(), number(version))
}

fn direction(hook: Hook) -> Direction {
    match hook {
        Hook::Ingress => Direction::Ingress,
        Hook::Egress => Direction::Egress,
    }
}

fn is_ours(filter: &Filter) -> bool {
    OURS.iter().any(|start| filter.name.starts_with(start))
}

/// The first of as many places in a row that nobody else has.
fn first_free(others: &BTreeSet<u16>, needed: u16) -> u16 {
    (1..=u16::MAX - needed)
        .find(|first| !(*first..first + needed).any(|one| others.contains(&one)))
        .unwrap_or(1)
}

fn filter(index: u32, kind: Kind, hook: Hook, programs: &Programs) -> Result<(), Error> {
    let mut filters = Filters::open()?;
    let found = filters.list(index, direction(hook))?;
    let others = found.iter().filter(|one| !is_ours(one)).map(|one| one.priority).collect();
    let versions = programs.versions();
    let first = first_free(&others, u16::try_from(versions.len()).unwrap_or(1));
    let mut taken = BTreeSet::new();
    for (place, version) in (first..).zip(versions) {
        filters.attach(index, direction(hook), place, programs.entry(kind, hook, version)?)?;
        taken.insert(place);
    }
    for old in found.iter().filter(|one| is_ours(one) && !taken.contains(&one.priority)) {
        filters.detach(index, direction(hook), old.priority)?;
    }
    Ok(())
}

/// Removes our filters, and Calico's, from an interface.
///
/// # Errors
/// When the kernel refuses.
pub fn remove_filters(index: u32) -> Result<(), Error> {
    let mut filters = Filters::open()?;
    for hook in Hook::BOTH {
        // An interface that went meanwhile has none.
        for old in filters.list(index, direction(hook)).unwrap_or_default().iter().filter(|one| is_ours(one))
        {
            filters.detach(index, direction(hook), old.priority)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{first_free, pin_name};
    use crate::programs::Hook;
    use bpf::interface::Version;

    #[test]
    fn places_of_others_are_left_alone() {
        for (others, needed, expected) in [
            (vec![], 2, 1),
            (vec![1], 2, 2),
            (vec![2], 2, 3),
            (vec![2], 1, 1),
            (vec![1, 4], 2, 2),
            (vec![1, 3], 2, 4),
        ] {
            assert_eq!(first_free(&others.iter().copied().collect(), needed), expected, "{others:?}");
        }
    }

    #[test]
    fn pins_have_no_dots_and_tell_interfaces_apart() {
        let pin = |name: &str, index| pin_name(name, index, Hook::Ingress, Version::V6);
        assert_eq!(pin("vxlan.calico", 7), "vxlancalico_7_ingress_v6");
        assert_ne!(pin("eth0.1", 3), pin("eth01", 4));
    }
}
