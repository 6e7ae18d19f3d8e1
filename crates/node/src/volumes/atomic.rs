//! The files of a ConfigMap, Secret, projected or downward API volume, updated atomically.
//!
//! The layout is a kubelet's: files are in `..<time>`, `..data` points to that directory, and the top-level names point through
//! `..data`. Switching `..data` is one rename, so readers see either all old files or all new ones. A `subPath` mount binds the
//! file itself and keeps its old content, as in a kubelet.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use super::FileSpec;

const DATA: &str = "..data";

/// Updates the directory; returns whether anything changed.
pub(super) fn write(
    dir: &Path,
    files: &BTreeMap<String, FileSpec>,
    own: impl Fn(&Path),
    mode_of: impl Fn(&FileSpec) -> u32,
) -> io::Result<bool> {
    make_dir(dir)?;
    let before = fs::read_link(dir.join(DATA)).ok();
    let same = before.as_ref().is_some_and(|before| holds(&dir.join(before), files, &mode_of));
    if !same {
        let fresh = format!("..{}", jiff::Timestamp::now().strftime("%Y_%m_%d_%H_%M_%S.%9f"));
        let place = dir.join(&fresh);
        let written = fill(&place, files, &own, &mode_of).and_then(|()| {
            let next = dir.join("..data_tmp");
            let _ = fs::remove_file(&next);
            symlink(&fresh, &next)?;
            fs::rename(&next, dir.join(DATA))
        });
        if let Err(error) = written {
            // A full disk must not leave half a volume behind.
            let _ = fs::remove_dir_all(&place);
            return Err(error);
        }
    }
    link_names(dir, files)?;
    if !same && let Some(before) = before {
        let _ = fs::remove_dir_all(dir.join(before));
    }
    Ok(!same)
}

fn fill(
    place: &Path,
    files: &BTreeMap<String, FileSpec>,
    own: &impl Fn(&Path),
    mode_of: &impl Fn(&FileSpec) -> u32,
) -> io::Result<()> {
    make_dir(place)?;
    for (name, file) in files {
        let path = place.join(name);
        let mut missing: Vec<&Path> = path.ancestors().skip(1).take_while(|p| *p != place && !p.exists()).collect();
        while let Some(parent) = missing.pop() {
            make_dir(parent)?;
        }
        fs::write(&path, &file.bytes)?;
        own(&path);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode_of(file)))?;
    }
    Ok(())
}

/// Whether a directory contains exactly these files.
fn holds(place: &Path, files: &BTreeMap<String, FileSpec>, mode_of: &impl Fn(&FileSpec) -> u32) -> bool {
    let mut found = BTreeSet::new();
    if !list(place, place, &mut found) || found.len() != files.len() {
        return false;
    }
    files.iter().all(|(name, file)| {
        let path = place.join(name);
        let same_mode = fs::metadata(&path).is_ok_and(|m| m.permissions().mode() & 0o777 == mode_of(file));
        same_mode && fs::read(&path).is_ok_and(|old| old == file.bytes)
    })
}

fn list(root: &Path, dir: &Path, found: &mut BTreeSet<PathBuf>) -> bool {
    let Ok(entries) = fs::read_dir(dir) else { return false };
    for entry in entries.flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            if !list(root, &path, found) {
                return false;
            }
        } else if let Ok(name) = path.strip_prefix(root) {
            found.insert(name.to_owned());
        }
    }
    true
}

/// Creates the top-level symlinks and removes stale ones.
fn link_names(dir: &Path, files: &BTreeMap<String, FileSpec>) -> io::Result<()> {
    let tops: BTreeSet<&str> =
        files.keys().filter_map(|name| name.split('/').find(|part| !part.is_empty() && *part != ".")).collect();
    for top in &tops {
        let (link, target) = (dir.join(top), Path::new(DATA).join(top));
        if fs::read_link(&link).is_ok_and(|t| t == target) {
            continue;
        }
        remove(&link);
        symlink(&target, &link)?;
    }
    for entry in fs::read_dir(dir)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("..") && !tops.contains(name.as_str()) {
            remove(&entry.path());
        }
    }
    Ok(())
}

fn remove(path: &Path) {
    if fs::remove_file(path).is_err() {
        let _ = fs::remove_dir_all(path);
    }
}

/// World-readable, whatever the umask.
fn make_dir(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(all: &[(&str, &str)]) -> BTreeMap<String, FileSpec> {
        let spec = |text: &str| FileSpec { bytes: text.as_bytes().to_vec(), mode: 0o640 };
        all.iter().map(|(name, text)| ((*name).to_owned(), spec(text))).collect()
    }

    fn put(dir: &Path, all: &[(&str, &str)]) -> bool {
        write(dir, &files(all), |_| {}, |f| f.mode).expect("written")
    }

    #[test]
    fn files_are_replaced_together_and_nothing_old_stays() {
        let scratch = tempfile::tempdir().expect("dir");
        let dir = scratch.path().join("v");
        assert!(put(&dir, &[("a", "1"), ("deep/b", "2"), ("deep/c", "3")]));
        let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
        assert_eq!((read("a").as_deref(), read("deep/b").as_deref()), (Some("1"), Some("2")));
        let open = fs::File::open(dir.join("a")).expect("a file");
        assert!(!put(&dir, &[("a", "1"), ("deep/b", "2"), ("deep/c", "3")]), "nothing to do");
        assert!(put(&dir, &[("a", "new"), ("e", "4")]));
        assert_eq!((read("a").as_deref(), read("e").as_deref(), read("deep/b")), (Some("new"), Some("4"), None));
        assert_eq!(io::read_to_string(open).expect("still there"), "1", "who has it open keeps the old file");
        let names: BTreeSet<String> =
            fs::read_dir(&dir).expect("dir").flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        assert_eq!(names.iter().filter(|n| n.starts_with("..2")).count(), 1, "{names:?}");
        assert_eq!(names.iter().filter(|n| !n.starts_with("..")).count(), 2, "{names:?}");
        assert!(put(&dir, &[]), "an emptied ConfigMap empties its volume");
        assert_eq!(read("a"), None);
    }

    #[test]
    fn plain_files_of_an_older_agent_give_way() {
        let scratch = tempfile::tempdir().expect("dir");
        let dir = scratch.path();
        fs::create_dir(dir.join("deep")).expect("dir");
        fs::write(dir.join("deep/x"), "old").expect("file");
        fs::write(dir.join("a"), "old").expect("file");
        assert!(put(dir, &[("a", "new")]));
        assert_eq!(fs::read_to_string(dir.join("a")).expect("file"), "new");
        assert!(!dir.join("deep").exists());
    }
}
