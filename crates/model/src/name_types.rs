//! Types for names, so that a handle of address management cannot be mistaken for the name of a node.

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::{Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;

/// Declares types for names. Each holds a shared text, is cheap to clone, and dereferences to `str`. A name of one kind
/// never converts into one of another.
#[macro_export]
macro_rules! name_types {
    ($($(#[$doc:meta])+ $name:ident;)+) => {$(
        $(#[$doc])+
        #[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(::std::sync::Arc<str>);

        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The name as shared text: cloning it does not copy the bytes.
            #[must_use]
            pub fn text(&self) -> &::std::sync::Arc<str> {
                &self.0
            }
        }

        impl ::std::ops::Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        // Order and hash are those of the text, so that maps can be searched by text.
        impl ::std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl ::std::convert::AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl<T: Into<::std::sync::Arc<str>>> From<T> for $name {
            fn from(name: T) -> Self {
                Self(name.into())
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Debug::fmt(&*self.0, f)
            }
        }
    )+};
}

name_types! {
    /// The name of a node in Calico.
    NodeName;
    /// A handle of address management, as it is stored. Addresses that belong together have the same handle.
    HandleId;
    /// The name of a profile.
    ProfileName;
    /// The name of a tier.
    TierName;
}

/// Implements reading from and writing to JSON, with one allocation for each name that is read.
macro_rules! names_in_json {
    ($($name:ident),+) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Reader(PhantomData))
            }
        }
    )+};
}

names_in_json!(ProfileName, TierName);

struct Reader<T>(PhantomData<T>);

impl<T: for<'a> From<&'a str>> Visitor<'_> for Reader<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<T, E> {
        Ok(T::from(name))
    }
}
