//! Keeps the files up to date with the intent: staged, checked by BIRD, and only then moved into place.
//!
//! A file that BIRD refuses never replaces one that it accepts. The files contain passwords, so only their owner may
//! read them.

use crate::destinations::Destinations;
use crate::programs::Bird;
use crate::render::{FileName, Files};
use bgp::IpVersion;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// The permissions of the files.
const MODE: u32 = 0o600;
/// The folder of files that wait to be checked, next to their destinations.
const STAGE: &str = ".stage";

/// Keeps files up to date.
pub(crate) struct Keeper {
    pub(crate) destinations: Destinations,
    pub(crate) keep_stage: bool,
}

/// Why the files of a family are not in place.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// A file or folder cannot be written.
    #[error("writing {}", .path.display())]
    Write {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// BIRD refuses the files.
    #[error("BIRD refuses {file}; the previous one is kept: {reason}")]
    Refused {
        /// The main file.
        file: FileName,
        /// BIRD's reason.
        reason: String,
    },
    /// BIRD cannot be started to check them.
    #[error("asking BIRD to check {file}")]
    Check {
        /// The main file.
        file: FileName,
        /// The system's error.
        source: io::Error,
    },
}

impl Keeper {
    /// Updates the files of one family; returns whether any changed. `bird` checks them, if there is one.
    pub(crate) async fn keep(
        &self,
        files: &Files,
        version: IpVersion,
        bird: Option<&Bird>,
    ) -> Result<bool, KeepError> {
        let ours: Vec<(FileName, &String)> = files
            .texts
            .iter()
            .filter(|(name, _)| name.version() == version)
            .map(|(name, text)| (*name, text))
            .collect();
        let changed: Vec<&(FileName, &String)> = ours
            .iter()
            .filter(|(name, text)| {
                std::fs::read(self.destinations.place(*name)).ok().as_deref() != Some(text.as_bytes())
            })
            .collect();
        if changed.is_empty() {
            return Ok(false);
        }
        let folder = self.destinations.folder(version);
        let failed = |path: &Path| {
            let path = path.to_owned();
            |source| KeepError::Write { path, source }
        };
        std::fs::create_dir_all(folder).map_err(failed(folder))?;
        if let Some(bird) = bird {
            let stage = folder.join(format!("{STAGE}-ipv{version}"));
            let outcome = self.checked(&ours, version, bird, &stage).await;
            if !self.keep_stage {
                let _ = std::fs::remove_dir_all(&stage);
            }
            outcome?;
        }
        for (name, text) in changed {
            let place = self.destinations.place(*name);
            daemon::files::write(place, text.as_bytes(), MODE).map_err(failed(place))?;
        }
        Ok(true)
    }

    async fn checked(
        &self,
        files: &[(FileName, &String)],
        version: IpVersion,
        bird: &Bird,
        stage: &Path,
    ) -> Result<(), KeepError> {
        let failed = |source| KeepError::Write { path: stage.to_owned(), source };
        // Left by a previous process.
        let _ = std::fs::remove_dir_all(stage);
        std::fs::DirBuilder::new().mode(0o700).create(stage).map_err(failed)?;
        let main = FileName::Main(version);
        for (name, text) in files {
            // Staged files keep their file names, by which they include each other.
            let place = self.destinations.place(*name);
            let staged = stage.join(place.file_name().unwrap_or(name.as_str().as_ref()));
            daemon::files::publish(&staged, text.as_bytes(), MODE).map_err(failed)?;
        }
        let place = self.destinations.place(main);
        let staged = stage.join(place.file_name().unwrap_or(main.as_str().as_ref()));
        match bird.check(&staged).await {
            Err(source) => Err(KeepError::Check { file: main, source }),
            Ok(Err(reason)) => Err(KeepError::Refused { file: main, reason }),
            Ok(Ok(())) => Ok(()),
        }
    }
}
