//! An in-memory file system as unpacked by the kernel at boot: a "newc" cpio archive, written here, because a program
//! for it would be one more to install.

use anyhow::{Context as _, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const PLAIN: u32 = 0o100_644;

/// An archive under construction.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    count: u32,
    there: BTreeSet<PathBuf>,
}

impl Archive {
    /// Adds a copy of a file of the host, unless there is already a file at this place.
    pub(super) fn add_file(&mut self, place: &Path, from: &Path) -> Result<()> {
        if self.there.contains(place) {
            return Ok(());
        }
        let contents = std::fs::read(from).with_context(|| format!("reading {}", from.display()))?;
        self.add_bytes(place, &contents, true);
        Ok(())
    }

    /// Adds a file with these contents.
    pub(super) fn add_bytes(&mut self, place: &Path, contents: &[u8], is_program: bool) {
        if let Some(parent) = place.parent() {
            self.add_folder(parent);
        }
        if self.there.insert(place.to_owned()) {
            self.entry(place, if is_program { PROGRAM } else { PLAIN }, contents);
        }
    }

    fn add_folder(&mut self, place: &Path) {
        if place == Path::new("/") || self.there.contains(place) {
            return;
        }
        if let Some(parent) = place.parent() {
            self.add_folder(parent);
        }
        self.there.insert(place.to_owned());
        self.entry(place, FOLDER, &[]);
    }

    fn entry(&mut self, place: &Path, mode: u32, contents: &[u8]) {
        let name = place.to_string_lossy();
        self.raw(name.trim_start_matches('/'), mode, contents);
    }

    fn raw(&mut self, name: &str, mode: u32, contents: &[u8]) {
        self.count += 1;
        let length = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let links = if mode & FOLDER == FOLDER { 2 } else { 1 };
        // Inode number, mode, owner, group, links, time, size, four device numbers, length of the name, checksum.
        let fields =
            [self.count, mode, 0, 0, links, 0, length(contents.len()), 0, 0, 0, 0, length(name.len() + 1), 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// The whole archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.raw("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;
    use std::path::Path;

    #[test]
    fn entries_are_aligned_and_folders_come_first_and_once() {
        let mut archive = Archive::default();
        archive.add_bytes(Path::new("/a/b/c"), b"12345", true);
        archive.add_bytes(Path::new("/a/b/d"), b"", false);
        archive.add_bytes(Path::new("/a/b/d"), b"again", false);
        let bytes = archive.finish();
        let mut names = Vec::new();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            assert_eq!(&rest[..6], b"070701");
            let field = |number: usize| {
                let text = std::str::from_utf8(&rest[6 + 8 * number..14 + 8 * number]).expect("digits");
                usize::from_str_radix(text, 16).expect("a number")
            };
            let (size, name) = (field(6), field(11));
            names.push(String::from_utf8_lossy(&rest[110..110 + name - 1]).into_owned());
            rest = &rest[(110 + name).next_multiple_of(4) + size.next_multiple_of(4)..];
        }
        assert_eq!(names, ["a", "a/b", "a/b/c", "a/b/d", "TRAILER!!!"]);
    }
}
