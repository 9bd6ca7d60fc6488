//! A command line as JSON. From this JSON, `nowait` makes the completions for the commands of other
//! programs.

use crate::{Result, print_json};
use clap::builder::{PossibleValue, PossibleValuesParser, Resettable, StyledStr, ValueHint};
use clap::{Arg, ArgAction, Command};
use serde::{Deserialize, Serialize};
use std::process::ExitCode;

/// A command: its name, its arguments, and the commands below it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Description {
    name: String,
    about: Option<String>,
    aliases: Vec<String>,
    arguments: Vec<Argument>,
    commands: Vec<Description>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Argument {
    id: String,
    long: Option<String>,
    /// Other long names of the option that its help shows.
    aliases: Vec<String>,
    short: Option<char>,
    help: Option<String>,
    value_names: Vec<String>,
    /// Possible values that the help shows, each with its help.
    values: Vec<(String, Option<String>)>,
    hint: String,
    /// The fewest and the most values that the argument takes.
    count: (usize, usize),
    is_required: bool,
    is_repeated: bool,
    is_hidden: bool,
    conflicts: Vec<String>,
}

impl Description {
    /// Prints the descriptions of the subcommands of `command`, as JSON. Leaves out hidden ones and
    /// `help`.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn print_below(mut command: Command) -> Result<ExitCode> {
        command.build();
        print_json(&below(&command))
    }

    /// Parses the output of [`Description::print_below`]; `None` if `text` is something else.
    pub fn read(text: &[u8]) -> Option<Vec<Description>> {
        serde_json::from_slice(text).ok()
    }

    /// Returns the name of the command.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes a clap command that serves for completions only, not to parse arguments.
    #[must_use]
    pub fn command(self) -> Command {
        Command::new(self.name)
            .about(resettable(self.about))
            .visible_aliases(self.aliases)
            .args(self.arguments.into_iter().map(Argument::arg))
            .subcommands(self.commands.into_iter().map(Description::command))
    }

    fn of(command: &Command) -> Description {
        let is_own = |arg: &&Arg| !matches!(arg.get_id().as_str(), "help" | "version");
        let arguments = command.get_arguments().filter(is_own);
        Description {
            name: command.get_name().to_owned(),
            about: text(command.get_about()),
            aliases: command.get_visible_aliases().map(str::to_owned).collect(),
            arguments: arguments.map(|arg| Argument::of(arg, command)).collect(),
            commands: below(command),
        }
    }
}

fn below(command: &Command) -> Vec<Description> {
    let commands = command.get_subcommands();
    let shown = commands.filter(|it| !it.is_hide_set() && it.get_name() != "help");
    shown.map(Description::of).collect()
}

fn resettable(text: Option<String>) -> Resettable<StyledStr> {
    text.map_or(Resettable::Reset, |text| Resettable::Value(text.into()))
}

fn text(styled: Option<&StyledStr>) -> Option<String> {
    styled.map(ToString::to_string)
}

impl Argument {
    fn of(arg: &Arg, command: &Command) -> Argument {
        let count = arg.get_num_args().unwrap_or_default();
        let is_shown = |value: &PossibleValue| !value.is_hide_set();
        let values = arg.get_possible_values().into_iter().filter(is_shown);
        let value = |it: PossibleValue| (it.get_name().to_owned(), text(it.get_help()));
        let conflicts = command.get_arg_conflicts_with(arg);
        Argument {
            id: arg.get_id().to_string(),
            long: arg.get_long().map(str::to_owned),
            aliases: arg.get_visible_aliases().into_iter().flatten().map(str::to_owned).collect(),
            short: arg.get_short(),
            help: text(arg.get_help()),
            value_names: arg
                .get_value_names()
                .into_iter()
                .flatten()
                .map(ToString::to_string)
                .collect(),
            values: values.filter(|_| count.takes_values()).map(value).collect(),
            hint: format!("{:?}", arg.get_value_hint()),
            count: (count.min_values(), count.max_values()),
            is_required: arg.is_required_set(),
            is_repeated: matches!(arg.get_action(), ArgAction::Append | ArgAction::Count),
            is_hidden: arg.is_hide_set(),
            conflicts: conflicts.into_iter().map(|it| it.get_id().to_string()).collect(),
        }
    }

    fn action(&self) -> ArgAction {
        match (self.count.1 > 0, self.is_repeated) {
            (true, true) => ArgAction::Append,
            (true, false) => ArgAction::Set,
            (false, true) => ArgAction::Count,
            (false, false) => ArgAction::SetTrue,
        }
    }

    fn arg(self) -> Arg {
        let mut arg = Arg::new(self.id.clone())
            .action(self.action())
            .help(resettable(self.help))
            .required(self.is_required)
            .hide(self.is_hidden)
            .visible_aliases(self.aliases)
            .conflicts_with_all(self.conflicts);
        if let Some(long) = self.long {
            arg = arg.long(long);
        }
        if let Some(short) = self.short {
            arg = arg.short(short);
        }
        if self.count.1 == 0 {
            return arg;
        }
        arg = arg
            .num_args(self.count.0..=self.count.1)
            .value_hint(self.hint.parse().unwrap_or(ValueHint::Unknown));
        if !self.value_names.is_empty() {
            arg = arg.value_names(self.value_names);
        }
        if !self.values.is_empty() {
            let value = |(name, help): (String, Option<String>)| {
                PossibleValue::new(name).help(resettable(help))
            };
            arg = arg.value_parser(PossibleValuesParser::new(self.values.into_iter().map(value)));
        }
        arg
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap_complete::{Shell, generate};

    fn original() -> Command {
        let mode = PossibleValue::new("on").help("With it.");
        let modes = PossibleValuesParser::new([mode, PossibleValue::new("off")]);
        let create = Command::new("create").about("Make one.").visible_alias("new").arg(
            Arg::new("size")
                .long("size")
                .visible_alias("bytes")
                .required(true)
                .value_name("BYTES")
                .help("Its size."),
        );
        Command::new("serve")
            .about("Serve images.")
            .arg(Arg::new("images").required(true).num_args(1..).help("Images."))
            .arg(Arg::new("tls").long("tls").short('t').value_parser(modes).conflicts_with("quiet"))
            .arg(
                Arg::new("file")
                    .long("file")
                    .action(ArgAction::Append)
                    .value_hint(ValueHint::FilePath),
            )
            .arg(
                Arg::new("quiet").long("quiet").short('q').action(ArgAction::SetTrue).help("Less."),
            )
            .arg(Arg::new("old").long("old").action(ArgAction::SetTrue).hide(true))
            .subcommand(create)
    }

    fn scripts(serve: Command) -> Vec<String> {
        let mut root =
            Command::new("nowait").version("1").propagate_version(true).subcommand(serve);
        let script = |shell| {
            let mut text = Vec::new();
            generate(shell, &mut root, "nowait", &mut text);
            String::from_utf8(text).unwrap()
        };
        [Shell::Bash, Shell::Zsh, Shell::Fish].map(script).into()
    }

    #[test]
    fn a_described_command_is_completed_as_the_original() {
        let mut root = Command::new("nowait").version("1").propagate_version(true);
        root = root.subcommand(original()).subcommand(Command::new("describe").hide(true));
        root.build();
        let text = serde_json::to_vec(&below(&root)).unwrap();
        let mut read = Description::read(&text).unwrap();
        assert_eq!((read.len(), read[0].name()), (1, "serve"));
        assert_eq!(scripts(read.remove(0).command()), scripts(original()));
    }

    #[test]
    fn text_that_is_no_description_is_refused() {
        assert!(Description::read(b"nowait 0.1.0\n").is_none());
    }
}
