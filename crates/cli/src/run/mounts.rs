//! Files and directories of this machine that the pods of a run see, each at the same path.
//!
//! A submission runs in the current directory with the user's permissions. `--mount` adds other directories, also for manifests.
//! Paths elsewhere that arguments name are mounted read-only; for those that cannot be mounted, a note is printed. Nothing is
//! mounted over what a pod needs itself: its root, its programs, its Spark.
//!
//! This module decides and reads links; it changes nothing on disk.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use serde_json::{Value, json};

use crate::exit::BadInput;

/// Directories that every pod shares with this machine.
const SHARED: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// Directories of which a pod has its own.
const OWN: [&str; 9] = [
    "/etc",
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/var/run",
    "/var/data",
    "/mnt/secrets",
    // Spark and its entry point.
    "/opt/spark",
];
/// Directories and files at or below which nothing may be mounted.
const CLOSED: [&str; 14] = [
    "/proc",
    "/sys",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt/spark",
    "/opt/java/openjdk",
    "/opt/firesteel",
    "/opt/entrypoint.sh",
    "/opt/decom.sh",
    "/var/run/secrets",
];
/// Directories that programs expect to be writable.
const WRITABLE: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// A file or directory of this machine in a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    /// Its path on this machine, without links.
    source: PathBuf,
    /// Where pods see it.
    target: PathBuf,
    read_only: bool,
}

/// The user who reads and writes there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// The user who runs this program.
    pub(crate) fn own() -> Self {
        User { uid: nix::unistd::geteuid().as_raw(), gid: nix::unistd::getegid().as_raw() }
    }
}

/// What the pods of a run see of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mounts {
    all: Vec<Mount>,
    working_dir: Option<PathBuf>,
    user: User,
    notes: Vec<String>,
}

impl Mounts {
    /// Only what `--mount` names.
    pub(crate) fn asked(wishes: &[String], cwd: &Path, user: User) -> Result<Self, BadInput> {
        let mut mounts = Mounts { all: Vec::new(), working_dir: None, user, notes: Vec::new() };
        for wish in wishes {
            mounts.wish(wish, cwd)?;
        }
        // If the current directory is mounted, pods work there.
        if mounts.all.iter().any(|mount| cwd.starts_with(&mount.target)) {
            mounts.working_dir = Some(cwd.to_owned());
        }
        Ok(mounts)
    }

    /// The same, plus the current directory. `logical` is its path as the shell shows it.
    pub(crate) fn of_directory(
        wishes: &[String],
        cwd: &Path,
        logical: Option<&Path>,
        user: User,
    ) -> Result<Self, BadInput> {
        let mut mounts = Mounts::asked(wishes, cwd, user)?;
        let same = |path: &&Path| {
            path.is_absolute() && *path != cwd && path.canonicalize().is_ok_and(|real| real == cwd) && is_plain(path)
        };
        let logical = logical.filter(same);
        for path in std::iter::once(cwd).chain(logical) {
            if mounts.shows(path) && mounts.all.iter().any(|m| path.starts_with(&m.target)) {
                continue;
            }
            match refusal(path, false) {
                None => mounts.push(cwd, path, false),
                Some(why) => {
                    let note = "run it from another directory if it reads or writes files";
                    mounts.notes.push(format!("The application does not see the current directory: {why}; {note}"));
                    return Ok(mounts);
                }
            }
        }
        mounts.working_dir = Some(logical.unwrap_or(cwd).to_owned());
        Ok(mounts)
    }

    fn wish(&mut self, wish: &str, cwd: &Path) -> Result<(), BadInput> {
        let (name, read_only) = match (wish.strip_suffix(":ro"), wish.strip_suffix(":rw")) {
            (Some(name), _) => (name, true),
            (_, Some(name)) => (name, false),
            _ => (wish, false),
        };
        let refuse = |why: &str| BadInput(format!("--mount {wish}: {why}"));
        if name.is_empty() {
            return Err(refuse("write a directory of this machine, with :ro after it to mount it read-only"));
        }
        let path = lexical(&cwd.join(name));
        let real = path.canonicalize().map_err(|error| refuse(&format!("{}: {error}", path.display())))?;
        for target in BTreeSet::from([&path, &real]) {
            if let Some(why) = refusal(target, read_only) {
                return Err(refuse(&why));
            }
            self.push(&real, target, read_only);
        }
        Ok(())
    }

    fn push(&mut self, source: &Path, target: &Path, read_only: bool) {
        match self.all.iter_mut().find(|mount| mount.target == target) {
            // Given twice: the last one counts.
            Some(mount) => mount.read_only = read_only,
            None => self.all.push(Mount { source: source.to_owned(), target: target.to_owned(), read_only }),
        }
    }

    /// Notes for the user.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The application's working directory, if it is on this machine.
    pub(crate) fn working_dir(&self) -> Option<&str> {
        self.working_dir.as_deref().and_then(Path::to_str)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether pods see a path of this machine, by the path alone: links in it may lead elsewhere.
    fn shows(&self, path: &Path) -> bool {
        SHARED.iter().any(|shared| path.starts_with(shared)) || self.all.iter().any(|m| path.starts_with(&m.target))
    }

    /// Whether pods may write to a path (without links).
    fn writes(&self, real: &Path) -> bool {
        self.all.iter().any(|m| !m.read_only && real.starts_with(&m.source))
    }

    /// Makes sure that pods see an existing path and all links on the way to it. Returns whether anything had to be mounted, or
    /// why it cannot be.
    pub(crate) fn show(&mut self, path: &Path) -> Result<bool, String> {
        let path = lexical(path);
        let real = path.canonicalize().map_err(|error| error.to_string())?;
        let mut new = Vec::new();
        for hop in hops(&path) {
            if self.shows(&hop) {
                continue;
            }
            if let Some(own) = OWN.iter().find(|own| hop.starts_with(own)) {
                return Err(format!("pods have their own {own}"));
            }
            let read_only = !self.writes(&real);
            if let Some(why) = refusal(&hop, read_only) {
                return Err(why);
            }
            let source = hop.canonicalize().map_err(|error| error.to_string())?;
            new.push((source, hop, read_only));
        }
        let any = !new.is_empty();
        new.into_iter().for_each(|(source, target, read_only)| self.push(&source, &target, read_only));
        Ok(any)
    }

    /// Makes the paths in an application's arguments visible, or adds a note if that is impossible.
    pub(crate) fn show_arguments(&mut self, arguments: &[String], cwd: &Path) {
        for word in arguments {
            for text in paths_in(word) {
                self.show_argument(&cwd.join(&text), Path::new(&text).is_absolute());
            }
        }
    }

    fn show_argument(&mut self, path: &Path, absolute: bool) {
        let quiet = ["/dev", "/proc", "/sys"].iter().any(|own| path.starts_with(own));
        if path.exists() {
            match self.show(path) {
                Ok(true) if !path.canonicalize().is_ok_and(|real| self.writes(&real)) => {
                    let shown = path.display();
                    self.notes.push(format!("Mounted {shown} read-only; --mount makes it writable"));
                }
                Ok(_) => {}
                Err(why) if absolute && !quiet => {
                    self.notes.push(format!("The application does not see {} of this machine: {why}", path.display()));
                }
                Err(_) => {}
            }
            return;
        }
        let pattern = |part: Component<'_>| part.as_os_str().to_string_lossy().contains(['*', '?', '[', '{']);
        if path.components().any(pattern) {
            let base: PathBuf = path.components().take_while(|part| !pattern(*part)).collect();
            if base.is_dir() && !self.shows(&base) {
                self.show_argument(&base, absolute);
            }
            return;
        }
        // An output path: only its directory can exist yet.
        let Some(parent) = path.parent().filter(|parent| parent.is_dir() && absolute && !quiet) else { return };
        let real = parent.canonicalize().unwrap_or_else(|_| parent.to_owned());
        if self.shows(parent) || real == Path::new("/") || OWN.iter().any(|own| real.starts_with(own)) {
            return;
        }
        if self.writes(&real) {
            self.push(&real, parent, false);
            return;
        }
        let (path, parent) = (path.display(), parent.display());
        self.notes.push(format!(
            "Files that the application writes to {path} stay in its pods; to keep them, add --mount {parent}"
        ));
    }

    /// Adds the mounts to some containers of a pod. `taken` are paths where something else is mounted.
    pub(crate) fn put_into(&self, pod: &mut Value, which: Which<'_>, taken: &BTreeSet<String>) {
        if self.is_empty() {
            return;
        }
        let spec = entry(pod, "spec");
        let context = &spec["securityContext"];
        let user_of_pod = ["runAsUser", "runAsNonRoot"].iter().any(|field| !context[*field].is_null());
        let mut used = BTreeSet::new();
        for container in which.of(spec) {
            let mounts = entry(container, "volumeMounts");
            let there: BTreeSet<String> = mounts
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|mount| Some(mount["mountPath"].as_str()?.trim_end_matches('/').to_owned()))
                .collect();
            for (at, mount) in self.all.iter().enumerate() {
                let Some(target) = mount.target.to_str().filter(|t| !there.contains(*t) && !taken.contains(*t)) else {
                    continue;
                };
                used.insert(at);
                let mut wanted = json!({"name": volume_name(at), "mountPath": target});
                if mount.read_only {
                    wanted["readOnly"] = json!(true);
                }
                append(mounts, wanted);
            }
            if let Some(directory) = &self.working_dir
                && container["workingDir"].as_str().is_none_or(str::is_empty)
            {
                container["workingDir"] = json!(directory);
            }
            self.give_rights(container, user_of_pod);
        }
        for at in used {
            let volume = json!({"name": volume_name(at), "hostPath": {"path": self.all[at].source}});
            append(entry(spec, "volumes"), volume);
        }
    }

    /// Runs the container as the user who runs this program, unless it sets a user.
    pub(crate) fn give_rights(&self, container: &mut Value, decided: bool) {
        let context = entry(container, "securityContext");
        if decided || ["runAsUser", "runAsNonRoot"].iter().any(|field| !context[*field].is_null()) {
            return;
        }
        context["runAsUser"] = json!(self.user.uid);
        context["runAsGroup"] = json!(self.user.gid);
    }
}

/// The containers of a pod that get the mounts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Which<'a> {
    /// Spark's container in a pod template: the one with the first name, else the first, else a new one with the second name.
    Spark(Option<&'a str>, &'a str),
    /// The same in an application's manifest: one with any of these names, else the first, else a new one with the first name.
    Application(&'a [&'a str]),
    All,
}

impl Which<'_> {
    fn of<'v>(&self, spec: &'v mut Value) -> Vec<&'v mut Value> {
        match self {
            Which::All => {
                let fields = spec.as_object_mut().into_iter().flatten();
                let lists = fields.filter(|(name, _)| ["initContainers", "containers"].contains(&name.as_str()));
                lists.filter_map(|(_, list)| list.as_array_mut()).flatten().collect()
            }
            Which::Spark(named, usual) => one_of(spec, named.as_slice(), usual),
            Which::Application(names) => one_of(spec, names, names.first().copied().unwrap_or_default()),
        }
    }
}

fn one_of<'v>(spec: &'v mut Value, names: &[&str], new: &str) -> Vec<&'v mut Value> {
    let containers = entry(spec, "containers");
    if containers.as_array().is_none_or(Vec::is_empty) {
        *containers = json!([{"name": new}]);
    }
    let mut list: Vec<&mut Value> = containers.as_array_mut().into_iter().flatten().collect();
    let at = names.iter().find_map(|name| list.iter().position(|container| container["name"] == *name)).unwrap_or(0);
    vec![list.swap_remove(at)]
}

fn volume_name(at: usize) -> String {
    format!("firesteel-mount-{at}")
}

/// A field of an object, created if missing or null.
fn entry<'a>(object: &'a mut Value, field: &str) -> &'a mut Value {
    if !object.is_object() {
        *object = json!({});
    }
    let value = &mut object[field];
    if value.is_null() {
        *value = match field {
            "volumes" | "volumeMounts" | "containers" => json!([]),
            _ => json!({}),
        };
    }
    value
}

fn append(list: &mut Value, item: Value) {
    if let Some(items) = list.as_array_mut() {
        items.push(item);
    }
}

/// Why nothing can be mounted at a path of a pod.
fn refusal(path: &Path, read_only: bool) -> Option<String> {
    let shown = path.display();
    if path == Path::new("/") {
        return Some("/ cannot be mounted into a pod, because it would hide the pod's own root".to_owned());
    }
    if !is_plain(path) {
        return Some(format!("{shown} cannot be mounted into a pod, because its name has a colon or is not UTF-8"));
    }
    let hidden = SHARED.iter().chain(&OWN).chain(&CLOSED).find(|own| Path::new(own).starts_with(path));
    if let Some(own) = hidden {
        return Some(format!("{shown} cannot be mounted into a pod, because it would hide the pod's own {own}"));
    }
    if let Some(own) = CLOSED.iter().find(|own| path.starts_with(own)) {
        return Some(format!("{shown} cannot be mounted into a pod, which has its own {own}"));
    }
    if read_only && WRITABLE.contains(&shown.to_string().as_str()) {
        return Some(format!("{shown} cannot be read-only in a pod, because programs write to it"));
    }
    None
}

/// Whether Kubernetes accepts a path as a mount path.
fn is_plain(path: &Path) -> bool {
    path.to_str().is_some_and(|text| !text.contains(':'))
}

/// Resolves `.` and `..` lexically.
fn lexical(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

/// The paths on the way to what a path names: the path itself, then one for each link followed.
fn hops(path: &Path) -> Vec<PathBuf> {
    const MOST: usize = 40;
    let mut all = vec![path.to_owned()];
    let mut current = path.to_owned();
    while all.len() < MOST {
        let mut walked = PathBuf::new();
        let mut rest = current.components();
        let followed = loop {
            let Some(part) = rest.next() else { break None };
            walked.push(part);
            if let Ok(link) = std::fs::read_link(&walked) {
                walked.pop();
                break Some(lexical(&walked.join(link).join(rest.as_path())));
            }
        };
        match followed {
            Some(next) => {
                all.push(next.clone());
                current = next;
            }
            None => break,
        }
    }
    all
}

/// Possible paths in an argument: the argument, the value after `=`, the parts of a list; `file:` URIs too.
fn paths_in(word: &str) -> BTreeSet<String> {
    let value = word.split_once('=').filter(|(name, _)| name.starts_with('-')).map_or(word, |(_, value)| value);
    let parts = std::iter::once(value).chain(value.split(',')).map(|part| match part.strip_prefix("file:") {
        Some(rest) if rest.starts_with("///") => &rest[2..],
        Some(rest) if rest.starts_with('/') && !rest.starts_with("//") => rest,
        _ => part,
    });
    parts
        .filter(|part| !part.is_empty() && !part.starts_with('-') && !part.contains("://"))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    const US: User = User { uid: 1000, gid: 100 };

    fn none(cwd: &Path) -> Mounts {
        Mounts::of_directory(&[], cwd, None, US).unwrap()
    }

    fn targets(mounts: &Mounts) -> Vec<(String, bool)> {
        mounts.all.iter().map(|m| (m.target.to_string_lossy().into_owned(), m.read_only)).collect()
    }

    /// A directory with `here/`, `data/in.csv` and links, by its real path.
    fn machine() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        for name in ["here", "data", "other"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        fs::write(root.join("data/in.csv"), "a\n1\n").unwrap();
        symlink(root.join("here"), root.join("alias")).unwrap();
        (directory, root)
    }

    fn words(list: &[&Path]) -> Vec<String> {
        list.iter().map(|p| p.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_directory_is_seen_at_its_path_and_by_the_name_the_shell_has_for_it() {
        let (_directory, root) = machine();
        let (here, alias) = (root.join("here"), root.join("alias"));
        let mounts = Mounts::of_directory(&[], &here, Some(&alias), US).unwrap();
        let seen = |path: &Path| (path.to_string_lossy().into_owned(), false);
        assert_eq!(targets(&mounts), [seen(&here), seen(&alias)]);
        assert_eq!(mounts.working_dir.as_deref(), Some(alias.as_path()));
        // A path that leads elsewhere is ignored.
        let mounts = Mounts::of_directory(&[], &here, Some(&root.join("data")), US).unwrap();
        assert_eq!((targets(&mounts), mounts.working_dir), (vec![seen(&here)], Some(here)));
    }

    #[test]
    fn what_a_pod_needs_for_itself_is_never_hidden() {
        for path in
            ["/", "/opt", "/etc", "/usr", "/var", "/var/data", "/opt/spark", "/opt/spark/x", "/proc/1", "/opt/java"]
        {
            assert!(refusal(Path::new(path), false).is_some(), "{path}");
        }
        for path in
            ["/tmp", "/root", "/home/u/x", "/opt/app", "/var/lib/jenkins/x", "/usr/src/app", "/mnt/data", "/srv"]
        {
            assert_eq!(refusal(Path::new(path), false), None, "{path}");
        }
        assert!(refusal(Path::new("/tmp"), true).is_some(), "programs write there");
        let mounts = Mounts::of_directory(&[], Path::new("/"), None, US).unwrap();
        assert!(mounts.is_empty() && mounts.working_dir.is_none());
        assert_eq!(
            mounts.notes,
            [
                "The application does not see the current directory: / cannot be mounted into a pod, because it would hide \
              the pod's own root; run it from another directory if it reads or writes files"
            ]
        );
    }

    #[test]
    fn mounts_that_are_asked_for_are_checked_and_the_current_directory_is_where_work_is_done() {
        let (_directory, root) = machine();
        let here = root.join("here");
        let asked = |wish: &str| Mounts::asked(&[wish.to_owned()], &here, US);
        let data = root.join("data").to_string_lossy().into_owned();
        assert_eq!(targets(&asked("../data:ro").unwrap()), [(data.clone(), true)]);
        assert_eq!(targets(&asked(&data).unwrap()), [(data, false)]);
        assert_eq!(asked("../data").unwrap().working_dir, None);
        assert_eq!(asked(".").unwrap().working_dir, Some(here.clone()));
        for (wish, why) in [
            ("nowhere", "nowhere: No such file or directory"),
            (":ro", "write a directory of this machine"),
            ("/opt:ro", "--mount /opt:ro: /opt cannot be mounted into a pod"),
            ("/tmp:ro", "/tmp cannot be read-only"),
        ] {
            let said = asked(wish).unwrap_err().0;
            assert!(said.contains(why), "{wish}: {said}");
        }
    }

    #[test]
    fn arguments_outside_are_mounted_read_only_and_places_to_write_to_are_named() {
        let (_directory, root) = machine();
        let (here, input) = (root.join("here"), root.join("data/in.csv"));
        let mut mounts = none(&here);
        mounts
            .show_arguments(&words(&[&input, &here, Path::new("/usr/bin"), Path::new("x"), Path::new("--all")]), &here);
        assert_eq!(targets(&mounts)[1..], [(input.to_string_lossy().into_owned(), true)]);
        assert_eq!(mounts.notes, [format!("Mounted {} read-only; --mount makes it writable", input.display())]);
        let mut mounts = none(&here);
        let out = root.join("other/out.parquet");
        mounts.show_arguments(&words(&[&out, Path::new("/etc/hostname"), Path::new("/dev/null")]), &here);
        assert_eq!(targets(&mounts).len(), 1);
        assert_eq!(
            mounts.notes,
            [
                format!(
                    "Files that the application writes to {} stay in its pods; to keep them, add --mount {}",
                    out.display(),
                    root.join("other").display()
                ),
                "The application does not see /etc/hostname of this machine: pods have their own /etc".to_owned()
            ]
        );
    }

    #[test]
    fn paths_in_options_lists_uris_and_patterns_are_paths_too() {
        let (_directory, root) = machine();
        let (here, data) = (root.join("here"), root.join("data").to_string_lossy().into_owned());
        for word in [
            format!("--input={data}/in.csv"),
            format!("file://{data}/in.csv"),
            format!("file:{data}/in.csv,{data}/none"),
            format!("x,{data}/in.csv"),
        ] {
            let mut mounts = none(&here);
            mounts.show_arguments(std::slice::from_ref(&word), &here);
            assert_eq!(targets(&mounts)[1..], [(format!("{data}/in.csv"), true)], "{word}");
        }
        let mut mounts = none(&here);
        mounts.show_arguments(&[format!("{data}/*.csv")], &here);
        assert_eq!(targets(&mounts)[1..], [(data, true)]);
    }

    #[test]
    fn links_lead_to_the_same_in_a_pod() {
        let (_directory, root) = machine();
        let here = root.join("here");
        symlink(root.join("through"), here.join("data")).unwrap();
        symlink("data", root.join("through")).unwrap();
        let mut mounts = none(&here);
        mounts.show_arguments(&["data/in.csv".to_owned()], &here);
        let wanted = ["through/in.csv", "data/in.csv"].map(|p| (root.join(p).to_string_lossy().into_owned(), true));
        assert_eq!(targets(&mounts)[1..], wanted);
        assert!(mounts.all[1..].iter().all(|m| m.source == root.join("data/in.csv")));
        // Another path to the current directory stays writable.
        let mut mounts = none(&here);
        mounts.show_arguments(&words(&[&root.join("alias/out.parquet")]), &here);
        assert_eq!(targets(&mounts)[1..], [(root.join("alias").to_string_lossy().into_owned(), false)]);
        assert!(mounts.notes.is_empty(), "{:?}", mounts.notes);
    }

    #[test]
    fn a_pod_gets_volumes_rights_and_a_working_directory_and_keeps_what_it_says_itself() {
        let (_directory, root) = machine();
        let here = root.join("here");
        let data = format!("{}:ro", root.join("data").display());
        let mounts = Mounts::of_directory(&[data], &here, None, US).unwrap();
        let mut pod = json!({});
        mounts.put_into(&mut pod, Which::Spark(None, "spark-kubernetes-driver"), &BTreeSet::new());
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["name"], "spark-kubernetes-driver");
        assert_eq!(container["workingDir"], json!(here));
        assert_eq!(container["securityContext"], json!({"runAsUser": 1000, "runAsGroup": 100}));
        assert_eq!(
            container["volumeMounts"],
            json!([{"name": "firesteel-mount-0", "mountPath": root.join("data"), "readOnly": true},
                {"name": "firesteel-mount-1", "mountPath": here}])
        );
        assert_eq!(pod["spec"]["volumes"][1], json!({"name": "firesteel-mount-1", "hostPath": {"path": here}}));
        // A user's template with a sidecar.
        let mut pod = json!({"spec": {"containers": [
            {"name": "side"},
            {"name": "main", "workingDir": "/w", "securityContext": {"runAsUser": 7}, "volumeMounts": [{"name": "x", "mountPath": here}]}
        ]}});
        let taken = BTreeSet::from([root.join("data").to_string_lossy().into_owned()]);
        mounts.put_into(&mut pod, Which::Spark(Some("main"), "spark-kubernetes-driver"), &taken);
        assert_eq!(pod["spec"]["containers"][0], json!({"name": "side"}));
        let main = &pod["spec"]["containers"][1];
        assert_eq!((&main["workingDir"], &main["securityContext"]), (&json!("/w"), &json!({"runAsUser": 7})));
        assert_eq!(main["volumeMounts"].as_array().unwrap().len(), 1, "both places are taken");
        assert!(pod["spec"]["volumes"].is_null());
    }
}
