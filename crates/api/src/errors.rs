//! Validation errors: the field, its value, the reason; many at once, in Calico's wording.

use std::fmt;

/// The place of a field in an object, such as `spec.ingress[0].source.selector`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(String);

impl FieldPath {
    /// The object itself.
    #[must_use]
    pub fn root() -> Self {
        Self(String::new())
    }

    /// A path from its text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The field `name` below this one.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() { Self(name.to_owned()) } else { Self(format!("{}.{name}", self.0)) }
    }

    /// Item `index` of this list.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// Entry `key` of this map.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }

    /// The path as text; empty for the object itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A field with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field's place in the object.
    pub path: FieldPath,
    /// The value, as the user would write it; empty where showing it does not help.
    pub value: String,
    /// Why it is invalid.
    pub reason: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value.as_str() {
            "" => write!(f, "{} ({})", self.path, self.reason),
            value => write!(f, "{} = '{value}' ({})", self.path, self.reason),
        }
    }
}

/// All errors of one object. An empty list means a valid object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldErrors(Vec<FieldError>);

impl FieldErrors {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an error.
    pub fn add(&mut self, path: FieldPath, value: impl fmt::Display, reason: impl Into<String>) {
        self.0.push(FieldError { path, value: value.to_string(), reason: reason.into() });
    }

    /// Adds an error unless the condition holds.
    pub fn require(
        &mut self,
        holds: bool,
        path: FieldPath,
        value: impl fmt::Display,
        reason: impl Into<String>,
    ) {
        if !holds {
            self.add(path, value, reason);
        }
    }

    /// Adds all errors of another list.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Whether there are no errors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The errors, in the order they were found.
    #[must_use]
    pub fn as_slice(&self) -> &[FieldError] {
        &self.0
    }

    /// `Ok` when there are no errors.
    ///
    /// # Errors
    /// This list itself, when it is not empty.
    pub fn into_result(self) -> Result<(), Self> {
        if self.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for FieldErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("no errors"),
            [only] => write!(f, "error with field {only}"),
            several => {
                f.write_str("error with the following fields:")?;
                for error in several {
                    write!(f, "\n-  {error}")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for FieldErrors {}
