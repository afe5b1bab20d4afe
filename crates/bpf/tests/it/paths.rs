//! Walks about where packets come from and go to: sources, envelopes, the host, marks for netfilter.
