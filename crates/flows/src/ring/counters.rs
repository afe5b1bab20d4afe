//! The counters of a flow.

/// The counters of a flow over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that came in at the reporting end.
    pub packets_in: u64,
    /// Packets that went out at the reporting end.
    pub packets_out: u64,
    /// Bytes that came in.
    pub bytes_in: u64,
    /// Bytes that went out.
    pub bytes_out: u64,
    /// Connections that began.
    pub started: u64,
    /// Connections that ended.
    pub completed: u64,
    /// Live connections; these do not add up over time.
    pub live: u64,
}

impl Counters {
    /// Adds counters of the same period.
    pub fn add(&mut self, other: &Self) {
        self.add_earlier(other);
        self.live = self.live.saturating_add(other.live);
    }

    /// Adds counters of an earlier period, except those that do not add up over time.
    pub(crate) fn add_earlier(&mut self, other: &Self) {
        for (mine, theirs) in [
            (&mut self.packets_in, other.packets_in),
            (&mut self.packets_out, other.packets_out),
            (&mut self.bytes_in, other.bytes_in),
            (&mut self.bytes_out, other.bytes_out),
            (&mut self.started, other.started),
            (&mut self.completed, other.completed),
        ] {
            *mine = mine.saturating_add(theirs);
        }
    }

    pub(crate) fn fields(&self) -> [u64; 7] {
        [
            self.packets_in,
            self.packets_out,
            self.bytes_in,
            self.bytes_out,
            self.started,
            self.completed,
            self.live,
        ]
    }

    pub(crate) fn of_fields(fields: [u64; 7]) -> Self {
        let [packets_in, packets_out, bytes_in, bytes_out, started, completed, live] = fields;
        Self { packets_in, packets_out, bytes_in, bytes_out, started, completed, live }
    }
}

/// Counters over several buckets: sums, and the live connections of the last bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sum {
    /// The first bucket with data.
    pub(crate) first: i64,
    /// The last bucket with data.
    pub(crate) last: i64,
    /// The summed counters.
    pub(crate) counters: Counters,
}

impl Sum {
    /// The counters of one bucket.
    pub(crate) fn of(bucket: i64, counters: Counters) -> Self {
        Self { first: bucket, last: bucket, counters }
    }

    /// Adds the counters of any buckets.
    pub(crate) fn add(&mut self, other: &Self) {
        let live = match self.last.cmp(&other.last) {
            std::cmp::Ordering::Less => other.counters.live,
            std::cmp::Ordering::Equal => self.counters.live.saturating_add(other.counters.live),
            std::cmp::Ordering::Greater => self.counters.live,
        };
        self.counters.add_earlier(&other.counters);
        self.counters.live = live;
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
    }
}
