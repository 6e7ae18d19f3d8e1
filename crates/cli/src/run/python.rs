//! The Python of a run: the active environment's, which is asked for the files it needs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::exit::BadInput;

/// Prints the interpreter's path and its module search path, without PYTHONPATH and the user's site directory, which pods lack.
const ASK: &str = "import sys\nprint('\\n'.join([sys.executable, sys.prefix, sys.base_prefix, *sys.path]))";

/// An interpreter of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Python {
    pub(crate) program: PathBuf,
    /// The files and directories it needs.
    pub(crate) needs: Vec<PathBuf>,
}

/// The interpreter that the environment names: `PYSPARK_PYTHON`, else the active virtual environment's, else the active conda
/// environment's. With a warning if an environment has no usable one.
pub(crate) fn active(env: &BTreeMap<String, String>, cwd: &Path) -> Result<(Option<Python>, Option<String>), BadInput> {
    let named = |name: &str| env.get(name).filter(|value| !value.is_empty());
    if let Some(program) = named("PYSPARK_PYTHON") {
        let python = find(program, cwd, env).ok_or_else(|| "there is no such program".to_owned()).and_then(|p| ask(&p));
        return match python {
            Ok(python) => Ok((Some(python), None)),
            Err(why) => Err(BadInput(format!("PYSPARK_PYTHON is {program}: {why}"))),
        };
    }
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        let Some(directory) = named(name) else { continue };
        return match ask(&cwd.join(directory).join("bin/python")) {
            Ok(python) => Ok((Some(python), None)),
            Err(why) => Ok((None, Some(format!("{name} is {directory}, but its Python is not used: {why}")))),
        };
    }
    Ok((None, None))
}

/// The interpreter that a setting names, if it is on this machine.
pub(crate) fn named(program: &str) -> Option<Python> {
    let path = Path::new(program);
    if path.is_absolute() { ask(path).ok() } else { None }
}

fn find(program: &str, cwd: &Path, env: &BTreeMap<String, String>) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(cwd.join(program)).filter(|path| path.exists());
    }
    let directories = std::env::split_paths(env.get("PATH")?).collect::<Vec<PathBuf>>();
    directories.into_iter().map(|directory| cwd.join(directory).join(program)).find(|path| path.is_file())
}

fn ask(program: &Path) -> Result<Python, String> {
    let mut command = Command::new(program);
    command.args(["-E", "-s", "-c", ASK]).stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("{} does not start: {error}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = said.lines().collect();
    let [executable, places @ ..] = lines.as_slice() else {
        let why = String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or("no output").to_owned();
        return Err(format!("{} is not a Python interpreter: {why}", program.display()));
    };
    // A pod cannot start a shim, only the interpreter behind it.
    let program = if executable.is_empty() { program.to_owned() } else { PathBuf::from(executable) };
    let mut needs: Vec<PathBuf> = places.iter().filter(|p| !p.is_empty()).map(PathBuf::from).collect();
    needs.retain(|place| place.is_absolute() && place.exists());
    needs.push(program.clone());
    Ok(Python { program, needs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    /// A virtual environment without pip.
    fn venv(directory: &Path) -> String {
        let made = Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(directory).status();
        assert!(made.is_ok_and(|status| status.success()), "python3 -m venv works");
        directory.to_string_lossy().into_owned()
    }

    #[test]
    fn the_active_environment_is_asked_what_it_needs() {
        let directory = tempfile::tempdir().unwrap();
        let one = venv(&directory.path().join("one"));
        let none = Path::new("/");
        for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
            let (python, word) = active(&env(&[(name, &one)]), none).unwrap();
            let python = python.expect("a Python");
            assert_eq!((python.program, word), (Path::new(&one).join("bin/python"), None), "{name}");
            assert!(python.needs.contains(&PathBuf::from(&one)), "{:?}", python.needs);
            assert!(python.needs.iter().any(|p| p.ends_with("site-packages")), "{:?}", python.needs);
        }
        // Spark's own variable wins, relative to the current directory.
        let both = env(&[("PYSPARK_PYTHON", "one/bin/python"), ("VIRTUAL_ENV", "/nowhere")]);
        let (python, _) = active(&both, directory.path()).unwrap();
        assert_eq!(python.map(|p| p.program), Some(Path::new(&one).join("bin/python")));
        assert_eq!(active(&BTreeMap::new(), none).unwrap(), (None, None));
    }

    #[test]
    fn what_is_no_python_is_said() {
        let said =
            active(&env(&[("PYSPARK_PYTHON", "no-such-python"), ("PATH", "/bin")]), Path::new("/")).unwrap_err().0;
        assert_eq!(said, "PYSPARK_PYTHON is no-such-python: there is no such program");
        let (python, word) = active(&env(&[("VIRTUAL_ENV", "/nowhere")]), Path::new("/")).unwrap();
        assert_eq!(python, None);
        assert!(word.is_some_and(|w| w.starts_with("VIRTUAL_ENV is /nowhere, but its Python is not used: ")));
        let directory = tempfile::tempdir().unwrap();
        let empty = directory.path().join("bin");
        fs::create_dir(&empty).unwrap();
        assert_eq!(named("python3"), None, "a word for the image to understand");
    }
}
