//! XDP programs at the drivers of the host's interfaces, for untracked policy.
//!
//! Attached in the driver itself; if that is impossible, and permitted, right behind it; otherwise not at all, and the
//! programs at traffic control enforce that policy alone, as they do anyway. Pins are
//! `cali_xdp/<interface>_<number>_<mode>`: the kernel does not report the mode of an attachment. Does not replace
//! another program.

use crate::error::Error;
use crate::files;
use bpf::{Link, Program, XdpMode};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The folder of the pins. No other program uses this name, so everything in it is ours.
const FOLDER: &str = "cali_xdp";

/// The XDP programs on interfaces.
#[derive(Debug)]
pub(crate) struct AtDrivers {
    folder: PathBuf,
    /// The permitted modes, the best first.
    modes: Vec<XdpMode>,
    /// The outcome by interface index: the pin, and the link, which keeps the attachment alive like the pin does.
    tried: BTreeMap<u32, Option<(String, Link)>>,
    /// Whether attachments of an earlier process on other interfaces have been looked for.
    is_clean: bool,
}

impl AtDrivers {
    pub(crate) fn new(root: &Path, has_generic: bool) -> Self {
        let modes = [XdpMode::Native].into_iter().chain(has_generic.then_some(XdpMode::Generic));
        Self { folder: root.join(FOLDER), modes: modes.collect(), tried: BTreeMap::new(), is_clean: false }
    }

    /// Whether attaching to an interface was tried.
    pub(crate) fn was_tried(&self, index: u32) -> bool {
        self.tried.contains_key(&index)
    }

    /// Attaches the program to an interface, replacing that of an earlier process. Returns whether that was possible.
    pub(crate) fn attach(&mut self, name: &str, index: u32, program: &Program) -> Result<bool, Error> {
        files::make_folder(&self.folder)?;
        let mut attached = None;
        for mode in &self.modes {
            let pin = pin_name(name, index, *mode);
            match attach(&self.folder.join(&pin), index, *mode, program) {
                Ok(link) => {
                    tracing::info!(interface = name, ?mode, "untracked policy is enforced by XDP");
                    attached = Some((pin, link));
                    break;
                }
                Err(error) => tracing::debug!(interface = name, %error, "XDP is not available"),
            }
        }
        let is_attached = attached.is_some();
        if !is_attached {
            tracing::info!(
                interface = name,
                "untracked policy is enforced at traffic control only, not by XDP"
            );
        }
        self.tried.insert(index, attached);
        Ok(is_attached)
    }

    /// Detaches programs from all interfaces but `wanted`.
    pub(crate) fn keep_only(&mut self, wanted: &BTreeSet<u32>) -> Result<(), Error> {
        let gone = self.tried.extract_if(.., |index, _| !wanted.contains(index));
        for (pin, _) in gone.filter_map(|(_, attached)| attached) {
            files::unpin(&self.folder.join(pin))?;
        }
        if std::mem::replace(&mut self.is_clean, true) {
            return Ok(());
        }
        let ours: BTreeSet<&str> = self.tried.values().flatten().map(|(pin, _)| pin.as_str()).collect();
        let mut others = files::names(&self.folder).into_iter().filter(|pin| !ours.contains(pin.as_str()));
        others.try_for_each(|pin| files::unpin(&self.folder.join(pin)))
    }
}

fn attach(pin: &Path, index: u32, mode: XdpMode, program: &Program) -> Result<Link, Error> {
    if pin.exists() {
        match Link::open(pin).and_then(|link| link.replace(program).map(|()| link)) {
            Ok(link) => return Ok(link),
            // Most likely its interface is gone.
            Err(error) => tracing::debug!(%error, "replacing an attachment"),
        }
        files::unpin(pin)?;
    }
    let link = Link::xdp(program, index, mode)?;
    link.pin(pin)?;
    Ok(link)
}

/// The kernel refuses dots in pin names; the index distinguishes an interface from an earlier one of the same name.
fn pin_name(interface: &str, index: u32, mode: XdpMode) -> String {
    let plain: String = interface.chars().filter(|letter| *letter != '.').collect();
    let mode = match mode {
        XdpMode::Native => "native",
        XdpMode::Generic => "generic",
    };
    format!("{plain}_{index}_{mode}")
}

#[cfg(test)]
mod tests {
    use super::pin_name;
    use bpf::XdpMode;

    #[test]
    fn pins_have_no_dots_and_distinguish_modes_and_interfaces() {
        assert_eq!(pin_name("eth0.1", 3, XdpMode::Native), "eth01_3_native");
        assert_eq!(pin_name("eth01", 4, XdpMode::Generic), "eth01_4_generic");
    }
}
