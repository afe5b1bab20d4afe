//! Passes writes through the cluster's admission webhooks: what they are shown, and how their changes are used.

use crate::body::{Decoded, decode};
use crate::hooks::configuration::Operation;
use crate::hooks::review::Asked;
use crate::request::FieldValidation;
use crate::status::{Outcome, Refusal};
use crate::writing::Write;
use api::Resource;
use serde_json::Value;

impl Write<'_> {
    /// Describes this write for the webhooks.
    pub(crate) fn asked<'b>(
        &'b self,
        operation: Operation,
        name: &'b str,
        old: Option<&'b Value>,
    ) -> Asked<'b> {
        Asked {
            operation,
            user: self.user,
            target: self.target,
            name,
            is_dry_run: self.options.dry_run,
            manager: self.manager,
            old,
        }
    }

    /// Returns the object as mutating webhooks changed it; `None` if they leave it as it is. Fields they add that the
    /// schema does not know are dropped; replacing the object by another one is an error.
    ///
    /// # Errors
    /// When a webhook denies the write, or its result is not such an object.
    pub(crate) async fn mutated(
        &self,
        asked: &Asked<'_>,
        value: &Value,
        warnings: &mut Vec<String>,
    ) -> Outcome<Option<Decoded>> {
        let (hooks, namespaces) = (&self.app.hooks, &self.app.namespaces);
        match hooks.mutate(namespaces, asked, Some(value), warnings).await? {
            Some(changed) => decode(self.target, changed, &[], FieldValidation::Ignore).map(Some),
            None => Ok(None),
        }
    }

    /// Shows validating webhooks an object as it would be stored.
    ///
    /// # Errors
    /// When a webhook denies the write.
    pub(crate) async fn validated(
        &self,
        asked: &Asked<'_>,
        new: &Resource,
        warnings: &mut Vec<String>,
    ) -> Outcome<()> {
        let shown = serde_json::to_value(new).map_err(Refusal::internal)?;
        self.app.hooks.validate(&self.app.namespaces, asked, Some(&shown), warnings).await
    }

    /// Sends a deletion to all webhooks.
    ///
    /// # Errors
    /// When a webhook denies it.
    pub(crate) async fn deletion_admitted(
        &self,
        name: &str,
        old: &Value,
        is_dry_run: bool,
        warnings: &mut Vec<String>,
    ) -> Outcome<()> {
        let (hooks, namespaces) = (&self.app.hooks, &self.app.namespaces);
        let asked = Asked { is_dry_run, ..self.asked(Operation::Delete, name, Some(old)) };
        hooks.mutate(namespaces, &asked, None, warnings).await?;
        hooks.validate(namespaces, &asked, None, warnings).await
    }
}
