//! Safe paths below a directory that others modify concurrently: a volume with `subPath`, or a container's root with volumes already
//! mounted. Nothing a container writes may redirect a mount outside.
//!
//! As in a kubelet: symlinks are resolved first, and their target must be inside. Then the path is opened component by component
//! by file descriptor, without following symlinks. If anything is swapped in between, the open fails. The caller mounts the
//! descriptor and never uses the path again.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open as open_path, openat};
use nix::sys::stat::{Mode, SFlag, fchmod, fstat, mkdirat};

/// Opens one path component without reading it.
const STEP: OFlag = OFlag::O_PATH.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

fn leads_out() -> io::Error {
    io::Error::other("a link leads out")
}

/// The path that refers to an open descriptor and nothing else.
pub(crate) fn path_of(opened: &OwnedFd) -> PathBuf {
    Path::new("/proc/self/fd").join(opened.as_raw_fd().to_string())
}

/// Opens `part` below the directory, for mounting.
pub(crate) fn open(volume: &Path, part: &Path) -> io::Result<OwnedFd> {
    let root = fs::canonicalize(volume)?;
    let full = fs::canonicalize(volume.join(part))?;
    let inside = full.strip_prefix(&root).map_err(|_| leads_out())?;
    let mut at = open_path(&root, STEP | OFlag::O_DIRECTORY, Mode::empty())?;
    for name in names(inside) {
        at = openat(at.as_fd(), name, STEP, Mode::empty()).map_err(|errno| match errno {
            Errno::ELOOP | Errno::ENOTDIR => leads_out(),
            errno => errno.into(),
        })?;
        // O_PATH opens a symlink itself instead of failing.
        if SFlag::from_bits_truncate(fstat(at.as_fd())?.st_mode) & SFlag::S_IFMT == SFlag::S_IFLNK {
            return Err(leads_out());
        }
    }
    Ok(at)
}

/// Creates the missing directories of `part`; returns the last one if it was created. Existing entries are left alone, whatever they
/// are: [`open`] decides whether they can be mounted.
pub(crate) fn make(volume: &Path, part: &Path, mode: u32) -> io::Result<Option<OwnedFd>> {
    let all: Vec<&OsStr> = names(part).collect();
    let there = |count: usize| fs::symlink_metadata(volume.join(all[..count].iter().collect::<PathBuf>()));
    let Some(have) = (0..=all.len()).rev().find(|count| there(*count).is_ok()) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    if have == all.len() {
        return Ok(None);
    }
    let mode = Mode::from_bits_truncate(mode);
    let mut at = open(volume, &all[..have].iter().collect::<PathBuf>())?;
    let mut last_made = false;
    for name in &all[have..] {
        let made = match mkdirat(at.as_fd(), *name, mode) {
            Ok(()) => true,
            Err(Errno::EEXIST) => false,
            Err(errno) => return Err(errno.into()),
        };
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        at = openat(at.as_fd(), *name, if made { flags } else { STEP | OFlag::O_DIRECTORY }, Mode::empty())?;
        if made {
            // mkdir applied the umask.
            fchmod(at.as_fd(), mode)?;
        }
        last_made = made;
    }
    Ok(last_made.then_some(at))
}

/// Creates an empty file unless the name exists. The parent directory must exist.
pub(crate) fn make_file(volume: &Path, part: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (part.parent(), part.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let parent = open(volume, parent)?;
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    match openat(parent.as_fd(), name, flags, Mode::from_bits_truncate(0o644)) {
        Ok(_) | Err(Errno::EEXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn names(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    fn volume() -> (tempfile::TempDir, std::path::PathBuf) {
        let scratch = tempfile::tempdir().expect("dir");
        let volume = scratch.path().join("volume");
        fs::create_dir(&volume).expect("dir");
        fs::create_dir(scratch.path().join("outside")).expect("dir");
        (scratch, volume)
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("there").permissions().mode() & 0o7777
    }

    #[test]
    fn directories_get_their_mode_whatever_the_umask() {
        let (_scratch, volume) = volume();
        for wanted in [0o777, 0o2770, 0o755] {
            let part = Path::new("deep").join(format!("{wanted:o}"));
            assert!(make(&volume, &part, wanted).expect("made").is_some());
            assert_eq!(mode(&volume.join(&part)), wanted);
            assert_eq!(mode(&volume.join("deep")), 0o777, "what was there stays as it is");
            assert!(make(&volume, &part, 0o700).expect("there already").is_none());
            assert_eq!(mode(&volume.join(&part)), wanted);
        }
    }

    #[test]
    fn a_link_inside_is_followed_and_one_that_leads_out_is_refused() {
        let (scratch, volume) = volume();
        make(&volume, Path::new("real/dir"), 0o755).expect("made");
        symlink("real", volume.join("inner")).expect("link");
        symlink(scratch.path().join("outside"), volume.join("outer")).expect("link");
        symlink("../outside", volume.join("relative")).expect("link");
        let found = fstat(open(&volume, Path::new("inner/dir")).expect("opened")).expect("stat");
        assert_eq!(found.st_ino, fs::metadata(volume.join("real/dir")).expect("there").ino());
        for part in ["outer", "outer/made", "relative", "relative/made"] {
            let made = make(&volume, Path::new(part), 0o755).and_then(|_| open(&volume, Path::new(part)));
            assert_eq!(made.expect_err("refused").to_string(), "a link leads out", "{part}");
            assert!(make_file(&volume, &Path::new(part).join("file")).is_err(), "{part}");
        }
        assert_eq!(fs::read_dir(scratch.path().join("outside")).expect("dir").count(), 0, "nothing was made outside");
    }

    /// Swaps an intermediate directory and the last component for symlinks as fast as a container could.
    #[test]
    fn a_swap_between_directory_and_link_never_leads_out() {
        for part in ["a", "a/b"] {
            let (scratch, volume) = volume();
            let outside = scratch.path().join("outside");
            fs::create_dir_all(volume.join("a/b")).expect("dir");
            fs::create_dir(outside.join("b")).expect("dir");
            symlink(&outside, volume.join("link")).expect("link");
            let allowed = [volume.join("a"), volume.join("a/b")].map(|p| fs::metadata(p).expect("there").ino());
            let over = AtomicBool::new(false);
            let (mut opened, mut refused) = (0, 0);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let (one, other) = (volume.join("a"), volume.join("link"));
                        let _ = renameat2(AT_FDCWD, &one, AT_FDCWD, &other, RenameFlags::RENAME_EXCHANGE);
                    }
                });
                for _ in 0..20_000 {
                    let _ = make(&volume, Path::new("a/b/c"), 0o755);
                    let _ = fs::remove_dir(volume.join("a/b/c"));
                    match open(&volume, Path::new(part)) {
                        Ok(fd) => {
                            opened += 1;
                            assert!(allowed.contains(&fstat(fd).expect("stat").st_ino), "a way out of the volume");
                        }
                        Err(_) => refused += 1,
                    }
                    assert!(!outside.join("b/c").exists(), "something was made outside");
                }
                over.store(true, Ordering::Relaxed);
            });
            assert!(opened > 0 && refused > 0, "the swap was met: {opened} opened, {refused} refused");
        }
    }
}
