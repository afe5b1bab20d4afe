//! Settings from environment variables, bare or with Calico's prefix, read from an injected source.

use super::parameters::PARAMETERS;
use super::{Mistake, Settings};
use daemon::Environment;
use settings::Parameter;
use std::ffi::OsString;

/// The prefix that is looked up first.
const PREFIX: &str = "CALICO_";

/// Reads every parameter that has a variable. An empty variable counts as unset, except that the prefixed one, once
/// set, hides the bare one.
pub(super) fn read(environment: &dyn Environment) -> Result<Settings, Vec<Mistake>> {
    let mut settings = Settings::default();
    let mut mistakes = Vec::new();
    for parameter in PARAMETERS {
        let Some((name, value)) = lookup(parameter, environment) else { continue };
        let outcome = match value.into_string() {
            Ok(text) if text.is_empty() => Ok(()),
            Ok(text) => (parameter.set)(&mut settings, &text),
            Err(_) => Err("contains bytes that are not UTF-8".to_owned()),
        };
        if let Err(message) = outcome {
            mistakes.push(Mistake { place: name, message, excerpt: String::new() });
        }
    }
    if mistakes.is_empty() { Ok(settings) } else { Err(mistakes) }
}

fn lookup(parameter: &Parameter<Settings>, environment: &dyn Environment) -> Option<(String, OsString)> {
    let names = variables(parameter);
    names.into_iter().find_map(|name| environment.variable(&name).map(|value| (name, value)))
}

/// The variables that set a parameter, in lookup order.
pub(super) fn variables(parameter: &Parameter<Settings>) -> Vec<String> {
    let Some(name) = parameter.variable else { return Vec::new() };
    let prefixed = format!("{PREFIX}{name}");
    // Calico reads the token only from the prefixed variable.
    if name == "K8SAPITOKEN" { vec![prefixed] } else { vec![prefixed, name.to_owned()] }
}
