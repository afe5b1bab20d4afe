//! The programs for interfaces: their object files, the constants that adapt a program to a kind of interface, and the
//! array of programs for tail calls.

mod options;

use crate::error::Result;
use crate::map::Map;
use crate::object::{Loaded, Object};
use crate::packed::{self, packed};
use crate::table::{Layout, ProgramArray};
use std::collections::BTreeMap;

pub use options::{Kind, Options, ReversePath};

/// The name of the program to attach.
pub const ENTRY: &str = "cali_tc_main";

/// Programs that others tail-call by number, in order; `enum program` of `bpf/tc.c`.
const CALLED: [&str; 7] = [
    "cali_tc_policy",
    "cali_tc_translate",
    "cali_tc_error",
    "cali_tc_reset",
    "cali_tc_unwrap",
    "cali_tc_fragment",
    ENTRY,
];

/// The object file for an IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Version {
    /// The object, embedded in this program.
    ///
    /// # Errors
    /// When this program was built from a broken object.
    pub fn object(self) -> Result<Object> {
        packed::object(match self {
            Self::V4 => packed!("tc_v4.o"),
            Self::V6 => packed!("tc_v6.o"),
        })
    }
}

/// The kind of interface that a program is for; `struct settings` of `bpf/packet.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// A workload's interface; otherwise the host's or a tunnel.
    pub is_workload: bool,
    /// The program handles packets that leave the host's namespace; otherwise packets that come in.
    pub is_leaving: bool,
    /// Frames have no Ethernet header.
    pub is_layer_3: bool,
    /// The program for the other IP version is also attached, and judges that version's packets.
    pub has_both: bool,
    /// A packet's source must be listed in `cali_v4_routes` as a workload of this interface.
    pub checks_source: bool,
}

impl Layout for Interface {
    const SIZE: usize = 20;

    fn write(&self, to: &mut [u8]) {
        let fields = [
            u32::from(self.is_workload),
            u32::from(self.is_leaving),
            if self.is_layer_3 { 0 } else { 14 },
            u32::from(self.has_both),
            u32::from(self.checks_source),
        ];
        for (place, field) in to.chunks_exact_mut(4).zip(fields) {
            place.copy_from_slice(&field.to_ne_bytes());
        }
    }

    fn read(from: &[u8]) -> Self {
        let field = |place: usize| u32::read(&from[place * 4..place * 4 + 4]);
        Self {
            is_workload: field(0) != 0,
            is_leaving: field(1) != 0,
            is_layer_3: field(2) == 0,
            has_both: field(3) != 0,
            checks_source: field(4) != 0,
        }
    }
}

impl Interface {
    /// Loads an object for this kind of interface, with default options.
    ///
    /// # Errors
    /// When the kernel refuses something. Then nothing remains loaded.
    pub fn load(&self, object: Object, shared: &BTreeMap<&str, &Map>) -> Result<Loaded> {
        self.load_with(object, &Options::default(), shared)
    }

    /// Loads an object for this kind of interface and fills its array of programs.
    ///
    /// # Errors
    /// When the kernel refuses something. Then nothing remains loaded.
    pub fn load_with(
        &self,
        mut object: Object,
        options: &Options,
        shared: &BTreeMap<&str, &Map>,
    ) -> Result<Loaded> {
        object.set_constant("settings", &self.bytes())?;
        object.set_constant("options", &options.bytes())?;
        // Each interface kind needs its own array, because the programs differ.
        let loaded = object.load(shared)?;
        let programs = ProgramArray::new(loaded.map("cali_programs")?)?;
        for (number, name) in (0..).zip(CALLED) {
            programs.set(number, loaded.program(name)?)?;
        }
        Ok(loaded)
    }
}

/// Makes the programs of one IP version pass packets of the other version to its programs, so that one attachment
/// serves both.
///
/// # Errors
/// When the kernel refuses.
pub fn lead(from: &Loaded, to: &Loaded) -> Result<()> {
    let place = u32::try_from(CALLED.len()).unwrap_or(u32::MAX);
    ProgramArray::new(from.map("cali_programs")?)?.set(place, to.program(ENTRY)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_have_the_offsets_of_the_c_structure() {
        let interface = Interface {
            is_workload: true,
            is_leaving: false,
            is_layer_3: false,
            has_both: true,
            checks_source: true,
        };
        let bytes = interface.bytes();
        assert_eq!([bytes[0], bytes[4], bytes[8], bytes[12], bytes[16]], [1, 0, 14, 1, 1]);
        assert_eq!(Interface::read(&bytes), interface);
    }
}
