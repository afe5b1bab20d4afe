//! Users' files: YAML or JSON, one document or many, read strictly; every mistake is reported with its place.
//!
//! ```text
//! bytes ─ source: text and lines ─ tree: YAML nodes with spans ─ walk: against the kind's schema ─ Document
//!                                                                   └─ mistakes ─ report: line, caret, path, help
//! ```
//!
//! An unknown field is an error here, never dropped: a policy whose selector is misspelt would otherwise apply to
//! everything. Mistakes are collected over the whole file, so that one run shows all of them.
//!
//! What Calico's own tool accepts is accepted and read in the same way: field names in any case, and scalars by Go's
//! YAML 1.1 rules (`yes` and `on` are true, a label `1.10` becomes `1.1`). Where the author hardly meant that, there is
//! a warning. Two things are stricter on purpose: two spellings of one field in one map (Go lets the last of the sorted
//! names win), and empty items of lists (Go turns them into an object without any field).
//!
//! Does not access files, defaults or stores: bytes come in, resources come out as the user wrote them.

mod advice;
mod build;
mod kinds;
mod report;
mod scalar;
mod source;
mod suggest;
mod trail;
mod tree;
mod walk;

#[cfg(test)]
mod tests;

use crate::errors::{FieldErrors, FieldPath};
use crate::kind::Kind;
use crate::object::Resource;
use serde_json::{Map, Value};
use std::sync::Arc;

pub use report::{Diagnostic, Diagnostics};
pub use source::Span;

use source::Source;
use tree::Node;

/// Maximum length of a document, in bytes; a file may contain many. Calico's tool has the same limit.
pub const MAX_DOCUMENT_LENGTH: usize = 10 * 1024 * 1024;

/// The extent of the checks when a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checks {
    /// Fields, types, enumerations, duplicate keys: enough to know what the user means, and for a delete.
    Structure,
    /// Also required fields, limits, names and cross-field rules, on the object with its defaults filled in.
    Everything,
}

/// One resource of a user's file.
#[derive(Clone, Debug)]
pub struct Document {
    /// The resource, as the user wrote it; no defaults are filled in.
    pub resource: Resource,
    /// The document as plain JSON: exactly what the user wrote.
    pub value: Value,
    warnings: Vec<Diagnostic>,
    node: Arc<Node>,
    source: Arc<Source>,
}

impl Document {
    /// The kind of the resource.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.resource.kind()
    }

    /// Warnings about text that was read, but perhaps not as its author meant it.
    #[must_use]
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// The place of a field in the file: its name and its value. `None` if the user did not write it.
    #[must_use]
    pub fn span(&self, path: &FieldPath) -> Option<Span> {
        self.node.find(path.as_str()).and_then(|found| found.exact.then_some(found.span))
    }

    /// Converts validation errors to diagnostics at the places of the fields they name; an error about a field that the
    /// user did not write is reported at the nearest enclosing field.
    #[must_use]
    pub fn diagnose(&self, errors: &FieldErrors) -> Diagnostics {
        let mut diagnostics = Diagnostics::new(Arc::clone(&self.source));
        for error in errors.as_slice() {
            diagnostics.add(self.node.diagnostic(error));
        }
        diagnostics
    }

    /// Checks the resource as the typed client would before a create: with its defaults, without other objects.
    ///
    /// # Errors
    /// All mistakes, each at its place.
    pub fn validate(&self) -> Result<(), Diagnostics> {
        let mut resource = self.resource.clone();
        resource.set_defaults();
        resource.validate().map_err(|errors| self.diagnose(&errors))
    }
}

/// The warnings about the files of these documents, one value per file that has any.
#[must_use]
pub fn warnings(documents: &[Document]) -> Vec<Diagnostics> {
    let mut files = Files::default();
    for document in documents.iter().filter(|document| !document.warnings.is_empty()) {
        let file = files.of(document);
        document.warnings.iter().for_each(|warning| file.warn(warning.clone()));
    }
    files.0
}

/// The mistakes in documents, one value per file that has any.
#[must_use]
pub fn diagnose<'a>(errors: impl IntoIterator<Item = (&'a Document, &'a FieldErrors)>) -> Vec<Diagnostics> {
    let mut files = Files::default();
    for (document, errors) in errors {
        let file = files.of(document);
        errors.as_slice().iter().for_each(|error| file.add(document.node.diagnostic(error)));
    }
    files.0
}

/// Diagnostics, file by file.
#[derive(Default)]
struct Files(Vec<Diagnostics>);

impl Files {
    fn of(&mut self, document: &Document) -> &mut Diagnostics {
        let place = match self.0.iter().position(|known| known.is_about(&document.source)) {
            Some(place) => place,
            None => {
                self.0.push(Diagnostics::new(Arc::clone(&document.source)));
                self.0.len() - 1
            }
        };
        &mut self.0[place]
    }
}

/// Reads all resources of a file. `name` is its name in messages.
///
/// # Errors
/// All mistakes of the file.
pub fn read(name: &str, bytes: &[u8], checks: Checks) -> Result<Vec<Document>, Diagnostics> {
    let (source, undecodable) = Source::new(name, bytes);
    let source = Arc::new(source);
    if let Some(diagnostic) = undecodable {
        let mut diagnostics = Diagnostics::new(source);
        diagnostics.add(diagnostic);
        return Err(diagnostics);
    }
    let mut reader =
        Reader { diagnostics: Diagnostics::new(Arc::clone(&source)), documents: Vec::new(), checks, source };
    let source = Arc::clone(&reader.source);
    for chunk in source.chunks() {
        match build::parse(&chunk) {
            Ok(roots) => {
                for root in roots {
                    reader.root(&root);
                }
            }
            Err(diagnostic) => reader.diagnostics.add(diagnostic),
        }
    }
    if reader.diagnostics.is_empty() { Ok(reader.documents) } else { Err(reader.diagnostics) }
}

/// Reads the documents of a file that does not contain resources but has a schema of its own, as plain JSON.
///
/// # Errors
/// All mistakes of the file.
pub fn read_as(
    name: &str,
    bytes: &[u8],
    schema: &'static Map<String, Value>,
) -> Result<Vec<Value>, Diagnostics> {
    let (source, undecodable) = Source::new(name, bytes);
    let source = Arc::new(source);
    let mut diagnostics = Diagnostics::new(Arc::clone(&source));
    if let Some(diagnostic) = undecodable {
        diagnostics.add(diagnostic);
        return Err(diagnostics);
    }
    let mut values = Vec::new();
    for chunk in source.chunks() {
        match build::parse(&chunk) {
            Ok(roots) => {
                values.extend(roots.iter().filter_map(|root| walk::plain(schema, root, &mut diagnostics)));
            }
            Err(diagnostic) => diagnostics.add(diagnostic),
        }
    }
    if diagnostics.is_empty() { Ok(values) } else { Err(diagnostics) }
}

struct Reader {
    diagnostics: Diagnostics,
    documents: Vec<Document>,
    checks: Checks,
    source: Arc<Source>,
}

impl Reader {
    /// A whole YAML document: one resource, a list object, or a bare list of either.
    fn root(&mut self, node: &Arc<Node>) {
        for object in kinds::identify(node, &mut self.diagnostics) {
            self.object(object);
        }
    }

    fn object(&mut self, object: kinds::Object) {
        let before = self.diagnostics.len();
        let warned = self.diagnostics.warnings().len();
        let value = walk::object(&object, self.checks, &mut self.diagnostics);
        let broken = self.diagnostics.len() > before;
        if broken && self.checks == Checks::Structure {
            return;
        }
        match Resource::from_value(object.kind, value.clone()) {
            Ok(resource) => {
                advice::about(&resource, &object.node, &mut self.diagnostics);
                let warnings = self.diagnostics.warnings()[warned..].to_vec();
                let source = Arc::clone(&self.source);
                let document = Document { resource, value, warnings, node: object.node, source };
                if self.checks == Checks::Everything
                    && let Err(found) = document.validate()
                {
                    self.diagnostics.add_unrelated(before, found);
                }
                if self.diagnostics.len() == before {
                    self.documents.push(document);
                }
            }
            // If there are structural mistakes, a type mismatch is a consequence of them.
            Err(_) if broken => {}
            Err(error) => {
                let message = format!("this is not a valid {}: {error}", object.kind);
                self.diagnostics.add(Diagnostic::new(object.node.span, FieldPath::root(), message));
            }
        }
    }
}
