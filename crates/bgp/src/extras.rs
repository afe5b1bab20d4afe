//! Features beyond Calico's resources, requested by annotations: BFD, peers by interface, peers by network.
//!
//! Annotations rather than fields, because Calico's definitions would drop unknown fields. On a BGPPeer they apply to
//! its sessions; `tortie/bfd` on the BGPConfiguration `default` applies to the mesh. Unreadable annotations are
//! reported and ignored; a BGPPeer whose remote end cannot be read has no sessions.

use crate::intent::session::Bfd;
use crate::values::Prefix;
use api::scalars::Duration;
use std::collections::BTreeMap;
use std::num::NonZeroU8;

/// Whether and how BFD watches the peers.
const BFD: &str = "tortie/bfd";
/// The interface whose neighbour is the peer.
const INTERFACE: &str = "tortie/interface";
/// The network from which peers may connect.
const RANGE: &str = "tortie/range";

/// The maximum length of an interface's name.
const LONGEST_NAME: usize = 15;

/// The features requested by annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    pub(crate) bfd: Option<Bfd>,
    pub(crate) interface: Option<String>,
    pub(crate) range: Option<Prefix>,
    /// The annotations that cannot be read, with the reason.
    pub(crate) problems: Vec<String>,
    /// Whether an unreadable annotation should have identified the peer.
    pub(crate) unusable: bool,
}

impl Extras {
    pub(crate) fn read(annotations: &BTreeMap<String, String>) -> Self {
        let mut extras = Self::default();
        if let Some(text) = annotations.get(BFD) {
            match bfd(text) {
                Ok(bfd) => extras.bfd = bfd,
                Err(reason) => extras.problems.push(format!("{BFD}: {reason}")),
            }
        }
        if let Some(name) = annotations.get(INTERFACE) {
            let is_name = !name.is_empty()
                && name.len() <= LONGEST_NAME
                && !name.contains(|letter: char| letter.is_whitespace() || letter == '/');
            match is_name {
                true => extras.interface = Some(name.clone()),
                false => extras.refuse(format!("{INTERFACE}: '{name}' is not the name of an interface")),
            }
        }
        if let Some(text) = annotations.get(RANGE) {
            match text.parse() {
                Ok(range) => extras.range = Some(range),
                Err(_) => extras.refuse(format!("{RANGE}: '{text}' is not a network")),
            }
        }
        if extras.interface.is_some() && extras.range.is_some() {
            extras.refuse(format!("{INTERFACE} and {RANGE} cannot both be set"));
        }
        extras
    }

    fn refuse(&mut self, reason: String) {
        self.problems.push(reason);
        self.unusable = true;
    }
}

/// Parses `true`, `false`, or some of `interval=300ms`, `multiplier=3`, `multihop`, `singlehop`, separated by commas.
fn bfd(text: &str) -> Result<Option<Bfd>, String> {
    let mut bfd = Bfd::default();
    match text.trim() {
        "true" => return Ok(Some(bfd)),
        "false" => return Ok(None),
        "" => return Err("it is empty: write true or false".to_owned()),
        _ => {}
    }
    for word in text.split(',').map(str::trim) {
        match word.split_once('=') {
            None if word == "multihop" => bfd.multihop = Some(true),
            None if word == "singlehop" => bfd.multihop = Some(false),
            Some(("interval", time)) => {
                let time = Duration::new(time).parse().map_err(|reason| format!("interval: {reason}"))?;
                let range = std::time::Duration::from_millis(10)..=std::time::Duration::from_secs(60);
                if !range.contains(&time) {
                    return Err("interval must be between 10ms and 60s".to_owned());
                }
                bfd.interval = time;
            }
            Some(("multiplier", count)) => {
                bfd.multiplier = count
                    .parse::<NonZeroU8>()
                    .map_err(|_| format!("multiplier: '{count}' is not a number from 1 to 255"))?;
            }
            _ => {
                return Err(format!(
                    "'{word}' is not one of interval=TIME, multiplier=COUNT, multihop, singlehop"
                ));
            }
        }
    }
    Ok(Some(bfd))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rows: &[(&str, &str)]) -> Extras {
        Extras::read(&rows.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn bfd_settings_are_parsed() {
        let millis = std::time::Duration::from_millis;
        for (text, expected) in [
            ("false", None),
            ("true", Some(Bfd::default())),
            ("multihop", Some(Bfd { multihop: Some(true), ..Bfd::default() })),
            (
                "interval=50ms, multiplier=5, singlehop",
                Some(Bfd {
                    interval: millis(50),
                    multiplier: NonZeroU8::new(5).unwrap(),
                    multihop: Some(false),
                }),
            ),
        ] {
            let extras = read(&[(BFD, text)]);
            assert_eq!((extras.bfd, extras.problems), (expected, vec![]), "{text}");
        }
        for (text, reason) in [
            ("", "it is empty: write true or false"),
            ("yes", "'yes' is not one of interval=TIME, multiplier=COUNT, multihop, singlehop"),
            ("interval=1us", "interval must be between 10ms and 60s"),
            ("multiplier=0", "multiplier: '0' is not a number from 1 to 255"),
        ] {
            let extras = read(&[(BFD, text)]);
            assert_eq!((extras.bfd, extras.unusable), (None, false), "{text}");
            assert_eq!(extras.problems, [format!("{BFD}: {reason}")]);
        }
    }

    #[test]
    fn remote_ends_that_cannot_be_read_are_refused() {
        assert_eq!(read(&[(INTERFACE, "eth1")]).interface.as_deref(), Some("eth1"));
        assert_eq!(read(&[(RANGE, "10.0.0.0/24")]).range, "10.0.0.0/24".parse().ok());
        for rows in [
            &[(INTERFACE, "a b")][..],
            &[(INTERFACE, "")],
            &[(INTERFACE, "an-interface-name-that-is-too-long")],
            &[(RANGE, "10.0.0.0/33")],
            &[(INTERFACE, "eth1"), (RANGE, "10.0.0.0/24")],
        ] {
            assert!(read(rows).unusable, "{rows:?}");
        }
    }
}
