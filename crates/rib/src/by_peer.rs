//! Values by session. Sessions are numbered from zero and numbers are reused, so a list suffices for lookups.

use crate::route::PeerId;

#[derive(Clone, Debug)]
pub(crate) struct ByPeer<T>(Vec<Option<T>>);

impl<T> Default for ByPeer<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> ByPeer<T> {
    pub(crate) fn get(&self, id: PeerId) -> Option<&T> {
        self.0.get(id.0 as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: PeerId) -> Option<&mut T> {
        self.0.get_mut(id.0 as usize)?.as_mut()
    }

    pub(crate) fn insert(&mut self, id: PeerId, value: T) {
        let place = id.0 as usize;
        if self.0.len() <= place {
            self.0.resize_with(place + 1, || None);
        }
        self.0[place] = Some(value);
    }

    pub(crate) fn remove(&mut self, id: PeerId) {
        if let Some(place) = self.0.get_mut(id.0 as usize) {
            *place = None;
        }
        while self.0.last().is_some_and(Option::is_none) {
            self.0.pop();
        }
    }

    /// Iterates in the order of the numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (PeerId, &T)> {
        (0..).map(PeerId).zip(&self.0).filter_map(|(id, value)| Some((id, value.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_reused() {
        let mut values = ByPeer::default();
        values.insert(PeerId(2), "two");
        values.insert(PeerId(0), "zero");
        assert_eq!(values.iter().collect::<Vec<_>>(), [(PeerId(0), &"zero"), (PeerId(2), &"two")]);
        assert_eq!(values.get(PeerId(1)), None);
        assert_eq!(values.get(PeerId(9)), None);
        values.remove(PeerId(2));
        values.remove(PeerId(7));
        assert_eq!(values.get_mut(PeerId(2)), None);
        assert_eq!(values.get_mut(PeerId(0)), Some(&mut "zero"));
        values.insert(PeerId(2), "again");
        assert_eq!(values.get(PeerId(2)), Some(&"again"));
    }
}
