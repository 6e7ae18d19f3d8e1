//! Container log files in CRI format: `<time> <stdout|stderr> <F|P> <text>`, where `P` marks a partial line that continues in the next
//! entry.
//!
//! At [`MAX_BYTES`] a file is rotated to `<name>.1`; [`MAX_FILES`] are kept, as in a kubelet.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

pub(crate) const MAX_BYTES: u64 = 10 << 20;
pub(crate) const MAX_FILES: u32 = 5;
/// The maximum text length of an entry.
const MAX_TEXT: usize = 16 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

#[derive(Debug)]
pub(crate) struct LogWriter {
    path: PathBuf,
    file: File,
    size: u64,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl LogWriter {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        let size = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, size, stdout: Vec::new(), stderr: Vec::new() })
    }

    /// Accepts a container's output. Lines are buffered until they are complete or too long.
    pub(crate) fn write(&mut self, stream: Stream, data: &[u8], now: Timestamp) -> io::Result<()> {
        let pending = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        pending.extend_from_slice(data);
        let entries = take_entries(pending, stream, now);
        self.append(&entries)
    }

    /// Flushes the buffered line when the container has exited.
    pub(crate) fn finish(&mut self, now: Timestamp) -> io::Result<()> {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let pending = match stream {
                Stream::Stdout => std::mem::take(&mut self.stdout),
                Stream::Stderr => std::mem::take(&mut self.stderr),
            };
            if !pending.is_empty() {
                let mut entry = Vec::new();
                push_entry(&mut entry, stream, now, b'P', &pending);
                self.append(&entry)?;
            }
        }
        Ok(())
    }

    fn append(&mut self, entries: &[u8]) -> io::Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        if self.size > 0 && self.size + entries.len() as u64 > MAX_BYTES {
            for n in (1..MAX_FILES - 1).rev() {
                let _ = fs::rename(rotated(&self.path, n), rotated(&self.path, n + 1));
            }
            fs::rename(&self.path, rotated(&self.path, 1))?;
            self.file = open(&self.path)?;
            self.size = 0;
        }
        if let Err(error) = self.file.write_all(entries) {
            // A partial entry would corrupt the next one.
            let _ = self.file.set_len(self.size);
            return Err(error);
        }
        self.size += entries.len() as u64;
        Ok(())
    }

    /// Records that output was lost, once there is space again.
    pub(crate) fn lost(&mut self, bytes: u64, why: &str, now: Timestamp) -> io::Result<()> {
        let mut entry = Vec::new();
        let text = format!("[firesteel: {bytes} bytes of output could not be logged: {why}]");
        push_entry(&mut entry, Stream::Stderr, now, b'F', text.as_bytes());
        self.append(&entry)
    }
}

/// The name of the `n`th rotated file.
pub(crate) fn rotated(path: &Path, n: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{n}"));
    PathBuf::from(name)
}

/// The last lines of a log: a kubelet's fallback termination message (80 lines, 2048 bytes).
pub(crate) fn tail(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    let lines: Vec<&[u8]> = bytes.split(|b| *b == b'\n').filter(|l| !l.is_empty()).collect();
    let texts = lines.iter().skip(lines.len().saturating_sub(80)).filter_map(|l| l.splitn(4, |b| *b == b' ').nth(3));
    let text: Vec<u8> = texts.flat_map(|t| t.iter().copied().chain([b'\n'])).collect();
    let end = &text[text.len().saturating_sub(2048)..];
    Some(String::from_utf8_lossy(end).into_owned()).filter(|t| !t.is_empty())
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

fn take_entries(pending: &mut Vec<u8>, stream: Stream, now: Timestamp) -> Vec<u8> {
    let mut out = Vec::with_capacity(pending.len() + 64);
    let mut rest = pending.as_slice();
    loop {
        match rest.iter().position(|b| *b == b'\n') {
            Some(end) if end <= MAX_TEXT => {
                push_entry(&mut out, stream, now, b'F', &rest[..end]);
                rest = &rest[end + 1..];
            }
            _ if rest.len() > MAX_TEXT => {
                push_entry(&mut out, stream, now, b'P', &rest[..MAX_TEXT]);
                rest = &rest[MAX_TEXT..];
            }
            _ => break,
        }
    }
    let kept = rest.to_vec();
    *pending = kept;
    out
}

fn push_entry(out: &mut Vec<u8>, stream: Stream, now: Timestamp, tag: u8, text: &[u8]) {
    let name = match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    };
    // Always nine digits, so that entries sort and cut alike.
    out.extend_from_slice(format!("{now:.9} {name} ").as_bytes());
    out.push(tag);
    out.push(b' ');
    out.extend_from_slice(text);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-11-15T20:00:00.5Z".parse().expect("a time")
    }

    #[test]
    fn lines_are_kept_back_until_whole() {
        let mut pending = b"one\ntw".to_vec();
        let out = take_entries(&mut pending, Stream::Stdout, now());
        assert_eq!(String::from_utf8_lossy(&out), "2026-11-15T20:00:00.500000000Z stdout F one\n");
        assert_eq!(pending, b"tw");
    }

    #[test]
    fn long_lines_are_cut_into_parts() {
        let mut pending = vec![b'x'; MAX_TEXT + 3];
        pending.push(b'\n');
        let out = take_entries(&mut pending, Stream::Stderr, now());
        let text = String::from_utf8_lossy(&out);
        let tags: Vec<&str> = text.lines().map(|l| l.split(' ').nth(2).unwrap_or_default()).collect();
        assert_eq!(tags, ["P", "F"]);
        assert!(pending.is_empty());
    }

    #[test]
    fn a_full_file_is_rotated_and_few_are_kept() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("0.log");
        let mut log = LogWriter::create(&path).expect("a log");
        let line = [vec![b'y'; 15_000], b"\n".to_vec()].concat();
        for _ in 0..(6 * MAX_BYTES / 15_000) {
            log.write(Stream::Stdout, &line, now()).expect("a write");
        }
        assert!(rotated(&path, MAX_FILES - 1).exists());
        assert!(!rotated(&path, MAX_FILES).exists());
        assert!(fs::metadata(&path).expect("the log").len() <= MAX_BYTES);
    }
}
