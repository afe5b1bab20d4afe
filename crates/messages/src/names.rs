//! Names that are more than a text: a node's name cannot be taken for that of an interface or a chain.

use crate::Text;
use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

/// The name of a node, as Calico knows it. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(Text);

impl Deref for NodeName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

// The order and the hash are those of the text, so that a map can be asked with a text.
impl Borrow<str> for NodeName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl<T: Into<Text>> From<T> for NodeName {
    fn from(name: T) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}
