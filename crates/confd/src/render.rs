//! Renders the files of BIRD for an intent.
//!
//! Calico's BIRD and plain 1.6 are one process per family; the names are those of Calico's templates, `bird` for IPv4
//! and `bird6` for IPv6, and so is the text, including blanks. BIRD 2 has a different grammar for protocols; there too
//! each family has its own process, so that files, sockets and tools are the same for both.
//!
//! Parts of an intent that BIRD does not support are left out and reported ([`Left`]): a file that BIRD refuses would
//! block all other sessions.

mod aggregation;
mod filters;
mod main_file;
mod policy;
mod text;

use bgp::intent::{Encapsulation, Intent, Programmer, Remote, Session, SessionName};
use bgp::{IpVersion, Prefix};
use std::collections::BTreeMap;
use std::fmt;

/// The grammar of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// BIRD 1.6, and Calico's version of it.
    One,
    /// BIRD 2 and later.
    Two,
}

impl Dialect {
    /// The grammar for a BIRD with this answer to `--version`: `BIRD version 2.0.12`, `BIRD version 1.6.8`, or Calico's
    /// own, `BIRD version v0.3.3-…`, which descends from 1.6.
    #[must_use]
    pub fn of_version(answer: &str) -> Self {
        let version = answer.split_whitespace().nth(2).unwrap_or_default();
        let major: Option<u32> = version.split('.').next().and_then(|major| major.parse().ok());
        if major.is_some_and(|major| major >= 2) { Self::Two } else { Self::One }
    }
}

/// One of the six files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileName {
    /// `bird_aggr.cfg`, `bird6_aggr.cfg`: static routes, and the handling of routes in the node's own blocks.
    Aggregation(IpVersion),
    /// `bird_ipam.cfg`, `bird6_ipam.cfg`: announced routes, and routes for the kernel.
    Policy(IpVersion),
    /// `bird.cfg`, `bird6.cfg`: protocols and sessions. It includes the other two.
    Main(IpVersion),
}

impl FileName {
    /// All files; included ones before those that include them.
    pub const ALL: [Self; 6] = [
        Self::Aggregation(IpVersion::V4),
        Self::Policy(IpVersion::V4),
        Self::Main(IpVersion::V4),
        Self::Aggregation(IpVersion::V6),
        Self::Policy(IpVersion::V6),
        Self::Main(IpVersion::V6),
    ];

    /// The family of the file.
    #[must_use]
    pub fn version(self) -> IpVersion {
        match self {
            Self::Aggregation(version) | Self::Policy(version) | Self::Main(version) => version,
        }
    }

    /// The name without a folder.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Main(IpVersion::V4) => "bird.cfg",
            Self::Main(IpVersion::V6) => "bird6.cfg",
            Self::Aggregation(IpVersion::V4) => "bird_aggr.cfg",
            Self::Aggregation(IpVersion::V6) => "bird6_aggr.cfg",
            Self::Policy(IpVersion::V4) => "bird_ipam.cfg",
            Self::Policy(IpVersion::V6) => "bird6_ipam.cfg",
        }
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The files for an intent.
#[derive(Clone, PartialEq, Eq)]
pub struct Files {
    /// Their texts, which contain passwords: not for logs.
    pub texts: BTreeMap<FileName, String>,
    /// The parts of the intent that the files do not contain.
    pub left: Vec<Left>,
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("left", &self.left).finish_non_exhaustive()
    }
}

/// A part of an intent that BIRD does not support.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Left {
    /// BIRD's strings cannot contain a quote or a line break.
    #[error("session {0} is left out: BIRD does not support passwords with a quote or a line break")]
    Password(SessionName),
    /// BIRD requires an address.
    #[error("session {0} is left out: BIRD needs the peer's address")]
    Remote(SessionName),
    /// BIRD 1.6 has a single BFD setting for all sessions.
    #[error("session {0} is not watched by BFD: that needs BIRD 2, or the native speaker")]
    Bfd(SessionName),
    /// Only Calico's own BIRD programs routes over IP in IP.
    #[error(
        "routes of pool {0} are not programmed: BIRD 2 cannot do that over IP in IP; let Felix do it (programClusterRoutes)"
    )]
    Encapsulation(Prefix),
}

/// Renders the files.
#[must_use]
pub fn render(intent: &Intent, dialect: Dialect) -> Files {
    let mut left = Vec::new();
    let mut texts = BTreeMap::new();
    for version in [IpVersion::V4, IpVersion::V6] {
        let family = intent.family(version);
        let sessions = writable(family.sessions.values(), &mut left);
        if dialect == Dialect::One {
            let watched = sessions.iter().filter(|session| session.bfd.is_some());
            left.extend(watched.map(|session| Left::Bfd(session.name.clone())));
        }
        if dialect == Dialect::Two {
            let tunnelled = |programmer| {
                matches!(programmer, Programmer::Bgp(Encapsulation::IpIp | Encapsulation::IpIpCrossSubnet))
            };
            let pools = family.kernel.pools.iter().filter(|pool| tunnelled(pool.programmer));
            left.extend(pools.map(|pool| Left::Encapsulation(pool.prefix)));
        }
        texts.insert(FileName::Aggregation(version), aggregation::render(family, dialect));
        texts.insert(FileName::Policy(version), policy::render(intent, family, dialect));
        texts.insert(FileName::Main(version), main_file::render(intent, family, &sessions, dialect));
    }
    Files { texts, left }
}

/// The sessions that BIRD supports.
fn writable<'a>(sessions: impl Iterator<Item = &'a Session>, left: &mut Vec<Left>) -> Vec<&'a Session> {
    let mut writable = Vec::new();
    for session in sessions {
        let password = session.password.as_ref().map_or("", |password| password.expose());
        if password.contains(['"', '\n', '\r', '\0']) {
            left.push(Left::Password(session.name.clone()));
        } else if matches!(
            session.remote,
            Remote::Unnumbered { .. } | Remote::Dynamic { .. } | Remote::Address { interface: Some(_), .. }
        ) {
            left.push(Left::Remote(session.name.clone()));
        } else {
            writable.push(session);
        }
    }
    writable
}

#[cfg(test)]
mod tests {
    use super::Dialect;

    #[test]
    fn grammars_by_version() {
        for (answer, dialect) in [
            ("BIRD version 2.0.12", Dialect::Two),
            ("BIRD version 3.0.1", Dialect::Two),
            ("BIRD version 1.6.8", Dialect::One),
            ("BIRD version v0.3.3-211-g9111ec3c", Dialect::One),
            ("BIRD version v0.3.3+birdv1.6.8", Dialect::One),
            ("", Dialect::One),
        ] {
            assert_eq!(Dialect::of_version(answer), dialect, "{answer}");
        }
    }
}
