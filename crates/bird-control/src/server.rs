//! The other end of the socket: a speaker of ours answers as Calico's BIRD does, so that its tools cannot tell.
//!
//! - [`Question`]: a line of a client, parsed.
//! - [`Facts`]: what the speaker says, as values.
//! - [`answer`]: the text for a question and its facts, without asking anybody.
//! - [`listen`]: the thin shell around it.
//!
//! Calico ships BIRD 1.6, one daemon per IP version, and its tools insist on that version's columns; so these answers are
//! 1.6's, also where BIRD 2 has other ones. It refuses to change anything: `configure`, `enable`, `down` and their like
//! are turned away, because the configuration comes from the datastore.

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
/// `facts` is asked only for what the question needs.
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
