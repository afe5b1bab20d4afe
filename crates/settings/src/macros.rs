//! The macro that declares a table.

/// Declares settings: a struct, the table of its rows, and its reader.
///
/// ```
/// use settings::kinds::{Number, Of, text};
///
/// settings::settings! {
///     /// Everything that the variables say.
///     pub struct Settings, ROWS {
///         /// Where the cache is.
///         cache: std::path::PathBuf = text(), "CACHE_DIR", "/var/cache";
///         /// How many workers there are.
///         workers: u16 = Of(Number::parse), "WORKERS", "4", "spec.workers";
///     }
/// }
///
/// let set = |name: &str| (name == "WORKERS").then(|| Ok("8".to_owned()));
/// let (settings, reading) = Settings::read_from(set);
/// assert!(reading.mistakes.0.is_empty());
/// assert_eq!((settings.workers, settings.cache.to_str()), (8, Some("/var/cache")));
/// assert_eq!((ROWS[1].beats, ROWS[1].doc), ("spec.workers", "How many workers there are."));
/// ```
///
/// A row consists of: the sentence for the reference, the field and its type, the kind, the name, the default and,
/// optionally, the field of a resource that the setting overrides.
#[macro_export]
macro_rules! settings {
    (
        $(#[$meta:meta])* $vis:vis struct $struct:ident, $table:ident { $(
            $(#[doc = $doc:literal])+
            $field:ident: $type:ty = $kind:expr, $name:expr, $default:literal $(, $beats:literal)?;
        )+ }
    ) => {
        $(#[$meta])*
        $vis struct $struct {
            $($(#[doc = $doc])+ pub $field: $type,)+
        }

        #[doc = concat!("Every row of [`", stringify!($struct), "`].")]
        $vis const $table: &[$crate::Row] = &[$($crate::Row {
            name: $name,
            default: $default,
            beats: concat!($($beats)?),
            doc: concat!($($doc),+).trim_ascii(),
        },)+];

        impl $struct {
            /// Reads every setting. `find` returns the text of a name if it is set, even if empty.
            $vis fn read_from(
                find: impl Fn(&str) -> Option<Result<String, String>>,
            ) -> (Self, $crate::Reading) {
                let mut reading = $crate::Reading::default();
                let settings = Self {
                    $($field: {
                        let row = $crate::Row { name: $name, default: $default, beats: "", doc: "" };
                        reading.value(&$kind, &row, find($name))
                    },)+
                };
                (settings, reading)
            }
        }
    };
}
