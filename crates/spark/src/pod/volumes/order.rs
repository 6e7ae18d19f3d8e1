//! The order in which Spark numbers the volumes of a pod: that of the Scala hash collections its settings pass through.
//!
//! Spark lists its whole configuration through a mutable hash set, collects the volume settings in an immutable map, takes the
//! type and name of each volume from their keys into a set, and builds a set of volumes from that. Scala's immutable maps and sets
//! keep insertion order up to four elements; larger ones are hash tries, whose order depends only on their elements. So with five
//! or more volume settings, the order depends on those settings alone; fewer come in the order of the first set, which also
//! depends on the total number of settings.
//!
//! Collections and hashes differ between Scala 2.12, which Spark 3.5 uses, and 2.13. Ties are not computed: elements with the same
//! hash (names such as `Aa` and `BB`), or in 2.12 with the same slot in the first set, come in Spark's insertion order; here they
//! are sorted by name. Slots do not matter for claims that Spark creates, each of which has four settings.

use std::collections::BTreeMap;

use crate::version::Line;

/// The largest immutable map or set that keeps insertion order.
const SMALL: usize = 4;
/// Bits of a hash that select a branch of a node.
const BRANCH_BITS: u32 = 5;
const SEED: u32 = 0xcafe_babe;

/// Type and name of each volume, in Spark's order. `settings` are the volume settings, without the `prefix` of their keys; `all` is
/// the number of settings in the whole configuration.
pub(super) fn in_sparks_order<'s>(
    settings: &'s BTreeMap<String, String>,
    prefix: &str,
    all: usize,
    line: Line,
) -> Vec<(&'s str, &'s str)> {
    let scala = Scala::of(line);
    let mut keys: Vec<&str> = settings.keys().map(String::as_str).collect();
    keys.sort_by_cached_key(|key| scala.place(&format!("{prefix}{key}"), &settings[*key], all));
    scala.arrange(&mut keys, |key| text(key));
    let mut volumes: Vec<(&str, &str)> = Vec::new();
    for key in keys {
        let mut parts = key.split('.');
        if let (Some(kind), Some(name)) = (parts.next(), parts.next())
            && !volumes.contains(&(kind, name))
        {
            volumes.push((kind, name));
        }
    }
    scala.arrange(&mut volumes, |(kind, name)| scala.product("Tuple2", &[text(kind), text(name)]));
    scala.arrange(&mut volumes, |(kind, name)| Spec { scala, settings, kind, name }.hash());
    volumes
}

/// The Scala version that a line of Spark uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scala {
    V2_12,
    V2_13,
}

impl Scala {
    fn of(line: Line) -> Scala {
        if line < Line::V4_0 { Scala::V2_12 } else { Scala::V2_13 }
    }

    /// Where a setting is in the mutable set of all settings: its slot in the table, and its rank there.
    fn place(self, key: &str, value: &str, all: usize) -> (u32, i32) {
        let hash = self.product("Tuple2", &[text(key), text(value)]);
        let size = |first: usize, full: &dyn Fn(usize) -> usize| {
            let mut size = first;
            while all >= full(size) {
                size *= 2;
            }
            u32::try_from(size).unwrap_or(1 << 31)
        };
        match self {
            Scala::V2_12 => {
                let bits = size(32, &|size| size * 450 / 1000).trailing_zeros();
                let spread = hash.wrapping_mul(0x9e37_75cd).swap_bytes().wrapping_mul(0x9e37_75cd);
                (spread.rotate_right(bits) >> (u32::BITS - bits), 0)
            }
            Scala::V2_13 => {
                let spread = hash ^ (hash >> 16);
                (spread & (size(16, &|size| size / 4 * 3) - 1), spread.cast_signed())
            }
        }
    }

    /// Puts members into the order of the immutable map or set that contains them.
    fn arrange<T>(self, members: &mut [T], hash: impl Fn(&T) -> u32) {
        if members.len() <= SMALL {
            return;
        }
        let hashes: Vec<u32> = members.iter().map(|member| improve(hash(member))).collect();
        members.sort_by_cached_key(|member| self.path(improve(hash(member)), &hashes));
    }

    /// The path from the root of a trie of `all` to a member. Paths sort in the order in which members are visited: branches by
    /// number, lowest bits first. In 2.13 the members stored in a node come before its branches.
    fn path(self, hash: u32, all: &[u32]) -> Vec<(bool, u32)> {
        let mut way = Vec::new();
        for shift in (0..u32::BITS).step_by(BRANCH_BITS as usize) {
            let below = u32::MAX.checked_shl(shift + BRANCH_BITS).map_or(0, |mask| mask);
            let shared = all.iter().filter(|other| (*other ^ hash) & !below == 0 && **other != hash).count();
            let branch = (hash >> shift) & ((1 << BRANCH_BITS) - 1);
            let is_node = shared > 0;
            way.push((self == Scala::V2_13 && is_node, branch));
            if !is_node {
                break;
            }
        }
        way
    }

    /// The hash of a case class with these members.
    fn product(self, class: &str, members: &[u32]) -> u32 {
        let seed = if self == Scala::V2_13 { mix(SEED, text(class)) } else { SEED };
        finish(members.iter().fold(seed, |hash, member| mix(hash, *member)), members.len())
    }

    fn option(self, value: Option<&String>) -> u32 {
        value.map_or_else(|| text("None"), |value| self.product("Some", &[text(value)]))
    }

    /// The hash of `Some` map.
    fn some_map(self, entries: &[(&str, &String)]) -> u32 {
        let (mut sum, mut xor, mut product) = (0u32, 0u32, 1u32);
        for (key, value) in entries {
            let hash = self.product("Tuple2", &[text(key), text(value)]);
            sum = sum.wrapping_add(hash);
            xor ^= hash;
            product = match self {
                Scala::V2_12 if hash == 0 => product,
                Scala::V2_12 => product.wrapping_mul(hash),
                Scala::V2_13 => product.wrapping_mul(hash | 1),
            };
        }
        let map = finish(mix_last(mix(mix(text("Map"), sum), xor), product), entries.len());
        self.product("Some", &[map])
    }
}

/// Scala's mixing of a hash before its bits select branches.
fn improve(hash: u32) -> u32 {
    let mut hash = hash.wrapping_add(!(hash << 9));
    hash ^= hash >> 14;
    hash = hash.wrapping_add(hash << 4);
    hash ^ (hash >> 10)
}

/// One volume as Spark's `KubernetesVolumeSpec`.
struct Spec<'a> {
    scala: Scala,
    settings: &'a BTreeMap<String, String>,
    kind: &'a str,
    name: &'a str,
}

impl Spec<'_> {
    fn get(&self, option: &str) -> Option<&String> {
        self.settings.get(&format!("{}.{}.{option}", self.kind, self.name))
    }

    fn text(&self, option: &str) -> u32 {
        self.get(option).map_or(0, |value| text(value))
    }

    fn family(&self, family: &str) -> u32 {
        let prefix = format!("{}.{}.{family}", self.kind, self.name);
        let entries = self.settings.iter().filter_map(|(key, value)| Some((key.strip_prefix(&prefix)?, value)));
        self.scala.some_map(&entries.collect::<Vec<_>>())
    }

    fn hash(&self) -> u32 {
        let newer = self.scala == Scala::V2_13;
        let read_only = self.get("mount.readOnly").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let mut members = vec![text(self.name), self.text("mount.path"), self.text("mount.subPath")];
        if newer {
            members.push(self.text("mount.subPathExpr"));
        }
        // Java's hashes of true and false.
        members.push(if read_only { 1231 } else { 1237 });
        members.push(self.source(newer));
        self.scala.product("KubernetesVolumeSpec", &members)
    }

    fn source(&self, newer: bool) -> u32 {
        let option = |name: &str| self.scala.option(self.get(name));
        let (class, mut members) = match self.kind {
            "hostPath" => ("KubernetesHostPathVolumeConf", vec![self.text("options.path")]),
            "nfs" => ("KubernetesNFSVolumeConf", vec![self.text("options.path"), self.text("options.server")]),
            "emptyDir" => ("KubernetesEmptyDirVolumeConf", vec![option("options.medium"), option("options.sizeLimit")]),
            _ => {
                let claim = self.text("options.claimName");
                let members = vec![claim, option("options.storageClass"), option("options.sizeLimit")];
                ("KubernetesPVCVolumeConf", members)
            }
        };
        match self.kind {
            "hostPath" if newer => members.push(self.text("options.type")),
            "persistentVolumeClaim" if newer => members.extend([self.family("label."), self.family("annotation.")]),
            _ => {}
        }
        self.scala.product(class, &members)
    }
}

/// Java's hash of a string.
fn text(text: &str) -> u32 {
    text.encode_utf16().fold(0, |hash, unit| hash.wrapping_mul(31).wrapping_add(u32::from(unit)))
}

/// The steps of MurmurHash3, which Scala uses for case classes and collections.
fn mix(hash: u32, member: u32) -> u32 {
    mix_last(hash, member).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
}

fn mix_last(hash: u32, member: u32) -> u32 {
    hash ^ member.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593)
}

fn finish(hash: u32, members: usize) -> u32 {
    let mut hash = hash ^ u32::try_from(members).unwrap_or(u32::MAX);
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Captured from real Spark by `tests/golden/capture-volumes`.
    const CAPTURED: [(Line, &str); 5] = [
        (Line::V3_5, include_str!("../../../../../tests/golden/volumes/3.5.9.json")),
        (Line::V4_0, include_str!("../../../../../tests/golden/volumes/4.0.5.json")),
        (Line::V4_1, include_str!("../../../../../tests/golden/volumes/4.1.4.json")),
        (Line::V4_2, include_str!("../../../../../tests/golden/volumes/4.2.1.json")),
        (Line::V4_3, include_str!("../../../../../tests/golden/volumes/4.3.0.json")),
    ];

    const PREFIX: &str = "spark.kubernetes.driver.volumes.";

    #[test]
    fn volumes_come_in_the_order_of_sparks_own_tables() {
        for (line, captured) in CAPTURED {
            let cases: Vec<Value> = serde_json::from_str(captured).expect("a capture");
            let (mut few, mut many) = (0, 0);
            for case in cases {
                let text = |value: &Value| value.as_str().expect("text").to_owned();
                let settings = case["settings"].as_object().expect("settings");
                let settings: BTreeMap<String, String> =
                    settings.iter().map(|(key, value)| (key.clone(), text(value))).collect();
                let others = case["others"].as_u64().and_then(|others| usize::try_from(others).ok()).expect("a number");
                let order: Vec<String> = case["order"].as_array().expect("names").iter().map(text).collect();
                let ours = in_sparks_order(&settings, PREFIX, settings.len() + others, line);
                let ours: Vec<&str> = ours.into_iter().map(|(_, name)| name).collect();
                assert_eq!(ours, order, "{line}, {others} others");
                few += usize::from(settings.len() <= SMALL);
                many += usize::from(order.len() > SMALL);
            }
            assert!(few > 5 && many > 5, "{line}: {few} with few settings, {many} with many volumes");
        }
    }

    /// Spark keeps their insertion order instead.
    #[test]
    fn keys_of_the_same_hash_come_by_name() {
        let settings = ["BB", "Aa"].into_iter().flat_map(|name| {
            ["mount.path", "options.claimName", "options.sizeLimit"]
                .map(|option| (format!("persistentVolumeClaim.{name}.{option}"), format!("/{name}")))
        });
        let settings: BTreeMap<String, String> = settings.collect();
        for line in Line::ALL {
            let order = in_sparks_order(&settings, PREFIX, 40, line);
            assert_eq!(order, [("persistentVolumeClaim", "Aa"), ("persistentVolumeClaim", "BB")], "{line}");
        }
    }
}
