//! The state that the BGP daemons report, for answers and tables.

use bird_control::{BirdError, Route, Session, Status};
use model::IpVersion;
use std::path::PathBuf;

/// A value read from one daemon, if the daemon exists.
#[derive(Debug)]
pub(crate) enum Reading<T> {
    /// The reported value.
    Said(T),
    /// The daemon does not exist: BGP is not used, or not for this family.
    NoDaemon,
}

/// The folders that may contain the daemons' sockets.
#[derive(Clone, Debug)]
pub(crate) struct Daemons(pub Vec<PathBuf>);

impl Daemons {
    /// Reads the state of a daemon.
    ///
    /// # Errors
    /// When the daemon exists but does not give a valid answer.
    pub(crate) async fn status(&self, family: IpVersion) -> Result<Reading<Status>, BirdError> {
        reading(bird_control::status(family, &bird_control::sockets(family, &self.0)).await)
    }

    /// Reads the sessions of a daemon.
    ///
    /// # Errors
    /// When the daemon exists but does not give a valid answer.
    pub(crate) async fn sessions(&self, family: IpVersion) -> Result<Reading<Vec<Session>>, BirdError> {
        reading(bird_control::sessions(family, &bird_control::sockets(family, &self.0)).await)
    }

    /// Reads the routes of a daemon.
    ///
    /// # Errors
    /// When the daemon exists but does not give a valid answer.
    pub(crate) async fn routes(&self, family: IpVersion) -> Result<Reading<Vec<Route>>, BirdError> {
        reading(bird_control::routes(family, &bird_control::sockets(family, &self.0)).await)
    }
}

fn reading<T>(outcome: Result<T, BirdError>) -> Result<Reading<T>, BirdError> {
    match outcome {
        Ok(said) => Ok(Reading::Said(said)),
        Err(BirdError::NotThere { .. }) => Ok(Reading::NoDaemon),
        Err(error) => Err(error),
    }
}
