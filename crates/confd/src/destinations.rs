//! Where each file goes: what the files of Calico's template resources say (`conf.d/*.toml`), or Calico's own places.
//!
//! Of a resource, only the lines `src` and `dest` mean anything here: the text is built in, BIRD is asked to check it
//! whatever `check_cmd` says, and it learns of a change by a signal, not by `reload_cmd`.

use crate::render::FileName;
use bgp::IpVersion;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Where each file goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destinations(BTreeMap<FileName, PathBuf>);

/// The resources cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DestinationError {
    /// A file or folder cannot be read.
    #[error("reading {}", .path.display())]
    Read {
        /// The path that was tried.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// BIRD finds the files that another one includes only beside it.
    #[error("{file} must go to the same folder as {main}: {} is another one", .folder.display())]
    Apart {
        /// The file.
        file: FileName,
        /// The file that includes it.
        main: FileName,
        /// Where it would go.
        folder: PathBuf,
    },
}

impl Destinations {
    /// Reads the resources in `confdir/conf.d`. Without any, files go to `confdir/config`.
    ///
    /// # Errors
    /// When they cannot be read, or say what BIRD could not use.
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

    /// Where this file goes.
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

/// Which file a resource is about, and where it goes.
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
    fn places_of_resources_and_without() {
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
