//! The plugins: this program under several names, and the further plugins of the image.
//!
//! An identical program is left alone; a different one is replaced whole, even while it runs.

use crate::settings::Settings;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The names under which this program acts as Calico's plugins.
const OWN_NAMES: [&str; 2] = ["calico", "calico-ipam"];

/// The reference plugins that conflists chain, which this program replaces, too. A plugin of the same name in the image
/// takes precedence.
pub(crate) const REFERENCE_NAMES: [&str; 5] = ["bandwidth", "host-local", "loopback", "portmap", "tuning"];

/// A program in the image that is not a plugin.
const INSTALLER: &str = "install";

/// The widest mode that a program gets.
const WIDEST_MODE: u32 = 0o755;

/// Why the plugins were not installed.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// A program could not be copied.
    #[error("failed to install {}: {source}", path.display())]
    Copy {
        /// The path of the program.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The image's plugins could not be listed.
    #[error("cannot read the image's plugins in {}: {source}", path.display())]
    Image {
        /// The path of their folder.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// No folder is writeable.
    #[error(
        "found no writeable directory for the CNI plugins among {}: in a container mount the host's /opt/cni/bin there, on a \
         host run it as root, or set UPDATE_CNI_BINARIES=false on hosts that bring calico and calico-ipam themselves",
        folders.join(", ")
    )]
    NoFolder {
        /// The folders that were tried.
        folders: Vec<String>,
    },
}

/// Installs the plugins in every writeable folder.
///
/// # Errors
/// When a plugin cannot be installed, or no folder is writeable.
pub(crate) fn install(
    settings: &Settings,
    program: &Path,
    image: Option<&Path>,
    folders: &[PathBuf],
) -> Result<(), ProgramError> {
    let further = match image {
        Some(image) => further_programs(settings, image)?,
        None => Vec::new(),
    };
    let mut written = false;
    for folder in folders {
        if !is_writeable(folder) {
            tracing::info!(folder = %folder.display(), "not writeable: skipped");
            continue;
        }
        for name in OWN_NAMES {
            put(settings, program, &folder.join(name), WIDEST_MODE)?;
        }
        for name in REFERENCE_NAMES {
            let is_brought = further.iter().any(|path| path.file_name().is_some_and(|other| other == name));
            if !is_brought && !settings.skipped.iter().any(|skipped| skipped == name) {
                link(settings, program, &folder.join(OWN_NAMES[0]), &folder.join(name))?;
            }
        }
        for path in &further {
            let Some(name) = path.file_name() else { continue };
            put(settings, path, &folder.join(name), mode_of(path)?)?;
        }
        tracing::info!(folder = %folder.display(), "the CNI plugins are in place");
        written = true;
    }
    // A read-only host may have the plugins already, if the settings leave existing ones alone.
    let has_both = |folder: &&PathBuf| OWN_NAMES.iter().all(|name| folder.join(name).is_file());
    if written || (!settings.update && folders.iter().any(|folder| has_both(&folder))) {
        return Ok(());
    }
    Err(ProgramError::NoFolder {
        folders: folders.iter().map(|folder| folder.display().to_string()).collect(),
    })
}

/// The image's other plugins, sorted by name. An image may have none.
fn further_programs(settings: &Settings, image: &Path) -> Result<Vec<PathBuf>, ProgramError> {
    let failed = |source| ProgramError::Image { path: image.to_owned(), source };
    let entries = match std::fs::read_dir(image) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut programs = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_ours = name == INSTALLER || OWN_NAMES.contains(&name);
        if !is_ours && !settings.skipped.iter().any(|skipped| skipped == name) && path.is_file() {
            programs.push(path);
        }
    }
    programs.sort();
    Ok(programs)
}

fn put(settings: &Settings, source: &Path, target: &Path, mode: u32) -> Result<(), ProgramError> {
    let failed = |error| ProgramError::Copy { path: target.to_owned(), source: error };
    if target.exists() && !settings.update {
        tracing::info!(target = %target.display(), "left as it is (UPDATE_CNI_BINARIES=false)");
        return Ok(());
    }
    if is_up_to_date(source, target, mode).map_err(failed)? {
        return Ok(());
    }
    daemon::files::copy(source, target, mode).map_err(failed)?;
    // A faulty disk is noticed here rather than by the first pod.
    if !is_up_to_date(source, target, mode).map_err(failed)? {
        return Err(failed(io::Error::other("the copy differs from the original")));
    }
    tracing::info!(target = %target.display(), "installed");
    Ok(())
}

/// Adds another name of this program: a hard link to `installed` if that is this program and the file system supports
/// it, so that seven names take the space of one.
fn link(settings: &Settings, program: &Path, installed: &Path, target: &Path) -> Result<(), ProgramError> {
    let failed = |error| ProgramError::Copy { path: target.to_owned(), source: error };
    if target.exists() && (!settings.update || is_up_to_date(program, target, WIDEST_MODE).map_err(failed)?) {
        return Ok(());
    }
    // The host keeps another program there, for which the name would mean something else.
    if !is_up_to_date(program, installed, WIDEST_MODE).map_err(failed)? {
        return put(settings, program, target, WIDEST_MODE);
    }
    let beside = target.with_extension(format!("{}.new", std::process::id()));
    // Left behind by a killed installer with the same process id.
    let _ = std::fs::remove_file(&beside);
    if std::fs::hard_link(installed, &beside).is_err() {
        return put(settings, program, target, WIDEST_MODE);
    }
    std::fs::rename(&beside, target).map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        failed(error)
    })?;
    tracing::info!(target = %target.display(), "installed");
    Ok(())
}

fn mode_of(path: &Path) -> Result<u32, ProgramError> {
    let metadata =
        std::fs::metadata(path).map_err(|source| ProgramError::Copy { path: path.to_owned(), source })?;
    Ok(metadata.permissions().mode() & WIDEST_MODE)
}

/// Whether the target has this mode and the same contents as the source.
fn is_up_to_date(source: &Path, target: &Path, mode: u32) -> io::Result<bool> {
    let there = match std::fs::metadata(target) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if there.permissions().mode() & 0o7777 != mode || there.size() != std::fs::metadata(source)?.size() {
        return Ok(false);
    }
    let (mut one, mut other) = (File::open(source)?, File::open(target)?);
    let (mut left, mut right) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let count = one.read(&mut left)?;
        if count == 0 {
            return Ok(true);
        }
        match other.read_exact(&mut right[..count]) {
            Ok(()) if left[..count] == right[..count] => {}
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
            _ => return Ok(false),
        }
    }
}

/// Whether files can be created in a folder. It tries, because root may write where modes forbid it, but not where the
/// mount is read-only.
fn is_writeable(folder: &Path) -> bool {
    let probe = folder.join(format!(".tortie-{}.probe", std::process::id()));
    let made = File::create(&probe).is_ok();
    if made {
        // A file that cannot be removed here could not be replaced later either.
        return std::fs::remove_file(&probe).is_ok();
    }
    false
}

#[cfg(test)]
mod tests;
