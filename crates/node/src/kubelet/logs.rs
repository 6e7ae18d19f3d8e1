//! `/containerLogs/{namespace}/{pod}/{container}`: returns or follows a container's log.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path as UrlPath, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use tokio::sync::mpsc;

use super::{Api, refuse, streaming};
use crate::shim::log::{MAX_FILES, rotated};
use crate::shim_protocol::{ContainerState, PodDir, PodRecord};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Options {
    follow: Option<String>,
    previous: Option<String>,
    timestamps: Option<String>,
    tail_lines: Option<u64>,
    since_seconds: Option<i64>,
    since_time: Option<Timestamp>,
    limit_bytes: Option<u64>,
    stream: Option<String>,
}

fn is_on(word: Option<&String>) -> bool {
    word.is_some_and(|w| matches!(w.as_str(), "true" | "1" | "True" | "TRUE" | "t" | "T"))
}

const POLL: Duration = Duration::from_millis(50);
const CHUNK: usize = 32 << 10;

pub(super) async fn serve(
    State(api): State<Arc<Api>>,
    UrlPath((namespace, pod, container)): UrlPath<(String, String, String)>,
    Query(options): Query<Options>,
) -> Response {
    let dir = match api.find_container(&namespace, &pod, &container) {
        Ok(found) => found,
        Err(response) => return *response,
    };
    let attempt = match attempt_of(&dir, &container, is_on(options.previous.as_ref())) {
        Ok(attempt) => attempt,
        Err(why) => return refuse(StatusCode::BAD_REQUEST, format!("{why} in pod \"{pod}\"")),
    };
    let (sender, receiver) = mpsc::channel(16);
    tokio::task::spawn_blocking(move || {
        let mut reader = Reader {
            path: dir.log(&container, attempt),
            dir,
            container,
            attempt,
            filter: Filter::new(&options, Timestamp::now()),
            follow: is_on(options.follow.as_ref()),
        };
        if let Err(error) = reader.copy(&sender) {
            let _ = sender.blocking_send(Err(error));
        }
    });
    ([(header::CONTENT_TYPE, "text/plain")], streaming(receiver)).into_response()
}

pub(super) fn record(dir: &PodDir) -> PodRecord {
    std::fs::read(dir.state()).ok().and_then(|b| serde_json::from_slice(&b).ok()).unwrap_or_default()
}

fn attempt_of(dir: &PodDir, container: &str, previous: bool) -> Result<u32, String> {
    let record = record(dir);
    let Some(found) = record.containers.get(container) else {
        return Err(format!("container \"{container}\" is waiting to start: ContainerCreating"));
    };
    match (previous, found.attempt) {
        (false, attempt) => Ok(attempt),
        (true, 0) => Err(format!("previous terminated container \"{container}\" not found")),
        (true, attempt) => Ok(attempt - 1),
    }
}

/// An entry of a log file.
struct Entry<'a> {
    time: &'a str,
    stream: &'a str,
    whole: bool,
    text: &'a [u8],
}

fn parse(line: &[u8]) -> Option<Entry<'_>> {
    let mut parts = line.splitn(4, |b| *b == b' ');
    let time = std::str::from_utf8(parts.next()?).ok()?;
    let stream = std::str::from_utf8(parts.next()?).ok()?;
    let whole = parts.next()? == b"F";
    Some(Entry { time, stream, whole, text: parts.next().unwrap_or_default() })
}

/// The requested part of a log.
#[derive(Debug)]
struct Filter {
    timestamps: bool,
    since: Option<Timestamp>,
    tail: Option<u64>,
    left: Option<u64>,
    stream: Option<String>,
    /// The last entry was a partial line.
    inside_line: bool,
}

impl Filter {
    fn new(options: &Options, now: Timestamp) -> Self {
        let seconds = options.since_seconds.and_then(|s| now.checked_sub(SignedDuration::from_secs(s)).ok());
        Self {
            timestamps: is_on(options.timestamps.as_ref()),
            since: options.since_time.or(seconds),
            tail: options.tail_lines,
            left: options.limit_bytes,
            stream: options.stream.clone().filter(|s| s != "All").map(|s| s.to_lowercase()),
            inside_line: false,
        }
    }

    /// The text to send for an entry; `None` once the limit is reached.
    fn take(&mut self, line: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let Some(entry) = parse(line) else { return Some(()) };
        if self.stream.as_ref().is_some_and(|s| s != entry.stream) {
            return Some(());
        }
        if let Some(since) = self.since
            && entry.time.parse::<Timestamp>().is_ok_and(|t| t < since)
        {
            return Some(());
        }
        let begin = out.len();
        if self.timestamps && !self.inside_line {
            out.extend_from_slice(entry.time.as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(entry.text);
        if entry.whole {
            out.push(b'\n');
        }
        self.inside_line = !entry.whole;
        if let Some(left) = &mut self.left {
            let added = (out.len() - begin) as u64;
            if added >= *left {
                out.truncate(begin + usize::try_from(*left).unwrap_or(usize::MAX));
                *left = 0;
                return None;
            }
            *left -= added;
        }
        Some(())
    }
}

struct Reader {
    path: PathBuf,
    dir: PodDir,
    container: String,
    attempt: u32,
    filter: Filter,
    follow: bool,
}

type LogSender = mpsc::Sender<Result<Bytes, io::Error>>;

impl Reader {
    fn copy(&mut self, sender: &LogSender) -> io::Result<()> {
        let mut skip = match self.filter.tail {
            Some(tail) => lines_in(&self.path)?.saturating_sub(tail),
            None => 0,
        };
        for n in (1..MAX_FILES).rev() {
            if let Ok(file) = File::open(rotated(&self.path, n))
                && !self.copy_file(&mut BufReader::new(file), &mut skip, sender)?
            {
                return Ok(());
            }
        }
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        loop {
            let inode = file.metadata()?.ino();
            let mut reader = BufReader::new(file);
            loop {
                // Check before reading, so that everything written before the exit is read.
                let live = self.is_live();
                if !self.copy_file(&mut reader, &mut skip, sender)? || sender.is_closed() {
                    return Ok(());
                }
                if std::fs::metadata(&self.path).is_ok_and(|m| m.ino() != inode) {
                    self.copy_file(&mut reader, &mut skip, sender)?;
                    break;
                }
                if !self.follow || !live {
                    return Ok(());
                }
                std::thread::sleep(POLL);
            }
            file = self.after(inode)?;
        }
    }

    /// The file after the one with this inode. A container may fill several files between two polls.
    fn after(&self, inode: u64) -> io::Result<File> {
        let is_that = |path: &Path| std::fs::metadata(path).is_ok_and(|m| m.ino() == inode);
        let found = (1..MAX_FILES).find(|n| is_that(&rotated(&self.path, *n)));
        let newer = match found {
            Some(n) => n - 1,
            // It has been rotated away: continue with the oldest file.
            None => (1..MAX_FILES).rev().find(|n| rotated(&self.path, *n).exists()).unwrap_or(0),
        };
        File::open(if newer == 0 { self.path.clone() } else { rotated(&self.path, newer) })
    }

    fn is_live(&self) -> bool {
        record(&self.dir)
            .containers
            .get(&self.container)
            .is_some_and(|c| c.attempt == self.attempt && !matches!(c.state, ContainerState::Exited(_)))
    }

    /// Sends what is available; `false` once enough has been sent.
    fn copy_file(&mut self, reader: &mut BufReader<File>, skip: &mut u64, sender: &LogSender) -> io::Result<bool> {
        let mut out = Vec::new();
        let mut line = Vec::new();
        let mut more = true;
        while more {
            line.clear();
            reader.read_until(b'\n', &mut line)?;
            if !line.ends_with(b"\n") {
                // An incomplete entry: entries are written whole, but a read can split one.
                let back = i64::try_from(line.len()).unwrap_or(0);
                reader.seek_relative(-back)?;
                break;
            }
            line.pop();
            if *skip > 0 {
                *skip -= u64::from(parse(&line).is_none_or(|e| e.whole));
                continue;
            }
            more = self.filter.take(&line, &mut out).is_some();
            if out.len() >= CHUNK && sender.blocking_send(Ok(Bytes::from(std::mem::take(&mut out)))).is_err() {
                return Ok(false);
            }
        }
        if !out.is_empty() && sender.blocking_send(Ok(Bytes::from(out))).is_err() {
            return Ok(false);
        }
        Ok(more)
    }
}

/// The lines of a log, including rotated files.
fn lines_in(path: &Path) -> io::Result<u64> {
    let files: VecDeque<PathBuf> = (1..MAX_FILES).rev().map(|n| rotated(path, n)).chain([path.to_owned()]).collect();
    let mut count = 0;
    for file in files {
        let Ok(file) = File::open(file) else { continue };
        let mut partial = false;
        for line in BufReader::new(file).split(b'\n') {
            let whole = parse(&line?).is_none_or(|e| e.whole);
            count += u64::from(whole);
            partial = !whole;
        }
        count += u64::from(partial);
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "2026-11-15T20:00:00.000000000Z stdout F one\n2026-11-15T20:00:01.000000000Z stderr P tw\n2026-11-15T20:00:01.000000000Z stderr F o\n2026-11-15T20:00:02.000000000Z stdout F three\n";

    fn read(options: &Options) -> String {
        let dir = tempfile::tempdir().expect("dir");
        let dir = PodDir::at(dir.path());
        let path = dir.path().join("0.log");
        std::fs::create_dir_all(dir.path()).expect("dir");
        std::fs::write(&path, LOG).expect("log");
        let (sender, mut receiver) = mpsc::channel(64);
        let now = "2026-11-15T20:00:03Z".parse().expect("time");
        let mut reader = Reader {
            path,
            dir,
            container: "c".to_owned(),
            attempt: 0,
            filter: Filter::new(options, now),
            follow: false,
        };
        reader.copy(&sender).expect("a copy");
        drop(sender);
        let mut out = Vec::new();
        while let Ok(Ok(part)) = receiver.try_recv() {
            out.extend_from_slice(&part);
        }
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn files_that_were_filled_between_two_looks_are_not_left_out() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("0.log");
        let line = |text: &str| format!("2026-11-15T20:00:00.000000000Z stdout F {text}\n");
        for (name, text) in [("0.log.2", "one"), ("0.log.1", "two"), ("0.log", "three")] {
            std::fs::write(dir.path().join(name), line(text)).expect("log");
        }
        let reader = Reader {
            path: path.clone(),
            dir: PodDir::at(dir.path()),
            container: "c".to_owned(),
            attempt: 0,
            filter: Filter::new(&Options::default(), Timestamp::now()),
            follow: true,
        };
        let inode = |path: &Path| std::fs::metadata(path).expect("a file").ino();
        let text = |file: File| io::read_to_string(file).expect("text");
        assert_eq!(text(reader.after(inode(&rotated(&path, 2))).expect("a file")), line("two"));
        assert_eq!(text(reader.after(inode(&rotated(&path, 1))).expect("a file")), line("three"));
        assert_eq!(text(reader.after(0).expect("a file")), line("one"), "what was being read is gone");
    }

    #[test]
    fn options_choose_what_is_sent() {
        let all = Options::default();
        assert_eq!(read(&all), "one\ntwo\nthree\n");
        assert_eq!(read(&Options { tail_lines: Some(2), ..all.clone() }), "two\nthree\n");
        assert_eq!(read(&Options { tail_lines: Some(0), ..all.clone() }), "");
        assert_eq!(read(&Options { limit_bytes: Some(5), ..all.clone() }), "one\nt");
        assert_eq!(read(&Options { since_seconds: Some(1), ..all.clone() }), "three\n");
        assert_eq!(read(&Options { stream: Some("Stderr".to_owned()), ..all.clone() }), "two\n");
        assert_eq!(
            read(&Options { timestamps: Some("true".to_owned()), tail_lines: Some(1), ..all }),
            "2026-11-15T20:00:02.000000000Z three\n"
        );
    }
}
