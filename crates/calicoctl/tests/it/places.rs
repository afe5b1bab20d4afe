//! Choosing the datastore: a mistyped path, and no configuration at all.

use crate::harness::Shell;
use testkit::Folder;

const POOL: &str =
    "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: one}\nspec: {cidr: 10.1.0.0/16}\n";

#[test]
fn reading_does_not_create_a_store_but_writing_does() {
    let folder = Folder::new("places").expect("a folder");
    let path = folder.path().join("typo").display().to_string();
    let shell = Shell::with(&[("DATASTORE_TYPE", "embedded"), ("EMBEDDED_PATH", &path)], folder);
    for command in ["get ippool", "ipam show", "diff -f -"] {
        let outcome = shell.pipe(command, POOL);
        assert!(!outcome.success, "{command}: {}", outcome.stdout);
        let text = outcome.stdout + &outcome.stderr;
        assert!(text.contains(&path) && text.contains("EMBEDDED_PATH"), "{command}: {text}");
    }
    assert!(!std::path::Path::new(&path).exists(), "{path} was created");
    assert!(shell.pipe("create -f -", POOL).success);
    assert!(shell.run("get ippool").text().contains("one"));
}
