//! The owner of a volume, in a file that Felix and Calico's node agents read.
//!
//! It contains no secret, and Felix may run as a user other than root, so all users may read it.

use super::{Error, Homes, VolumeName, kernel, make_folder, remove};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;

/// The mode of the file.
const MODE: u32 = 0o644;

/// A pod, in the form that Calico's drivers write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Credentials {
    #[serde(rename = "UID")]
    pub(crate) uid: String,
    #[serde(rename = "Workload")]
    pub(crate) name: String,
    #[serde(rename = "Namespace")]
    pub(crate) namespace: String,
    #[serde(rename = "ServiceAccount")]
    pub(crate) service_account: String,
}

impl fmt::Display for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Checks that the volume belongs to this pod, or to none.
pub(super) fn check(homes: &Homes, name: &VolumeName, owner: &Credentials) -> Result<(), Error> {
    let path = homes.credentials(name);
    let found = match std::fs::read(&path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(kernel("read", &path, error)),
    };
    match serde_json::from_slice::<Credentials>(&found) {
        Ok(known) if known.uid != owner.uid => {
            Err(Error::Taken { name: name.to_string(), owner: format!("{known} ({})", known.uid) })
        }
        Ok(_) => Ok(()),
        Err(error) => {
            tracing::warn!(%error, file = %path.display(), "the record of a volume's owner cannot be read and is rewritten");
            Ok(())
        }
    }
}

/// Records the volume's owner.
pub(super) fn write(homes: &Homes, name: &VolumeName, owner: &Credentials) -> Result<(), Error> {
    let path = homes.credentials(name);
    if let Some(folder) = path.parent() {
        make_folder(folder)?;
    }
    // Only strings: serialising them cannot fail.
    let text = serde_json::to_vec(owner).map_err(|error| kernel("write", &path, io::Error::other(error)))?;
    if std::fs::read(&path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    // No sync is needed: after a power failure there are no pods either.
    daemon::files::publish(&path, &text, MODE).map_err(|error| kernel("write", &path, error))
}

/// Removes the record of the volume's owner.
pub(super) fn remove_file(homes: &Homes, name: &VolumeName) -> Result<(), Error> {
    let path = homes.credentials(name);
    remove("remove", &path, std::fs::remove_file(&path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use testkit::Folder;

    #[test]
    fn the_file_is_calicos_and_keeps_others_out() {
        let folder = Folder::new("credentials").unwrap();
        let homes = Homes::under(folder.path());
        let name = VolumeName::parse("csi-1").unwrap();
        let owner = Credentials {
            uid: "u-1".to_owned(),
            name: "web".to_owned(),
            namespace: "shop".to_owned(),
            service_account: "default".to_owned(),
        };
        check(&homes, &name, &owner).unwrap();
        write(&homes, &name, &owner).unwrap();
        write(&homes, &name, &owner).unwrap();
        let path = folder.path().join("creds/csi-1.json");
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, r#"{"UID":"u-1","Workload":"web","Namespace":"shop","ServiceAccount":"default"}"#);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, MODE);
        check(&homes, &name, &owner).unwrap();
        let other = Credentials { uid: "u-2".to_owned(), ..owner.clone() };
        let error = check(&homes, &name, &other).unwrap_err();
        assert_eq!(error.to_string(), "volume csi-1 already belongs to pod shop/web (u-1)");
        // An incomplete file of a writer that does not write atomically.
        std::fs::write(&path, "{\"UID\":").unwrap();
        check(&homes, &name, &other).unwrap();
        remove_file(&homes, &name).unwrap();
        remove_file(&homes, &name).unwrap();
        assert!(!path.exists());
    }
}
