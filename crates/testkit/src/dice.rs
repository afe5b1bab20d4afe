//! Random choices that are the same for the same seed, for generators of clusters.

/// A random number generator (xorshift), written here because a case must not change with a library's version.
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice for one case.
    #[must_use]
    pub fn of(case: u64) -> Self {
        let mut dice = Self(case.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        // Similar seeds give similar first numbers.
        for _ in 0..8 {
            dice.below(2);
        }
        dice
    }

    /// A number below `limit`.
    ///
    /// # Panics
    /// When `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    /// One of these choices.
    ///
    /// # Panics
    /// When there are none.
    pub fn one_of<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let index = self.below(from.len().try_into().unwrap_or(1));
        &from[usize::try_from(index).unwrap_or_default()]
    }

    /// Some of these choices in their order, each with a probability of one in `of`.
    pub fn some_of<'a, T>(&mut self, from: &'a [T], of: u64) -> Vec<&'a T> {
        from.iter().filter(|_| self.chance(of)).collect()
    }

    /// True with a probability of one in `of`.
    pub fn chance(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}
