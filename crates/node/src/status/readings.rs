//! What the BGP daemons say: the raw material of answers and tables.

use bird_control::{BirdError, Route, Session, Status};
use model::IpVersion;
use std::path::PathBuf;

/// A fact about one daemon, or its absence.
#[derive(Debug)]
pub(crate) enum Reading<T> {
    /// What it said.
    Said(T),
    /// There is no such daemon: BGP is not used, or not for this family.
    NoDaemon,
}

/// The folders that may hold the daemons' sockets.
#[derive(Clone, Debug)]
pub(crate) struct Daemons(pub Vec<PathBuf>);

impl Daemons {
    /// The state of a daemon.
    ///
    /// # Errors
    /// When it is there and gives no proper answer.
    pub(crate) async fn status(&self, family: IpVersion) -> Result<Reading<Status>, BirdError> {
        reading(bird_control::status(family, &bird_control::sockets(family, &self.0)).await)
    }

    /// The sessions of a daemon.
    ///
    /// # Errors
    /// When it is there and gives no proper answer.
    pub(crate) async fn sessions(&self, family: IpVersion) -> Result<Reading<Vec<Session>>, BirdError> {
        reading(bird_control::sessions(family, &bird_control::sockets(family, &self.0)).await)
    }

    /// The routes of a daemon.
    ///
    /// # Errors
    /// When it is there and gives no proper answer.
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
