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

#[cfg(test)]
mod tests {
    use super::*;

    fn said(profiles: &[(&str, &str)]) -> Profiles {
        let demand = |url: &str| ProfileDemand {
            wanted: 2,
            env: [("SPARK_DRIVER_URL".to_owned(), url.to_owned())].into(),
            ..ProfileDemand::default()
        };
        profiles.iter().map(|(profile, url)| ((*profile).to_owned(), demand(url))).collect()
    }

    #[test]
    fn executors_keep_their_driver_whatever_a_neighbour_writes_and_even_after_it_is_gone() {
        let mut heard = Heard::default();
        assert_eq!(heard.hear(&said(&[("0", "spark://own")]), true), None);
        let forged = said(&[("0", "spark://other"), ("7", "spark://other")]);
        for alone in [false, false, true] {
            let (believed, doubted) = heard.hear(&forged, alone).unwrap();
            assert_eq!(believed, said(&[("0", "spark://own")]));
            assert_eq!(doubted, ["0", "7"]);
        }
        // The driver says all again.
        let own = said(&[("0", "spark://own"), ("7", "spark://other")]);
        assert_eq!(heard.hear(&own, true).unwrap().1, ["7"]);
        assert_eq!(heard.hear(&said(&[("0", "spark://second")]), true), None, "alone, it may change its mind");
    }

    #[test]
    fn what_is_heard_first_is_believed() {
        let mut heard = Heard::default();
        assert_eq!(heard.hear(&Profiles::new(), false), None);
        assert_eq!(heard.hear(&said(&[("0", "spark://own")]), false), None);
        assert!(heard.hear(&said(&[("0", "spark://other")]), false).is_some());
    }
}
