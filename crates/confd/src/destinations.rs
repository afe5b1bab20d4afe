//! The destination of each file: from the files of Calico's template resources (`conf.d/*.toml`), or Calico's default.
//!
//! Only the lines `src` and `dest` of a resource are used: the templates are built in, BIRD checks the files regardless
//! of `check_cmd`, and it is notified of changes over its socket, not by `reload_cmd`.

use crate::render::FileName;
use bgp::IpVersion;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The destination of each file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destinations(BTreeMap<FileName, PathBuf>);

/// Why the resources cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DestinationError {
    /// A file or folder cannot be read.
    #[error("reading {}", .path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// BIRD only finds included files in the folder of the including one.
    #[error("{file} must go to the same folder as {main}: {} is another one", .folder.display())]
    Apart {
        /// The included file.
        file: FileName,
        /// The file that includes it.
        main: FileName,
        /// Its destination.
        folder: PathBuf,
    },
}

impl Destinations {
    /// Reads the resources in `confdir/conf.d`. Without any, files are written to `confdir/config`.
    ///
    /// # Errors
    /// When they cannot be read, or BIRD could not use the destinations.
    pub(crate) fn read(confdir: &Path) -> Result<Self, DestinationError> {
        let mut places: BTreeMap<FileName, PathBuf> =
            FileName::ALL.map(|name| (name, confdir.join("config").join(name.as_str()))).into();
        let folder = confdir.join("conf.d");
        let failed = |path: &Path| {
            let path = path.to_owned();
            |source| DestinationError::Read { path, source }
        };
        let entries = match std::fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self(places)),
            entries => entries.map_err(failed(&folder))?,
        };
        for entry in entries {
            let path = entry.map_err(failed(&folder))?.path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                let text = std::fs::read_to_string(&path).map_err(failed(&path))?;
                if let Some((name, place)) = resource(&text) {
                    places.insert(name, place);
                }
            }
        }
        for version in [IpVersion::V4, IpVersion::V6] {
            let main = FileName::Main(version);
            for file in [FileName::Aggregation(version), FileName::Policy(version)] {
                if places[&file].parent() != places[&main].parent() {
                    let folder = places[&file].parent().unwrap_or(Path::new("")).to_owned();
                    return Err(DestinationError::Apart { file, main, folder });
                }
            }
        }
        Ok(Self(places))
    }

    /// The destination of this file.
    #[must_use]
    pub(crate) fn place(&self, file: FileName) -> &Path {
        &self.0[&file]
    }

    /// The folder of a family's files.
    #[must_use]
    pub(crate) fn folder(&self, version: IpVersion) -> &Path {
        self.place(FileName::Main(version)).parent().unwrap_or(Path::new("."))
    }
}

/// The file that a resource is for, and its destination.
fn resource(text: &str) -> Option<(FileName, PathBuf)> {
    let value = |key: &str| {
        text.lines().find_map(|line| {
            let value = line.trim().strip_prefix(key)?.trim_start().strip_prefix('=')?.trim();
            let value = value.strip_prefix('"').or_else(|| value.strip_prefix('\''))?;
            value.split(['"', '\'']).next().map(str::to_owned)
        })
    };
    let source = value("src")?;
    let name = source.strip_suffix(".template")?;
    let file = FileName::ALL.into_iter().find(|file| file.as_str() == name)?;
    value("dest").filter(|place| !place.is_empty()).map(|place| (file, place.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_with_and_without_resources() {
        let folder = testkit::Folder::new("confd").expect("a folder");
        let own = Destinations::read(folder.path()).expect("places");
        let main = FileName::Main(IpVersion::V4);
        assert_eq!(own.place(main), folder.path().join("config/bird.cfg"));
        let resources = folder.path().join("conf.d");
        std::fs::create_dir(&resources).expect("a folder");
        for name in FileName::ALL {
            let text = format!(
                "[template]\nsrc = \"{name}.template\"\ndest = \"/elsewhere/{name}\"\nprefix = \"/calico/\"\n\
                 keys = [\n    \"/bgp/v1/host\",\n]\nreload_cmd = \"sv hup bird || true\"\n"
            );
            let path = resources.join(name.as_str()).with_extension("toml");
            std::fs::write(path, text).expect("a file");
        }
        std::fs::write(resources.join("other.toml"), "src = \"x.template\"\ndest = \"/x\"\n")
            .expect("a file");
        let places = Destinations::read(folder.path()).expect("places");
        for name in FileName::ALL {
            assert_eq!(places.place(name), Path::new("/elsewhere").join(name.as_str()));
        }
        assert_eq!(places.folder(IpVersion::V6), Path::new("/elsewhere"));
        std::fs::write(resources.join("bird_ipam.toml"), "src = 'bird_ipam.cfg.template'\ndest = '/x/y'\n")
            .expect("a file");
        let error = Destinations::read(folder.path()).expect_err("apart").to_string();
        assert_eq!(error, "bird_ipam.cfg must go to the same folder as bird.cfg: /x is another one");
    }
}
