//! Demand that only the driver itself can have written.
//!
//! Unless the admission policy isolates the drivers of a service account, each can write the others' demand. The environment
//! of executors decides which driver they belong to: it holds the driver's address. So each profile keeps the environment seen
//! while the driver was alone or isolated, until it changes at such a time again. The number of executors is limited anyway.
//!
//! An operator that has just started trusts the first demand it sees.

use std::collections::BTreeMap;

use firesteel_api::executors::ProfileDemand;

type Environment = BTreeMap<String, String>;
type Profiles = BTreeMap<String, ProfileDemand>;

#[derive(Debug, Clone, Default)]
pub struct Heard {
    believed: BTreeMap<String, Environment>,
    last: BTreeMap<String, Environment>,
    begun: bool,
}

impl Heard {
    /// Records published demand; `alone` means that only the driver can have written it. If some of it is not trusted, returns
    /// the trusted demand and the profiles in doubt.
    pub fn hear(&mut self, profiles: &Profiles, alone: bool) -> Option<(Profiles, Vec<String>)> {
        if profiles.is_empty() {
            return None;
        }
        let believes = alone || !self.begun;
        self.begun = true;
        self.last.retain(|profile, _| profiles.contains_key(profile));
        self.believed.retain(|profile, _| profiles.contains_key(profile));
        let mut doubted = Vec::new();
        for (profile, demand) in profiles {
            if self.last.get(profile) != Some(&demand.env) {
                if believes {
                    self.believed.insert(profile.clone(), demand.env.clone());
                }
                self.last.insert(profile.clone(), demand.env.clone());
            }
            if self.believed.get(profile) != Some(&demand.env) {
                doubted.push(profile.clone());
            }
        }
        if doubted.is_empty() {
            return None;
        }
        let believed = profiles.iter().filter_map(|(profile, demand)| {
            let env = self.believed.get(profile)?.clone();
            Some((profile.clone(), ProfileDemand { env, ..demand.clone() }))
        });
        Some((believed.collect(), doubted))
    }
}
