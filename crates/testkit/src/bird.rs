//! The two generations of BIRD, side by side.

use crate::process::program;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The programs of one BIRD.
#[derive(Clone, Debug)]
pub struct Bird {
    /// The daemon for IPv4; for BIRD 2, for both families.
    pub v4: PathBuf,
    /// The daemon for IPv6.
    pub v6: PathBuf,
}

impl Bird {
    /// BIRD 1.6, whose grammar Calico's files use. `scripts/bird1.sh` unpacks it.
    ///
    /// # Errors
    /// When it is not installed.
    pub fn one() -> Result<Self> {
        let folder = match std::env::var_os("TORTIE_BIRD1") {
            Some(folder) => PathBuf::from(folder),
            None => cache()?.join("bird-1.6"),
        };
        let bird = Self { v4: folder.join("bird"), v6: folder.join("bird6") };
        if !bird.v4.exists() || !bird.v6.exists() {
            bail!("BIRD 1.6 was not found in {}: run scripts/setup.sh", folder.display());
        }
        Ok(bird)
    }

    /// BIRD 2.
    ///
    /// # Errors
    /// When it is not installed.
    pub fn two() -> Result<Self> {
        let bird = program("bird", "install Debian's bird2")?;
        Ok(Self { v4: bird.clone(), v6: bird })
    }

    /// Has BIRD check a file. `is_v6` selects the daemon.
    ///
    /// # Errors
    /// BIRD's error message, if it rejects the file.
    pub fn check(&self, file: &Path, is_v6: bool) -> Result<()> {
        let program = if is_v6 { &self.v6 } else { &self.v4 };
        let output = Command::new(program)
            .arg("-p")
            .arg("-c")
            .arg(file)
            .current_dir(file.parent().context("a file in a folder")?)
            .output()
            .with_context(|| format!("starting {}", program.display()))?;
        if !output.status.success() {
            bail!("{}: {}", program.display(), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }
}

/// The folder where scripts put the dependencies of tests.
fn cache() -> Result<PathBuf> {
    if let Some(cache) = std::env::var_os("TORTIE_CACHE") {
        return Ok(cache.into());
    }
    let user = match std::env::var_os("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(".cache"),
    };
    Ok(user.join("tortie"))
}
