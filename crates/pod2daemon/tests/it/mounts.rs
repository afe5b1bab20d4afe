//! A mount namespace for one test, in a thread that ends there; all its mounts end with it.

use anyhow::{Context as _, Result};
use rustix::mount::MountPropagationFlags;
use rustix::thread::UnshareFlags;
use std::path::Path;
use testkit::Folder;

/// Does the work in a namespace of its own, with a folder.
pub(crate) fn alone(purpose: &str, work: impl FnOnce(&Path) -> Result<()> + Send) -> Result<()> {
    let folder = Folder::new(purpose)?;
    let path = folder.path();
    let outcome = std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            #[expect(
                deprecated,
                reason = "the unsafe successor is about tables of descriptors, which stay shared here"
            )]
            rustix::thread::unshare(UnshareFlags::NEWNS).context("a mount namespace needs root")?;
            rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
            work(path)
        });
        thread.join()
    });
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The mounts below a folder: path, type, options.
pub(crate) fn below(folder: &Path) -> Result<Vec<(String, String, String)>> {
    let table = std::fs::read_to_string("/proc/thread-self/mountinfo")?;
    let read = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let place = Path::new(fields.get(4)?).strip_prefix(folder).ok()?.display().to_string();
        let kind = fields.iter().skip_while(|field| **field != "-").nth(1)?;
        Some((place, (*kind).to_owned(), fields[5].to_owned()))
    };
    Ok(table.lines().filter_map(read).collect())
}
