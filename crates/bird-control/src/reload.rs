//! Makes a BIRD read its files again.
//!
//! By its socket and not by SIGHUP: a BIRD that has just been started has no signal handler yet and would be
//! terminated, and a signal does not report the outcome.

use crate::BirdError;
use crate::connection::{Connection, without_code};
use model::IpVersion;
use std::path::Path;

/// Makes BIRD read its files again; returns its own words about the outcome.
///
/// # Errors
/// When no connection is possible, BIRD refuses the files ([`BirdError::Refused`]), or does not answer in time.
pub async fn reload(family: IpVersion, sockets: &[impl AsRef<Path>]) -> Result<String, BirdError> {
    let mut connection = Connection::open(family, sockets).await?;
    let answer = connection.ask("configure").await?;
    Ok(answer.last().map(|line| without_code(line).to_owned()).unwrap_or_default())
}
