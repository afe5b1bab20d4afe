//! Answers delete and deletecollection requests.
//!
//! Nothing is deleted that its user has not seen: every deletion names one version, and an object that changes in the
//! meantime is checked again.

use crate::body::read;
use crate::entry::{Entry, Filter};
use crate::reading::{many, selection};
use crate::request::{Moment, Target, Verb};
use crate::respond::{Answer, json_answer, warn};
use crate::status::{MODIFIED, Outcome, Refusal, deleted};
use crate::writing::{ATTEMPTS, Write, check_uid, encoded, rebuilt};
use api::Resource;
use client::DeleteOptions;
use http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;

impl Write<'_> {
    /// Deletes one object.
    ///
    /// # Errors
    /// When the request is denied, or the store fails.
    pub(crate) async fn delete(&self) -> Outcome<Answer> {
        let served = self.target.served;
        let name = &self.target.name;
        let wanted = Preconditions::read(self)?;
        let old = self.app.store.get(served, &self.target.namespace, name).await?;
        self.app.check_object(self.user, &self.act(Verb::Delete), &old).await?;
        wanted.check(self.target, &old)?;
        let uid = old.metadata().uid.clone();
        let is_dry_run = self.options.dry_run || wanted.dry_run;
        let mut warnings = Vec::new();
        self.deletion_admitted(name, &encoded(&old)?, is_dry_run, &mut warnings).await?;
        if !is_dry_run {
            let options = DeleteOptions { revision: wanted.revision, uid: wanted.uid };
            let client = self.app.store.client();
            let outcome = client.delete_any(served.kind, &self.target.namespace, name, &options).await;
            outcome.map_err(|error| self.refused(name, error))?;
        }
        let mut answer = json_answer(StatusCode::OK, &deleted(served, name, &uid));
        warn(&mut answer, &warnings);
        Ok(answer)
    }

    /// Deletes many objects.
    ///
    /// # Errors
    /// When the request is denied, or the store fails.
    pub(crate) async fn delete_collection(&self) -> Outcome<Answer> {
        let wanted = Preconditions::read(self)?;
        let filter =
            selection(self.app, self.user, self.target, Verb::DeleteCollection, self.options).await?;
        let listed = self.app.store.list(self.target.served, &Moment::Newest).await?;
        let selected: Vec<Arc<Entry>> =
            listed.entries.iter().filter(|entry| filter.passes(entry)).cloned().collect();
        let is_dry_run = self.options.dry_run || wanted.dry_run;
        let mut warnings = Vec::new();
        for entry in &selected {
            let old = serde_json::from_slice(&entry.json).map_err(Refusal::internal)?;
            // Admission and permission are checked for each object separately.
            let (namespace, name) = entry.place.clone();
            let target = Target { namespace, name, ..self.target.clone() };
            let one = Write { target: &target, ..*self };
            wanted.check(&target, &rebuilt(&target, &old)?)?;
            one.deletion_admitted(&entry.place.1, &old, is_dry_run, &mut warnings).await?;
            if !is_dry_run {
                self.delete_selected(Entry::clone(entry), &filter).await?;
            }
        }
        let mut answer = many(self.target, &json!({"resourceVersion": listed.revision}), selected, self.form);
        warn(&mut answer, &warnings);
        Ok(answer)
    }

    /// Deletes an object as it was selected. If it changes in the meantime, it is checked again: it may be in another
    /// tier now.
    async fn delete_selected(&self, mut entry: Entry, filter: &Filter) -> Outcome<()> {
        let (served, client) = (self.target.served, self.app.store.client());
        let (namespace, name) = entry.place.clone();
        for _ in 0..ATTEMPTS {
            let options = DeleteOptions { revision: Some(entry.revision), uid: None };
            match client.delete_any(served.kind, &namespace, &name, &options).await {
                Ok(_) => return Ok(()),
                Err(error) if error.is_does_not_exist() => return Ok(()),
                Err(error) if error.is_conflict() => {}
                Err(error) => return Err(self.refused(&name, error)),
            }
            entry = match self.app.store.get(served, &namespace, &name).await {
                Err(refusal) if refusal.code == 404 => return Ok(()),
                found => match Entry::new(found?).map_err(Refusal::internal)? {
                    Some(entry) if filter.passes(&entry) => entry,
                    _ => return Ok(()),
                },
            };
        }
        Err(Refusal::conflict(served.plural(), &name, MODIFIED))
    }
}

/// The preconditions of a deletion.
#[derive(Default)]
struct Preconditions {
    uid: Option<String>,
    revision: Option<String>,
    dry_run: bool,
}

impl Preconditions {
    fn read(write: &Write<'_>) -> Outcome<Self> {
        if write.body.is_empty() {
            return Ok(Self::default());
        }
        let (options, _) = read(write.content_type, write.body)?;
        let kind = options["kind"].as_str().unwrap_or("DeleteOptions");
        if kind != "DeleteOptions" {
            return Err(Refusal::bad_request(format!("expected DeleteOptions, got {kind}")));
        }
        let text = |path: &str| options.pointer(path).and_then(Value::as_str).map(str::to_owned);
        Ok(Self {
            uid: text("/preconditions/uid"),
            revision: text("/preconditions/resourceVersion"),
            dry_run: options["dryRun"].as_array().is_some_and(|words| words.contains(&json!("All"))),
        })
    }
}

impl Preconditions {
    /// Checks that the preconditions hold for an object.
    fn check(&self, target: &Target, old: &Resource) -> Outcome<()> {
        check_uid(target, self.uid.as_deref().unwrap_or_default(), old)?;
        let found = &old.metadata().resource_version;
        match &self.revision {
            Some(wanted) if wanted != found => {
                let why = format!(
                    "Precondition failed: ResourceVersion in precondition: {wanted}, ResourceVersion in object meta: {found}"
                );
                Err(Refusal::conflict(target.served.plural(), &target.name, &why))
            }
            _ => Ok(()),
        }
    }
}
