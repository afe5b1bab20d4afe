//! Programs on interfaces. Pinned links outlive this process, and filters do so anyway: an interface always has a
//! program until another one replaces it.
//!
//! Pins are `tcx/<interface>_<direction>`, as Calico names them, and filters have the name of its program: whichever of
//! the two implementations starts on a node replaces the other's programs, and no packet passes in between. The kernel
//! refuses dots in pin names; of two interfaces that differ only in dots, the second has its index in the name. Filters
//! of others remain; ours take the first free position.

use crate::error::Error;
use crate::files;
use crate::programs::{Hook, Kind, Programs};
use bpf::clsact::{Direction, Filter, Filters};
use bpf::{Link, Program};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// How programs are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By links, beside others' programs.
    Links,
    /// By filters of traffic control.
    Filters,
}

/// The name of our filters: Calico looks for it.
const NAME: &str = "cali_tc_preambl";
/// Prefixes of the names of programs that are ours or Calico's.
const OURS: [&str; 2] = ["cali_", "calico_"];

/// The programs on interfaces.
#[derive(Debug)]
pub(crate) struct Attachments {
    way: Way,
    folder: PathBuf,
    attached: BTreeMap<u32, Attached>,
    /// Whether attachments of an earlier process or of Calico on other interfaces have been looked for.
    is_clean: bool,
}

#[derive(Debug)]
struct Attached {
    kind: Kind,
    pins: BTreeSet<String>,
    /// Links keep the attachments alive like the pins do.
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

    /// Attaches the programs to an interface, replacing those that it has.
    pub(crate) fn attach(
        &mut self,
        name: &str,
        index: u32,
        kind: Kind,
        programs: &Programs,
    ) -> Result<(), Error> {
        let (mut pins, mut links) = (BTreeSet::new(), Vec::new());
        for hook in Hook::BOTH {
            let program = programs.entry(kind, hook)?;
            match self.way {
                Way::Links => {
                    let (pin, link) = self.link(name, index, hook, program)?;
                    links.push(link);
                    pins.insert(pin);
                }
                Way::Filters => filter(index, hook, program)?,
            }
        }
        self.attached.insert(index, Attached { kind, pins, _links: links });
        Ok(())
    }

    /// Attaches a program to an interface by a link; returns the link and the name of its pin.
    fn link(&self, name: &str, index: u32, hook: Hook, program: &Program) -> Result<(String, Link), Error> {
        let mut pin = pin_name(name, hook);
        if self.attached.iter().any(|(other, attached)| *other != index && attached.pins.contains(&pin)) {
            pin = pin_name(&format!("{name}_{index}"), hook);
        }
        let path = self.folder.join(&pin);
        if path.exists() {
            let replaced = Link::open(&path).and_then(|link| match link.device()? == index {
                true => link.replace(program).map(|()| Some(link)),
                false => Ok(None),
            });
            match replaced {
                Ok(Some(link)) => return Ok((pin, link)),
                // Most likely its interface is gone.
                Ok(None) => {}
                Err(error) => tracing::info!(%error, "replacing an attachment"),
            }
            files::unpin(&path)?;
        }
        let link = match hook {
            Hook::Ingress => Link::ingress(program, index)?,
            Hook::Egress => Link::egress(program, index)?,
        };
        link.pin(&path)?;
        Ok((pin, link))
    }

    /// Forgets interfaces that are gone, so that a new one of the same name gets its pins.
    pub(crate) fn forget_gone(&mut self, there: &BTreeSet<u32>) -> Result<(), Error> {
        let gone = self.attached.extract_if(.., |index, _| !there.contains(index));
        gone.flat_map(|(_, old)| old.pins).try_for_each(|pin| files::unpin(&self.folder.join(pin)))
    }

    /// Detaches programs from all interfaces but `wanted`, and forgets those that are gone. `there` are all interfaces.
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

fn pin_name(interface: &str, hook: Hook) -> String {
    let plain: String = interface.chars().filter(|letter| *letter != '.').collect();
    format!("{plain}_{}", hook.word())
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

/// The position of our filter: its own or Calico's current one, or else the first free one.
fn place(found: &[Filter]) -> u16 {
    let old = found.iter().find(|one| is_ours(one) && one.handle == Filters::HANDLE);
    let is_free = |place: &u16| !found.iter().any(|one| one.priority == *place);
    old.map(|old| old.priority).or_else(|| (1..u16::MAX).find(is_free)).unwrap_or(1)
}

fn filter(index: u32, hook: Hook, program: &Program) -> Result<(), Error> {
    let mut filters = Filters::open()?;
    let found = filters.list(index, direction(hook))?;
    let place = place(&found);
    filters.attach_as(index, direction(hook), place, NAME, program)?;
    for old in found.iter().filter(|one| is_ours(one) && one.priority != place) {
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
        // An interface that has gone in the meantime has no filters.
        for old in filters.list(index, direction(hook)).unwrap_or_default().iter().filter(|one| is_ours(one))
        {
            filters.detach(index, direction(hook), old.priority)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{pin_name, place};
    use crate::programs::Hook;
    use bpf::clsact::Filter;

    #[test]
    fn our_filter_replaces_its_predecessor_and_no_other() {
        let filter = |(priority, name): &(u16, &str)| Filter {
            priority: *priority,
            handle: 1,
            name: (*name).to_owned(),
            program: 0,
        };
        for (found, expected) in [
            (vec![], 1),
            (vec![(1, "bandwidth")], 2),
            (vec![(2, "bandwidth")], 1),
            (vec![(1, "cali_tc_preambl")], 1),
            (vec![(1, "bandwidth"), (49152, "cali_tc_preambl:[12]")], 49152),
        ] {
            let found: Vec<Filter> = found.iter().map(filter).collect();
            assert_eq!(place(&found), expected, "{found:?}");
        }
    }

    #[test]
    fn pins_have_calicos_names() {
        assert_eq!(pin_name("vxlan.calico", Hook::Ingress), "vxlancalico_ingress");
        assert_eq!(pin_name("eth0.1_7", Hook::Egress), "eth01_7_egress");
    }
}
