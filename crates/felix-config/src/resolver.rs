//! The running configuration: resolves local sources and the feed's settings together, and reports what each change
//! requires.

use crate::change::Change;
use crate::feed::FeedSettings;
use crate::kinds::Surroundings;
use crate::resolve::{ConfigError, Effective, resolve};
use crate::sources::Sources;
use crate::table::Config;
use model::feed::{FeedEntry, Status};

/// A configuration that differs from the one before, or a datastore that stopped being ready.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigNews {
    /// What the change requires.
    pub change: Change,
    /// Whether the datastore may be used; if not, Felix restarts and waits for it.
    pub is_datastore_ready: bool,
}

/// The configuration of a running Felix.
pub struct ConfigResolver {
    sources: Sources,
    feed: FeedSettings,
    effective: Effective,
    around: Box<dyn Surroundings + Send>,
}

impl ConfigResolver {
    /// Starts with the machine's own sources.
    ///
    /// # Errors
    /// When a `fatal` parameter cannot be parsed, or a `mandatory` one is `none`.
    pub fn new(sources: Sources, around: Box<dyn Surroundings + Send>) -> Result<Self, ConfigError> {
        let effective = resolve(&sources, &*around)?;
        let feed = FeedSettings::new(effective.config.felix_hostname.clone());
        Ok(Self { sources, feed, effective, around })
    }

    /// Processes one entry of the feed.
    pub fn on_entry(&mut self, entry: &FeedEntry) {
        self.feed.on_entry(entry);
    }

    /// Processes the feed's sync status.
    pub fn on_status(&mut self, status: Status) {
        self.feed.on_status(status);
    }

    /// Resolves again if the feed has changed anything. After an error the previous configuration stays in force.
    ///
    /// # Errors
    /// When a `fatal` parameter cannot be parsed, or a `mandatory` one is `none`.
    pub fn flush(&mut self) -> Result<Option<ConfigNews>, ConfigError> {
        let Some(settings) = self.feed.take_news() else { return Ok(None) };
        let is_datastore_ready = settings.is_ready;
        let mut sources = self.sources.clone();
        settings.apply(&mut sources);
        let change = self.replace(sources)?;
        if change == Change::None && is_datastore_ready {
            return Ok(None);
        }
        Ok(Some(ConfigNews { change, is_datastore_ready }))
    }

    /// Whether the datastore may be used, according to the feed so far.
    #[must_use]
    pub fn is_datastore_ready(&self) -> bool {
        self.feed.is_ready()
    }

    /// The present configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.effective.config
    }

    /// The present configuration with its texts and notices.
    #[must_use]
    pub fn effective(&self) -> &Effective {
        &self.effective
    }

    /// The sources of the values.
    #[must_use]
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    fn replace(&mut self, sources: Sources) -> Result<Change, ConfigError> {
        let effective = resolve(&sources, &*self.around)?;
        let change = Change::between(&self.effective.config, &effective.config);
        self.sources = sources;
        self.effective = effective;
        Ok(change)
    }
}

impl std::fmt::Debug for ConfigResolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConfigResolver")
            .field("sources", &self.sources)
            .field("feed", &self.feed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::NoSurroundings;
    use crate::sources::Source;
    use model::feed::ReadyFlag;

    fn global(name: &str, text: &str) -> FeedEntry {
        FeedEntry::GlobalConfig(name.into(), Some(text.into()))
    }

    fn ready() -> FeedEntry {
        FeedEntry::Ready(ReadyFlag, Some(true))
    }

    fn resolver(environment: &[(&str, &str)]) -> ConfigResolver {
        let mut sources = Sources::default();
        let environment = [&[("felixhostname", "me")], environment].concat();
        sources.set(
            Source::EnvironmentVariable,
            environment.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect(),
        );
        let mut resolver = ConfigResolver::new(sources, Box::new(NoSurroundings)).unwrap();
        resolver.on_entry(&ready());
        resolver.on_status(Status::InSync);
        resolver
    }

    #[test]
    fn changes_reach_a_running_felix() {
        let mut resolver = resolver(&[("LogPrefix", "mine")]);
        assert_eq!(resolver.flush(), Ok(None), "in sync, and nothing is different");
        resolver.on_entry(&global("LogPrefix", "theirs"));
        assert_eq!(resolver.flush(), Ok(None), "overridden here");
        resolver.on_entry(&global("ClusterType", "k8s"));
        let news = resolver.flush().unwrap().unwrap();
        assert_eq!(news.change, Change::Live(vec!["ClusterType"]));
        let texts = &resolver.effective().texts;
        assert_eq!((texts["ClusterType"].as_str(), texts["LogPrefix"].as_str()), ("k8s", "mine"));
        resolver.on_entry(&global("BPFEnabled", "true"));
        assert_eq!(resolver.flush().unwrap().unwrap().change, Change::Restart(vec!["BPFEnabled"]));
    }

    #[test]
    fn a_fatal_mistake_leaves_the_configuration_in_force() {
        let mut resolver = resolver(&[]);
        resolver.on_entry(&global("InterfacePrefix", "tap"));
        resolver.flush().unwrap();
        resolver.on_entry(&global("InterfacePrefix", "not an interface"));
        assert_eq!(
            resolver.flush().unwrap_err().to_string(),
            "failed to parse config parameter InterfacePrefix; value \"not an interface\": invalid Linux interface \
             name (from datastore (global))"
        );
        assert_eq!(resolver.config().interface_prefix, "tap");
    }

    #[test]
    fn a_datastore_that_is_not_ready_is_reported() {
        let mut resolver = resolver(&[]);
        resolver.flush().unwrap();
        resolver.on_entry(&FeedEntry::Ready(ReadyFlag, None));
        let news = resolver.flush().unwrap().unwrap();
        assert_eq!((news.change, news.is_datastore_ready), (Change::None, false));
        // The absence of news does not mean that it is ready again.
        assert_eq!((resolver.flush(), resolver.is_datastore_ready()), (Ok(None), false));
        resolver.on_entry(&ready());
        assert_eq!((resolver.flush(), resolver.is_datastore_ready()), (Ok(None), true));
    }
}
