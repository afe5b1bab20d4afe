//! Whether this program may work on a cluster of another version: judged by what it could damage, not by equality.
//!
//! - The same minor version, or a cluster without a recorded version: fine.
//! - Another minor version whose data we know how to read and write (v3.26 and later of the same major version): a
//!   warning, because a field that only the newer side knows may look odd, but is kept.
//! - Older clusters, and a newer major version: their data may have a form that we do not know. Reading gets a warning,
//!   writing is refused.
//!
//! `--allow-version-mismatch` silences all of it.

use api::words::CALICO_VERSION;

/// The oldest minor version of the same major version whose data is read and written.
const OLDEST_MINOR: u32 = 26;

/// What a command does to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It only reads.
    Read,
    /// It writes.
    Write,
}

/// The consequence of comparing the versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Continue.
    Fine,
    /// Continue with this warning.
    Warn(String),
    /// Stop with this message.
    Refuse(String),
}

/// Judges a cluster's version.
#[must_use]
pub(crate) fn judge(cluster: &str, access: Access) -> Verdict {
    if cluster.is_empty() {
        return Verdict::Fine;
    }
    let versions = format!("Client Version:   {CALICO_VERSION}\nCluster Version:  {cluster}");
    let Some((major, minor)) = parse(cluster) else {
        return Verdict::Warn(format!(
            "Warning: the cluster's version ({cluster}) is not a version number; assuming that it works with this client."
        ));
    };
    let ours = parse(CALICO_VERSION);
    if ours == Some((major, minor)) {
        return Verdict::Fine;
    }
    let known = ours.is_some_and(|(our_major, _)| our_major == major) && minor >= OLDEST_MINOR;
    match (known, access) {
        (true, _) => Verdict::Warn(format!(
            "Warning: version mismatch, client {CALICO_VERSION} and cluster {cluster}; these are known to work together. \
             Use --allow-version-mismatch to silence this."
        )),
        (false, Access::Read) => Verdict::Warn(format!(
            "Warning: version mismatch, client {CALICO_VERSION} and cluster {cluster}; what is shown may be incomplete. \
             Use --allow-version-mismatch to silence this."
        )),
        (false, Access::Write) => Verdict::Refuse(format!(
            "version mismatch.\n{versions}\nWriting to a cluster of this version could lose data that this client does not \
             know.\nUse --allow-version-mismatch to override"
        )),
    }
}

/// Major and minor number of a version such as `v3.32.1-0.dev`.
fn parse(version: &str) -> Option<(u32, u32)> {
    let plain = version.strip_prefix('v').unwrap_or(version);
    let plain = plain.split('-').next().unwrap_or(plain);
    let mut parts = plain.split('.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?.parse().ok()?;
    Some((major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_judged_by_possible_damage() {
        for (cluster, read, write) in [
            ("", "fine", "fine"),
            ("v3.32.1", "fine", "fine"),
            ("v3.32.0", "fine", "fine"),
            ("3.32.9-0.dev-12", "fine", "fine"),
            ("v3.31.4", "warn", "warn"),
            ("v3.26.0", "warn", "warn"),
            ("v3.33.0", "warn", "warn"),
            ("v3.25.2", "warn", "refuse"),
            ("v2.6.0", "warn", "refuse"),
            ("v4.0.0", "warn", "refuse"),
            ("master", "warn", "warn"),
        ] {
            for (access, expected) in [(Access::Read, read), (Access::Write, write)] {
                let verdict = match judge(cluster, access) {
                    Verdict::Fine => "fine",
                    Verdict::Warn(_) => "warn",
                    Verdict::Refuse(text) => {
                        assert!(text.starts_with("version mismatch.\nClient Version:   v"), "{text}");
                        "refuse"
                    }
                };
                assert_eq!(verdict, expected, "{cluster} {access:?}");
            }
        }
    }
}
