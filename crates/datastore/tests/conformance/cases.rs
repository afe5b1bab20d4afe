//! The cases, by subject. Each starts on a store without any of Calico's data and may leave anything behind.

mod basics;
mod concurrency;
mod continuity;
mod ipam;
mod lists;
mod names;
mod scale;
mod special;
mod unreadable;
mod watches;

use crate::harness::Case;

/// Every case of the suite, in order.
pub(crate) const ALL: &[Case] = &[
    ("every kind round-trips", |store| Box::pin(basics::every_kind(store))),
    ("create refuses what exists", |store| Box::pin(basics::create_existing(store))),
    ("update refuses what does not exist", |store| Box::pin(basics::update_missing(store))),
    ("update refuses a stale revision", |store| Box::pin(basics::update_conflict(store))),
    ("update needs a revision", |store| Box::pin(basics::update_without_revision(store))),
    ("delete refuses a wrong revision", |store| Box::pin(basics::delete_wrong_revision(store))),
    ("delete refuses a wrong uid", |store| Box::pin(basics::delete_wrong_uid(store))),
    ("get at a revision", |store| Box::pin(basics::get_at_revision(store))),
    ("a key without a name is refused", |store| Box::pin(basics::incomplete_key(store))),
    ("clean leaves nothing", |store| Box::pin(basics::clean(store))),
    ("lists select by namespace, name and prefix", |store| Box::pin(lists::selections(store))),
    ("lists are in key order, with one revision", |store| Box::pin(lists::order_and_revision(store))),
    ("list at a revision", |store| Box::pin(lists::at_revision(store))),
    ("watch from a revision", |store| Box::pin(watches::from_revision(store))),
    ("watch without a revision begins with the existing entries", |store| {
        Box::pin(watches::without_revision(store))
    }),
    ("watches select by namespace and name", |store| Box::pin(watches::selections(store))),
    ("a dropped watch leaves the store usable", |store| Box::pin(watches::dropped(store))),
    ("watch across compaction ends with an expired revision", |store| {
        Box::pin(continuity::compaction(store))
    }),
    ("disconnect ends a watch, and it continues without gap", |store| {
        Box::pin(continuity::disconnect(store))
    }),
    ("list then watch under concurrent writers", |store| Box::pin(concurrency::list_then_watch(store))),
    ("sixteen tasks increment and lose nothing", |store| Box::pin(concurrency::increments(store))),
    ("only one of many creators wins", |store| Box::pin(concurrency::creators(store))),
    ("ten thousand objects", |store| Box::pin(scale::ten_thousand(store))),
    ("values at the size limit", |store| Box::pin(scale::size_limit(store))),
    ("old policy names are read, updated and deleted", |store| Box::pin(names::old_names(store))),
    ("a policy named default.x is another one", |store| Box::pin(names::strangers(store))),
    ("nothing is created beside an old policy name", |store| Box::pin(names::nothing_beside(store))),
    ("an old policy name is moved to its own", |store| Box::pin(names::moved(store))),
    ("old policy names in lists and watches", |store| Box::pin(names::lists_and_watches(store))),
    ("unreadable entries do not fail a list", |store| Box::pin(unreadable::lists(store))),
    ("watches report unreadable entries", |store| Box::pin(unreadable::watches(store))),
    ("blocks, affinities and handles", |store| Box::pin(ipam::objects(store))),
    ("IPAM settings", |store| Box::pin(ipam::settings(store))),
    ("compare and swap of blocks", |store| Box::pin(ipam::conflicts(store))),
    ("several writes at once", |store| Box::pin(ipam::together(store))),
    ("the default-allow profile always exists", |store| Box::pin(special::default_allow(store))),
    ("entries with a time to live expire", |store| Box::pin(special::time_to_live(store))),
    ("status reports", |store| Box::pin(special::status_reports(store))),
    ("update of a status", |store| Box::pin(special::update_status(store))),
];
