//! Settings from a file or variables that are kept in existing structs: one row per setting, for every reader and the
//! reference.

use std::fmt::Write as _;

/// The type of a value, for readers of files and for the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Text.
    Text,
    /// Text that is never printed.
    Secret,
    /// True or false.
    Bool,
    /// A number.
    Number,
}

impl Holds {
    fn words(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Secret => "secret",
            Self::Bool => "true or false",
            Self::Number => "number",
        }
    }
}

/// One setting of a `T`.
#[derive(Clone, Copy, Debug)]
pub struct Parameter<T> {
    /// The field in a file.
    pub field: &'static str,
    /// The variable; `None` if the setting may only be in a file.
    pub variable: Option<&'static str>,
    /// The type of its value.
    pub holds: Holds,
    /// What it means.
    pub doc: &'static str,
    /// Parses a text, which is not empty, and stores it.
    pub set: fn(&mut T, &str) -> Result<(), String>,
}

/// The reference page of a table. `variables` returns the variable names that are looked up, the plainest first.
#[must_use]
pub fn parameters_page<T>(rows: &[Parameter<T>], variables: impl Fn(&Parameter<T>) -> Vec<String>) -> String {
    let mut page = String::from("| Field | Variable | Type | Meaning |\n| --- | --- | --- | --- |\n");
    for row in rows {
        let names: Vec<String> = variables(row).iter().map(|name| format!("`{name}`")).collect();
        let names = if names.is_empty() { "(file only)".to_owned() } else { names.join(", ") };
        // Writing to a String cannot fail.
        let _ = writeln!(page, "| `{}` | {names} | {} | {} |", row.field, row.holds.words(), row.doc);
    }
    page
}

/// Declares a table of settings. A row consists of the sentence for the reference, the place of the value, its type,
/// how its text is read, the field in files and, optionally, the variable.
///
/// ```
/// #[derive(Default)]
/// pub struct Server {
///     port: u16,
///     name: String,
/// }
///
/// #[derive(Default)]
/// pub struct Settings {
///     server: Server,
/// }
///
/// fn port(text: &str) -> Result<u16, String> {
///     text.parse().map_err(|_| format!("'{text}' is not a port"))
/// }
///
/// settings::parameters! {
///     /// Every setting.
///     const PARAMETERS: Settings {
///         /// Where it listens.
///         server.port: Number = port, "serverPort", "SERVER_PORT";
///         /// What it is called.
///         server.name: Text = settings::kinds::plain, "serverName";
///     }
/// }
///
/// let mut settings = Settings::default();
/// (PARAMETERS[0].set)(&mut settings, "80")?;
/// assert_eq!((settings.server.port, PARAMETERS[1].variable), (80, None));
/// # Ok::<(), String>(())
/// ```
#[macro_export]
macro_rules! parameters {
    (
        $(#[$meta:meta])* $vis:vis const $table:ident: $struct:ty { $(
            $(#[doc = $doc:literal])+
            $($place:ident).+: $holds:ident = $read:expr, $field:literal $(, $variable:literal)?;
        )+ }
    ) => {
        $(#[$meta])*
        $vis const $table: &[$crate::Parameter<$struct>] = &[$($crate::Parameter {
            field: $field,
            variable: $crate::parameters!(@variable $($variable)?),
            holds: $crate::Holds::$holds,
            doc: concat!($($doc),+).trim_ascii(),
            set: |settings, text| {
                settings.$($place).+ = $read(text)?;
                Ok(())
            },
        },)+];
    };
    (@variable) => { None };
    (@variable $variable:literal) => { Some($variable) };
}
