//! The acceptor for the newest files.

use crate::files::{Stamp, TlsError, TlsFiles};
use crate::limits::TlsLimits;
use std::sync::{Arc, Mutex, PoisonError};
use tokio_rustls::TlsAcceptor;

/// A server's TLS, which follows changes of its files.
pub struct Renewing {
    files: TlsFiles,
    limits: TlsLimits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The versions of the files when they were last read, usable or not.
    seen: Option<[Stamp; 3]>,
    /// Built from the last usable files.
    acceptor: Option<TlsAcceptor>,
}

impl Renewing {
    /// Prepares to use these files; does not read them yet.
    #[must_use]
    pub fn new(files: TlsFiles) -> Self {
        Self { files, limits: TlsLimits::default(), state: Mutex::default() }
    }

    /// Restricts versions and suites.
    #[must_use]
    pub fn within(mut self, limits: TlsLimits) -> Self {
        self.limits = limits;
        self
    }

    /// The acceptor for the next handshake.
    ///
    /// # Errors
    /// When the files, as they are now, cannot be used.
    pub fn current(&self) -> Result<TlsAcceptor, TlsError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.files.stamps();
        match &state.acceptor {
            Some(acceptor) if state.seen == Some(now) => Ok(acceptor.clone()),
            _ => {
                // No handshake succeeds until the files are usable again.
                *state = State::default();
                let acceptor = TlsAcceptor::from(Arc::new(self.files.read_within(&self.limits)?));
                *state = State { seen: Some(now), acceptor: Some(acceptor.clone()) };
                Ok(acceptor)
            }
        }
    }

    /// The acceptor for the last usable files, because one file of a pair may be replaced before the other. Also
    /// returns why changed files cannot be used, once per change.
    ///
    /// # Errors
    /// When no usable files have been read so far.
    pub fn current_or_last(&self) -> Result<(TlsAcceptor, Option<TlsError>), TlsError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.files.stamps();
        if let (Some(acceptor), true) = (&state.acceptor, state.seen == Some(now)) {
            return Ok((acceptor.clone(), None));
        }
        match (self.files.read_within(&self.limits), &state.acceptor) {
            (Ok(config), _) => {
                let acceptor = TlsAcceptor::from(Arc::new(config));
                *state = State { seen: Some(now), acceptor: Some(acceptor.clone()) };
                Ok((acceptor, None))
            }
            (Err(error), Some(last)) => {
                let last = last.clone();
                state.seen = Some(now);
                Ok((last, Some(error)))
            }
            (Err(error), None) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Renewing;
    use crate::TlsFiles;
    use testkit::{Authority, Folder};

    #[test]
    fn unusable_files_close_the_door_or_keep_the_last_certificate() {
        let folder = Folder::new("tls").unwrap();
        let authority = Authority::new(folder.path()).unwrap();
        let server = authority.sign("server", "localhost", &[]).unwrap();
        let files = TlsFiles { certificate: server.certificate, key: server.key, ..TlsFiles::default() };
        let (strict, lenient) = (Renewing::new(files.clone()), Renewing::new(files.clone()));
        assert!(strict.current().is_ok() && lenient.current_or_last().unwrap().1.is_none());
        let good = std::fs::read(&files.certificate).unwrap();
        std::fs::write(&files.certificate, "nothing").unwrap();
        assert!(strict.current().is_err() && strict.current().is_err());
        assert!(lenient.current_or_last().unwrap().1.is_some(), "the change is reported");
        assert!(lenient.current_or_last().unwrap().1.is_none(), "once");
        std::fs::write(&files.certificate, good).unwrap();
        assert!(strict.current().is_ok() && lenient.current_or_last().unwrap().1.is_none());
        let never = Renewing::new(TlsFiles::default());
        assert!(never.current().is_err() && never.current_or_last().is_err());
    }
}
