//! An image layer: a tar file whose bytes depend only on its content.
//!
//! Every path is added once; the first one wins. Paths are relative, without a leading slash. Missing parent directories are
//! created. The base is a merged `/usr`: `bin/x` becomes `usr/bin/x` (see [`Layer::merged_usr`]).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use tar::{EntryType, Header};

use crate::runtime::RuntimeError;

/// The default time of entries (2024-01-01), unless `SOURCE_DATE_EPOCH` is set.
const TIME: u64 = 1_704_067_200;
const MERGED: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

#[derive(Debug, Clone, Copy)]
pub(super) enum Owner {
    Of(u32, u32),
    AsOnDisk,
}

pub(super) struct Layer<'a> {
    tar: tar::Builder<&'a mut dyn Write>,
    seen: BTreeSet<String>,
    time: u64,
    merged: bool,
}

impl<'a> Layer<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Self {
        let time = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|t| t.parse().ok()).unwrap_or(TIME);
        Self { tar: tar::Builder::new(out), seen: BTreeSet::new(), time, merged: false }
    }

    /// From now on `bin`, `lib` and so on are symlinks into `usr`, as on every current Debian.
    pub(super) fn merged_usr(&mut self) -> Result<(), RuntimeError> {
        for name in ["bin", "sbin", "lib", "lib64"] {
            self.directory(&format!("usr/{name}"), 0o755, Owner::Of(0, 0))?;
            self.link(name, &format!("usr/{name}"))?;
        }
        self.merged = true;
        Ok(())
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.seen.contains(&self.place(path))
    }

    pub(super) fn directory(&mut self, path: &str, mode: u32, owner: Owner) -> Result<(), RuntimeError> {
        let mut header = self.header(EntryType::Directory, mode, owner);
        self.put(path, &mut header, None, &mut io::empty())
    }

    pub(super) fn file(&mut self, path: &str, mode: u32, owner: Owner, content: &[u8]) -> Result<(), RuntimeError> {
        let mut header = self.header(EntryType::Regular, mode, owner);
        header.set_size(content.len() as u64);
        self.put(path, &mut header, None, &mut &content[..])
    }

    pub(super) fn link(&mut self, path: &str, to: &str) -> Result<(), RuntimeError> {
        let mut header = self.header(EntryType::Symlink, 0o777, Owner::Of(0, 0));
        self.put(path, &mut header, Some(to), &mut io::empty())
    }

    /// Adds an entry of another archive, with its mode, owner and time.
    pub(super) fn entry(
        &mut self,
        path: &str,
        from: &Header,
        link: Option<&str>,
        content: &mut dyn Read,
    ) -> Result<(), RuntimeError> {
        let number = |n: io::Result<u64>| n.ok().and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
        let owner = Owner::Of(number(from.uid()), number(from.gid()));
        let mut header = self.header(from.entry_type(), from.mode().unwrap_or(0o644), owner);
        header.set_size(from.size().unwrap_or(0));
        header.set_mtime(from.mtime().unwrap_or(self.time));
        // Hard links name a path of the archive, which moves like all others; symlinks stay as they are.
        let moved = link.map(|to| if from.entry_type().is_hard_link() { self.place(to) } else { to.to_owned() });
        self.put(path, &mut header, moved.as_deref(), content)
    }

    /// Adds a directory tree below `place`, sorted by name. `tell` gets the number of bytes added.
    pub(super) fn tree(
        &mut self,
        dir: &Path,
        place: &str,
        owner: Owner,
        tell: &mut dyn FnMut(u64),
    ) -> Result<(), RuntimeError> {
        let mut done = 0;
        self.subtree(dir, place.trim_matches('/'), owner, &mut done, tell)
    }

    fn subtree(
        &mut self,
        dir: &Path,
        place: &str,
        owner: Owner,
        done: &mut u64,
        tell: &mut dyn FnMut(u64),
    ) -> Result<(), RuntimeError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |e| RuntimeError::file(&path, e)
        };
        let about = fs::symlink_metadata(dir).map_err(failed(dir))?;
        let of = |about: &fs::Metadata| match owner {
            Owner::AsOnDisk => Owner::Of(about.uid(), about.gid()),
            given => given,
        };
        if !place.is_empty() {
            self.directory(place, about.permissions().mode() & 0o7777, of(&about))?;
        }
        let mut entries =
            fs::read_dir(dir).map_err(failed(dir))?.collect::<Result<Vec<_>, _>>().map_err(failed(dir))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let name = entry.file_name();
            let name = name
                .to_str()
                .ok_or_else(|| RuntimeError::Provision(format!("{}: the name is not text", path.display())))?;
            let inside = if place.is_empty() { name.to_owned() } else { format!("{place}/{name}") };
            let about = fs::symlink_metadata(&path).map_err(failed(&path))?;
            let kind = about.file_type();
            if kind.is_dir() {
                self.subtree(&path, &inside, owner, done, tell)?;
            } else if kind.is_symlink() {
                let to = fs::read_link(&path).map_err(failed(&path))?;
                self.link(&inside, &to.to_string_lossy())?;
            } else if kind.is_socket() || kind.is_fifo() || kind.is_block_device() || kind.is_char_device() {
                // Sockets and the like cannot be in an image.
            } else {
                let mut file = File::open(&path).map_err(failed(&path))?;
                let mut header = self.header(EntryType::Regular, about.permissions().mode() & 0o7777, of(&about));
                header.set_size(about.len());
                self.put(&inside, &mut header, None, &mut file).map_err(|e| match e {
                    RuntimeError::Archive(source) => RuntimeError::file(&path, source),
                    other => other,
                })?;
                *done += about.len();
                tell(*done);
            }
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.tar.finish()
    }

    fn header(&self, kind: EntryType, mode: u32, owner: Owner) -> Header {
        let (uid, gid) = match owner {
            Owner::Of(uid, gid) => (uid, gid),
            Owner::AsOnDisk => (0, 0),
        };
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(u64::from(uid));
        header.set_gid(u64::from(gid));
        header.set_mtime(self.time);
        header.set_size(0);
        header
    }

    fn put(
        &mut self,
        path: &str,
        header: &mut Header,
        link: Option<&str>,
        content: &mut dyn Read,
    ) -> Result<(), RuntimeError> {
        let path = self.place(path);
        if path.is_empty() || self.seen.contains(&path) {
            return Ok(());
        }
        let mut parent = String::new();
        for part in path.split('/').rev().skip(1).collect::<Vec<_>>().into_iter().rev() {
            if !parent.is_empty() {
                parent.push('/');
            }
            parent.push_str(part);
            if self.seen.insert(parent.clone()) {
                let mut made = self.header(EntryType::Directory, 0o755, Owner::Of(0, 0));
                self.tar.append_data(&mut made, format!("{parent}/"), io::empty())?;
            }
        }
        let kind = header.entry_type();
        let name = if kind.is_dir() { format!("{path}/") } else { path.clone() };
        match link {
            Some(to) => self.tar.append_link(header, name, to)?,
            None => self.tar.append_data(header, name, content)?,
        }
        self.seen.insert(path);
        Ok(())
    }

    /// A path's place in the layer: normalized, and below `usr` if it belongs there.
    fn place(&self, path: &str) -> String {
        let path = path.trim_start_matches("./").trim_matches('/');
        let path = if path == "." { "" } else { path };
        let first = path.split('/').next().unwrap_or_default();
        if self.merged && MERGED.contains(&first) && !self.seen.contains(path) {
            format!("usr/{path}")
        } else {
            path.to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(bytes: &[u8]) -> Vec<(String, Option<String>)> {
        let mut archive = tar::Archive::new(bytes);
        let text = |p: std::borrow::Cow<'_, Path>| p.to_string_lossy().into_owned();
        let entries = archive.entries().expect("entries").map(|e| e.expect("an entry"));
        entries.map(|e| (text(e.path().expect("a path")), e.link_name().expect("a link").map(text))).collect()
    }

    #[test]
    fn what_belongs_in_usr_goes_there_once_and_with_its_parents() {
        let mut bytes = Vec::new();
        {
            let out: &mut dyn Write = &mut bytes;
            let mut layer = Layer::new(out);
            layer.merged_usr().expect("usr");
            layer.directory("./bin", 0o755, Owner::Of(0, 0)).expect("ignored");
            layer.file("./bin/sh", 0o755, Owner::Of(0, 0), b"x").expect("a file");
            layer.file("/usr/bin/sh", 0o755, Owner::Of(0, 0), b"y").expect("ignored");
            layer.file("opt/a/b", 0o644, Owner::Of(185, 185), b"z").expect("a file");
            assert!(layer.has("bin/sh") && layer.has("opt/a") && !layer.has("opt/c"));
            layer.finish().expect("the end");
        }
        let names = names(&bytes);
        let paths: Vec<&str> = names.iter().map(|(n, _)| n.trim_end_matches('/')).collect();
        assert_eq!(
            paths,
            [
                "usr",
                "usr/bin",
                "bin",
                "usr/sbin",
                "sbin",
                "usr/lib",
                "lib",
                "usr/lib64",
                "lib64",
                "usr/bin/sh",
                "opt",
                "opt/a",
                "opt/a/b"
            ]
        );
        assert_eq!(names[2].1.as_deref(), Some("usr/bin"));
    }

    #[test]
    fn long_names_and_links_survive() {
        let long = format!("opt/{}/file", "d".repeat(180));
        let mut bytes = Vec::new();
        let out: &mut dyn Write = &mut bytes;
        let mut layer = Layer::new(out);
        layer.link(&long, &"t".repeat(150)).expect("a link");
        layer.finish().expect("the end");
        let names = names(&bytes);
        assert_eq!(names.last(), Some(&(long, Some("t".repeat(150)))));
    }
}
