//! Text with a meaning: newtypes that keep what was written and parse it on request, and enumerations that keep unknown
//! values.
//!
//! An object from a store may contain text that a newer version understands but this one does not. Reading must not
//! fail, and writing back must not change it; so these types keep the text, and return the parsed value as a `Result`.
//!
//! A choice that is also used outside the resource (by a parameter, a variable) is one closed enumeration, declared by
//! [`choices`](crate::choices); the resource's field is [`Written`] of it.

use crate::schema::{Schema, object};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value, json};
use std::fmt;
use std::marker::PhantomData;

/// A closed list of words, each with its value.
pub trait Words: Copy + PartialEq + 'static {
    /// Every value, in the order of the schema.
    const ALL: &'static [Self];

    /// The word, as Calico spells it in resources.
    fn word(self) -> &'static str;
}

/// The value of a field for one of the words of `E`, compared literally. Words of newer versions are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Written<E> {
    /// The empty text.
    #[default]
    Unset,
    /// One of the words.
    Known(E),
    /// Any other text, as it was written.
    Other(Box<str>),
}

impl<E: Words> Written<E> {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Unset => "",
            Self::Known(value) => value.word(),
            Self::Other(text) => text,
        }
    }

    /// The value, if the text is one of the words.
    #[must_use]
    pub fn known(&self) -> Option<E> {
        match self {
            Self::Known(value) => Some(*value),
            Self::Unset | Self::Other(_) => None,
        }
    }

    /// Whether the text is empty or one of the words.
    #[must_use]
    pub fn is_known(&self) -> bool {
        !matches!(self, Self::Other(_))
    }
}

impl<E: Words> From<E> for Written<E> {
    fn from(value: E) -> Self {
        Self::Known(value)
    }
}

impl<E: Words> From<&str> for Written<E> {
    fn from(text: &str) -> Self {
        match E::ALL.iter().find(|value| value.word() == text) {
            Some(value) => Self::Known(*value),
            None if text.is_empty() => Self::Unset,
            None => Self::Other(text.into()),
        }
    }
}

impl<E: Words> PartialEq<E> for Written<E> {
    fn eq(&self, other: &E) -> bool {
        self.known() == Some(*other)
    }
}

impl<E: Words> fmt::Display for Written<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<E: Words> Serialize for Written<E> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de, E: Words> Deserialize<'de> for Written<E> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text<E>(PhantomData<E>);
        impl<E: Words> de::Visitor<'_> for Text<E> {
            type Value = Written<E>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a string, one of {}", all_words::<E>().join(", "))
            }
            fn visit_str<R: de::Error>(self, text: &str) -> Result<Self::Value, R> {
                Ok(Written::from(text))
            }
        }
        deserializer.deserialize_str(Text(PhantomData))
    }
}

impl<E: Words> Schema for Written<E> {
    fn schema() -> Map<String, Value> {
        object(json!({"type": "string", "enum": all_words::<E>()}))
    }
}

fn all_words<E: Words>() -> Vec<&'static str> {
    E::ALL.iter().map(|value| value.word()).collect()
}

/// A closed enumeration and its [`Words`].
///
/// ```text
/// choices! {
///     /// The flavour of iptables.
///     IptablesBackend { Legacy = "Legacy", NFT = "NFT", Auto = "Auto" }
/// }
/// ```
#[macro_export]
macro_rules! choices {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident = $word:literal),+ $(,)? })+) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $(#[doc = concat!("`", $word, "`")] $variant,)+
        }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The value as Calico spells it in resources.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl $crate::text::Words for $name {
            const ALL: &'static [Self] = Self::ALL;

            fn word(self) -> &'static str {
                self.as_str()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        })+
    };
}

/// A string newtype with a schema of its own. `$parse` converts the text to `$value`. Most such texts are short, and a
/// list of policies contains many of them: up to 23 bytes are stored in the object itself, and copies of longer ones
/// share them.
///
/// ```text
/// text_newtype! {
///     /// A CIDR such as `10.0.0.0/8`.
///     Cidr => ipnet::IpNet, parse_cidr, {"type": "string"}
/// }
/// ```
macro_rules! text_newtype {
    ($(#[$doc:meta])* $name:ident => $value:ty, $parse:expr, $schema:tt) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(::smol_str::SmolStr);

        impl $name {
            /// Keeps the text unchanged and unchecked.
            #[must_use]
            pub fn new(text: impl AsRef<str>) -> Self {
                Self(text.as_ref().into())
            }

            /// The text as it was written.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Whether nothing was written.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }

            /// Parses the text.
            ///
            /// # Errors
            /// A sentence saying what is wrong with the text.
            pub fn parse(&self) -> Result<$value, String> {
                #[allow(clippy::redundant_closure_call, reason = "the parser may be written in place")]
                ($parse)(self.0.as_str())
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl $crate::schema::Schema for $name {
            fn schema() -> ::serde_json::Map<String, ::serde_json::Value> {
                $crate::schema::object(::serde_json::json!($schema))
            }
        }
    };
}

/// An enumeration of strings. The first form has a zero value `Unset` (the empty string); values from newer versions
/// are kept as `Other`. The schema lists the known values in the order given.
///
/// ```text
/// string_enum! {
///     /// How packets are encapsulated.
///     EncapMode { Never = "Never", Always = "Always", CrossSubnet = "CrossSubnet" }
/// }
/// ```
macro_rules! string_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            /// Nothing was written (the empty string).
            #[default]
            Unset,
            $($(#[$vdoc])* #[doc = concat!("`", $text, "`")] $variant,)+
            /// A value that this version does not know, kept as it was written.
            Other(Box<str>),
        }

        impl $name {
            /// The values this version knows.
            pub const KNOWN: &'static [&'static str] = &[$($text),+];

            /// The value as it is written.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    Self::Unset => "",
                    $(Self::$variant => $text,)+
                    Self::Other(text) => text,
                }
            }

            /// Whether nothing was written.
            #[must_use]
            pub fn is_unset(&self) -> bool {
                matches!(self, Self::Unset)
            }

            /// Whether this version knows the value; the empty value counts as known.
            #[must_use]
            pub fn is_known(&self) -> bool {
                !matches!(self, Self::Other(_))
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    "" => Self::Unset,
                    $($text => Self::$variant,)+
                    other => Self::Other(other.into()),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl ::serde::de::Visitor<'_> for Text {
                    type Value = $name;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        write!(f, "a string, one of {}", $name::KNOWN.join(", "))
                    }
                    fn visit_str<E: ::serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        Ok($name::from(text))
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }

        impl $crate::schema::Schema for $name {
            fn schema() -> ::serde_json::Map<String, ::serde_json::Value> {
                $crate::schema::object(::serde_json::json!({"type": "string", "enum": [$($text),+]}))
            }
        }
    };
}

pub(crate) use {choices, string_enum, text_newtype};
