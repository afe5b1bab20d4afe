//! Leases: how long each lives, and which keys are attached to it. Time is an argument; nothing here reads a clock or
//! writes a file. The remaining time is not durable: after a restart every lease starts over with its full time, as in
//! etcd.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use bytes::Bytes;

/// etcd's largest time to live, in seconds.
pub(super) const MAX_TTL: i64 = 9_000_000_000;

#[derive(Debug, Clone)]
pub(super) struct Lease {
    pub(super) ttl: i64,
    expires: Instant,
    pub(super) keys: BTreeSet<Bytes>,
}

/// All leases.
#[derive(Debug, Default)]
pub(super) struct Leases {
    leases: BTreeMap<i64, Lease>,
    /// Leases by expiry: looking for expired ones costs nothing while there are none.
    by_expiry: BTreeSet<(Instant, i64)>,
    /// The lease that each key is attached to; keys without one are absent.
    by_key: BTreeMap<Bytes, i64>,
}

impl Leases {
    pub(super) fn len(&self) -> usize {
        self.leases.len()
    }

    pub(super) fn contains(&self, id: i64) -> bool {
        self.leases.contains_key(&id)
    }

    pub(super) fn get(&self, id: i64) -> Option<&Lease> {
        self.leases.get(&id)
    }

    /// Ids and granted times, in order of id.
    pub(super) fn iter(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.leases.iter().map(|(&id, lease)| (id, lease.ttl))
    }

    pub(super) fn grant(&mut self, id: i64, ttl: i64, now: Instant) {
        let expires = deadline(now, ttl);
        self.leases.insert(id, Lease { ttl, expires, keys: BTreeSet::new() });
        self.by_expiry.insert((expires, id));
    }

    /// Removes a lease and detaches its keys.
    pub(super) fn remove(&mut self, id: i64) -> Option<Lease> {
        let lease = self.leases.remove(&id)?;
        self.by_expiry.remove(&(lease.expires, id));
        for key in &lease.keys {
            self.by_key.remove(key);
        }
        Some(lease)
    }

    /// Restores what [`Leases::remove`] removed, because the commit failed.
    pub(super) fn restore(&mut self, id: i64, lease: Lease) {
        for key in &lease.keys {
            self.by_key.insert(key.clone(), id);
        }
        self.by_expiry.insert((lease.expires, id));
        self.leases.insert(id, lease);
    }

    /// Attaches `key` to `id` (0 for none); returns the id of its previous lease.
    pub(super) fn attach(&mut self, key: &[u8], id: i64) -> i64 {
        let before = self.by_key.get(key).copied().unwrap_or(0);
        if before == id {
            return before;
        }
        if before != 0 {
            self.by_key.remove(key);
            if let Some(lease) = self.leases.get_mut(&before) {
                lease.keys.remove(key);
            }
        }
        if let (true, Some(lease)) = (id != 0, self.leases.get_mut(&id)) {
            // A copy: the request's buffer would otherwise live as long as the lease.
            let key = Bytes::copy_from_slice(key);
            lease.keys.insert(key.clone());
            self.by_key.insert(key, id);
        }
        before
    }

    /// Restarts a lease's time; returns its seconds, or `None` if it does not exist or has expired.
    pub(super) fn renew(&mut self, id: i64, now: Instant) -> Option<i64> {
        let lease = self.leases.get_mut(&id).filter(|lease| lease.expires > now)?;
        self.by_expiry.remove(&(lease.expires, id));
        lease.expires = deadline(now, lease.ttl);
        self.by_expiry.insert((lease.expires, id));
        Some(lease.ttl)
    }

    /// Seconds left, rounded down as etcd does; `None` if the lease does not exist or has expired.
    pub(super) fn remaining(&self, id: i64, now: Instant) -> Option<i64> {
        let left = self.leases.get(&id)?.expires.checked_duration_since(now)?;
        i64::try_from(left.as_secs()).ok()
    }

    /// Leases that have expired.
    pub(super) fn expired(&self, now: Instant) -> Vec<i64> {
        self.by_expiry.iter().take_while(|(expires, _)| *expires <= now).map(|&(_, id)| id).collect()
    }

    /// When the next lease expires.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.by_expiry.first().map(|&(expires, _)| expires)
    }

    /// Gives every lease its full time from `now`.
    pub(super) fn restart(&mut self, now: Instant) {
        self.by_expiry.clear();
        for (&id, lease) in &mut self.leases {
            lease.expires = deadline(now, lease.ttl);
            self.by_expiry.insert((lease.expires, id));
        }
    }
}

fn deadline(now: Instant, ttl: i64) -> Instant {
    let ttl = Duration::from_secs(u64::try_from(ttl).unwrap_or(0));
    // A time that the clock cannot represent becomes a century.
    now.checked_add(ttl).unwrap_or_else(|| now + Duration::from_secs(100 * 365 * 86_400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_attached_to_one_lease_at_a_time() {
        let now = Instant::now();
        let mut leases = Leases::default();
        leases.grant(1, 10, now);
        leases.grant(2, 20, now);
        assert_eq!(leases.attach(b"k", 1), 0);
        assert_eq!(leases.attach(b"k", 2), 1);
        assert!(leases.get(1).unwrap().keys.is_empty());
        assert_eq!(leases.get(2).unwrap().keys.len(), 1);
        let gone = leases.remove(2).unwrap();
        assert_eq!(leases.attach(b"k", 0), 0);
        leases.restore(2, gone);
        assert_eq!(leases.attach(b"k", 0), 2);
    }

    #[test]
    fn leases_expire_unless_renewed() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut leases = Leases::default();
        leases.grant(1, 10, now);
        leases.grant(2, i64::MAX, now);
        assert_eq!(leases.remaining(1, at(4)), Some(6));
        assert_eq!(leases.renew(1, at(9)), Some(10));
        assert_eq!(leases.expired(at(18)), Vec::<i64>::new());
        assert_eq!(leases.expired(at(19)), [1]);
        assert_eq!(leases.renew(1, at(19)), None);
        assert_eq!(leases.next_expiry(), Some(at(19)));
        leases.restart(at(100));
        assert_eq!(leases.remaining(1, at(100)), Some(10));
    }
}
