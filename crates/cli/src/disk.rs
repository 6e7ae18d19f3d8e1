//! The submitter's files, by path or `file:` URI.

use std::borrow::Cow;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use firesteel_spark::Files;

/// The file system of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Disk;

impl Files for Disk {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        fs::read(local(path)?)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<(String, u64)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(local(dir)?)? {
            let entry = entry?;
            // Follow links: a mounted ConfigMap consists of symlinks.
            let Ok(meta) = fs::metadata(entry.path()) else { continue };
            if let (true, Ok(name)) = (meta.is_file(), entry.file_name().into_string()) {
                found.push((name, meta.len()));
            }
        }
        found.sort();
        Ok(found)
    }

    fn directories(&self, dir: &str) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(local(dir)?)? {
            let entry = entry?;
            if let (true, Ok(name)) = (entry.path().is_dir(), entry.file_name().into_string()) {
                found.push(name);
            }
        }
        found.sort();
        Ok(found)
    }

    fn canonical(&self, path: &str) -> io::Result<String> {
        let real = fs::canonicalize(local(path)?)?;
        real.into_os_string().into_string().map_err(|_| io::Error::other(format!("{path}: its name is not UTF-8")))
    }
}

/// The path named by a path or a `file:` URI.
pub(crate) fn local(path: &str) -> io::Result<Cow<'_, Path>> {
    if !path.starts_with("file:") {
        return Ok(Cow::Borrowed(Path::new(path)));
    }
    let url = url::Url::parse(path).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let path: Result<PathBuf, ()> = url.to_file_path();
    path.map(Cow::Owned)
        .map_err(|()| io::Error::new(io::ErrorKind::InvalidInput, format!("{url} is not a path on this machine")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_and_paths_name_the_same_file() {
        for text in ["/tmp/a b", "file:/tmp/a%20b", "file:///tmp/a%20b", "file://localhost/tmp/a%20b"] {
            assert_eq!(local(text).expect("a path"), Path::new("/tmp/a b"), "{text}");
        }
        assert!(local("file://elsewhere/tmp/x").is_err());
    }

    #[test]
    fn listing_takes_plain_files_through_links_only() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("b.xml"), "12").expect("written");
        fs::create_dir(dir.path().join("sub")).expect("made");
        std::os::unix::fs::symlink("b.xml", dir.path().join("a.xml")).expect("linked");
        std::os::unix::fs::symlink("nowhere", dir.path().join("c.xml")).expect("linked");
        let found = Disk.list(dir.path().to_str().expect("UTF-8")).expect("listed");
        assert_eq!(found, [("a.xml".to_owned(), 2), ("b.xml".to_owned(), 2)]);
    }
}
