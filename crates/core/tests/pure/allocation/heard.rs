//! Which demand in a driver's name is trusted.

use std::collections::BTreeMap;

use firesteel_api::executors::ProfileDemand;
use firesteel_core::grant::heard::Heard;

type Profiles = BTreeMap<String, ProfileDemand>;

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
    // The driver publishes everything again.
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
