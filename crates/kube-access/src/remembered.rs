//! A cache of answers, limited in time and number.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Remembered answers by question.
#[derive(Debug)]
pub struct Remembered<K, V> {
    most: usize,
    answers: Mutex<HashMap<K, (Instant, V)>>,
}

impl<K: Hash + Eq, V: Clone> Remembered<K, V> {
    /// Holds at most `most` answers.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, answers: Mutex::default() }
    }

    /// Returns the answer, if it is still valid.
    #[must_use]
    pub fn get(&self, question: &K) -> Option<V> {
        self.get_at(question, Instant::now())
    }

    fn get_at(&self, question: &K, now: Instant) -> Option<V> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(question).filter(|(until, _)| *until > now).map(|(_, answer)| answer.clone())
    }

    /// Remembers an answer for this long.
    pub fn put(&self, question: K, answer: V, time: Duration) {
        self.put_at(question, answer, time, Instant::now());
    }

    fn put_at(&self, question: K, answer: V, time: Duration, now: Instant) {
        if time.is_zero() {
            return;
        }
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= self.most {
            answers.retain(|_, (until, _)| *until > now);
        }
        // Still full of valid answers: questions arrive faster than answers expire.
        if answers.len() >= self.most {
            answers.clear();
        }
        answers.insert(question, (now + time, answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembered_answers_are_limited_in_time_and_number() {
        let (remembered, begin) = (Remembered::new(2), Instant::now());
        let later = begin + Duration::from_secs(15);
        remembered.put_at(1, "a", Duration::from_secs(10), begin);
        remembered.put_at(2, "b", Duration::from_secs(20), begin);
        remembered.put_at(9, "never", Duration::ZERO, begin);
        assert_eq!((remembered.get_at(&1, begin), remembered.get_at(&9, begin)), (Some("a"), None));
        assert_eq!(remembered.get_at(&1, later), None);
        remembered.put_at(3, "c", Duration::from_secs(10), later);
        assert_eq!((remembered.get_at(&2, later), remembered.get_at(&3, later)), (Some("b"), Some("c")));
        remembered.put_at(4, "d", Duration::from_secs(10), later);
        assert_eq!((remembered.get_at(&2, later), remembered.get_at(&4, later)), (None, Some("d")));
    }
}
