//! Names that are more than a text: a handle of address management cannot be taken for the name of a node.

/// Declares types for names: each holds a shared text, is cheap to clone, and is read as a text. Another kind of name does
/// not become one by itself.
#[macro_export]
macro_rules! name_types {
    ($($(#[$doc:meta])+ $name:ident;)+) => {$(
        $(#[$doc])+
        #[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(::std::sync::Arc<str>);

        impl $name {
            /// The name as a text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The name as a text that shares its bytes.
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

        // The order and the hash are those of the text, so that a map can be asked with a text.
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
    /// The name of a node, as Calico knows it.
    NodeName;
    /// A handle of address management, as it is stored: whose addresses are counted together.
    HandleId;
}
