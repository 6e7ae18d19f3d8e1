//! Directories that only the agent's user can enter: its data, and in-memory volumes. Below them, modes are as a kubelet sets them,
//! because containers run as other users; containers reach them through mounts, not paths.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

/// Creates or restricts the directory. A directory of another user is refused: its owner could open it again.
pub(crate) fn directory(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    let found = fs::symlink_metadata(path)?;
    let owner = found.uid();
    if !found.is_dir() || owner != nix::unistd::Uid::effective().as_raw() {
        let what = if found.is_dir() { format!("belongs to user {owner}") } else { "is not a directory".to_owned() };
        return Err(io::Error::other(format!("it {what}, so it cannot be kept from others: remove it")));
    }
    if found.mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_closed_and_what_is_another_users_is_refused() {
        let scratch = tempfile::tempdir().expect("dir");
        let path = scratch.path().join("d");
        let mode = || fs::metadata(&path).expect("there").mode() & 0o777;
        directory(&path).expect("made");
        assert_eq!(mode(), 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("mode");
        directory(&path).expect("closed");
        assert_eq!(mode(), 0o700);
        let link = scratch.path().join("l");
        std::os::unix::fs::symlink(&path, &link).expect("link");
        assert!(directory(&link).expect_err("a link").to_string().contains("is not a directory"));
        if nix::unistd::Uid::effective().is_root() {
            std::os::unix::fs::chown(&path, Some(65534), None).expect("owner");
            assert!(directory(&path).expect_err("not ours").to_string().contains("belongs to user 65534"));
        }
    }
}
