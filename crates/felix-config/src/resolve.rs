//! Resolves the texts of all sources to one configuration.
//!
//! Every text is parsed, even one that a stronger source overrides: a mistake is reported, or is an error, wherever it
//! is.

use crate::kinds::Surroundings;
use crate::parameter::Parameter;
use crate::sources::{Source, Sources, Texts};
use crate::table::{Config, PARAMETERS};
use std::collections::BTreeMap;
use std::fmt;
use thiserror::Error;

/// A configuration that must not be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// A parameter marked `fatal` has an invalid value.
    #[error("{message} (from {source_of_text})")]
    Fatal {
        /// The parameter.
        parameter: &'static str,
        /// The source of the value.
        source_of_text: Source,
        /// What is wrong.
        message: String,
    },
    /// A parameter that must have a value was set to `none`.
    #[error("{parameter}: non-zero field cannot be set to none (from {source_of_text})")]
    NoneRefused {
        /// The parameter.
        parameter: &'static str,
        /// The source of the value.
        source_of_text: Source,
    },
}

/// A message for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// No parameter has this name. It may belong to a newer release or a plug-in.
    Unknown {
        /// The name.
        name: String,
        /// Its source.
        source: Source,
    },
    /// The parameter may only be set on this machine.
    LocalOnly {
        /// The parameter.
        parameter: &'static str,
        /// The text that was ignored.
        text: String,
        /// Its source.
        source: Source,
    },
    /// The text cannot be parsed; the default is used instead.
    Replaced {
        /// The parameter.
        parameter: &'static str,
        /// The source of the text.
        source: Source,
        /// What is wrong.
        message: String,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, source } => write!(f, "Ignoring unknown config param {name} from {source}"),
            Self::LocalOnly { parameter, text, source } => {
                write!(f, "Ignoring local-only configuration {parameter}={text:?} from {source}")
            }
            Self::Replaced { message, source, .. } => {
                write!(f, "Replacing invalid value with default: {message} (from {source})")
            }
        }
    }
}

/// A configuration and its origin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effective {
    /// The values.
    pub config: Config,
    /// The winning texts, by the parameters' names, including those of unknown parameters.
    pub texts: Texts,
    /// Messages for the log.
    pub notices: Vec<Notice>,
}

impl Config {
    /// The defaults of the table, parsed for this machine.
    #[must_use]
    pub fn with_defaults(around: &dyn Surroundings) -> Self {
        let mut config = Self::default();
        for parameter in PARAMETERS {
            let result = (parameter.set_default)(&mut config);
            debug_assert!(result.is_ok(), "the default of {} cannot be read", parameter.name);
        }
        config.felix_hostname = around.hostname().trim().to_lowercase();
        config
    }
}

/// Resolves the sources to a configuration.
///
/// # Errors
/// When a `fatal` parameter cannot be parsed, or a `mandatory` one is `none`.
pub fn resolve(sources: &Sources, around: &dyn Surroundings) -> Result<Effective, ConfigError> {
    let mut resolver = Resolver {
        effective: Effective { config: Config::with_defaults(around), ..Effective::default() },
        decided: BTreeMap::new(),
        around,
    };
    for source in Source::STRONGEST_FIRST {
        for (name, text) in sources.get(source) {
            resolver.take(source, name, text)?;
        }
    }
    Ok(resolver.effective)
}

struct Resolver<'a> {
    effective: Effective,
    /// The source that decided, by name in lower case.
    decided: BTreeMap<String, Source>,
    around: &'a dyn Surroundings,
}

impl Resolver<'_> {
    fn take(&mut self, source: Source, name: &str, text: &str) -> Result<(), ConfigError> {
        let lower = name.to_lowercase();
        let is_overridden = self.decided.get(&lower).is_some_and(|decided| *decided > source);
        let Some(parameter) = Parameter::find(&lower) else {
            self.effective.notices.push(Notice::Unknown { name: name.to_owned(), source });
            if !is_overridden {
                self.effective.texts.insert(name.to_owned(), text.to_owned());
                self.decided.insert(lower, source);
            }
            return Ok(());
        };
        if parameter.is_local && !source.is_local() {
            let parameter = parameter.name;
            self.effective.notices.push(Notice::LocalOnly { parameter, text: text.to_owned(), source });
            return Ok(());
        }
        self.read(parameter, source, text, is_overridden)?;
        if !is_overridden {
            self.effective.texts.insert(parameter.name.to_owned(), text.to_owned());
            self.decided.insert(lower, source);
        }
        Ok(())
    }

    fn read(
        &mut self,
        parameter: &'static Parameter,
        source: Source,
        text: &str,
        is_overridden: bool,
    ) -> Result<(), ConfigError> {
        let config = &mut self.effective.config;
        if text.eq_ignore_ascii_case("none") {
            if parameter.is_mandatory {
                return Err(ConfigError::NoneRefused { parameter: parameter.name, source_of_text: source });
            }
            if !is_overridden {
                (parameter.set_zero)(config);
            }
            return Ok(());
        }
        let result = if is_overridden {
            (parameter.check)(text, self.around)
        } else {
            (parameter.set)(config, text, self.around)
        };
        let Err(refusal) = result else { return Ok(()) };
        let message = refusal.message(parameter.name, text);
        if parameter.is_fatal {
            return Err(ConfigError::Fatal { parameter: parameter.name, source_of_text: source, message });
        }
        if !is_overridden {
            let result = (parameter.set_default)(config);
            debug_assert!(result.is_ok(), "the default of {} cannot be read", parameter.name);
            // The only default that is not in the table.
            if parameter.name == "FelixHostname" {
                config.felix_hostname = self.around.hostname().trim().to_lowercase();
            }
        }
        self.effective.notices.push(Notice::Replaced { parameter: parameter.name, source, message });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
