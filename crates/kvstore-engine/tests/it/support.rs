//! Shared by the tests: a store with small limits.

use std::{path::Path, sync::Arc};

use kvstore_engine::{Options, Store};

/// Blocks on a future.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Opens a store with options that make background work happen early.
pub(crate) fn open(dir: &Path) -> Arc<Store> {
    Store::open(dir, options()).unwrap()
}

/// Small limits, so that tests reach them.
pub(crate) fn options() -> Options {
    Options { min_garbage_bytes: 64 << 10, watch_buffer_bytes: 16 << 10, ..Options::default() }
}
