//! What a driver said while nobody else could speak for it.
//!
//! Where nothing keeps the drivers of one account apart, each can write what the others ask for. What decides whom executors
//! belong to is their environment: the driver's address is in it. So that of each profile stays as it was heard while the driver
//! was alone, or kept apart, until it changes at such a time again. How many executors are wanted is limited anyway.
//!
//! An operator that has just started believes what it hears first.

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
    /// Takes in what is published; `alone` says whether nobody but the driver can have written it. Gives what is to be believed
    /// where that differs, and of which profiles it does.
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
