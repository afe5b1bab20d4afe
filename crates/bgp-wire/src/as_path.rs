//! The AS path: the ASes that a route passed through.

use crate::Asn;
use std::fmt;

/// The meaning of a segment's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SegmentKind {
    /// Unordered, from an aggregate.
    Set,
    /// In order, the newest first.
    Sequence,
    /// In order, inside a confederation.
    ConfederationSequence,
    /// Unordered, inside a confederation.
    ConfederationSet,
}

impl SegmentKind {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Set => 1,
            Self::Sequence => 2,
            Self::ConfederationSequence => 3,
            Self::ConfederationSet => 4,
        }
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Set),
            2 => Some(Self::Sequence),
            3 => Some(Self::ConfederationSequence),
            4 => Some(Self::ConfederationSet),
            _ => None,
        }
    }

    /// Whether the segment is from a confederation and does not count towards the length.
    #[must_use]
    pub fn is_confederation(self) -> bool {
        matches!(self, Self::ConfederationSequence | Self::ConfederationSet)
    }
}

/// A segment of an AS path: up to 255 numbers, never empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Segment {
    /// The meaning of the numbers.
    pub kind: SegmentKind,
    /// The numbers.
    pub numbers: Box<[Asn]>,
}

/// The AS path of a route. Empty for a route of our own AS.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AsPath {
    segments: Box<[Segment]>,
}

impl AsPath {
    /// Creates a path from segments; empty ones are left out and long ones are split.
    #[must_use]
    pub fn from_segments(segments: impl IntoIterator<Item = Segment>) -> Self {
        let mut fitting = Vec::new();
        for segment in segments {
            if (1..=255).contains(&segment.numbers.len()) {
                fitting.push(segment);
                continue;
            }
            for part in segment.numbers.chunks(255) {
                fitting.push(Segment { kind: segment.kind, numbers: part.into() });
            }
        }
        Self { segments: fitting.into() }
    }

    /// Creates a path with one ordered segment.
    #[must_use]
    pub fn sequence(numbers: impl IntoIterator<Item = u32>) -> Self {
        let numbers = numbers.into_iter().map(Asn).collect();
        Self::from_segments([Segment { kind: SegmentKind::Sequence, numbers }])
    }

    /// The segments.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Whether the route originates in our own AS.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// The length for path selection: a set counts once, confederations do not count.
    #[must_use]
    pub fn length(&self) -> usize {
        self.segments
            .iter()
            .map(|segment| match segment.kind {
                SegmentKind::Sequence => segment.numbers.len(),
                SegmentKind::Set => 1,
                SegmentKind::ConfederationSequence | SegmentKind::ConfederationSet => 0,
            })
            .sum()
    }

    /// All numbers, in the order of the message.
    pub fn numbers(&self) -> impl Iterator<Item = Asn> + '_ {
        self.segments.iter().flat_map(|segment| segment.numbers.iter().copied())
    }

    /// How often an AS occurs in the path.
    #[must_use]
    pub fn count(&self, system: Asn) -> usize {
        self.numbers().filter(|number| *number == system).count()
    }

    /// The neighbour that sent the route: the first number, if the path begins with a sequence.
    #[must_use]
    pub fn first(&self) -> Option<Asn> {
        let first = self.segments.iter().find(|segment| !segment.kind.is_confederation())?;
        (first.kind == SegmentKind::Sequence).then(|| first.numbers.first().copied())?
    }

    /// The AS that originated the route: the last number, if the path ends with a sequence.
    #[must_use]
    pub fn origin(&self) -> Option<Asn> {
        let last = self.segments.last()?;
        (last.kind == SegmentKind::Sequence).then(|| last.numbers.last().copied())?
    }

    /// The path with an AS prepended this many times.
    #[must_use]
    pub fn prepended(&self, system: Asn, times: usize) -> Self {
        let mut segments = self.segments.to_vec();
        let mut left = times;
        if let Some(first) = segments.first_mut()
            && first.kind == SegmentKind::Sequence
        {
            let here = left.min(255 - first.numbers.len().min(255));
            let mut numbers = vec![system; here];
            numbers.extend_from_slice(&first.numbers);
            first.numbers = numbers.into();
            left -= here;
        }
        while left > 0 {
            let here = left.min(255);
            segments.insert(0, Segment { kind: SegmentKind::Sequence, numbers: vec![system; here].into() });
            left -= here;
        }
        Self { segments: segments.into() }
    }

    /// The path without confederation segments, as this speaker is never part of a confederation.
    #[must_use]
    pub fn without_confederation(&self) -> Self {
        Self::from_segments(self.segments.iter().filter(|segment| !segment.kind.is_confederation()).cloned())
    }

    /// Whether a number needs four bytes.
    #[must_use]
    pub fn needs_four_bytes(&self) -> bool {
        self.numbers().any(|number| number.0 > u32::from(u16::MAX))
    }

    /// Restores four-byte numbers in a path that passed through two-byte speakers (RFC 6793, 4.2.3): as many leading
    /// numbers of `self` as it has in excess, followed by the path of four-byte numbers.
    #[must_use]
    pub fn merged_with_four_bytes(&self, four_bytes: &Self) -> Self {
        let Some(mut extra) = self.length().checked_sub(four_bytes.length()) else {
            return self.clone();
        };
        let mut segments = Vec::new();
        for segment in &self.segments {
            // Confederation segments belong to the head of the path as long as it lasts.
            if extra == 0 && !segment.kind.is_confederation() {
                break;
            }
            match segment.kind {
                SegmentKind::Sequence if segment.numbers.len() > extra => {
                    segments.push(Segment { kind: segment.kind, numbers: segment.numbers[..extra].into() });
                    extra = 0;
                }
                SegmentKind::Sequence => {
                    extra -= segment.numbers.len();
                    segments.push(segment.clone());
                }
                SegmentKind::Set => {
                    extra -= 1;
                    segments.push(segment.clone());
                }
                SegmentKind::ConfederationSequence | SegmentKind::ConfederationSet => {
                    segments.push(segment.clone());
                }
            }
        }
        // Two adjacent sequences are joined into one if they fit.
        let mut tail = four_bytes.without_confederation().segments.into_vec();
        if let (Some(last), Some(first)) = (segments.last_mut(), tail.first())
            && last.kind == SegmentKind::Sequence
            && first.kind == SegmentKind::Sequence
            && last.numbers.len() + first.numbers.len() <= 255
        {
            last.numbers = last.numbers.iter().chain(first.numbers.iter()).copied().collect();
            tail.remove(0);
        }
        segments.extend(tail);
        Self::from_segments(segments)
    }
}

impl fmt::Display for AsPath {
    /// Like BIRD: numbers separated by blanks, sets in braces.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.segments.iter().enumerate() {
            if index > 0 {
                f.write_str(" ")?;
            }
            let (open, close) = match segment.kind {
                SegmentKind::Sequence => ("", ""),
                SegmentKind::Set => ("{", "}"),
                SegmentKind::ConfederationSequence => ("(", ")"),
                SegmentKind::ConfederationSet => ("({", "})"),
            };
            f.write_str(open)?;
            for (index, number) in segment.numbers.iter().enumerate() {
                if index > 0 {
                    f.write_str(" ")?;
                }
                number.fmt(f)?;
            }
            f.write_str(close)?;
        }
        Ok(())
    }
}
