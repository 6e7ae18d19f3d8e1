//! Decides what happens to an object, given the state of its owners. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::PropagationPolicy;

use crate::controllers::graph_builder::Item;

/// Finalizer of an owner that waits for its dependents to be deleted.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of an owner whose dependents are orphaned.
pub(crate) const ORPHAN: &str = "orphan";

/// The state of one owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Present,
    Absent,
    /// It is being deleted in the foreground and waits for its dependents.
    WaitsForDependents,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    Keep,
    /// Other owners still exist; these references are dangling.
    DropOwners(Vec<String>),
    Delete(PropagationPolicy),
}

/// Whether a dependent blocks the foreground deletion of an owner.
pub(crate) fn blocks(dependent: &Item, owner: &str) -> bool {
    dependent.owners.iter().any(|o| o.uid == owner && o.block_owner_deletion == Some(true))
}

pub(crate) fn judge(item: &Item, owners: &[(OwnerReference, Owner)], has_dependents: bool) -> Verdict {
    let with = |wanted: Owner| owners.iter().filter(move |(_, o)| *o == wanted).map(|(r, _)| r.uid.clone());
    let lost: Vec<String> = with(Owner::Absent).chain(with(Owner::WaitsForDependents)).collect();
    if with(Owner::Present).next().is_some() {
        return if lost.is_empty() { Verdict::Keep } else { Verdict::DropOwners(lost) };
    }
    if lost.is_empty() {
        return Verdict::Keep;
    }
    let waited_for = with(Owner::WaitsForDependents).next().is_some();
    Verdict::Delete(match () {
        // The owner waits for all of its descendants.
        () if waited_for && has_dependents => PropagationPolicy::Foreground,
        () if item.has_finalizer(ORPHAN) => PropagationPolicy::Orphan,
        () if item.has_finalizer(FOREGROUND) => PropagationPolicy::Foreground,
        () => PropagationPolicy::Background,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kube::api::ApiResource;

    use super::*;
    use crate::controllers::graph_builder::{Graph, ResourceKind};
    use crate::informer::Key;

    fn reference(uid: &str) -> OwnerReference {
        OwnerReference { uid: uid.to_owned(), block_owner_deletion: Some(true), ..OwnerReference::default() }
    }

    fn item(uid: &str, owners: &[&str], finalizers: &[&str]) -> Item {
        let resource = ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&());
        Item {
            kind: Arc::new(ResourceKind { resource, namespaced: true, deletes_collections: true, watched: true }),
            key: Key::new("n", uid),
            uid: uid.to_owned(),
            version: "1".to_owned(),
            owners: owners.iter().map(|o| reference(o)).collect(),
            finalizers: finalizers.iter().map(|f| (*f).to_owned()).collect(),
            deleting: false,
        }
    }

    fn verdict(owners: &[Owner], finalizers: &[&str], has_dependents: bool) -> Verdict {
        let owners: Vec<_> = owners.iter().enumerate().map(|(i, o)| (reference(&i.to_string()), *o)).collect();
        judge(&item("x", &[], finalizers), &owners, has_dependents)
    }

    #[test]
    fn an_object_lives_as_long_as_one_owner() {
        use Owner::{Absent, Present, WaitsForDependents};
        assert_eq!(verdict(&[Present], &[], false), Verdict::Keep);
        assert_eq!(verdict(&[Present, Absent], &[], false), Verdict::DropOwners(vec!["1".to_owned()]));
        assert_eq!(verdict(&[WaitsForDependents, Present], &[], false), Verdict::DropOwners(vec!["0".to_owned()]));
        assert_eq!(verdict(&[Absent, Absent], &[], false), Verdict::Delete(PropagationPolicy::Background));
    }

    #[test]
    fn foreground_goes_down_the_tree() {
        use Owner::WaitsForDependents;
        assert_eq!(verdict(&[WaitsForDependents], &[], true), Verdict::Delete(PropagationPolicy::Foreground));
        assert_eq!(verdict(&[WaitsForDependents], &[], false), Verdict::Delete(PropagationPolicy::Background));
    }

    #[test]
    fn an_objects_own_finalizers_decide_how_it_goes() {
        use Owner::Absent;
        assert_eq!(verdict(&[Absent], &[ORPHAN], false), Verdict::Delete(PropagationPolicy::Orphan));
        assert_eq!(verdict(&[Absent], &[FOREGROUND], false), Verdict::Delete(PropagationPolicy::Foreground));
    }

    #[test]
    fn the_graph_knows_dependents_of_owners_it_has_not_seen() {
        let mut graph = Graph::default();
        graph.insert(&Arc::new(item("child", &["parent"], &[])));
        assert_eq!(graph.with_unknown_owners(), ["child"]);
        graph.insert(&Arc::new(item("parent", &[], &[])));
        assert!(graph.with_unknown_owners().is_empty());
        assert_eq!(graph.dependents("parent").len(), 1);
        assert!(blocks(&graph.dependents("parent")[0], "parent"));
        graph.insert(&Arc::new(item("child", &[], &[])));
        assert!(graph.dependents("parent").is_empty());
    }
}
