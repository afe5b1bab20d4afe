//! The scenarios and their shared helpers.

mod deletions;
mod general;
mod initialisation;
mod kinds;
mod policies;
mod pools;

use crate::stores::{Pending, Store};
use client::{Client, Error};

/// One scenario on one store.
pub(crate) type Scenario = for<'a> fn(&'a dyn Store) -> Pending<'a, ()>;

macro_rules! scenarios {
    ($($module:ident::$name:ident),+ $(,)?) => {
        /// Every scenario, by name.
        pub(crate) const SCENARIOS: &[(&str, Scenario)] =
            &[$((stringify!($name), |store| Box::pin($module::$name(store)))),+];
    };
}

scenarios! {
    initialisation::a_fresh_datastore_is_initialised,
    initialisation::repeated_initialisation_changes_only_what_is_new,
    general::metadata_rules_hold_for_every_kind,
    general::revisions_guard_updates_and_deletions,
    general::uids_guard_deletions,
    general::competing_updates_lose_nothing,
    general::a_watch_reports_changes,
    general::lists_select_by_namespace_and_name,
    general::status_is_written,
    general::any_object_of_every_kind_is_refused_without_a_name,
    policies::a_policy_needs_its_tier,
    policies::defaults_are_filled_in_and_labels_forced,
    policies::a_tier_with_policies_cannot_be_deleted,
    policies::built_in_tiers_stay,
    policies::names_are_checked,
    policies::names_of_old_versions_are_understood,
    policies::staged_policies,
    pools::ranges_are_normalised_and_must_not_overlap,
    pools::range_and_block_size_are_fixed,
    pools::blocks_of_another_size_are_in_the_way,
    pools::deleting_a_pool_releases_its_blocks,
    pools::a_pool_can_be_split,
    kinds::peers_need_their_filters,
    kinds::single_objects_have_one_name,
    kinds::felix_configuration_gets_its_defaults,
    kinds::the_default_profile_is_built_in,
    kinds::workload_endpoints_are_named_by_their_spec,
    kinds::ipam_settings_reach_ipam,
    kinds::affinities_are_deleted_by_revision_only,
    deletions::deleting_a_node_deletes_what_belongs_to_it,
}

/// The fields named in the refusal of a write.
fn refused_fields<T: std::fmt::Debug>(outcome: Result<T, Error>) -> Vec<String> {
    match outcome {
        Err(Error::Validation(errors)) => {
            errors.as_slice().iter().map(|error| error.path.to_string()).collect()
        }
        other => panic!("expected a validation error, got {other:?}"),
    }
}

/// The reason for which one field was refused.
fn refusal<T: std::fmt::Debug>(outcome: Result<T, Error>, field: &str) -> String {
    match outcome {
        Err(Error::Validation(errors)) => errors
            .as_slice()
            .iter()
            .find(|error| error.path.as_str() == field)
            .unwrap_or_else(|| panic!("no error about {field} in {errors}"))
            .reason
            .clone(),
        other => panic!("expected a validation error about {field}, got {other:?}"),
    }
}

/// A datastore that is initialised for policies.
async fn initialised(store: &dyn Store) -> &Client {
    let client = store.client();
    client.ensure_initialized("", "").await.expect("initialising");
    client
}
