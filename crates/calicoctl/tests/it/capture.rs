//! A context whose output a test can read, for commands that inspect the machine and are called below the command line.

use crate::harness::{Buffer, environment};
use calicoctl::Surroundings;
use calicoctl::for_tests::{Context, Globals};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// A context with these variables, and the buffer of its standard output.
pub(crate) fn context(variables: &[(&str, &str)]) -> (Context, Buffer) {
    let printed = Buffer::default();
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let surroundings = Surroundings {
        stdin: Box::new(io::empty()),
        stdout: Box::new(printed.clone()),
        stderr: Box::new(io::sink()),
        environment: environment(&variables.collect()),
        colours: false,
        progress: false,
        width: None,
    };
    (Context { surroundings, globals: Globals::default() }, printed)
}

/// Writes a shell script into a folder.
pub(crate) fn program(folder: &Path, name: &str, script: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::create_dir_all(folder).expect("a folder");
    let file = folder.join(name);
    std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("a script");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("permissions");
}

/// The files of a compressed archive, with their contents; for links, the target path.
pub(crate) fn unpacked(archive: &Path) -> BTreeMap<String, String> {
    let file = std::fs::File::open(archive).expect("the archive");
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let mut files = BTreeMap::new();
    for entry in archive.entries().expect("entries") {
        let mut entry = entry.expect("an entry");
        let name = entry.path().expect("a path").display().to_string();
        let mut content = String::new();
        match entry.link_name().expect("a link") {
            Some(target) => content = format!("-> {}", target.display()),
            None => _ = io::Read::read_to_string(&mut entry, &mut content).expect("content"),
        }
        if !entry.header().entry_type().is_dir() {
            files.insert(name, content);
        }
    }
    files
}
