//! Settings in a document, such as a plugin's network configuration: types that serde reads and that describe
//! themselves for the reference.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// One field of a document.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its name in the document.
    pub name: &'static str,
    /// What it contains.
    pub content: Content,
    /// What it means.
    pub doc: &'static str,
}

/// The content of a field.
#[derive(Clone, Debug)]
pub enum Content {
    /// A single value; its type in words, as the reference shows it.
    Value(&'static str),
    /// An object with these fields.
    Object(Vec<Field>),
    /// A list of objects with these fields.
    Objects(Vec<Field>),
}

/// A type that a field can have.
pub trait Described {
    /// What a field of this type contains.
    fn content() -> Content;
}

macro_rules! described {
    ($($type:ty = $words:literal),+ $(,)?) => {
        $(impl Described for $type {
            fn content() -> Content {
                Content::Value($words)
            }
        })+
    };
}

described! {
    String = "text",
    Option<String> = "text",
    bool = "true or false",
    i64 = "number",
    Vec<String> = "list of texts",
    Option<serde_json::Value> = "object",
    BTreeMap<String, serde_json::Value> = "object",
}

impl<T: Document> Described for Vec<T> {
    fn content() -> Content {
        Content::Objects(T::fields())
    }
}

/// A struct of [`document!`](crate::document).
pub trait Document {
    /// Its fields, in the order of their declaration.
    fn fields() -> Vec<Field>;
}

/// The rows of a document's reference page: path, type, meaning. A dot separates an object from its field.
#[must_use]
pub fn document_page<T: Document>() -> String {
    let mut page = String::from("| Field | Type | Meaning |\n| --- | --- | --- |\n");
    rows(&mut page, "", &T::fields());
    page
}

fn rows(page: &mut String, prefix: &str, fields: &[Field]) {
    for Field { name, content, doc } in fields {
        match content {
            Content::Object(fields) => rows(page, &format!("{prefix}{name}."), fields),
            Content::Objects(fields) => rows(page, &format!("{prefix}{name}[]."), fields),
            Content::Value(words) => {
                // Writing to a String cannot fail.
                let _ = writeln!(page, "| `{prefix}{name}` | {words} | {} |", doc.replace('|', "\\|"));
            }
        }
    }
}

/// Declares structs that serde reads and that describe themselves. A field's doc comment is also its line in the
/// reference. `#[words = "..."]` describes the content of a type that does not describe itself.
///
/// ```
/// settings::document! {
///     /// A configuration.
///     #[derive(Default, serde::Deserialize)]
///     #[serde(default)]
///     pub struct Conf {
///         /// The protocol,
///         /// its version.
///         #[serde(rename = "cniVersion")]
///         pub cni_version: String,
///         /// Where addresses come from.
///         pub ipam: Ipam,
///     }
///
///     /// A part.
///     #[derive(Default, serde::Deserialize)]
///     #[serde(default)]
///     pub struct Ipam {
///         /// Which pools.
///         pub pools: Vec<String>,
///     }
/// }
///
/// let page = settings::document_page::<Conf>();
/// assert!(page.ends_with(
///     "| `cniVersion` | text | The protocol, its version. |\n| `ipam.pools` | list of texts | Which pools. |\n"
/// ));
/// ```
#[macro_export]
macro_rules! document {
    ($(
        $(#[doc = $about:literal])+
        #[derive($($derive:tt)*)]
        #[serde(default)]
        pub struct $name:ident { $(
            $(#[doc = $doc:literal])+
            $(#[serde(rename = $rename:literal)])?
            $(#[serde(deserialize_with = $with:literal)])?
            $(#[words = $words:literal])?
            pub $field:ident: $type:ty,
        )+ }
    )+) => { $(
        $(#[doc = $about])+
        #[derive($($derive)*)]
        #[serde(default)]
        pub struct $name { $(
            $(#[doc = $doc])+
            $(#[serde(rename = $rename)])?
            $(#[serde(deserialize_with = $with)])?
            pub $field: $type,
        )+ }

        impl $crate::Document for $name {
            fn fields() -> Vec<$crate::Field> {
                vec![$($crate::Field {
                    name: $crate::document!(@name $field $($rename)?),
                    content: $crate::document!(@content $type $(, $words)?),
                    doc: concat!($($doc),+).trim_ascii(),
                }),+]
            }
        }

        impl $crate::Described for $name {
            fn content() -> $crate::Content {
                $crate::Content::Object(<$name as $crate::Document>::fields())
            }
        }
    )+ };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $rename:literal) => { $rename };
    (@content $type:ty) => { <$type as $crate::Described>::content() };
    (@content $type:ty, $words:literal) => { $crate::Content::Value($words) };
}
