//! Spark's own Connect client from PyPI, for tests, and programs in the background.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A client that runs queries until its server is replaced, then goes on with a new session.
pub(crate) const QUERIES: &str = include_str!("connect.py");

/// How long a server or a query may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// A program in the background, ended when dropped.
pub(crate) struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
    heard: Vec<String>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Running {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (send, lines) = mpsc::channel();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let more = send.clone();
        std::thread::spawn(move || BufReader::new(out).lines().map_while(Result::ok).for_each(|l| drop(send.send(l))));
        std::thread::spawn(move || BufReader::new(err).lines().map_while(Result::ok).for_each(|l| drop(more.send(l))));
        Running { child, lines, heard: Vec::new() }
    }

    /// Waits for a line that starts like this.
    pub(crate) fn hear(&mut self, start: &str) -> String {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            match self.lines.recv_timeout(Duration::from_secs(1)) {
                Ok(line) => {
                    self.heard.push(line.clone());
                    if line.starts_with(start) {
                        return line;
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        panic!("never heard {start:?} in {:.0?}: {}", began.elapsed(), self.heard.join("\n"));
    }

    /// Ctrl-C; returns the exit code.
    pub(crate) fn interrupt(mut self) -> i32 {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the extra `connect` of the package asks for.
const EXTRA: [&str; 6] = ["pandas", "pyarrow", "grpcio", "grpcio-status", "googleapis-common-protos", "zstandard"];

/// A Python with `pyspark[connect]` of this version: the release from PyPI that the images are made from, and what its extra
/// asks for, fetched once. `None` if that is impossible.
pub(crate) fn client(version: &str) -> Option<Command> {
    let venv = own_cache().join("clients/pyspark-connect");
    let python = venv.join("bin/python");
    let imports = "import pandas, pyarrow, grpc, grpc_status, google.rpc, zstandard";
    if !Command::new(&python).args(["-c", imports]).output().is_ok_and(|output| output.status.success()) {
        std::fs::create_dir_all(venv.parent().unwrap()).unwrap();
        let made = Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv).status();
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet"]).args(EXTRA);
        if !made.is_ok_and(|status| status.success()) || !pip.status().is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED, no Connect client: pip could not fetch {}", EXTRA.join(", "));
            return None;
        }
    }
    let release = own_cache().join(format!("runtimes/spark-{version}/python"));
    let zips = std::fs::read_dir(release.join("lib")).unwrap().flatten().map(|entry| entry.path());
    let py4j = zips.filter(|path| path.to_string_lossy().contains("py4j-"));
    let path = std::env::join_paths(std::iter::once(release.clone()).chain(py4j)).unwrap();
    let mut command = Command::new(&python);
    command.arg("-u").env("PYTHONPATH", path).env_remove("SPARK_HOME").env_remove("SPARK_REMOTE");
    Some(command)
}

/// The cache of the user who runs the tests.
pub(crate) fn own_cache() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    base.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache")).join("firesteel")
}
