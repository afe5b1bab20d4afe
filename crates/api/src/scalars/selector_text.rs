//! A selector in a resource: text, parsed on request.

use crate::errors::{FieldErrors, FieldPath};
use crate::text::text_newtype;
use selector::Selector;

text_newtype! {
    /// A selector expression; empty selects everything.
    SelectorText => Selector, |text: &str| Selector::parse(text).map_err(|error| error.to_string()), {"type": "string"}
}

impl SelectorText {
    /// Adds an error if the text is not a selector.
    pub fn validate(&self, path: &FieldPath, errors: &mut FieldErrors) {
        if let Err(reason) = self.parse() {
            errors.add(path.clone(), self, reason);
        }
    }

    /// Whether the text contains `global(`, in or out of quotes: the test in Calico's CRDs.
    #[must_use]
    pub fn mentions_global(&self) -> bool {
        self.as_str().contains("global(")
    }
}
