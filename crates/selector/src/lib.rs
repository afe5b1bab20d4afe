//! Calico's selector language: grammar, canonical form, id, evaluation.
//!
//! A selector is the little boolean expression over labels that policies, IP pools, BGP peers and many other resources
//! use to select endpoints or nodes:
//!
//! ```
//! use selector::Selector;
//!
//! let web = Selector::parse("app == 'web' && !has(quarantine)")?;
//! assert_eq!(web.canonical(), r#"(app == "web" && !has(quarantine))"#);
//! assert!(web.evaluate(&[("app", "web")]));
//! assert!(!web.evaluate(&[("app", "web"), ("quarantine", "")]));
//! # Ok::<(), selector::ParseError>(())
//! ```
//!
//! The canonical form and the id derived from it are part of Calico's contract: the id is the name of the IP set that
//! the dataplane programs, so two agents must compute the same one from the same text.
//!
//! The crate knows nothing about resources, namespaces or profiles. Its callers decide which labels an endpoint has,
//! and what `global()` means for a namespace selector. It never panics on input, never recurses deeper than
//! [`MAX_NESTING`], and takes time linear in the input (set literals are sorted, which adds the usual logarithm).

mod error;
mod id;
mod labels;
mod lexer;
mod node;
mod parser;
mod restriction;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

pub use error::{ParseError, ParseErrorKind};
pub use id::unique_id;
pub use labels::Labels;
pub use lexer::is_valid_label;
pub use node::{Node, Nodes};
pub use restriction::{LabelRestriction, LabelRestrictions};

/// Longest selector text accepted, in bytes; the canonical form must fit too.
///
/// Calico's API admits 1024 characters per selector field and its parser has no limit of its own. Selectors
/// that are composed from fields (namespace and service account selectors are joined to the plain one) stay
/// far below this bound, which exists so that a hostile object has a known worst cost.
pub const MAX_LENGTH: usize = 64 * 1024;

/// Deepest nesting of `!`, `&&` and `||` groups accepted, counted on the parsed expression.
///
/// Redundant parentheses and adjacent `!` do not count, because they leave nothing behind in the expression.
pub const MAX_NESTING: usize = 256;

/// Longest label name accepted, in bytes. This one is Calico's.
pub const MAX_LABEL_LENGTH: usize = 512;

/// A parsed selector. Cloning it copies a pointer; equality and hashing go by the canonical form.
#[derive(Clone)]
pub struct Selector {
    inner: Arc<Inner>,
}

struct Inner {
    root: Node,
    canonical: Box<str>,
    // Computed at once, although it is a third of the cost of parsing: a lazy cell in here would count as interior
    // mutability wherever a selector is the key of a map.
    id: Box<str>,
}

impl Selector {
    /// Parses `text`. Empty text, or text of only spaces and tabs, selects everything.
    ///
    /// # Errors
    /// The leftmost mistake in `text`, with its position.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let root = parser::parse(text)?;
        let canonical = root.to_string();
        if canonical.len() > MAX_LENGTH {
            return Err(ParseError::new(ParseErrorKind::TooLong { length: canonical.len() }, text, 0));
        }
        Ok(Self::from_root(root, canonical))
    }

    fn from_root(root: Node, canonical: String) -> Self {
        let id = unique_id("s", &canonical).into();
        Self { inner: Arc::new(Inner { root, canonical: canonical.into(), id }) }
    }

    /// The selector with this canonical form: the exact inverse of [`Self::canonical`], for code that keeps many
    /// selectors as text. Text that no selector has as its canonical form selects nothing.
    #[must_use]
    pub fn from_canonical(canonical: &str) -> Self {
        match parser::parse_canonical(canonical) {
            Ok(root) if canonical.len() <= MAX_LENGTH => Self::from_root(root, canonical.to_owned()),
            _ => Self::nothing(),
        }
    }

    /// Selects nothing: `!all()`.
    #[must_use]
    pub fn nothing() -> Self {
        let root = Node::Not(Box::new(Node::All));
        let canonical = root.to_string();
        Self::from_root(root, canonical)
    }

    /// Selects what this selector does and `other` does not: `(this) && (!(other))`.
    #[must_use]
    pub fn and_not(&self, other: &Self) -> Self {
        let not = Node::Not(Box::new(other.inner.root.clone()));
        let root = Node::And(Box::new([self.inner.root.clone(), not]));
        let canonical = root.to_string();
        Self::from_root(root, canonical)
    }

    /// The spelling shared by all equivalent ways to write this expression.
    ///
    /// Parsing it gives a selector with the same meaning and, except where a parenthesised negation was
    /// negated again (`!(!has(a))` is written `!!has(a)`, as Calico does), the same canonical form.
    pub fn canonical(&self) -> &str {
        &self.inner.canonical
    }

    /// `s:` and the base64url SHA-224 of the canonical form: the id of the IP set for this selector.
    pub fn unique_id(&self) -> &str {
        &self.inner.id
    }

    /// Whether an object with these labels is selected.
    pub fn evaluate(&self, labels: &(impl Labels + ?Sized)) -> bool {
        self.inner.root.evaluate(labels)
    }

    /// The same expression with `prefix` put before every label name.
    ///
    /// This is how a namespace selector (`pcns.`) or service account selector (`pcsa.`) is turned into one
    /// over the labels that an endpoint inherits. Names may grow past [`MAX_LABEL_LENGTH`], as in Calico.
    #[must_use]
    pub fn with_key_prefix(&self, prefix: &str) -> Self {
        let root = self.inner.root.with_key_prefix(prefix);
        let canonical = root.to_string();
        Self::from_root(root, canonical)
    }

    /// The root of the expression, for indexes and validation.
    pub fn root(&self) -> &Node {
        &self.inner.root
    }

    /// Every node of the expression, parents before children, operands from left to right.
    pub fn nodes(&self) -> Nodes<'_> {
        self.inner.root.nodes()
    }

    /// Whether `global()` is used anywhere in the expression.
    pub fn uses_global(&self) -> bool {
        self.nodes().any(|node| matches!(node, Node::Global))
    }

    /// Whether `all()` is used anywhere in the expression; the empty selector counts as `all()`.
    pub fn uses_all(&self) -> bool {
        self.nodes().any(|node| matches!(node, Node::All))
    }

    /// Whether the whole selector is just `global()`.
    pub fn is_global(&self) -> bool {
        matches!(self.inner.root, Node::Global)
    }

    /// Whether the whole selector is just `all()` (or empty).
    pub fn is_all(&self) -> bool {
        matches!(self.inner.root, Node::All)
    }

    /// Necessary conditions on the labels of any selected object; see [`LabelRestrictions`].
    ///
    /// Computed on each call: keep the result if it is needed again.
    pub fn label_restrictions(&self) -> LabelRestrictions {
        restriction::of(&self.inner.root)
    }
}

/// `all()`.
impl Default for Selector {
    fn default() -> Self {
        Self::from_root(Node::All, Node::All.to_string())
    }
}

impl PartialEq for Selector {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner) || self.inner.canonical == other.inner.canonical
    }
}

impl Eq for Selector {}

impl Hash for Selector {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.canonical.hash(state);
    }
}

impl PartialOrd for Selector {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Selector {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.inner.canonical.cmp(&other.inner.canonical)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.canonical())
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Selector({})", self.canonical())
    }
}

impl FromStr for Selector {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse(text)
    }
}
