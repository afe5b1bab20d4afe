//! The programs at drivers of the host's devices: policy that is asked before connections are looked at, for packets that come in.
//!
//! A device has one program there, so the one that is attached serves both IP versions and calls the one of a packet's. It
//! refuses to be the only one that enforces that policy: the programs at traffic control do it where this one is not.

use crate::error::Result;
use crate::interface::{Interface, Options, Version};
use crate::map::Map;
use crate::object::{Loaded, Object};
use crate::packed::{self, packed};
use crate::program::Program;
use crate::table::{Layout as _, ProgramArray};
use std::collections::BTreeMap;

/// The program that is attached.
pub const ENTRY: &str = "cali_xdp_main";
/// The one that it calls, of an IP version.
pub const POLICY: &str = "cali_xdp_policy";
/// The array by which it finds it, in the order of `enum program` of `bpf/xdp.c`.
pub const ARRAY: &str = "cali_xdp_progs";

/// The object file for an IP version, as it is part of this program.
///
/// # Errors
/// When this program was built from a broken one.
pub fn object(version: Version) -> Result<Object> {
    packed::object(match version {
        Version::V4 => packed!("xdp_v4.o"),
        Version::V6 => packed!("xdp_v6.o"),
    })
}

/// Programs in the kernel.
#[derive(Debug)]
pub struct AtDriver {
    /// Of the IP versions that there are programs for.
    pub loaded: Vec<(Version, Loaded)>,
}

impl AtDriver {
    /// Loads objects of IP versions, IPv4 among them. All devices share the programs.
    ///
    /// # Errors
    /// When the kernel refuses something. Then nothing stays.
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

    /// The array by which the first program finds the others.
    ///
    /// # Errors
    /// When there are no programs.
    pub fn array(&self) -> Result<&Map> {
        self.first()?.map(ARRAY)
    }

    /// The program that is attached.
    ///
    /// # Errors
    /// When there is none.
    pub fn entry(&self) -> Result<&Program> {
        self.first()?.program(ENTRY)
    }
}
