//! Answers to create, update and patch; `deleting` has the rest.
//!
//! Defaults, validation and storage belong to crate `client`. Here is what an API server adds: names from prefixes,
//! field ownership, preconditions, dry runs, and permissions on the policies of a tier.

use crate::access::User;
use crate::app::App;
use crate::body::{Decoded, decode, from_yaml, read};
use crate::entry::{Entry, tier};
use crate::hooks::configuration::Operation;
use crate::hooks::review::Asked;
use crate::managed::{self, Writer};
use crate::patch::{PatchType, keep_identity, patched};
use crate::reading::one;
use crate::request::{FieldValidation, Options, Target, Verb};
use crate::respond::{Answer, warn};
use crate::status::{Cause, MODIFIED, Outcome, Refusal};
use crate::tables::Form;
use crate::tiers::Act;
use api::Resource;
use api::meta::Time;
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

/// How often a write is attempted when another client is faster, or a generated name is taken.
pub(crate) const ATTEMPTS: usize = 8;

/// A requested write.
pub(crate) struct Write<'a> {
    /// The server.
    pub app: &'a App,
    /// The user who writes.
    pub user: &'a User,
    /// The resource and place to write.
    pub target: &'a Target,
    /// The request's options, such as `dryRun`.
    pub options: &'a Options,
    /// The requested form of the answer.
    pub form: Form,
    /// The field manager.
    pub manager: &'a str,
    /// The content type of the body.
    pub content_type: &'a str,
    /// The body.
    pub body: &'a Bytes,
}

impl Write<'_> {
    pub(crate) fn act(&self, verb: Verb) -> Act<'_> {
        Act { served: self.target.served, verb, namespace: &self.target.namespace, name: &self.target.name }
    }

    fn writer<'b>(&'b self, now: &'b str) -> Writer<'b> {
        Writer { manager: self.manager, is_status: self.target.is_status, now }
    }

    fn answer(&self, resource: Resource, code: StatusCode, warnings: &[String]) -> Outcome<Answer> {
        let entry = Entry::new(resource).map_err(Refusal::internal)?;
        let entry =
            entry.ok_or_else(|| Refusal::not_found(self.target.served.plural(), &self.target.name))?;
        let mut answer = one(self.target, &entry, self.form, code);
        warn(&mut answer, warnings);
        Ok(answer)
    }

    pub(crate) fn refused(&self, name: &str, error: client::Error) -> Box<Refusal> {
        Refusal::from_store(self.target.served, name, error)
    }

    /// Stores a new object.
    ///
    /// # Errors
    /// The refusal.
    pub(crate) async fn create(&self) -> Outcome<Answer> {
        let (value, twice) = read(self.content_type, self.body)?;
        let decoded = decode(self.target, value, &twice, self.options.field_validation)?;
        self.store_new(decoded, StatusCode::CREATED, Verb::Create).await
    }

    async fn store_new(&self, decoded: Decoded, code: StatusCode, verb: Verb) -> Outcome<Answer> {
        let Decoded { mut resource, mut value, mut warnings } = decoded;
        let served = self.target.served;
        let (name, prefix) = (resource.name().to_owned(), resource.metadata().generate_name.clone());
        if !resource.metadata().resource_version.is_empty() {
            return Err(Refusal::bad_request("resourceVersion should not be set on objects to be created"));
        }
        if name.is_empty() && prefix.is_empty() {
            let cause = Cause {
                reason: "FieldValueRequired",
                message: "Required value: name or generateName is required".into(),
                field: "metadata.name".into(),
            };
            return Err(Refusal::invalid(served.kind.as_str(), crate::kinds::GROUP, "", vec![cause]));
        }
        // Only the status subresource writes it.
        let without_status = |value: &mut Value| {
            if served.has_status
                && let Some(fields) = value.as_object_mut()
            {
                fields.remove("status");
            }
        };
        without_status(&mut value);
        self.app.namespaces.check_new(served.plural(), &name, &self.target.namespace).await?;
        let now = now();
        if verb != Verb::Patch {
            managed::track_update(served.kind, None, &mut value, &self.writer(&now));
        }
        let asked = self.asked(Operation::Create, &name, None);
        if let Some(changed) = self.mutated(&asked, &value, &mut warnings).await? {
            (resource, value) = (changed.resource, changed.value);
            without_status(&mut value);
        }
        self.app.check_object(self.user, &self.act(verb), &resource).await?;
        let validates = self.app.hooks.validates(&asked).await?;
        for attempt in 1.. {
            let mut new = rebuilt(self.target, &value)?;
            let metadata = new.metadata_mut();
            if name.is_empty() {
                metadata.name = generated(&prefix);
            }
            self.target.namespace.clone_into(&mut metadata.namespace);
            metadata.uid = uuid::Uuid::new_v4().to_string();
            metadata.creation_timestamp = Some(Time::new(now.clone()));
            metadata.deletion_timestamp = None;
            let tried = metadata.name.clone();
            let client = self.app.store.client();
            let mut outcome = match self.options.dry_run || validates {
                true => client.try_create_any(new.clone()).await,
                false => client.create_any(new.clone()).await,
            };
            if validates && let Ok(shown) = &outcome {
                let asked = Asked { name: &tried, ..asked };
                self.validated(&asked, shown, &mut warnings).await?;
                if !self.options.dry_run {
                    outcome = client.create_any(new).await;
                }
            }
            match outcome {
                Ok(stored) => return self.answer(stored, code, &warnings),
                Err(error) if error.is_already_exists() && name.is_empty() && attempt < ATTEMPTS => {}
                Err(error) => return Err(self.refused(&tried, error)),
            }
        }
        Err(Refusal::internal("no name is free"))
    }

    /// Replaces an object.
    ///
    /// # Errors
    /// The refusal.
    pub(crate) async fn update(&self) -> Outcome<Answer> {
        let served = self.target.served;
        let (value, twice) = read(self.content_type, self.body)?;
        let decoded = decode(self.target, value, &twice, self.options.field_validation)?;
        let old = self.app.store.get(served, &self.target.namespace, &self.target.name).await?;
        self.check_both_tiers(Verb::Update, &old, &decoded.resource).await?;
        let given = decoded.resource.metadata();
        if given.resource_version.is_empty() {
            let cause = Cause {
                reason: "FieldValueInvalid",
                message: "Invalid value: 0: must be specified for an update".into(),
                field: "metadata.resourceVersion".into(),
            };
            return Err(Refusal::invalid(
                served.plural(),
                crate::kinds::GROUP,
                &self.target.name,
                vec![cause],
            ));
        }
        check_uid(self.target, &given.uid, &old)?;
        if given.resource_version != old.metadata().resource_version {
            return Err(Refusal::conflict(served.plural(), &self.target.name, MODIFIED));
        }
        let before = encoded(&old)?;
        let after = self.narrowed(&before, decoded.value);
        let mut warnings = decoded.warnings;
        let stored = self.replace(Verb::Update, old, &before, after, &mut warnings).await?;
        self.answer(stored, StatusCode::OK, &warnings)
    }

    async fn check_both_tiers(&self, verb: Verb, old: &Resource, new: &Resource) -> Outcome<()> {
        let act = self.act(verb);
        self.app.check_object(self.user, &act, old).await?;
        if tier(old) != tier(new) {
            self.app.check_object(self.user, &act, new).await?;
        }
        Ok(())
    }

    /// The object limited to what this endpoint may change: only the status, or everything but it.
    fn narrowed(&self, before: &Value, mut after: Value) -> Value {
        if !self.target.served.has_status {
            return after;
        }
        let (mut result, status) = match self.target.is_status {
            true => {
                let managed = after.pointer("/metadata/managedFields").cloned();
                let mut kept = before.clone();
                if let (Some(managed), Some(metadata)) = (managed, kept["metadata"].as_object_mut()) {
                    metadata.insert("managedFields".into(), managed);
                }
                (kept, after.get("status").cloned())
            }
            false => (std::mem::take(&mut after), before.get("status").cloned()),
        };
        if let Some(fields) = result.as_object_mut() {
            match status {
                Some(status) => {
                    fields.insert("status".into(), status);
                }
                None => {
                    fields.remove("status");
                }
            }
        }
        result
    }

    /// Stores the object if it has changed.
    async fn replace(
        &self,
        verb: Verb,
        old: Resource,
        before: &Value,
        mut after: Value,
        warnings: &mut Vec<String>,
    ) -> Outcome<Resource> {
        let served = self.target.served;
        let name = &self.target.name;
        keep_identity(before, &mut after);
        let now = now();
        // An apply has already determined the owners.
        if verb != Verb::Patch || PatchType::of(self.content_type)? != PatchType::Apply {
            managed::track_update(served.kind, Some(before), &mut after, &self.writer(&now));
        }
        let asked = self.asked(Operation::Update, name, Some(before));
        if let Some(changed) = self.mutated(&asked, &after, warnings).await? {
            self.check_both_tiers(verb, &old, &changed.resource).await?;
            after = self.narrowed(before, changed.value);
            keep_identity(before, &mut after);
        }
        let new = rebuilt(self.target, &after)?;
        let (is_same, validates) = (new == old, self.app.hooks.validates(&asked).await?);
        if is_same && !validates {
            return Ok(old);
        }
        self.app.namespaces.check_known(&self.target.namespace).await?;
        let client = self.app.store.client();
        if validates || self.options.dry_run {
            let shown = match is_same {
                true => old,
                false => {
                    client.try_update_any(new.clone()).await.map_err(|error| self.refused(name, error))?
                }
            };
            self.validated(&asked, &shown, warnings).await?;
            if is_same || self.options.dry_run {
                return Ok(shown);
            }
        }
        let outcome = match self.target.is_status {
            true => client.update_status_any(new).await,
            false => client.update_any(new).await,
        };
        outcome.map_err(|error| self.refused(name, error))
    }

    /// Changes a part of an object.
    ///
    /// # Errors
    /// The refusal.
    pub(crate) async fn patch(&self) -> Outcome<Answer> {
        let served = self.target.served;
        let patch_type = PatchType::of(self.content_type)?;
        if patch_type == PatchType::Apply && self.options.field_manager.is_empty() {
            let cause = Cause {
                reason: "FieldValueRequired",
                message: "Required value: is required for apply patch".into(),
                field: "fieldManager".into(),
            };
            return Err(Refusal::invalid("PatchOptions", "meta.k8s.io", "", vec![cause]));
        }
        if patch_type != PatchType::Apply && self.options.force {
            let cause = Cause {
                reason: "FieldValueForbidden",
                message: "Forbidden: may not be specified for non-apply patch".into(),
                field: "force".into(),
            };
            return Err(Refusal::invalid("PatchOptions", "meta.k8s.io", "", vec![cause]));
        }
        for attempt in 1.. {
            let old = match self.app.store.get(served, &self.target.namespace, &self.target.name).await {
                Err(refusal)
                    if refusal.code == 404 && patch_type == PatchType::Apply && !self.target.is_status =>
                {
                    return self.apply_new().await;
                }
                found => found?,
            };
            let before = encoded(&old)?;
            let after = self.changed(patch_type, &before)?;
            let mut checked = after.clone();
            let insisted = keep_identity(&before, &mut checked);
            if insisted.is_some() {
                self.app.check_object(self.user, &self.act(Verb::Patch), &old).await?;
                return Err(Refusal::conflict(served.plural(), &self.target.name, MODIFIED));
            }
            let decoded = decode(self.target, checked, &[], self.options.field_validation)?;
            self.check_both_tiers(Verb::Patch, &old, &decoded.resource).await?;
            let after = self.narrowed(&before, decoded.value);
            let mut warnings = decoded.warnings;
            match self.replace(Verb::Patch, old, &before, after, &mut warnings).await {
                Ok(stored) => return self.answer(stored, StatusCode::OK, &warnings),
                Err(refusal) if refusal.code == 409 && attempt < ATTEMPTS => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Err(Refusal::conflict(served.plural(), &self.target.name, MODIFIED))
    }

    /// The object after the patch, including the ownership that an apply results in.
    fn changed(&self, patch_type: PatchType, before: &Value) -> Outcome<Value> {
        if patch_type != PatchType::Apply {
            return patched(patch_type, before, self.body);
        }
        let config = self.config()?;
        let now = now();
        let mut after =
            managed::apply(self.target.served.kind, before, &config, &self.writer(&now), self.options.force)?;
        // A revision required by the configuration is compared later.
        if let Some(revision) = config.pointer("/metadata/resourceVersion") {
            after["metadata"]["resourceVersion"] = revision.clone();
        }
        Ok(after)
    }

    /// The configuration of an apply, checked by itself.
    fn config(&self) -> Outcome<Value> {
        let config = from_yaml(self.body)?;
        let kind = config["kind"].as_str().unwrap_or_default();
        if kind.is_empty() {
            return Err(Refusal::bad_request("error decoding YAML: Object 'Kind' is missing"));
        }
        let validation = match self.options.field_validation {
            FieldValidation::Strict => FieldValidation::Strict,
            _ => FieldValidation::Ignore,
        };
        Ok(decode(self.target, config, &[], validation)?.value)
    }

    /// Applies an object that does not exist.
    async fn apply_new(&self) -> Outcome<Answer> {
        let config = self.config()?;
        let target = Target { name: String::new(), ..self.target.clone() };
        self.app.check_objects(self.user, &target, Verb::Create, self.options).await?;
        if let Some(uid) = config.pointer("/metadata/uid").and_then(Value::as_str) {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(Refusal::conflict(self.target.served.plural(), &self.target.name, &why));
        }
        let metadata = json!({"name": self.target.name, "namespace": self.target.namespace});
        let empty = json!({"kind": config["kind"], "apiVersion": config["apiVersion"], "metadata": metadata, "spec": {}});
        let now = now();
        let new =
            managed::apply(self.target.served.kind, &empty, &config, &self.writer(&now), self.options.force)?;
        let decoded = decode(self.target, new, &[], self.options.field_validation)?;
        self.store_new(decoded, StatusCode::CREATED, Verb::Patch).await
    }
}

pub(crate) fn check_uid(target: &Target, wanted: &str, old: &Resource) -> Outcome<()> {
    let found = &old.metadata().uid;
    if wanted.is_empty() || wanted == found {
        return Ok(());
    }
    let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}");
    Err(Refusal::conflict(target.served.plural(), &target.name, &why))
}

pub(crate) fn encoded(resource: &Resource) -> Outcome<Value> {
    serde_json::to_value(resource).map_err(Refusal::internal)
}

pub(crate) fn rebuilt(target: &Target, value: &Value) -> Outcome<Resource> {
    Resource::from_value(target.served.kind, value.clone()).map_err(Refusal::internal)
}

/// The current time, formatted as Kubernetes does.
fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A name from a prefix, generated as Kubernetes does: five letters that form no words.
fn generated(prefix: &str) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    const LONGEST: usize = 58;
    let bytes = uuid::Uuid::new_v4().into_bytes();
    let mut end = prefix.len().min(LONGEST);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    let mut name = prefix[..end].to_owned();
    name.extend(bytes.iter().take(5).map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])));
    name
}
