//! Batch operations, with a fallback to one call per element where a kernel has no batches for a kind of map.

use super::Map;
use crate::error::{Error, Result};
use crate::system::{Attributes, Command};
use rustix::io::Errno;
use std::os::fd::AsFd as _;

/// The initial size of a batch, in elements.
const BATCH: usize = 4096;

impl Map {
    /// Visits every element in batches: `visit` gets the concatenated keys and values of one batch.
    ///
    /// # Errors
    /// When the kernel refuses; `ENOTSUPP` and `EINVAL` if it has no batches for this kind of map.
    pub fn visit_batches(&self, mut visit: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let (key, value) = (self.definition.key, self.value_length());
        let mut room = BATCH.min(self.definition.entries.max(1) as usize);
        let (mut keys, mut values) = (vec![0; room * key], vec![0; room * value]);
        // For a hash, the kernel's token is a bucket number; for other kinds, a key.
        let mut tokens = [vec![0; key.max(8)], vec![0; key.max(8)]];
        let mut is_first = true;
        loop {
            let [from, to] = &mut tokens;
            let mut attributes = Attributes::new().length(32, room).fd(36, self.as_fd());
            if !is_first {
                attributes = attributes.input(0, from);
            }
            attributes = attributes.output(8, to).output(16, &mut keys).output(24, &mut values);
            let answer = attributes.call(Command::LookupBatch);
            let count = attributes.read(32) as usize;
            match answer {
                // A bucket holds more elements than the buffer.
                Err(Errno::NOSPC) => {
                    room *= 2;
                    (keys, values) = (vec![0; room * key], vec![0; room * value]);
                    continue;
                }
                Ok(_) | Err(Errno::NOENT) => {
                    let count = count.min(room);
                    visit(&keys[..count * key], &values[..count * value]);
                }
                Err(errno) => return Err(self.refused("read a batch from")(errno)),
            }
            if answer.is_err() {
                return Ok(());
            }
            is_first = false;
            tokens.swap(0, 1);
        }
    }

    /// Returns every element.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn entries(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut all = Vec::new();
        let (key, value) = (self.definition.key, self.value_length());
        let read = self.visit_batches(|keys, values| {
            let pairs = keys.chunks_exact(key).zip(values.chunks_exact(value));
            all.extend(pairs.map(|(key, value)| (key.to_vec(), value.to_vec())));
        });
        match read {
            Ok(()) => return Ok(all),
            Err(error) if !has_no_batches(&error) => return Err(error),
            Err(_) => all.clear(),
        }
        for key in self.keys()? {
            if let Some(value) = self.get(&key)? {
                all.push((key, value));
            }
        }
        Ok(all)
    }

    /// Sets many elements in batches, or one by one if the kernel has no batches.
    ///
    /// # Errors
    /// When the kernel refuses an element; those before it are set.
    pub fn set_many(&self, elements: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        for part in elements.chunks(BATCH) {
            for (key, value) in part {
                self.fit(key, Some(value))?;
            }
            let keys: Vec<u8> = part.iter().flat_map(|(key, _)| key.iter().copied()).collect();
            let values: Vec<u8> = part.iter().flat_map(|(_, value)| value.iter().copied()).collect();
            let mut attributes = Attributes::new()
                .input(16, &keys)
                .input(24, &values)
                .length(32, part.len())
                .fd(36, self.as_fd());
            match attributes.call(Command::UpdateBatch).map_err(self.refused("write a batch to")) {
                Ok(_) => {}
                Err(error) if has_no_batches(&error) => {
                    part.iter().try_for_each(|(key, value)| self.set(key, value))?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes many keys in batches; missing keys are ignored. Returns how many existed.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn remove_many(&self, keys: &[Vec<u8>]) -> Result<usize> {
        for key in keys {
            self.fit(key, None)?;
        }
        let bytes: Vec<u8> = keys.iter().flatten().copied().collect();
        let (mut removed, mut done) = (0, 0);
        while done < keys.len() {
            let asked = (keys.len() - done).min(BATCH);
            let part = &bytes[done * self.definition.key..(done + asked) * self.definition.key];
            let mut attributes = Attributes::new().input(16, part).length(32, asked).fd(36, self.as_fd());
            let answer = attributes.call(Command::DeleteBatch);
            let count = (attributes.read(32) as usize).min(asked);
            match answer {
                Ok(_) => (removed, done) = (removed + asked, done + asked),
                // The key after the counted ones is already gone.
                Err(Errno::NOENT) => (removed, done) = (removed + count, done + (count + 1).min(asked)),
                Err(errno) => {
                    let error = self.refused("delete a batch from")(errno);
                    if !has_no_batches(&error) {
                        return Err(error);
                    }
                    for key in &keys[done..done + asked] {
                        removed += usize::from(self.remove(key)?);
                    }
                    done += asked;
                }
            }
        }
        Ok(removed)
    }
}

/// Whether an error means that the kernel has no batches for this kind of map: 524 is its internal `ENOTSUPP`.
fn has_no_batches(error: &Error) -> bool {
    let errno = error.errno();
    errno == Some(Errno::INVAL)
        || errno == Some(Errno::OPNOTSUPP)
        || errno.map(Errno::raw_os_error) == Some(524)
}
