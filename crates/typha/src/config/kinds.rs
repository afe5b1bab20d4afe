//! How the text of a parameter is read: as Calico does, with the default replacing an invalid value, unless continuing
//! would be worse than not starting. `none` turns a parameter off.

use client::DatastoreType;
use daemon::log::LevelFilter;
use settings::kinds::choice;
use settings::{ClientAuth, Kind, Trouble};
use std::time::Duration;

/// Parses a text with a function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reads<F> {
    read: F,
    must_be_right: bool,
}

/// An invalid value is replaced by the default.
pub(crate) const fn lenient<F>(read: F) -> Reads<F> {
    Reads { read, must_be_right: false }
}

/// Typha does not start with an invalid value.
pub(crate) const fn strict<F>(read: F) -> Reads<F> {
    Reads { read, must_be_right: true }
}

impl<T: Default, F: Fn(&str) -> Result<T, String>> Kind for Reads<F> {
    type Value = T;

    fn read(&self, found: Option<&str>, default: &str) -> Result<T, Trouble> {
        let Some(text) = found.filter(|text| !text.is_empty()) else {
            return if default.is_empty() {
                Ok(T::default())
            } else {
                (self.read)(default).map_err(Trouble::Mistake)
            };
        };
        if text.eq_ignore_ascii_case("none") {
            return Ok(T::default());
        }
        let wrap = if self.must_be_right { Trouble::Mistake } else { Trouble::Ignored };
        (self.read)(text).map_err(wrap)
    }

    fn nothing(&self) -> T {
        T::default()
    }
}

/// A value, and whether it was set explicitly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Given<T> {
    pub(crate) value: T,
    pub(crate) is_given: bool,
}

/// Wraps a kind, and also records whether the value was set explicitly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marked<K>(pub(crate) K);

impl<K: Kind> Kind for Marked<K> {
    type Value = Given<K::Value>;

    fn read(&self, found: Option<&str>, default: &str) -> Result<Self::Value, Trouble> {
        let is_given = found.is_some_and(|text| !text.is_empty());
        Ok(Given { value: self.0.read(found, default)?, is_given })
    }

    fn nothing(&self) -> Self::Value {
        Given { value: self.0.nothing(), is_given: false }
    }
}

/// A parameter of Calico's that has no effect here. Setting it causes a warning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idle;

impl Kind for Idle {
    type Value = ();

    fn read(&self, found: Option<&str>, _default: &str) -> Result<(), Trouble> {
        match found {
            None | Some("") => Ok(()),
            Some(_) => Err(Trouble::Ignored("without effect in this version".to_owned())),
        }
    }

    fn nothing(&self) {}
}

/// A boolean, as Calico's agents write them.
pub(crate) fn flag(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "y" | "t" => Ok(true),
        "false" | "0" | "no" | "n" | "f" => Ok(false),
        _ => Err("neither true nor false".to_owned()),
    }
}

/// A number greater than zero.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("out of range".to_owned()),
        Ok(number) => Ok(number),
        Err(_) => Err("not a number".to_owned()),
    }
}

/// Seconds, with an optional fraction.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "not a number of seconds".to_owned())
}

/// A file that must exist.
pub(crate) fn existing_file(text: &str) -> Result<String, String> {
    if std::path::Path::new(text).exists() { Ok(text.to_owned()) } else { Err("file not found".to_owned()) }
}

pub(crate) fn scheme(text: &str) -> Result<&'static str, String> {
    choice(text, &["http", "https"])
}

pub(crate) fn datastore_type(text: &str) -> Result<Option<DatastoreType>, String> {
    match choice(text, &["kubernetes", "etcdv3"])? {
        "kubernetes" => Ok(Some(DatastoreType::Kubernetes)),
        _ => Ok(Some(DatastoreType::EtcdV3)),
    }
}

pub(crate) fn severity(text: &str) -> Result<Option<LevelFilter>, String> {
    match choice(text, &["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"])? {
        // We log nothing more severe than an error.
        "CRITICAL" => Ok(Some(LevelFilter::ERROR)),
        word => Ok(daemon::log::level(word)),
    }
}

pub(crate) fn client_auth(text: &str) -> Result<ClientAuth, String> {
    let values: Vec<ClientAuth> = ClientAuth::WORDS.iter().map(|(_, value)| *value).collect();
    choice(text, &values)
}

/// Whether clients are balanced with other Typhas. The word `none` is handled before this.
pub(crate) fn rebalancing(text: &str) -> Result<bool, String> {
    choice(text, &["kubernetes", "none"]).map(|word| word == "kubernetes")
}
