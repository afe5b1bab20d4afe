//! Compiled objects: constants, maps and programs, loaded together.
//!
//! An object's `.rodata` is frozen before its programs are verified, so the verifier knows every constant and drops the
//! code that they rule out: one object serves all kinds of interfaces. Maps are created from their definitions in the
//! object, or supplied by the caller, who can share them between objects or pin them. Relocations against the types of
//! the running kernel are refused: our programs only use stable interfaces of the kernel.

use crate::error::{Error, Result, last_lines};
use crate::map::{Definition, Kind, Map};
use crate::program::{Program, ProgramKind, Source, Types};
use crate::system::{Attributes, Command};
use aya_obj::btf::BtfFeatures;
use aya_obj::generated::bpf_insn;
use aya_obj::{EbpfSectionKind, Function, ProgramSection};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

/// An object file, parsed but not loaded.
#[derive(Clone, Debug)]
pub struct Object {
    name: String,
    inner: aya_obj::Object,
}

/// A loaded object. The programs own the maps that they use; the values here give us access.
#[derive(Debug)]
pub struct Loaded {
    /// The maps created for the object, by name. Maps supplied by the caller are not included.
    pub maps: BTreeMap<String, Map>,
    /// The programs, by function name.
    pub programs: BTreeMap<String, Program>,
}

impl Object {
    /// Parses an object file.
    ///
    /// # Errors
    /// When it is not an object file, or has content that the loader does not support.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self> {
        let inner = aya_obj::Object::parse(bytes).map_err(|error| unreadable(name, error.to_string()))?;
        if inner.has_btf_relocations() {
            return Err(unreadable(name, "it depends on the types of the running kernel"));
        }
        Ok(Self { name: name.to_owned(), inner })
    }

    /// Sets a constant of `.rodata` to the bytes of its C type.
    ///
    /// # Errors
    /// When there is no constant of this name and size.
    pub fn set_constant(&mut self, constant: &str, bytes: &[u8]) -> Result<()> {
        let set = self.inner.patch_map_data(HashMap::from([(constant, (bytes, true))]));
        set.map_err(|error| unreadable(&self.name, error.to_string()))
    }

    /// Overrides a map's number of entries.
    ///
    /// # Errors
    /// When there is no such map.
    pub fn set_entries(&mut self, map: &str, entries: u32) -> Result<()> {
        let Some(found) = self.inner.maps.get_mut(map) else {
            return Err(unreadable(&self.name, format!("there is no map {map}")));
        };
        found.set_max_entries(entries);
        Ok(())
    }

    /// The maps that the object defines.
    ///
    /// # Errors
    /// When a map is of a kind that is not used here.
    pub fn definitions(&self) -> Result<Vec<Definition>> {
        let mut all = self
            .inner
            .maps
            .iter()
            .filter(|(_, map)| !is_data(map))
            .map(|(name, map)| self.definition(name, map))
            .collect::<Result<Vec<_>>>()?;
        all.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(all)
    }

    /// The instructions of every function by name, before relocation. Builds with equal instructions behave alike.
    #[must_use]
    pub fn instructions(&self) -> BTreeMap<String, Vec<u8>> {
        let functions = self.inner.functions.values();
        functions.map(|function| (function.name.clone(), bytes(&function.instructions))).collect()
    }

    fn definition(&self, name: &str, map: &aya_obj::Map) -> Result<Definition> {
        let kind = Kind::from_number(map.map_type())
            .ok_or_else(|| unreadable(&self.name, format!("map {name} has kind {}", map.map_type())))?;
        Ok(Definition {
            name: name.to_owned(),
            kind,
            key: map.key_size() as usize,
            value: map.value_size() as usize,
            entries: map.max_entries(),
            flags: map.map_flags(),
        })
    }

    /// Loads everything. Maps in `shared` replace the object's own maps of the same name.
    ///
    /// # Errors
    /// When the kernel refuses something, or a shared map does not match the object's definition. Then nothing remains
    /// loaded.
    pub fn load(mut self, shared: &BTreeMap<&str, &Map>) -> Result<Loaded> {
        let name = self.name.clone();
        let types = self.types()?;
        let mut maps = BTreeMap::new();
        for (map_name, map) in &self.inner.maps {
            let made = if is_data(map) {
                constants(map_name, map.data())?
            } else {
                let definition = self.definition(map_name, map)?;
                if let Some(given) = shared.get(map_name.as_str()) {
                    given.definition().fits(&definition)?;
                    continue;
                }
                let ids = match map {
                    aya_obj::Map::Btf(map) => (map.def.btf_key_type_id, map.def.btf_value_type_id),
                    aya_obj::Map::Legacy(_) => (0, 0),
                };
                let takes_types = !matches!(definition.kind, Kind::ProgramArray | Kind::Queue | Kind::Ring);
                let described = types.as_ref().filter(|_| takes_types && ids.0 != 0 && ids.1 != 0);
                Map::create_with_types(definition, described.map(|fd| (fd.as_fd(), ids.0, ids.1)))?
            };
            maps.insert(map_name.clone(), made);
        }
        let sections: HashSet<usize> = self.inner.functions.keys().map(|(section, _)| *section).collect();
        let known = self.inner.maps.clone();
        let descriptors = known.iter().filter_map(|(map_name, map)| {
            let given = shared.get(map_name.as_str()).copied().filter(|_| !is_data(map));
            let fd = maps.get(map_name).or(given)?.as_fd().as_raw_fd();
            Some((map_name.as_str(), fd, map))
        });
        self.inner
            .relocate_maps(descriptors, &sections)
            .map_err(|error| unreadable(&name, error.to_string()))?;
        self.inner.relocate_calls(&sections).map_err(|error| unreadable(&name, error.to_string()))?;
        let mut programs = BTreeMap::new();
        for (program_name, program) in &self.inner.programs {
            let function = self
                .inner
                .functions
                .get(&program.function_key())
                .ok_or_else(|| unreadable(&name, format!("program {program_name} has no code")))?;
            let source = Source {
                name: program_name,
                kind: kind(&program.section)
                    .ok_or_else(|| unreadable(&name, format!("{program_name} is of an unknown type")))?,
                instructions: &bytes(&function.instructions),
                licence: &program.license,
            };
            let described = described(function);
            let types = types.as_ref().map(|fd| (fd.as_fd(), &described));
            programs.insert(program_name.clone(), Program::load_with_types(&source, types)?);
        }
        Ok(Loaded { maps, programs })
    }

    /// Loads the object's BTF, if the object has any and the kernel supports it.
    fn types(&mut self) -> Result<Option<OwnedFd>> {
        // Features missing in kernel 5.10 are replaced; newer kernels lose nothing that is used here.
        let features = BtfFeatures::new(true, true, true, true, false, false, false, false);
        let fixed = self
            .inner
            .fixup_and_sanitize_btf(&features)
            .map_err(|error| unreadable(&self.name, error.to_string()))?;
        fixed.map(|types| load_types(&types.to_bytes())).transpose()
    }
}

impl Loaded {
    /// Returns a program of the object.
    ///
    /// # Errors
    /// When there is no program of this name.
    pub fn program(&self, name: &str) -> Result<&Program> {
        self.programs.get(name).ok_or_else(|| unreadable(name, "the object has no such program"))
    }

    /// Returns a map that was created for the object.
    ///
    /// # Errors
    /// When there is no map of this name.
    pub fn map(&self, name: &str) -> Result<&Map> {
        self.maps.get(name).ok_or_else(|| unreadable(name, "no such map was created for the object"))
    }
}

/// Loads BTF into the kernel.
pub(crate) fn load_types(bytes: &[u8]) -> Result<OwnedFd> {
    let mut attributes = Attributes::new().input(0, bytes).length(16, bytes.len());
    attributes.open(Command::BtfLoad).map_err(|errno| {
        let mut log = vec![0; 64 * 1024];
        let length = log.len();
        let mut attributes = Attributes::new()
            .input(0, bytes)
            .output(8, &mut log)
            .length(16, bytes.len())
            .length(20, length)
            .u32(24, 1);
        // Repeated only for the log; the error is already known.
        drop(attributes.open(Command::BtfLoad));
        Error::Verifier { name: "(type information)".to_owned(), source: errno, log: last_lines(&log) }
    })
}

/// Creates a section of constants: written once, then frozen.
fn constants(name: &str, data: &[u8]) -> Result<Map> {
    let short = name.trim_start_matches('.');
    if short != "rodata" && !short.starts_with("rodata.") {
        return Err(Error::refused(format!("load section {name}: variables live in maps"))(Errno::OPNOTSUPP));
    }
    let map = Map::create(Definition {
        name: short.to_owned(),
        kind: Kind::Array,
        key: 4,
        value: data.len(),
        entries: 1,
        flags: Definition::READ_ONLY_FOR_PROGRAMS,
    })?;
    map.set(&[0; 4], data)?;
    map.freeze()?;
    Ok(map)
}

fn is_data(map: &aya_obj::Map) -> bool {
    matches!(map.section_kind(), EbpfSectionKind::Rodata | EbpfSectionKind::Data | EbpfSectionKind::Bss)
}

fn kind(section: &ProgramSection) -> Option<ProgramKind> {
    Some(match section {
        ProgramSection::SchedClassifier => ProgramKind::Classifier,
        ProgramSection::Xdp { .. } => ProgramKind::Xdp,
        ProgramSection::CgroupSockAddr { attach_type } => {
            ProgramKind::Address(aya_obj::generated::bpf_attach_type::from(*attach_type) as u32)
        }
        _ => return None,
    })
}

fn described(function: &Function) -> Types {
    Types {
        functions: function.func_info.func_info_bytes(),
        function_size: function.func_info_rec_size,
        lines: function.line_info.line_info_bytes(),
        line_size: function.line_info_rec_size,
    }
}

/// Instructions in the kernel's encoding: `code, registers, offset, immediate`.
fn bytes(instructions: &[bpf_insn]) -> Vec<u8> {
    let one = |instruction: &bpf_insn| {
        let mut bytes = [0; 8];
        bytes[0] = instruction.code;
        bytes[1] = instruction.dst_reg() | instruction.src_reg() << 4;
        bytes[2..4].copy_from_slice(&instruction.off.to_ne_bytes());
        bytes[4..].copy_from_slice(&instruction.imm.to_ne_bytes());
        bytes
    };
    instructions.iter().flat_map(one).collect()
}

pub(crate) fn unreadable(name: &str, what: impl Into<String>) -> Error {
    Error::Object { name: name.to_owned(), what: what.into() }
}
