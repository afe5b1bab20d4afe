//! The resources of `projectcalico.org/v3`: types, defaults, validation and CRD schemas. No IO, no clock, no async.
//!
//! - [`kind`]: the closed list of kinds with Calico's names and scopes.
//! - [`object`]: the envelope (`kind`, `apiVersion`, `metadata`, `spec`, `status`) and [`Resource`], one of any kind.
//! - one module per resource under [`resources`], with its fields, defaults and cross-field rules.
//! - [`schema`]: the permitted values of fields, as data; the CRDs and the check of users' files both derive from it.
//! - [`crds`]: the definitions that Kubernetes needs, as JSON and YAML.
//! - [`document`]: users' files, read strictly; every mistake is reported with its place.
//! - [`words`]: Calico's labels, annotations, tiers and prefixes.
//! - [`yaml`]: values printed as Calico's tools print them.
//!
//! Objects are read in two ways, on purpose: an object from a store tolerantly (unknown fields, unknown enum values and
//! text that does not parse are kept as they are), an object from a user's file strictly (nothing is dropped silently).

pub mod codec;
pub mod crds;
pub mod document;
pub mod errors;
pub mod kind;
pub mod kubernetes;
pub mod meta;
pub mod object;
pub mod resources;
pub mod rules;
pub mod scalars;
pub mod schema;
pub mod text;
pub mod words;
pub mod yaml;

pub use errors::{FieldError, FieldErrors, FieldPath};
pub use kind::Kind;
pub use meta::ObjectMeta;
pub use object::{NoStatus, Object, Resource, Spec};
pub use resources::*;
pub use text::{Words, Written};
