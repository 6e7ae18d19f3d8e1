//! How `firesteel run` was called: with manifests, or with spark-submit's arguments.
//!
//! The first word that is not one of our options decides. After a manifest come further manifests and our options, in any
//! order; an application's arguments are in its manifest. After a jar or a script, everything belongs to the application.

use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use crate::exit::BadInput;

/// Options of the run itself.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Own {
    /// Leave the local cluster running, with everything that ran on it
    #[arg(long)]
    pub(crate) keep: bool,
    /// Mount a directory of this machine into the pods, at the same path; `:ro` makes it read-only; may be repeated
    #[arg(long, value_name = "DIR[:ro]")]
    pub(crate) mount: Vec<String>,
    /// Skip the class archive for faster starts, which a first run on a terminal creates
    #[arg(long)]
    pub(crate) no_quick_starts: bool,
    /// Data directory of the local cluster [default: $XDG_DATA_HOME/firesteel]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

/// The first manifest and everything after it.
#[derive(Debug, Parser)]
#[command(
    name = "firesteel run",
    about = "Run the applications in manifests on this machine and follow them until they end"
)]
struct Words {
    #[command(flatten)]
    own: Own,
    /// Manifests; `-` is stdin
    #[arg(value_name = "FILE")]
    files: Vec<String>,
}

/// How the program was called.
#[derive(Debug)]
pub(crate) enum Call {
    Manifests { own: Own, files: Vec<String> },
    Submission(Own),
    Help(String),
}

/// Reads the words after our leading options.
pub(crate) fn read(first: Own, words: &[String]) -> Result<Call, BadInput> {
    let Some(manifest) = words.first().filter(|word| is_manifest(word)) else { return Ok(Call::Submission(first)) };
    let program = String::new();
    let Words { own, files } = match Words::try_parse_from(std::iter::once(&program).chain(words)) {
        Ok(read) => read,
        Err(error) if error.kind() == ErrorKind::DisplayHelp => return Ok(Call::Help(error.to_string())),
        Err(error) => return Err(refusal(&error, manifest)),
    };
    if let Some(strange) = files.iter().find(|word| !is_manifest(word)) {
        return Err(stray(strange, manifest));
    }
    if own.data_dir.is_some() && first.data_dir.is_some() {
        return Err(BadInput("--data-dir is given twice; there is one local cluster to run on".to_owned()));
    }
    let own = Own {
        keep: first.keep || own.keep,
        no_quick_starts: first.no_quick_starts || own.no_quick_starts,
        mount: first.mount.into_iter().chain(own.mount).collect(),
        data_dir: own.data_dir.or(first.data_dir),
    };
    Ok(Call::Manifests { own, files })
}

/// Whether a word names a manifest.
pub(crate) fn is_manifest(word: &str) -> bool {
    word == "-" || [".yaml", ".yml", ".json"].iter().any(|end| word.to_lowercase().ends_with(end))
}

/// Whether a word is one of our options.
pub(crate) fn is_own(word: &str) -> bool {
    let name = word.split('=').next().unwrap_or_default();
    Words::command().get_opts().any(|option| option.get_long().is_some_and(|long| name == format!("--{long}")))
}

fn refusal(error: &clap::Error, manifest: &str) -> BadInput {
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(word))) => stray(word, manifest),
        _ => {
            let text = error.to_string();
            let words = text.lines().next().unwrap_or_default();
            BadInput(words.strip_prefix("error: ").unwrap_or(words).to_owned())
        }
    }
}

fn stray(word: &str, manifest: &str) -> BadInput {
    let manifest =
        if manifest == "-" { "the manifest on stdin".to_owned() } else { format!("the manifest {manifest}") };
    BadInput(format!(
        "`{word}` after {manifest} is neither a manifest nor an option of `firesteel run`; an application's settings and \
         arguments belong in its manifest (spec.sparkConf, spec.arguments)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> Own {
        Own { keep: false, no_quick_starts: false, mount: Vec::new(), data_dir: None }
    }

    fn call(first: Own, words: &[&str]) -> Result<Call, String> {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        read(first, &words).map_err(|e| e.0)
    }

    fn files(words: &[&str]) -> (Own, Vec<String>) {
        match call(none(), words) {
            Ok(Call::Manifests { own, files }) => (own, files),
            other => panic!("{words:?}: {other:?}"),
        }
    }

    #[test]
    fn options_of_ours_may_stand_behind_and_between_manifests() {
        let words = ["a.yaml", "--data-dir", "d", "b.YML", "--keep", "-", "--mount", "x:ro", "--no-quick-starts"];
        let (own, found) = files(&words);
        assert_eq!(own.mount, ["x:ro"]);
        assert_eq!(found, ["a.yaml", "b.YML", "-"]);
        assert!(own.keep && own.no_quick_starts);
        assert_eq!(own.data_dir, Some(PathBuf::from("d")));
        assert_eq!(files(&["-", "--data-dir=e"]).0.data_dir, Some(PathBuf::from("e")));
        assert!(!files(&["a.json"]).0.keep);
    }

    #[test]
    fn options_before_and_behind_count_alike() {
        let first = Own { keep: true, no_quick_starts: false, mount: vec!["a".to_owned()], data_dir: Some("d".into()) };
        let Ok(Call::Manifests { own, .. }) = call(first.clone(), &["a.yaml", "--no-quick-starts", "--mount=b"]) else {
            panic!()
        };
        assert!(own.keep && own.no_quick_starts);
        assert_eq!(own.mount, ["a", "b"]);
        assert_eq!(own.data_dir, Some(PathBuf::from("d")));
        assert!(call(first, &["a.yaml", "--data-dir", "e"]).expect_err("twice").contains("given twice"));
        assert!(
            call(none(), &["a.yaml", "--data-dir", "d", "--data-dir", "e"])
                .expect_err("twice")
                .contains("multiple times")
        );
    }

    #[test]
    fn words_of_an_application_are_not_ours() {
        for words in [
            &["app.py", "conf.yaml", "--data-dir", "d"][..],
            &["--class", "Main", "app.jar", "--keep"],
            &["app.jar", "--data-dir"],
            &["run-example", "SparkPi"],
        ] {
            let Ok(Call::Submission(own)) = call(none(), words) else { panic!("{words:?}") };
            assert!(!own.keep && own.data_dir.is_none(), "{words:?}");
        }
    }

    #[test]
    fn what_is_left_over_behind_a_manifest_is_one_sentence() {
        for (words, wanted) in [
            (&["a.yaml", "1000"][..], "`1000` after the manifest a.yaml is neither a manifest nor an option"),
            (&["-", "--conf", "a=b"], "`--conf` after the manifest on stdin is neither"),
            (&["a.yaml", "--executor-memory=1g"], "`--executor-memory` after the manifest a.yaml"),
            (&["a.yaml", "-x"], "`-x` after the manifest a.yaml"),
            (&["a.yaml", "--data-dir"], "a value is required for '--data-dir <DIR>'"),
        ] {
            let said = call(none(), words).expect_err("refused");
            assert!(said.contains(wanted), "{words:?}: {said}");
            assert_eq!(said.lines().count(), 1, "{words:?}: {said}");
        }
    }

    #[test]
    fn help_is_help_also_behind_a_manifest() {
        let Ok(Call::Help(text)) = call(none(), &["a.yaml", "--help"]) else { panic!() };
        assert!(text.contains("--data-dir <DIR>"), "{text}");
    }
}
