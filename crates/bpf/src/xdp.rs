//! The XDP programs for devices of the host: untracked policy for packets that arrive.
//!
//! A device has one XDP program, so the attached program serves both IP versions and calls the one for the packet's
//! version. Is never the only place that enforces this policy: the programs at traffic control do so where this one is
//! not attached.

use crate::error::Result;
use crate::interface::{Interface, Options, Version};
use crate::map::Map;
use crate::object::{Loaded, Object};
use crate::packed::{self, packed};
use crate::program::Program;
use crate::table::{Layout as _, ProgramArray};
use std::collections::BTreeMap;

/// The name of the program to attach.
pub const ENTRY: &str = "cali_xdp_main";
/// The name of the program that it calls, per IP version.
pub const POLICY: &str = "cali_xdp_policy";
/// The array with those programs, in the order of `enum program` of `bpf/xdp.c`.
pub const ARRAY: &str = "cali_xdp_progs";

/// The object for an IP version, embedded in this program.
///
/// # Errors
/// When this program was built from a broken object.
pub fn object(version: Version) -> Result<Object> {
    packed::object(match version {
        Version::V4 => packed!("xdp_v4.o"),
        Version::V6 => packed!("xdp_v6.o"),
    })
}

/// The loaded programs.
#[derive(Debug)]
pub struct AtDriver {
    /// The loaded objects by IP version.
    pub loaded: Vec<(Version, Loaded)>,
}

impl AtDriver {
    /// Loads the objects of some IP versions, including IPv4. All devices share the programs.
    ///
    /// # Errors
    /// When the kernel refuses something. Then nothing remains loaded.
    pub fn load(
        objects: Vec<(Version, Object)>,
        options: &Options,
        shared: &BTreeMap<&str, &Map>,
    ) -> Result<Self> {
        let interface = Interface {
            is_workload: false,
            is_leaving: false,
            is_layer_3: false,
            has_both: false,
            checks_source: false,
        };
        let mut loaded = Vec::new();
        for (version, mut object) in objects {
            object.set_constant("settings", &interface.bytes())?;
            object.set_constant("options", &options.bytes())?;
            loaded.push((version, object.load(shared)?));
        }
        let all = Self { loaded };
        let array = ProgramArray::new(all.array()?)?;
        for (version, loaded) in &all.loaded {
            array.set(u32::from(*version == Version::V6), loaded.program(POLICY)?)?;
        }
        Ok(all)
    }

    fn first(&self) -> Result<&Loaded> {
        let first = self.loaded.first().map(|(_, loaded)| loaded);
        first.ok_or_else(|| crate::object::unreadable("xdp", "there is no object"))
    }

    /// The array by which the attached program finds the others.
    ///
    /// # Errors
    /// When no programs are loaded.
    pub fn array(&self) -> Result<&Map> {
        self.first()?.map(ARRAY)
    }

    /// The program to attach.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn entry(&self) -> Result<&Program> {
        self.first()?.program(ENTRY)
    }
}
