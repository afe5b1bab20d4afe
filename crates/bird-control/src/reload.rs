//! Having a BIRD read its files again.
//!
//! By its socket and not by SIGHUP: a BIRD that has only just been started has no handler for signals yet and would end, and a
//! signal says nothing about what became of it.

use crate::BirdError;
use crate::connection::{Connection, without_code};
use model::IpVersion;
use std::path::Path;

/// Has BIRD read its files again; its own words about the outcome.
///
/// # Errors
/// When no socket can be connected, or BIRD refuses the files ([`BirdError::Refused`]), or says nothing in time.
pub async fn reload(family: IpVersion, sockets: &[impl AsRef<Path>]) -> Result<String, BirdError> {
    let mut connection = Connection::open(family, sockets).await?;
    let answer = connection.ask("configure").await?;
    Ok(answer.last().map(|line| without_code(line).to_owned()).unwrap_or_default())
}
