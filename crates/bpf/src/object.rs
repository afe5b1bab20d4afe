//! Compiled objects: constants, maps and programs, loaded together.
//!
//! An object's `.rodata` is frozen before its programs are verified, so the verifier knows every constant and drops the
//! code that they rule out: one object serves all kinds of interfaces. Maps are made by their definitions in the object, or
//! taken from the caller, who then shares them between objects or has them pinned. Relocations against the types of the
//! running kernel are refused: programs here use only what the kernel promises to keep.

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

/// An object file, read but not in the kernel.
#[derive(Clone, Debug)]
pub struct Object {
    name: String,
    inner: aya_obj::Object,
}

/// What an object became in the kernel. The programs own the maps that they use: the values here are for us.
#[derive(Debug)]
pub struct Loaded {
    /// The maps that were made, by their names in the object. Those that the caller gave are not here.
    pub maps: BTreeMap<String, Map>,
    /// The programs, by the names of their functions.
    pub programs: BTreeMap<String, Program>,
}

impl Object {
    /// Reads an object file.
    ///
    /// # Errors
    /// When it is none, or has what the loader does not understand.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self> {
        let inner = aya_obj::Object::parse(bytes).map_err(|error| unreadable(name, error.to_string()))?;
        if inner.has_btf_relocations() {
            return Err(unreadable(name, "it depends on the types of a running kernel"));
        }
        Ok(Self { name: name.to_owned(), inner })
    }

    /// Sets a constant of `.rodata`; the bytes are those of its C type.
    ///
    /// # Errors
    /// When there is none of this name and size.
    pub fn set_constant(&mut self, constant: &str, bytes: &[u8]) -> Result<()> {
        let set = self.inner.patch_map_data(HashMap::from([(constant, (bytes, true))]));
        set.map_err(|error| unreadable(&self.name, error.to_string()))
    }

    /// Makes a map with another number of entries than the object says.
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

    /// The maps that it defines.
    ///
    /// # Errors
    /// When one is of a kind that is not used here.
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

    /// The instructions of every function, before relocation, by name. Two builds with equal ones behave alike.
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

    /// Loads everything. Maps of `shared` are used in the place of the object's own of the same name.
    ///
    /// # Errors
    /// When the kernel refuses something, or a shared map is not as the object defines it. Then nothing stays.
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

    /// The object's type information in the kernel, if both have it.
    fn types(&mut self) -> Result<Option<OwnedFd>> {
        // What kernels of 5.10 lack is replaced; newer ones lose nothing that is used here.
        let features = BtfFeatures::new(true, true, true, true, false, false, false, false);
        let fixed = self
            .inner
            .fixup_and_sanitize_btf(&features)
            .map_err(|error| unreadable(&self.name, error.to_string()))?;
        fixed.map(|types| load_types(&types.to_bytes())).transpose()
    }
}

impl Loaded {
    /// A program of the object.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn program(&self, name: &str) -> Result<&Program> {
        self.programs.get(name).ok_or_else(|| unreadable(name, "the object has no such program"))
    }

    /// A map that was made for the object.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn map(&self, name: &str) -> Result<&Map> {
        self.maps.get(name).ok_or_else(|| unreadable(name, "no such map was made for the object"))
    }
}

/// Gives the kernel type information.
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
        // Only for the log; the refusal is known.
        drop(attributes.open(Command::BtfLoad));
        Error::Verifier { name: "(type information)".to_owned(), source: errno, log: last_lines(&log) }
    })
}

/// Constants: written once, then frozen.
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

/// Instructions as the kernel reads them: `code, registers, offset, immediate`.
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
