//! Pseudo-random numbers that depend only on the seed, and choices made with them.

/// A random number generator: xorshift, because the choices must not change with a library.
pub(crate) struct Dice(u64);

impl Dice {
    /// The generator of one case.
    pub(crate) fn of(case: u64) -> Self {
        let mut dice = Self(case.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        // The first numbers of similar seeds are similar.
        for _ in 0..8 {
            dice.below(2);
        }
        dice
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    /// One of these.
    pub(crate) fn one_of<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let index = self.below(from.len().try_into().unwrap_or(1));
        &from[usize::try_from(index).unwrap_or_default()]
    }

    /// Some of these, in their order: each with a probability of one in `of`.
    pub(crate) fn some_of<'a, T>(&mut self, from: &'a [T], of: u64) -> Vec<&'a T> {
        from.iter().filter(|_| self.chance(of)).collect()
    }

    /// True with a probability of one in `of`.
    pub(crate) fn chance(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}
