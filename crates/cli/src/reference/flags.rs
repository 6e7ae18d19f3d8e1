//! Flags of every verb, from clap.

use clap::{Arg, Command, CommandFactory};

use super::{cell, code, table};

pub(super) fn page() -> String {
    let mut body = String::new();
    for verb in crate::Cli::command().get_subcommands().filter(|verb| !verb.is_hide_set()) {
        // spark-submit's options are not parsed by clap; their description comes from the parser's table.
        let verb = if verb.get_name() == "submit" { crate::submit::usage::command() } else { verb.clone() };
        section(&verb, "firesteel", &mut body);
    }
    body.push_str("## Flags of the existing operator\n\n");
    body.push_str(
        "What `firesteel operator` does with each flag of the existing operator's controller. Flags for metrics are above. \
         A flag that is refused ends the process with exit code 2 and a sentence that says what to use instead; its default \
         value is always accepted.\n\n",
    );
    let existing = crate::operator::existing::FLAGS.iter();
    let rows = existing.map(|row| vec![code(&format!("--{}", row.flag)), cell(row.here)]);
    body.push_str(&table(&["flag", "what happens"], rows));
    body.push('\n');
    body.push_str("## Flags of the existing operator that have no effect\n\n");
    body.push_str("`firesteel operator` accepts them and prints one line that names the replacement.\n\n");
    let retired = crate::operator::flags::RETIRED.iter();
    body.push_str(&table(&["flag", "instead"], retired.map(|(flag, why)| vec![code(&format!("--{flag}")), cell(why)])));
    super::page("Flags", "For people who call `firesteel`: every verb and its flags.", &body)
}

fn section(verb: &Command, parent: &str, body: &mut String) {
    let name = format!("{parent} {}", verb.get_name());
    let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
    body.push_str(&format!("## {name}\n\n{about}.\n\n"));
    let arguments: Vec<&Arg> = verb.get_arguments().filter(|argument| !is_help(argument)).collect();
    if !arguments.is_empty() {
        let rows = arguments.iter().map(|argument| row(argument));
        body.push_str(&table(&["flag", "default", "meaning"], rows));
        body.push('\n');
    }
    for inner in verb.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help") {
        section(inner, &name, body);
    }
}

fn is_help(argument: &Arg) -> bool {
    matches!(argument.get_id().as_str(), "help" | "version") && argument.get_help_heading().is_none()
        || argument.is_hide_set()
}

fn row(argument: &Arg) -> Vec<String> {
    let values = argument.get_action().takes_values();
    let value = argument.get_value_names().filter(|_| values).map(|names| names.join(" ")).unwrap_or_default();
    let mut written: Vec<String> = argument.get_short().map(|short| format!("-{short}")).into_iter().collect();
    written.extend(argument.get_long().map(|long| format!("--{long}")));
    let written = match (written.join(", "), value) {
        (flag, value) if flag.is_empty() => format!("<{value}>"),
        (flag, value) if value.is_empty() => flag,
        (flag, value) => format!("{flag} {value}"),
    };
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let (help, told) = match help.split_once(" [default: ") {
        Some((help, rest)) => {
            let (default, after) = rest.split_once(']').unwrap_or((rest, ""));
            (format!("{help}{after}"), default.to_owned())
        }
        None => (help, String::new()),
    };
    let default = argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect::<Vec<_>>();
    let default = if default.iter().all(|value| value.is_empty()) || !values { told } else { default.join(",") };
    let choices: Vec<String> = match argument.get_possible_values() {
        choices if values => choices.iter().map(|choice| code(choice.get_name())).collect(),
        _ => Vec::new(),
    };
    let help = if choices.is_empty() { help } else { format!("{help}: {}", choices.join(", ")) };
    vec![code(&written), cell(&default), cell(&help)]
}
