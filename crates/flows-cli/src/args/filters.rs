//! The flags that filter. Written by hand, because `--not` negates the flag after it: their order matters.

use crate::filter::{Condition, End, Field, Filter};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

const NOT: &str = "not";
const HEADING: &str = "Filters";

/// A flag: its name, the name of its value (empty for none), the field, its meaning without a value, and its help text.
type Row = (&'static str, &'static str, Field, &'static str, &'static str);

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("from-pod", "[NS/]POD", Field::Pod(End::Source), "", "From pods with this name or name prefix"),
    ("to-pod", "[NS/]POD", Field::Pod(End::Dest), "", "To pods with this name or name prefix"),
    ("pod", "[NS/]POD", Field::Pod(End::Either), "", "From or to pods with this name or name prefix"),
    ("from-namespace", "NS", Field::Namespace(End::Source), "", "From this namespace"),
    ("to-namespace", "NS", Field::Namespace(End::Dest), "", "To this namespace"),
    ("namespace", "NS", Field::Namespace(End::Either), "", "From or to this namespace"),
    ("from-label", "KEY=VALUE", Field::Label(End::Source), "", "From endpoints with these labels: KEY=VALUE, KEY!=VALUE or KEY, separated by commas"),
    ("to-label", "KEY=VALUE", Field::Label(End::Dest), "", "To endpoints with these labels"),
    ("label", "KEY=VALUE", Field::Label(End::Either), "", "From or to endpoints with these labels"),
    ("service", "[NS/]NAME", Field::Service, "", "Connections to this service"),
    ("port", "PORT", Field::Port, "", "To this port, after translation"),
    ("protocol", "PROTOCOL", Field::Protocol, "", "Of this protocol: tcp, udp, icmp, ..."),
    ("verdict", "VERDICT", Field::Verdict, "", "The verdict: allowed, denied, or passed (on to the next tier by a policy)"),
    ("denied", "", Field::Verdict, "denied", "The same as --verdict denied"),
    ("would-deny", "", Field::Would, "deny", "Allowed, but staged policies would deny it"),
    ("would-allow", "", Field::Would, "allow", "Denied, but staged policies would allow it"),
    ("policy", "[NS/]NAME", Field::Policy, "", "Decided on by this policy, or at the end of a tier because of it; staged ones too"),
    ("tier", "TIER", Field::Tier, "", "Decided on in this tier"),
    ("reporter", "END", Field::Reporter, "", "Reported by the node of the source (src) or of the destination (dst)"),
];

/// The filter of a command line.
#[derive(Clone, Debug, Default)]
pub struct FilterFlags(pub Filter);

impl Args for FilterFlags {
    fn augment_args(command: Command) -> Command {
        // One occurrence for each time that it is given.
        let not = Arg::new(NOT)
            .long(NOT)
            .num_args(0)
            .default_missing_value("true")
            .action(ArgAction::Append)
            .help("Negate the filter after this")
            .help_heading(HEADING);
        let command = command.arg(not);
        ROWS.iter().fold(command, |command, (name, value, _, missing, help)| {
            let arg = Arg::new(*name).long(*name).action(ArgAction::Append).help(*help).help_heading(HEADING);
            let arg = match *value {
                "" => arg.num_args(0).default_missing_value(*missing),
                value => arg.value_name(value).num_args(1),
            };
            command.arg(if *name == "namespace" { arg.short('n') } else { arg })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for FilterFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let wrong = |text: String| Error::raw(ErrorKind::ValueValidation, format!("{text}\n"));
        let places = |name: &str| matches.indices_of(name).into_iter().flatten().collect::<Vec<_>>();
        let mut given = Vec::new();
        for row in ROWS {
            let values = matches.get_many::<String>(row.0).into_iter().flatten();
            given.extend(
                places(row.0).into_iter().zip(values).map(|(place, value)| (place, Some((row, value)))),
            );
        }
        given.extend(places(NOT).into_iter().map(|place| (place, None)));
        given.sort_by_key(|(place, _)| *place);
        let mut filter = Filter::default();
        let mut is_wanted = true;
        for (_, found) in given {
            match found {
                None if !is_wanted => return Err(wrong("--not is given twice before a filter".to_owned())),
                None => is_wanted = false,
                Some(((name, _, field, ..), value)) => {
                    let condition = Condition::read(*field, value)
                        .map_err(|error| wrong(format!("--{name}: {error}")))?;
                    filter.add(*field, condition, is_wanted);
                    is_wanted = true;
                }
            }
        }
        if is_wanted { Ok(Self(filter)) } else { Err(wrong("--not must have a filter behind it".to_owned())) }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
