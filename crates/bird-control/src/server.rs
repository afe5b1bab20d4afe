//! The other end of the socket: our speaker answers like Calico's BIRD, so that its tools work unchanged.
//!
//! - [`Question`]: a parsed line of a client.
//! - [`Facts`]: the speaker's state, as values.
//! - [`answer`]: the text for a question and its facts. Pure.
//! - [`listen`]: the thin shell around it.
//!
//! Calico ships BIRD 1.6, one daemon per IP version, and its tools require that version's columns; so answers have the
//! format of 1.6, even where BIRD 2 differs. Does not change anything: `configure`, `enable`, `down` and the like are
//! refused, because the configuration comes from the datastore.

mod daemon;
mod facts;
mod listen;
mod protocols;
mod question;
mod routes;
mod text;

pub use facts::{
    BgpFacts, DaemonFacts, Distance, Facts, InterfaceAddress, InterfaceFacts, MemoryFacts, NextHop,
    PathFacts, ProtocolFacts, Recovery, RouteCounts, RouteFacts, RouteTarget, SessionFacts, Timer,
};
pub use listen::{ListenError, Speaker, listen};
pub use question::{Destination, Question, Refusal, RouteQuestion};

use text::Text;

/// The first line on every connection.
#[must_use]
pub fn greeting(version: &str) -> String {
    let mut text = Text::default();
    text.end(1, format_args!("BIRD {version} ready."));
    text.finish()
}

/// The whole answer to a line of a client.
///
/// `facts` only needs to contain what the question requires.
#[must_use]
pub fn answer(question: &Result<Question, Refusal>, facts: &Facts) -> String {
    let mut text = Text::default();
    match (question, facts) {
        (Err(refusal), _) => text.end(refusal.code, format_args!("{}", refusal.message)),
        (Ok(Question::Nothing), _) => text.end(0, format_args!("")),
        (Ok(Question::Restrict), _) => text.end(16, format_args!("Access restricted")),
        (Ok(Question::Status), Facts::Daemon(facts)) => daemon::status(&mut text, facts),
        (Ok(Question::Memory), Facts::Memory(facts)) => daemon::memory(&mut text, facts),
        (Ok(Question::Interfaces { summary }), Facts::Interfaces(facts)) => {
            daemon::interfaces(&mut text, facts, *summary);
        }
        (Ok(Question::Protocols { all, name }), Facts::Protocols { now, protocols }) => {
            protocols::show(&mut text, *now, protocols, *all, name.as_deref());
        }
        (Ok(Question::Routes(question)), Facts::Routes { now, routes, networks }) => {
            routes::show(&mut text, question, *now, routes, *networks);
        }
        (Ok(Question::Routes(_)), Facts::NoSuchProtocol(name)) => {
            text.end(9002, format_args!("{name} is not a protocol"));
        }
        (Ok(_), Facts::Ending) => text.end(13, format_args!("Shutdown in progress")),
        (Ok(_), _) => text.end(9001, format_args!("the speaker has no answer to this")),
    }
    text.finish()
}

#[cfg(test)]
mod tests;
