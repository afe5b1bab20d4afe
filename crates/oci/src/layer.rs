//! A layer: files, folders and links as a tar archive, parents before children.

use anyhow::Result;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use tar::{Builder, EntryType, Header};

/// The contents of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A folder.
    Folder {
        /// Its permissions.
        mode: u32,
        /// Its user, by number.
        owner: u64,
    },
    /// A file owned by root.
    File {
        /// Its permissions.
        mode: u32,
        /// Its contents.
        bytes: Cow<'a, [u8]>,
    },
    /// A symbolic link to this path.
    Link(String),
}

/// Entries by path, without a slash at either end.
pub type Entries<'a> = BTreeMap<String, Entry<'a>>;

/// Writes a layer, uncompressed. Missing parent folders are added, owned by root.
///
/// # Errors
/// When a path is too long for the format.
pub fn layer(entries: &Entries<'_>) -> Result<Vec<u8>> {
    let mut all = Entries::new();
    for path in entries.keys() {
        for parent in Path::new(path).ancestors().skip(1).filter(|parent| *parent != Path::new("")) {
            all.insert(parent.to_string_lossy().into_owned(), Entry::Folder { mode: 0o755, owner: 0 });
        }
    }
    all.extend(entries.iter().map(|(path, entry)| (path.clone(), entry.clone())));
    let mut tar = Builder::new(Vec::new());
    for (path, entry) in &all {
        append(&mut tar, path, entry)?;
    }
    Ok(tar.into_inner()?)
}

fn append(tar: &mut Builder<Vec<u8>>, path: &str, entry: &Entry<'_>) -> Result<()> {
    let mut header = Header::new_gnu();
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    match entry {
        Entry::Folder { mode, owner } => {
            header.set_entry_type(EntryType::Directory);
            header.set_mode(*mode);
            header.set_uid(*owner);
            tar.append_data(&mut header, format!("{path}/"), std::io::empty())?;
        }
        Entry::File { mode, bytes } => {
            header.set_entry_type(EntryType::Regular);
            header.set_mode(*mode);
            header.set_size(bytes.len() as u64);
            tar.append_data(&mut header, path, bytes.as_ref())?;
        }
        Entry::Link(target) => {
            header.set_entry_type(EntryType::Symlink);
            header.set_mode(0o777);
            tar.append_link(&mut header, path, target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Entries, Entry, layer};
    use std::borrow::Cow;

    #[test]
    fn parents_come_first_and_keep_their_mode() {
        let file = Entry::File { mode: 0o755, bytes: Cow::Borrowed(b"x") };
        let entries = Entries::from([
            ("tmp/a/b".to_owned(), file),
            ("tmp".to_owned(), Entry::Folder { mode: 0o1777, owner: 7 }),
        ]);
        let bytes = layer(&entries).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let listed: Vec<(String, u32, u64)> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let header = entry.header();
                let path = entry.path().unwrap().to_string_lossy().into_owned();
                (path, header.mode().unwrap(), header.uid().unwrap())
            })
            .collect();
        let expected = [("tmp/", 0o1777, 7), ("tmp/a/", 0o755, 0), ("tmp/a/b", 0o755, 0)];
        assert_eq!(listed, expected.map(|(path, mode, owner)| (path.to_owned(), mode, owner)));
    }
}
