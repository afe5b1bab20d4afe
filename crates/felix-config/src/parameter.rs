//! One row of the table: a parameter's names and rules, and how its field of [`Config`] is set and compared.

use crate::kinds::{Refusal, Surroundings};
use crate::resource::Form;
use crate::table::{Config, PARAMETERS};
use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;

/// What setting a parameter does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It does what its description says.
    Works,
    /// It does what its description says, but only in the eBPF dataplane; with any other, Felix names it in a warning.
    Bpf,
    /// It has no effect yet; Felix names it in a warning.
    Idle,
    /// Users do not set it: the node or the cluster writes it, and consumers read it there.
    Elsewhere,
}

/// A parameter of Felix.
pub struct Parameter {
    /// The name: in the file, and after `FELIX_` in the environment.
    pub name: &'static str,
    /// Its heading in the reference.
    pub group: &'static str,
    /// What it is for.
    pub description: &'static str,
    /// The default, as a text; empty for none.
    pub default: &'static str,
    /// Whether only this machine decides: values from the datastore are ignored.
    pub is_local: bool,
    /// Whether a value that cannot be parsed is an error; otherwise the default is used.
    pub is_fatal: bool,
    /// Whether `none` is rejected.
    pub is_mandatory: bool,
    /// Whether a running Felix follows a change; otherwise a change requires a restart.
    pub is_live: bool,
    /// What setting it does.
    pub effect: Effect,
    /// The name of its field in [`Config`].
    pub field: &'static str,
    /// The field of a FelixConfiguration that sets it, and how that field is written as text.
    pub(crate) resource: Option<(&'static str, Form)>,
    pub(crate) accepts: fn() -> String,
    pub(crate) check: fn(&str, &dyn Surroundings) -> Result<(), Refusal>,
    pub(crate) set: fn(&mut Config, &str, &dyn Surroundings) -> Result<(), Refusal>,
    pub(crate) set_default: fn(&mut Config) -> Result<(), Refusal>,
    pub(crate) set_zero: fn(&mut Config),
    pub(crate) is_equal: fn(&Config, &Config) -> bool,
}

impl Parameter {
    /// Finds the parameter of this name, in any case.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        static BY_NAME: OnceLock<HashMap<String, &'static Parameter>> = OnceLock::new();
        let by_name = BY_NAME.get_or_init(|| {
            PARAMETERS.iter().map(|parameter| (parameter.name.to_lowercase(), parameter)).collect()
        });
        by_name.get(&name.to_lowercase()).copied()
    }

    /// The field of a FelixConfiguration that sets it.
    #[must_use]
    pub fn resource_field(&self) -> Option<&'static str> {
        self.resource.map(|(field, _)| field)
    }

    /// The texts that it accepts besides `none`.
    #[must_use]
    pub fn accepts(&self) -> String {
        (self.accepts)()
    }
}

/// The parameters without effect here that differ from their default.
#[must_use]
pub fn without_effect(config: &Config) -> Vec<&'static str> {
    changed(config, Effect::Idle)
}

/// The parameters of the eBPF dataplane that differ from their default while that dataplane is off.
#[must_use]
pub fn without_bpf(config: &Config) -> Vec<&'static str> {
    if config.bpf_enabled { Vec::new() } else { changed(config, Effect::Bpf) }
}

/// On by default: changing them only switches off something that is not done anyway.
const SWITCHED_OFF: [&str; 2] = ["UsageReportingEnabled", "XDPEnabled"];

/// The parameters with this effect that differ from their default.
fn changed(config: &Config, effect: Effect) -> Vec<&'static str> {
    let mut plain = Config::default();
    PARAMETERS
        .iter()
        .filter(|parameter| parameter.effect == effect && !SWITCHED_OFF.contains(&parameter.name))
        .filter(|parameter| {
            (parameter.set_default)(&mut plain).is_ok() && !(parameter.is_equal)(config, &plain)
        })
        .map(|parameter| parameter.name)
        .collect()
}

impl fmt::Debug for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Parameter {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Parameter {}
