//! The inside of a container: its root file system, built by the first process of its namespaces.
//!
//! Everything here runs between `clone` and `exec`, in a process with its own mount and pid namespaces. The new root consists of a
//! few directories, the host's `/usr` (read-only), selected files of `/etc`, and the overlays and mounts of the configuration. The
//! host's home directories, data and keys are never in it, so nothing needs to be hidden. Paths are resolved inside the new root
//! component by component: an absolute symlink such as `/var/run -> /run` would otherwise lead out of it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{Gid, Uid, chown, pivot_root, sethostname};

use crate::shim_protocol::{ContainerConfig, Root};
use crate::volumes::beneath;

/// A failed step of building a container, with its path.
#[derive(Debug, thiserror::Error)]
#[error("{step} {path}: {source}")]
pub(crate) struct SandboxError {
    step: &'static str,
    path: String,
    source: io::Error,
}

type Result<T> = std::result::Result<T, SandboxError>;

/// Whether containers get a user namespace (agent of an ordinary user) or real user ids (agent of root).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Privilege {
    Root,
    User { uid: u32, gid: u32 },
}

impl Privilege {
    pub(crate) fn of_this_process() -> Self {
        if Uid::effective().is_root() {
            Self::Root
        } else {
            Self::User { uid: Uid::effective().as_raw(), gid: Gid::effective().as_raw() }
        }
    }
}

/// The parts of the host's `/etc` in a container: configuration for programs in `/usr`, no secrets, no identity.
const ETC: &[&str] = &[
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "host.conf",
    "inputrc",
    "issue",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "locale.alias",
    "locale.conf",
    "magic",
    "mime.types",
    "os-release",
    "pki",
    "profile",
    "protocols",
    "python3",
    "python3.9",
    "python3.10",
    "python3.11",
    "python3.12",
    "python3.13",
    "python3.14",
    "redhat-release",
    "resolv.conf",
    "rpc",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
    "xattr.conf",
];

const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty"];

/// Builds a container's root and switches this process to it.
pub(crate) fn enter(launch: &ContainerConfig, privilege: Privilege) -> Result<()> {
    if let Privilege::User { uid, gid } = privilege {
        map_user(launch, uid, gid)?;
    }
    mount_with("making mounts private", None, Path::new("/"), None, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None)?;
    let root = launch.scratch.join("root");
    make_dir(&root, 0o755)?;
    match &launch.root {
        Root::Host { .. } => bind(&root, &root, false, false)?,
        Root::Directory(lower) => overlay(lower, &root, &launch.scratch.join("rootfs"), launch, privilege)?,
    }
    let tree = Tree { root: &root };
    tree.populate(launch, privilege)?;
    for entry in &launch.mounts {
        match entry.sub_path() {
            None => tree.bind(&entry.source, &entry.target, entry.read_only)?,
            Some((volume, part)) => {
                let opened = beneath::open(volume, part).map_err(|e| failed("mounting", &entry.source, e))?;
                tree.bind(&beneath::path_of(&opened), &entry.target, entry.read_only)?;
            }
        }
    }
    let message = launch.termination_message();
    fs::write(&message, b"").map_err(|e| failed("creating", &message, e))?;
    let _ = fs::set_permissions(&message, fs::Permissions::from_mode(0o666));
    tree.bind(&message, &launch.termination_message_path, false)?;
    tree.make_working_dir(launch)?;
    sethostname(&launch.hostname).map_err(|e| failed("setting host name", Path::new(&launch.hostname), e.into()))?;
    if launch.read_only_root {
        remount(&root, true)?;
        if let Root::Host { overlays } = &launch.root {
            // A volume in place of an overlay is what the pod asked for.
            for layer in overlays.iter().filter(|l| !launch.mounts.iter().any(|m| m.target == l.target)) {
                remount(&tree.resolve(&layer.target), true)?;
            }
        }
    }
    switch_root(&root)
}

/// Maps the container's only user to the agent's user.
fn map_user(launch: &ContainerConfig, uid: u32, gid: u32) -> Result<()> {
    let write = |path: &str, line: String| {
        OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|mut f| f.write_all(line.as_bytes()))
            .map_err(|e| failed("mapping user ids in", Path::new(path), e))
    };
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("{} {uid} 1", launch.user.uid))?;
    write("/proc/self/gid_map", format!("{} {gid} 1", launch.user.gid))
}

/// The new root, addressed by the container's paths.
struct Tree<'a> {
    root: &'a Path,
}

impl Tree<'_> {
    fn populate(&self, launch: &ContainerConfig, privilege: Privilege) -> Result<()> {
        if let Root::Host { overlays } = &launch.root {
            self.host_userland()?;
            for layer in overlays {
                let target = self.make_dir(&layer.target, 0o755, None)?;
                let name = layer.target.trim_matches('/').replace('/', "-");
                overlay(&layer.lower, &target, &launch.scratch.join(name), launch, privilege)?;
                for dir in &layer.make {
                    self.make_dir(dir, 0o775, Some(launch))?;
                }
            }
        }
        for (path, mode) in [
            ("/tmp", 0o1777),
            ("/run", 0o755),
            ("/run/lock", 0o1777),
            ("/proc", 0o555),
            ("/sys", 0o555),
            ("/dev", 0o755),
            ("/etc", 0o755),
        ] {
            self.make_dir(path, mode, None)?;
        }
        if matches!(launch.root, Root::Directory(_))
            && let Ok(real) = fs::canonicalize("/etc/resolv.conf")
        {
            self.bind(&real, "/etc/resolv.conf", true)?;
        }
        self.devices()?;
        self.kernel_file_systems(launch, privilege)?;
        for (path, content) in &launch.files {
            let target = self.resolve(path);
            if let Some(parent) = target.parent() {
                make_dir(parent, 0o755)?;
            }
            // A lower layer may have a read-only file: replace it.
            let _ = fs::remove_file(&target);
            fs::write(&target, content).map_err(|e| failed("writing", &target, e))?;
            let mode = if content.starts_with("#!") { 0o755 } else { 0o644 };
            fs::set_permissions(&target, fs::Permissions::from_mode(mode))
                .map_err(|e| failed("setting mode of", &target, e))?;
        }
        Ok(())
    }

    /// Directories and this machine's programs.
    fn host_userland(&self) -> Result<()> {
        self.make_dir("/usr", 0o755, None)?;
        bind(Path::new("/usr"), &self.root.join("usr"), true, true)?;
        for name in ["bin", "sbin", "lib", "lib32", "lib64", "libx32"] {
            let host = Path::new("/").join(name);
            let target = self.root.join(name);
            match fs::read_link(&host) {
                Ok(link) => {
                    std::os::unix::fs::symlink(&link, &target).map_err(|e| failed("linking", &target, e))?;
                }
                Err(_) if host.is_dir() => {
                    make_dir(&target, 0o755)?;
                    bind(&host, &target, true, true)?;
                }
                Err(_) => {}
            }
        }
        for (path, mode) in [
            ("/home", 0o755),
            ("/root", 0o700),
            ("/opt", 0o755),
            ("/mnt", 0o755),
            ("/media", 0o755),
            ("/srv", 0o755),
            ("/var/lib", 0o755),
            ("/var/log", 0o755),
            ("/var/cache", 0o755),
            ("/var/tmp", 0o1777),
            ("/etc/ssl", 0o755),
        ] {
            self.make_dir(path, mode, None)?;
        }
        for (link, path) in [("/run", "var/run"), ("/run/lock", "var/lock")] {
            let target = self.root.join(path);
            std::os::unix::fs::symlink(link, &target).map_err(|e| failed("linking", &target, e))?;
        }
        let java = fs::read_dir("/etc").into_iter().flatten().flatten();
        let java = java.filter_map(|e| e.file_name().into_string().ok()).filter(|n| n.starts_with("java"));
        for name in ETC.iter().map(|n| (*n).to_owned()).chain(java) {
            let host = Path::new("/etc").join(&name);
            // Read through symlinks (localtime, resolv.conf, os-release): the container gets their targets.
            if let Ok(real) = fs::canonicalize(&host) {
                self.bind(&real, &format!("/etc/{name}"), true)?;
            }
        }
        Ok(())
    }

    fn devices(&self) -> Result<()> {
        let dev = self.root.join("dev");
        mount_with(
            "mounting",
            Some(Path::new("tmpfs")),
            &dev,
            Some("tmpfs"),
            MsFlags::MS_NOSUID,
            Some("mode=755,size=65536k"),
        )?;
        for name in DEVICES {
            let target = dev.join(name);
            fs::write(&target, b"").map_err(|e| failed("creating", &target, e))?;
            bind(&Path::new("/dev").join(name), &target, false, false)?;
        }
        for (name, link) in [
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
            ("ptmx", "pts/ptmx"),
        ] {
            let target = dev.join(name);
            std::os::unix::fs::symlink(link, &target).map_err(|e| failed("linking", &target, e))?;
        }
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
        make_dir(&dev.join("pts"), 0o755)?;
        mount_with(
            "mounting",
            Some(Path::new("devpts")),
            &dev.join("pts"),
            Some("devpts"),
            flags,
            Some("newinstance,ptmxmode=0666,mode=620"),
        )?;
        make_dir(&dev.join("shm"), 0o1777)?;
        let flags = flags | MsFlags::MS_NODEV;
        mount_with("mounting", Some(Path::new("tmpfs")), &dev.join("shm"), Some("tmpfs"), flags, Some("mode=1777"))
    }

    fn kernel_file_systems(&self, launch: &ContainerConfig, privilege: Privilege) -> Result<()> {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC | MsFlags::MS_NODEV;
        let proc = self.root.join("proc");
        mount_with("mounting", Some(Path::new("proc")), &proc, Some("proc"), flags, None)?;
        bind(Path::new("/sys"), &self.root.join("sys"), false, true)?;
        if privilege == Privilege::Root && !launch.privileged {
            // Ordinary users cannot write there anyway, and the container's root must not.
            for name in ["sys", "sysrq-trigger", "irq", "bus"] {
                let path = proc.join(name);
                if path.exists() {
                    bind(&path, &path, true, false)?;
                }
            }
            for (point, _) in mounts_below(&self.root.join("sys")) {
                let _ = remount(&point, true);
            }
        }
        Ok(())
    }

    /// Binds a host file or directory, creating the mount point, which may be in a volume that other containers of the pod write to.
    fn bind(&self, source: &Path, target: &str, read_only: bool) -> Result<()> {
        let place = self.inside(target);
        let meta = fs::metadata(source).map_err(|e| failed("mounting", source, e))?;
        let made = if meta.is_dir() {
            beneath::make(self.root, &place, 0o755).map(drop)
        } else {
            let parent = place.parent().unwrap_or(Path::new(""));
            beneath::make(self.root, parent, 0o755).and_then(|_| beneath::make_file(self.root, &place))
        };
        let said = |e| failed("making a place to mount at", Path::new(target), e);
        let opened = made.and_then(|()| beneath::open(self.root, &place)).map_err(said)?;
        let named = |error: SandboxError| SandboxError { path: target.to_owned(), ..error };
        bind(source, &beneath::path_of(&opened), false, true).map_err(named)?;
        if read_only {
            // Opened again: it now refers to the mount.
            let mounted = beneath::open(self.root, &place).map_err(said)?;
            remount(&beneath::path_of(&mounted), true).map_err(named)?;
        }
        Ok(())
    }

    /// The working directory, created for its user if missing. It may be in a volume.
    fn make_working_dir(&self, launch: &ContainerConfig) -> Result<()> {
        let place = self.inside(&launch.working_dir);
        let said = |e| failed("creating", Path::new(&launch.working_dir), e);
        if let Some(made) = beneath::make(self.root, &place, 0o755).map_err(said)? {
            // In a user namespace everything already belongs to the only user.
            let (uid, gid) = (Uid::from_raw(launch.user.uid), Gid::from_raw(launch.user.gid));
            let _ = chown(&beneath::path_of(&made), Some(uid), Some(gid));
        }
        Ok(())
    }

    /// A container path relative to its root, without symlinks.
    fn inside(&self, path: &str) -> PathBuf {
        self.resolve(path).strip_prefix(self.root).map(Path::to_owned).unwrap_or_default()
    }

    fn make_dir(&self, path: &str, mode: u32, owner: Option<&ContainerConfig>) -> Result<PathBuf> {
        let target = self.resolve(path);
        if !target.is_dir() {
            make_dir(&target, mode)?;
            if let Some(launch) = owner {
                // In a user namespace everything already belongs to the only user.
                let _ = chown(&target, Some(Uid::from_raw(launch.user.uid)), Some(Gid::from_raw(launch.user.gid)));
            }
        }
        // Do not let the umask remove permissions.
        if mode & 0o1000 != 0 {
            let _ = fs::set_permissions(&target, fs::Permissions::from_mode(mode));
        }
        Ok(target)
    }

    fn resolve(&self, path: &str) -> PathBuf {
        resolve_in(self.root, Path::new(path))
    }
}

/// A container path's location on the host before `root` is the root: symlinks are resolved inside `root`.
pub(crate) fn resolve_in(root: &Path, path: &Path) -> PathBuf {
    let mut rest: Vec<PathBuf> = vec![path.to_owned()];
    let mut inside = PathBuf::new();
    let mut links = 0;
    while let Some(part) = rest.pop() {
        let mut components = part.components();
        let Some(first) = components.next() else { continue };
        let remaining = components.as_path().to_owned();
        if !remaining.as_os_str().is_empty() {
            rest.push(remaining);
        }
        match first {
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            Component::ParentDir => {
                inside.pop();
            }
            Component::Normal(name) => {
                let next = inside.join(name);
                match fs::read_link(root.join(&next)) {
                    Ok(link) if links < 40 => {
                        links += 1;
                        if link.is_absolute() {
                            inside = PathBuf::new();
                        }
                        rest.push(link);
                    }
                    _ => inside = next,
                }
            }
        }
    }
    root.join(inside)
}

fn overlay(lower: &Path, target: &Path, scratch: &Path, launch: &ContainerConfig, privilege: Privilege) -> Result<()> {
    let (upper, work) = (scratch.join("upper"), scratch.join("work"));
    make_dir(&upper, 0o755)?;
    make_dir(&work, 0o755)?;
    let _ = chown(&upper, Some(Uid::from_raw(launch.user.uid)), Some(Gid::from_raw(launch.user.gid)));
    let _ = fs::set_permissions(&upper, fs::Permissions::from_mode(0o775));
    let extra = if privilege == Privilege::Root { "" } else { ",userxattr" };
    let options = format!("lowerdir={},upperdir={},workdir={}{extra}", escape(lower), escape(&upper), escape(&work));
    let mount = || {
        let (what, kind) = ("mounting an overlay at", "overlay");
        mount_with(what, Some(Path::new(kind)), target, Some(kind), MsFlags::MS_NODEV, Some(&options))
    };
    let Err(error) = mount() else { return Ok(()) };
    // Some file systems (overlayfs itself, some network ones) cannot be an upper layer; tmpfs can.
    make_dir(scratch, 0o755)?;
    mount_with("mounting", Some(Path::new("tmpfs")), scratch, Some("tmpfs"), MsFlags::MS_NODEV, Some("mode=755"))?;
    make_dir(&upper, 0o775)?;
    make_dir(&work, 0o755)?;
    let _ = chown(&upper, Some(Uid::from_raw(launch.user.uid)), Some(Gid::from_raw(launch.user.gid)));
    mount().map_err(|_| error)
}

/// Colons and commas separate overlay options.
fn escape(path: &Path) -> String {
    path.display().to_string().replace('\\', "\\\\").replace(':', "\\:").replace(',', "\\,")
}

fn bind(source: &Path, target: &Path, read_only: bool, recursive: bool) -> Result<()> {
    let flags = if recursive { MsFlags::MS_BIND | MsFlags::MS_REC } else { MsFlags::MS_BIND };
    mount_with("mounting at", Some(source), target, None, flags, None)?;
    if read_only { remount(target, true) } else { Ok(()) }
}

/// Remounts read-only, keeping the flags that a user namespace may not clear.
fn remount(target: &Path, read_only: bool) -> Result<()> {
    let mut flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT;
    if read_only {
        flags |= MsFlags::MS_RDONLY;
    }
    if let Ok(stat) = statvfs(target) {
        let kept = [
            (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
            (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
            (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
            (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
            (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
            (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
        ];
        for (seen, keep) in kept {
            if stat.flags().contains(seen) {
                flags |= keep;
            }
        }
    }
    mount_with("making read-only", None, target, None, flags, None)
}

fn mounts_below(path: &Path) -> Vec<(PathBuf, String)> {
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    table
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let (_, point, kind) = (fields.next()?, fields.next()?, fields.next()?);
            Path::new(point).starts_with(path).then(|| (PathBuf::from(point), kind.to_owned()))
        })
        .collect()
}

fn switch_root(root: &Path) -> Result<()> {
    std::env::set_current_dir(root).map_err(|e| failed("entering", root, e))?;
    // The old root is stacked on the new one and then unmounted: no directory for it is needed.
    pivot_root(".", ".").map_err(|e| failed("changing root to", root, e.into()))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(|e| failed("leaving the root of the host from", root, e.into()))?;
    std::env::set_current_dir("/").map_err(|e| failed("entering", Path::new("/"), e))
}

fn mount_with(
    step: &'static str,
    source: Option<&Path>,
    target: &Path,
    kind: Option<&str>,
    flags: MsFlags,
    data: Option<&str>,
) -> Result<()> {
    mount(source, target, kind, flags, data).map_err(|e| failed(step, target, e.into()))
}

fn make_dir(path: &Path, mode: u32) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    fs::DirBuilder::new().recursive(true).mode(mode).create(path).map_err(|e| failed("creating", path, e))
}

fn failed(step: &'static str, path: &Path, source: io::Error) -> SandboxError {
    SandboxError { step, path: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_symlinks_stay_inside_the_new_root() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let root = dir.path();
        fs::create_dir_all(root.join("var")).expect("var");
        std::os::unix::fs::symlink("/run", root.join("var/run")).expect("link");
        std::os::unix::fs::symlink("../../../etc", root.join("up")).expect("link");
        assert_eq!(resolve_in(root, Path::new("/var/run/secrets/x")), root.join("run/secrets/x"));
        assert_eq!(resolve_in(root, Path::new("/up/passwd")), root.join("etc/passwd"));
        assert_eq!(resolve_in(root, Path::new("/../../a/./b")), root.join("a/b"));
    }

    #[test]
    fn a_loop_of_symlinks_ends() {
        let dir = tempfile::tempdir().expect("temporary directory");
        std::os::unix::fs::symlink("b", dir.path().join("a")).expect("link");
        std::os::unix::fs::symlink("a", dir.path().join("b")).expect("link");
        assert!(resolve_in(dir.path(), Path::new("/a/x")).starts_with(dir.path()));
    }
}
