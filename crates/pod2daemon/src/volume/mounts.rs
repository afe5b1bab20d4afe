//! The mounts visible to this process, from the kernel's table.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

/// The kernel's table, as seen by this thread: threads may be in different namespaces.
pub(crate) const TABLE: &str = "/proc/thread-self/mountinfo";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The mount point.
    pub(crate) point: PathBuf,
    /// The type of its file system.
    pub(crate) kind: String,
    options: String,
}

impl Mount {
    /// Whether it has a mount option.
    pub(crate) fn has(&self, option: &str) -> bool {
        self.options.split(',').any(|own| own == option)
    }
}

/// All mounts; of several at one mount point the topmost is the last.
pub(crate) fn read() -> io::Result<Vec<Mount>> {
    Ok(std::fs::read(TABLE)?.split(|byte| *byte == b'\n').filter_map(line).collect())
}

/// Parses a line: number, parent, device, root, mount point, options, optional fields up to a dash, type, source, the
/// file system's options.
fn line(text: &[u8]) -> Option<Mount> {
    let mut fields = text.split(|byte| *byte == b' ');
    let point = PathBuf::from(OsString::from_vec(unescaped(fields.nth(4)?)));
    let options = String::from_utf8_lossy(fields.next()?).into_owned();
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    Some(Mount { point, kind: String::from_utf8_lossy(kind).into_owned(), options })
}

/// Decodes spaces, tabs, line ends and backslashes, which are written as three octal digits.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind
            .get(..3)
            .filter(|digits| *first == b'\\' && digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        let number = digits
            .map(|digits| digits.iter().fold(0_u32, |number, digit| number * 8 + u32::from(digit - b'0')));
        match number.and_then(|number| u8::try_from(number).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = &behind[3..];
            }
            None => {
                plain.push(*first);
                rest = behind;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn lines_of_the_kernels_table() {
        let text = b"36 35 98:0 /mnt1 /mnt\\0402\\134x rw,noatime master:1 shared:3 - ext3 /dev/root rw,errors=continue";
        let mount = line(text).unwrap();
        assert_eq!((mount.point.as_path(), mount.kind.as_str()), (Path::new("/mnt 2\\x"), "ext3"));
        assert!(mount.has("noatime") && !mount.has("time") && !mount.has("errors=continue"));
        let without_more = b"45 25 0:39 / /var/a rw,nosuid,nodev - tmpfs tmpfs rw,size=8k";
        assert_eq!(line(without_more).unwrap().kind, "tmpfs");
        for broken in [&b""[..], b"36 35 98:0 / /mnt", b"36 35 98:0 / /mnt rw shared:3"] {
            assert_eq!(line(broken), None);
        }
        assert_eq!(unescaped(b"\\777\\04"), b"\\777\\04");
    }

    #[test]
    fn this_machine_has_a_root() {
        assert!(read().unwrap().iter().any(|mount| mount.point == Path::new("/")));
    }
}
