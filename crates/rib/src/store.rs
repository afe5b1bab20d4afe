//! All routes in use, each stored once and referred to by number.
//!
//! Numbers instead of counted references: nearly every path changes a count, and with a count that threads may share,
//! the processor would wait for writes to the memory of the table.

use crate::route::Route;
use hashbrown::DefaultHashBuilder;
use hashbrown::hash_table::{Entry, HashTable};
use std::hash::BuildHasher as _;
use std::sync::Arc;

/// An interned route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RouteId(u32);

#[derive(Debug)]
struct Kept {
    route: Arc<Route>,
    /// The number of paths and operations that refer to it.
    users: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Store {
    kept: Vec<Kept>,
    free: Vec<u32>,
    places: HashTable<u32>,
    random: DefaultHashBuilder,
}

impl Store {
    /// Interns a route, with one more user. `fresh` completes a new one.
    pub(crate) fn keep(&mut self, route: Route, fresh: impl FnOnce(&mut Route)) -> RouteId {
        let Self { kept, free, places, random } = self;
        let hash = random.hash_one(&route);
        let is_equal = |place: &u32| *kept[*place as usize].route == route;
        let entry = match places.entry(hash, is_equal, |place| random.hash_one(&*kept[*place as usize].route))
        {
            Entry::Occupied(entry) => {
                let place = *entry.get();
                kept[place as usize].users += 1;
                return RouteId(place);
            }
            Entry::Vacant(entry) => entry,
        };
        let mut route = route;
        fresh(&mut route);
        let new = Kept { route: Arc::new(route), users: 1 };
        let place = match free.pop() {
            Some(place) => {
                kept[place as usize] = new;
                place
            }
            None => {
                kept.push(new);
                u32::try_from(kept.len() - 1).unwrap_or(u32::MAX)
            }
        };
        entry.insert(place);
        RouteId(place)
    }

    /// Adds a user.
    pub(crate) fn use_again(&mut self, id: RouteId) {
        self.kept[id.0 as usize].users += 1;
    }

    /// Removes a user. For the last one, returns the slot of its next hop.
    pub(crate) fn give_back(&mut self, id: RouteId) -> Option<u32> {
        let Self { kept, free, places, random } = self;
        let one = &mut kept[id.0 as usize];
        one.users -= 1;
        if one.users > 0 {
            return None;
        }
        if let Ok(entry) = places.find_entry(random.hash_one(&*one.route), |place| *place == id.0) {
            entry.remove();
        }
        free.push(id.0);
        // The content is freed now; the entry is reused later.
        std::mem::replace(&mut one.route, Arc::new(Route::Originated)).slot()
    }

    pub(crate) fn get(&self, id: RouteId) -> &Arc<Route> {
        &self.kept[id.0 as usize].route
    }

    /// The number of different routes.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::Interface;

    fn direct(index: u32) -> Route {
        Route::Direct(Interface { index, name: format!("eth{index}").into() })
    }

    #[test]
    fn equal_routes_are_stored_once_until_the_last_user_is_gone() {
        let mut store = Store::default();
        let one = store.keep(direct(1), |_| {});
        let again = store.keep(direct(1), |_| panic!("it is known"));
        let two = store.keep(direct(2), |_| {});
        store.use_again(two);
        assert_eq!((one, store.len()), (again, 2));
        assert_eq!(**store.get(two), direct(2));
        store.give_back(one);
        assert_eq!(**store.get(one), direct(1));
        store.give_back(again);
        assert_eq!(store.len(), 1);
        let three = store.keep(direct(3), |_| {});
        assert_eq!((three, store.len()), (one, 2), "the place is used again");
        store.give_back(two);
        store.give_back(two);
        assert_eq!(**store.get(three), direct(3));
        assert_eq!(store.len(), 1);
    }
}
