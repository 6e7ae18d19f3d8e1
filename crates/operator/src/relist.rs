//! Folds the events of a watch, and the lists that come again after it was interrupted, into what is there and what is gone.

use std::collections::HashMap;

use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};

/// Uids by namespace and name.
pub(crate) type Listed = HashMap<(String, String), String>;

/// What an event says.
pub(crate) enum Change<'a, K> {
    /// A list begins.
    Lists,
    /// An object is part of the list.
    InList(&'a K),
    /// An object is new, or changed.
    Seen(&'a K),
    Gone(&'a K),
    /// The list is complete: whatever else was known was deleted while nobody watched.
    Listed(Listed),
}

/// A list under way.
#[derive(Debug, Default)]
pub(crate) struct Relist(Listed);

impl Relist {
    pub(crate) fn fold<'a, K: Resource>(&mut self, event: &'a Event<K>) -> Change<'a, K> {
        match event {
            Event::Init => {
                self.0.clear();
                Change::Lists
            }
            Event::InitApply(object) => {
                let key = (object.namespace().unwrap_or_default(), object.name_any());
                self.0.insert(key, object.uid().unwrap_or_default());
                Change::InList(object)
            }
            Event::Apply(object) => Change::Seen(object),
            Event::Delete(object) => Change::Gone(object),
            Event::InitDone => Change::Listed(std::mem::take(&mut self.0)),
        }
    }
}
