//! `flexvol.sh`: copies the driver to the host, with the flags of the script in images of Calico up to v3.32.

use super::install::{MODE, NAME};
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The script's exit code for all errors.
const WRONG: u8 = 2;
const USAGE: &str = "usage: flexvol.sh [options ...]\n  options::\n   -s ... source directory for driver image\n   -t ... target \
                     directory where the driver image is copied\n   -i ... source binary name\n   -d ... destination binary name";

/// The file to copy, and its destination.
#[derive(Debug, PartialEq, Eq)]
struct Copy {
    source: PathBuf,
    folder: PathBuf,
    name: String,
}

/// Copies the driver as these words request; the first is the script's name.
pub fn main(words: &[OsString]) -> ExitCode {
    let words: Vec<String> = words.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let mut out = std::io::stdout();
    match read(&words).and_then(|copy| perform(&copy)) {
        Ok(said) => {
            let _ = out.write_all(said.as_bytes());
            ExitCode::SUCCESS
        }
        Err(reason) => {
            let _ = writeln!(out, "{reason}");
            ExitCode::from(WRONG)
        }
    }
}

/// Parses single-letter options, each with its value attached or in the next word. As in a shell, everything after the
/// first other word is ignored.
fn read(words: &[String]) -> Result<Copy, String> {
    let (mut source, mut folder) = ("/usr/local/bin".to_owned(), "/host/driver".to_owned());
    let (mut image, mut name) = ("flexvol".to_owned(), NAME.to_owned());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix('-').filter(|flag| !flag.is_empty() && word != "--") else {
            break;
        };
        let mut letters = flag.chars();
        let letter = letters.next().unwrap_or_default();
        let place = match letter {
            's' => &mut source,
            't' => &mut folder,
            'i' => &mut image,
            'd' => &mut name,
            _ => return Err(format!("Invalid option: -{letter}\n{USAGE}")),
        };
        let behind = letters.as_str();
        *place = match behind {
            "" => words.next().cloned().ok_or_else(|| format!("option -{letter} needs a value\n{USAGE}"))?,
            value => value.to_owned(),
        };
    }
    let is_name = |text: &str| !text.is_empty() && !text.contains('/') && text != "." && text != "..";
    if !is_name(&name) {
        return Err(format!("{name:?} is not the name of a file\n{USAGE}"));
    }
    Ok(Copy { source: Path::new(&source).join(image), folder: PathBuf::from(folder), name })
}

fn perform(copy: &Copy) -> Result<String, String> {
    let Copy { source, folder, name } = copy;
    if !source.is_file() {
        return Err(format!("Image not present {}", source.display()));
    }
    if !folder.is_dir() {
        return Err(format!("Destination directory {} not present!?", folder.display()));
    }
    // The program recognises its role by its name.
    let is_own = std::fs::canonicalize(source)
        .ok()
        .zip(std::env::current_exe().ok())
        .is_some_and(|(one, own)| one == own);
    if is_own && name != NAME {
        return Err(format!("this program is the driver only under the name {NAME}, and not as {name}"));
    }
    let target = folder.join(name);
    let said = if target.is_file() {
        format!("File exists {}. Copy over\n", target.display())
    } else {
        String::new()
    };
    let copied = daemon::files::copy(source, &target, MODE);
    copied.map_err(|error| format!("cannot copy {} to {}: {error}", source.display(), target.display()))?;
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use testkit::Folder;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn flags_of_the_script() {
        let copy = |source: &str, folder: &str, name: &str| {
            Ok(Copy { source: source.into(), folder: folder.into(), name: name.to_owned() })
        };
        assert_eq!(read(&[]), copy("/usr/local/bin/flexvol", "/host/driver", "uds"));
        assert_eq!(
            read(&words("-s /usr/local/bin -i flexvol -d uds")),
            copy("/usr/local/bin/flexvol", "/host/driver", "uds")
        );
        assert_eq!(read(&words("-s/a -t /b -iimage -dname rest -s /c")), copy("/a/image", "/b", "name"));
        for wrong in ["-x", "-s", "-d a/b", "-d ..", "--help"] {
            assert!(read(&words(wrong)).unwrap_err().contains("usage: "), "{wrong}");
        }
    }

    #[test]
    fn copies_are_complete_and_missing_files_are_named() {
        let folder = Folder::new("flexvol-script").unwrap();
        let at = |name: &str| folder.path().join(name);
        let copy = |source: &str, target: &str, name: &str| Copy {
            source: at(source),
            folder: at(target),
            name: name.to_owned(),
        };
        std::fs::write(at("driver"), "a driver").unwrap();
        std::fs::create_dir(at("host")).unwrap();
        assert!(perform(&copy("none", "host", "uds")).unwrap_err().starts_with("Image not present"));
        assert!(perform(&copy("driver", "none", "uds")).unwrap_err().contains("not present!?"));
        assert_eq!(perform(&copy("driver", "host", "other")).unwrap(), "");
        assert!(perform(&copy("driver", "host", "other")).unwrap().starts_with("File exists"));
        assert_eq!(std::fs::metadata(at("host/other")).unwrap().permissions().mode() & 0o7777, MODE);
        // This program itself, under a name that it would not recognise.
        std::os::unix::fs::symlink(std::env::current_exe().unwrap(), at("flexvol")).unwrap();
        assert!(perform(&copy("flexvol", "host", "other")).unwrap_err().contains("under the name uds"));
        perform(&copy("flexvol", "host", "uds")).unwrap();
        assert_eq!(std::fs::read_dir(at("host")).unwrap().count(), 2);
    }
}
