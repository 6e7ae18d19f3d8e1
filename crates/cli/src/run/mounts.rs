//! Files and directories of this machine that the pods of a run see, each at its own path.
//!
//! A submission sees the directory it is started in, as its working directory and with the rights of whoever starts it. `--mount` adds
//! others, for manifests too. What an argument names outside of them is mounted read-only; what cannot be mounted is said in a
//! sentence. Nothing is mounted over what a pod needs for itself: its root, its programs, its Spark.
//!
//! This decides and reads links; it changes nothing on disk.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use serde_json::{Value, json};

use crate::exit::BadInput;

/// Directories that a pod has from this machine anyway.
const SHARED: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// Directories that a pod has of its own.
const OWN: [&str; 9] = [
    "/etc",
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/var/run",
    "/var/data",
    "/mnt/secrets",
    // What Spark and its entry point consist of.
    "/opt/spark",
];
/// More of them, in which nothing else has a place.
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
/// What every program expects to be able to write to.
const WRITABLE: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// Something of this machine in a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    /// What it is, without links.
    source: PathBuf,
    /// Where pods see it.
    target: PathBuf,
    read_only: bool,
}

/// Who reads and writes there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// Whoever runs this program.
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
    /// What `--mount` asks for, and nothing else.
    pub(crate) fn asked(wishes: &[String], cwd: &Path, user: User) -> Result<Self, BadInput> {
        let mut mounts = Mounts { all: Vec::new(), working_dir: None, user, notes: Vec::new() };
        for wish in wishes {
            mounts.wish(wish, cwd)?;
        }
        // Whoever asks for the directory they are in wants to work there.
        if mounts.all.iter().any(|mount| cwd.starts_with(&mount.target)) {
            mounts.working_dir = Some(cwd.to_owned());
        }
        Ok(mounts)
    }

    /// The same, and the current directory. `logical` is the path by which the shell knows it.
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
            return Err(refuse("write a directory of this machine, and :ro behind it if it is only to be read"));
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
            // Said twice: the last word counts.
            Some(mount) => mount.read_only = read_only,
            None => self.all.push(Mount { source: source.to_owned(), target: target.to_owned(), read_only }),
        }
    }

    /// Sentences for the person.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Where the application works, if that is a directory of this machine.
    pub(crate) fn working_dir(&self) -> Option<&str> {
        self.working_dir.as_deref().and_then(Path::to_str)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether pods see a path of this machine, as far as its own words go: links in it may lead elsewhere.
    fn shows(&self, path: &Path) -> bool {
        SHARED.iter().any(|shared| path.starts_with(shared)) || self.all.iter().any(|m| path.starts_with(&m.target))
    }

    /// Whether a path without links may be written to in pods.
    fn writes(&self, real: &Path) -> bool {
        self.all.iter().any(|m| !m.read_only && real.starts_with(&m.source))
    }

    /// Makes sure that pods see something that exists, and everything on the way to it. Gives what had to be mounted, or why it
    /// cannot be.
    pub(crate) fn show(&mut self, path: &Path) -> Result<bool, String> {
        let path = lexical(path);
        let real = path.canonicalize().map_err(|error| error.to_string())?;
        let mut new = Vec::new();
        for hop in hops(&path) {
            if self.shows(&hop) {
                continue;
            }
            if let Some(own) = OWN.iter().find(|own| hop.starts_with(own)) {
                return Err(format!("pods have a {own} of their own"));
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

    /// Makes what an application's arguments name visible; what cannot be gets a note.
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
        // A place to write to. Only its directory can be there already.
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
            "What the application writes to {path} stays in its pods: to have it here, add --mount {parent}"
        ));
    }

    /// Lets a pod see all of it, in some of its containers. `taken` are paths where something else is mounted.
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

    /// The rights of whoever runs this, unless the container has a user of its own.
    pub(crate) fn give_rights(&self, container: &mut Value, decided: bool) {
        let context = entry(container, "securityContext");
        if decided || ["runAsUser", "runAsNonRoot"].iter().any(|field| !context[*field].is_null()) {
            return;
        }
        context["runAsUser"] = json!(self.user.uid);
        context["runAsGroup"] = json!(self.user.gid);
    }
}

/// The containers of a pod that see something.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Which<'a> {
    /// The one of a pod template that Spark runs in: that of the name, else the first there is, else a new one by the second name.
    Spark(Option<&'a str>, &'a str),
    /// The same in an application's manifest: that of one of these names, else the first, else a new one by the first name.
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

/// A field of an object, which is made if it is not there or null.
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

/// Why something cannot be mounted at a path of a pod.
fn refusal(path: &Path, read_only: bool) -> Option<String> {
    let shown = path.display();
    if path == Path::new("/") {
        return Some("/ cannot be mounted into a pod, whose own root it would hide".to_owned());
    }
    if !is_plain(path) {
        return Some(format!("{shown} has a colon or letters that are not UTF-8 in its name, which no pod can mount"));
    }
    let hidden = SHARED.iter().chain(&OWN).chain(&CLOSED).find(|own| Path::new(own).starts_with(path));
    if let Some(own) = hidden {
        return Some(format!("{shown} cannot be mounted into a pod, whose own {own} it would hide"));
    }
    if let Some(own) = CLOSED.iter().find(|own| path.starts_with(own)) {
        return Some(format!("{shown} cannot be mounted into a pod, which has a {own} of its own"));
    }
    if read_only && WRITABLE.contains(&shown.to_string().as_str()) {
        return Some(format!("{shown} cannot be read-only in a pod, where programs write to it"));
    }
    None
}

/// Whether Kubernetes takes a path as the place of a volume.
fn is_plain(path: &Path) -> bool {
    path.to_str().is_some_and(|text| !text.contains(':'))
}

/// Without `.` and `..`, by the words of the path alone.
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

/// The paths that lead to what a path names: itself, then one for each link that is followed.
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

/// What could be paths in a word: the word, what stands behind `=`, the parts of a list, each also as a `file:` URI.
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
        // A name that means something else is not believed.
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
                "The application does not see the current directory: / cannot be mounted into a pod, whose own root it would \
              hide; run it from another directory if it reads or writes files"
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
                    "What the application writes to {} stays in its pods: to have it here, add --mount {}",
                    out.display(),
                    root.join("other").display()
                ),
                "The application does not see /etc/hostname of this machine: pods have a /etc of their own".to_owned()
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
        // Another name of the current directory stays writable.
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
        // A template of the user's own, with a sidecar.
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
