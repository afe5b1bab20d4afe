//! How the text of a setting is read.

use std::fmt::Display;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

/// Why a text is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The component does not start.
    Mistake(String),
    /// The default is used instead, with a warning in the log: a node must not stay down because of this setting.
    Ignored(String),
}

/// A way to read a text.
pub trait Kind {
    /// The type of the value.
    type Value;

    /// Reads a setting. `found` is its text if it is set, even if empty.
    ///
    /// # Errors
    /// Why the text is not used.
    fn read(&self, found: Option<&str>, default: &str) -> Result<Self::Value, Trouble>;

    /// The value to use when neither the text nor the default can be read.
    fn nothing(&self) -> Self::Value;
}

/// The text, or the default if it is empty.
fn given<'a>(found: Option<&'a str>, default: &'a str) -> &'a str {
    found.filter(|text| !text.is_empty()).unwrap_or(default)
}

/// Reads Go's spellings of a truth value, which scripts for Calico use.
///
/// # Errors
/// For any other text.
pub fn go_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}

/// Returns the text unchanged.
///
/// # Errors
/// Never.
pub fn plain<T: From<String>>(text: &str) -> Result<T, String> {
    Ok(text.to_owned().into())
}

/// Reads a number of any type.
///
/// # Errors
/// When the text is not a number, or is out of range.
pub fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("'{text}' is not a number in its range"))
}

/// Reads a duration as Go writes it, such as `1m30s`.
///
/// # Errors
/// When the text is not a duration.
pub fn go_duration(text: &str) -> Result<Duration, String> {
    api::scalars::Duration::from(text).parse()
}

/// Any text; an empty one counts as unset. `From` turns it into the field's type.
#[derive(Clone, Copy, Debug, Default)]
pub struct Text<T = String>(PhantomData<T>);

/// Creates the kind [`Text`].
#[must_use]
pub const fn text<T>() -> Text<T> {
    Text(PhantomData)
}

impl<T: From<String>> Kind for Text<T> {
    type Value = T;

    fn read(&self, found: Option<&str>, default: &str) -> Result<T, Trouble> {
        Ok(given(found, default).to_owned().into())
    }

    fn nothing(&self) -> T {
        String::new().into()
    }
}

/// A text that a function parses; an empty one counts as unset.
#[derive(Clone, Copy, Debug)]
pub struct Of<F>(pub F);

impl<T: Default, F: Fn(&str) -> Result<T, Trouble>> Kind for Of<F> {
    type Value = T;

    fn read(&self, found: Option<&str>, default: &str) -> Result<T, Trouble> {
        (self.0)(given(found, default))
    }

    fn nothing(&self) -> T {
        T::default()
    }
}

/// A value only if the setting is set, even if empty, parsed by a function.
#[derive(Clone, Copy, Debug)]
pub struct Optional<F>(pub F);

impl<T, F: Fn(&str) -> Result<T, String>> Kind for Optional<F> {
    type Value = Option<T>;

    fn read(&self, found: Option<&str>, _default: &str) -> Result<Option<T>, Trouble> {
        found.map(&self.0).transpose().map_err(Trouble::Mistake)
    }

    fn nothing(&self) -> Option<T> {
        None
    }
}

/// A whole number.
#[derive(Clone, Copy, Debug, Default)]
pub struct Number;

impl Number {
    /// Reads a whole number of any type.
    ///
    /// # Errors
    /// When the text is not a whole number, or is out of range.
    pub fn parse<T: FromStr>(text: &str) -> Result<T, Trouble> {
        let reason = "is not a number in its range: set a whole number, or unset it";
        text.trim().parse().map_err(|_| Trouble::Mistake(reason.to_owned()))
    }
}

/// True if the text is exactly this word.
#[derive(Clone, Copy, Debug)]
pub struct OnlyIf(pub &'static str);

impl Kind for OnlyIf {
    type Value = bool;

    fn read(&self, found: Option<&str>, default: &str) -> Result<bool, Trouble> {
        Ok(given(found, default) == self.0)
    }

    fn nothing(&self) -> bool {
        false
    }
}

/// True if the text is this word in any case.
#[derive(Clone, Copy, Debug)]
pub struct OnlyIfAnyCase(pub &'static str);

impl Kind for OnlyIfAnyCase {
    type Value = bool;

    fn read(&self, found: Option<&str>, default: &str) -> Result<bool, Trouble> {
        Ok(given(found, default).eq_ignore_ascii_case(self.0))
    }

    fn nothing(&self) -> bool {
        false
    }
}

/// Calico's reading of a switch: any text, even an empty one, means yes unless it is a word for no.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnlessDenied;

impl Kind for UnlessDenied {
    type Value = bool;

    fn read(&self, found: Option<&str>, default: &str) -> Result<bool, Trouble> {
        let text = found.unwrap_or(default).to_lowercase();
        Ok(!matches!(text.as_str(), "false" | "0" | "no" | "n" | "f"))
    }

    fn nothing(&self) -> bool {
        false
    }
}

/// Reads one of several words in any case; the error for an unknown word lists them.
///
/// # Errors
/// When the text is not one of the words.
pub fn choice<T: Copy + Display>(text: &str, choices: &[T]) -> Result<T, String> {
    let found = choices.iter().find(|choice| choice.to_string().eq_ignore_ascii_case(text));
    found.copied().ok_or_else(|| {
        let words: Vec<String> = choices.iter().map(ToString::to_string).collect();
        format!("must be one of {}", words.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_texts_count_as_unset_except_where_calico_counts_them() {
        assert_eq!(text::<String>().read(Some(""), "x"), Ok("x".to_owned()));
        assert_eq!(UnlessDenied.read(None, "false"), Ok(false));
        assert_eq!(UnlessDenied.read(Some(""), "false"), Ok(true));
        assert_eq!(UnlessDenied.read(Some("No"), "true"), Ok(false));
        assert_eq!(Optional(go_bool).read(None, "true"), Ok(None));
        assert!(Optional(go_bool).read(Some(""), "true").is_err());
        assert_eq!(OnlyIf("true").read(Some("TRUE"), ""), Ok(false));
        assert_eq!(OnlyIfAnyCase("true").read(Some("TRUE"), ""), Ok(true));
        assert_eq!(Of(Number::parse::<u16>).read(Some(" 7 "), "1"), Ok(7));
        assert!(Of(Number::parse::<u16>).read(Some("70000"), "1").is_err());
    }

    #[test]
    fn the_error_for_a_wrong_choice_lists_the_valid_ones() {
        assert_eq!(choice("B", &["a", "b"]), Ok("b"));
        assert_eq!(choice("c", &["a", "b"]), Err("must be one of a, b".to_owned()));
    }
}
