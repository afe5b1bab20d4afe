//! The final message of a command that worked on many objects, in Calico's wording.

use super::operations::Refusal;
use crate::context::Context;
use crate::failure::{Failure, Result};
use api::Kind;

/// What the command did to the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verb {
    /// The command: `create`.
    pub plain: &'static str,
    /// Its past participle: `created`.
    pub past: &'static str,
}

#[derive(Debug)]
pub(crate) struct Results {
    /// The kinds of the objects.
    pub kinds: Vec<Kind>,
    /// How many were handled.
    pub handled: usize,
    /// The failures of the others.
    pub refusals: Vec<Refusal>,
}

impl Results {
    /// Counts the outcomes.
    #[must_use]
    pub(crate) fn of<T>(kinds: Vec<Kind>, outcomes: Vec<std::result::Result<T, Refusal>>) -> Self {
        let total = outcomes.len();
        let refusals: Vec<Refusal> = outcomes.into_iter().filter_map(std::result::Result::err).collect();
        Self { kinds, handled: total - refusals.len(), refusals }
    }

    /// The kind, if all objects have the same one.
    fn single_kind(&self) -> Option<Kind> {
        let first = *self.kinds.first()?;
        self.kinds.iter().all(|kind| *kind == first).then_some(first)
    }

    /// Reports the result of a create, apply, replace or validate.
    ///
    /// # Errors
    /// When anything failed.
    pub(crate) fn write(&self, verb: Verb, context: &mut Context) -> Result<()> {
        let Verb { plain, past } = verb;
        let total = self.kinds.len();
        let kind = self.single_kind();
        let quoted = kind.map_or_else(String::new, |kind| format!("'{kind}' "));
        let errors = self.errors();
        if total == 0 {
            return context.print("No resources specified\n");
        }
        if self.refusals.is_empty() {
            return context.print(&format!("Successfully {past} {} {quoted}resource(s)\n", self.handled));
        }
        if self.handled == 0 {
            return Err(Failure::new(match (total, kind) {
                (1, _) => format!("failed to {plain} {quoted}resource:{errors}"),
                _ => format!("failed to {plain} any {quoted}resources:{errors}"),
            }));
        }
        context.print(&format!(
            "Partial success: {past} the first {} out of {total} {quoted}resources:\n",
            self.handled
        ))?;
        Err(Failure::new(format!("hit error:{errors}")))
    }

    /// Reports the result of a delete.
    ///
    /// # Errors
    /// When anything failed.
    pub(crate) fn delete(&self, context: &mut Context) -> Result<()> {
        let quoted = self.single_kind().map_or_else(String::new, |kind| format!("'{kind}' "));
        if self.kinds.is_empty() {
            return context.print("No resources specified\n");
        }
        if self.handled > 0 {
            context.print(&format!("Successfully deleted {} {quoted}resource(s)\n", self.handled))?;
        }
        if self.refusals.is_empty() {
            return Ok(());
        }
        let lines: Vec<String> = self
            .refusals
            .iter()
            .map(|refusal| format!("Failed to delete {quoted}resource: {refusal}"))
            .collect();
        Err(Failure::new(lines.join("\n")))
    }

    /// The errors to print after a colon: a single error in brackets, as Go prints a list, several on lines of their
    /// own.
    fn errors(&self) -> String {
        let shown: usize = self.refusals.iter().map(Refusal::shown).sum();
        let mut texts: Vec<String> =
            self.refusals.iter().filter(|refusal| refusal.shown() == 0).map(ToString::to_string).collect();
        if shown > 0 {
            let shown = Refusal::Shown(shown).to_string();
            if texts.is_empty() {
                return format!(" {shown}");
            }
            texts.push(shown);
        }
        match texts.as_slice() {
            [only] => format!(" [{only}]"),
            several => several.iter().map(|text| format!("\n- {text}")).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_its_line_and_nothing_is_repeated() {
        let text = |text: &str| Refusal::Text(text.to_owned());
        for (refusals, expected) in [
            (vec![text("gone")], " [gone]"),
            (vec![text("gone"), text("there")], "\n- gone\n- there"),
            (vec![Refusal::Shown(1)], " 1 mistake, shown above"),
            (vec![Refusal::Shown(1), Refusal::Shown(2)], " 3 mistakes, shown above"),
            (vec![Refusal::Shown(2), text("gone")], "\n- gone\n- 2 mistakes, shown above"),
        ] {
            let results = Results { kinds: Vec::new(), handled: 0, refusals };
            assert_eq!(results.errors(), expected);
        }
    }
}
