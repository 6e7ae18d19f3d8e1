//! Several applications in one namespace: whatever they ask for and whatever crashes, neither an application nor the namespace
//! exceeds the operator's limits.

use std::collections::BTreeMap;

use firesteel_api::executors::{ProfileDemand, Strategy as Kind};
use firesteel_core::allocation::memory::Memory;
use firesteel_core::allocation::pod::{End, ExecutorPod, State};
use firesteel_core::allocation::size::Amount;
use firesteel_core::allocation::{Asked, Slots};
use firesteel_core::fair::{Asker, share_namespace};
use proptest::prelude::*;

use crate::allocation::application::{Application, NAMESPACE, pod, seconds};

const APPLICATION: Amount = Amount { executors: 8, cores: 20, memory_mib: 16 << 10 };

#[derive(Debug, Clone)]
enum Happening {
    /// A driver asks for executors of a profile with this many cores and GiB.
    Wants {
        app: usize,
        profile: u32,
        wanted: u32,
        cores: u32,
        gib: u32,
    },
    Runs {
        app: usize,
    },
    Ends {
        app: usize,
    },
    /// A pass over one application.
    Pass {
        app: usize,
    },
    /// The operator forgets everything.
    Restart,
}

fn happening() -> impl Strategy<Value = Happening> {
    let app = 0usize..3;
    let wanted = prop_oneof![0u32..6, Just(1_000), Just(u32::MAX)];
    prop_oneof![
        3 => (app.clone(), 0u32..3, wanted, 1u32..6, 1u32..6)
            .prop_map(|(app, profile, wanted, cores, gib)| Happening::Wants { app, profile, wanted, cores, gib }),
        2 => app.clone().prop_map(|app| Happening::Runs { app }),
        2 => app.clone().prop_map(|app| Happening::Ends { app }),
        6 => app.prop_map(|app| Happening::Pass { app }),
        1 => Just(Happening::Restart),
    ]
}

struct Tenant {
    app: Application,
    pods: BTreeMap<u64, ExecutorPod>,
}

impl Tenant {
    fn new() -> Self {
        // Dynamic allocation without a maximum.
        let mut app = Application::new(Kind::Pods, None, None);
        app.limit = APPLICATION;
        Tenant { app, pods: BTreeMap::new() }
    }

    fn has(&self) -> Amount {
        let mut amount = Amount::default();
        self.pods.values().filter(|pod| pod.is_live()).for_each(|pod| amount.add(&pod.size, 1));
        amount
    }
}

/// One pass: decide, respect the namespace's limit, write, delete, create.
fn pass(tenants: &mut [Tenant], which: usize) {
    let others: Vec<Amount> = tenants.iter().enumerate().filter(|(i, _)| *i != which).map(|(_, t)| t.has()).collect();
    let others = others.into_iter().fold(Amount::default(), Amount::plus);
    let tenant = &mut tenants[which];
    tenant.app.now += seconds(61);
    let seen: Vec<ExecutorPod> = tenant.pods.values().cloned().collect();
    let held = tenant.has();
    let mut given = Vec::new();
    let decision = tenant.app.decide_with(&seen, &[], |asked: &[Asked]| {
        let asked = asked.iter().map(|asked| (asked.size.clone(), asked.count)).collect();
        given = share_namespace(&NAMESPACE, others, &[Asker { held, asked }]).remove(0);
        Slots { namespace: Some(given.clone()), most: u32::MAX, ..Slots::default() }
    });
    let before: u32 = decision.missing.iter().map(|(_, count)| count).sum();
    let after: u32 = given.iter().sum();
    assert_eq!(decision.create.len(), after as usize);
    let said = decision
        .ledger
        .conditions
        .iter()
        .any(|c| c.reason == "NamespaceLimit" && c.message.contains("--max-executors-per-namespace"));
    assert_eq!(said, after < before, "a limit is reported if and only if it applies");
    tenant.app.write(&decision);
    for removal in &decision.remove {
        tenant.pods.retain(|_, pod| pod.uid != removal.uid);
    }
    for creation in &decision.create {
        let (id, flight) = (creation.id, &creation.flight);
        let made = pod(format!("pi-exec-{id}"), format!("uid-{id}"), &flight.profile, tenant.app.now);
        tenant.pods.insert(id, ExecutorPod { id: Some(id), size: flight.size.clone(), ..made });
    }
    tenant.app.bridge();
}

fn within(amount: &Amount, limit: &Amount) -> bool {
    amount.executors <= limit.executors && amount.cores <= limit.cores && amount.memory_mib <= limit.memory_mib
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_application_and_no_namespace_ever_has_more_than_the_operator_allows(
        happenings in prop::collection::vec(happening(), 1..60)
    ) {
        let mut tenants = [Tenant::new(), Tenant::new(), Tenant::new()];
        for happening in happenings {
            match happening {
                Happening::Wants { app, profile, wanted, cores, gib } => {
                    let demand = ProfileDemand { wanted, cores, memory: format!("{gib}Gi"), ..ProfileDemand::default() };
                    tenants[app].app.demand.profiles.insert(profile.to_string(), demand);
                }
                Happening::Runs { app } => {
                    let Tenant { app, pods } = &mut tenants[app];
                    for (id, pod) in pods.iter_mut().filter(|(_, pod)| matches!(pod.state, State::Pending { .. })) {
                        pod.state = State::Running { since: app.now };
                        app.demand.registered.insert(id.to_string(), format!("10.0.0.{id}"));
                    }
                }
                Happening::Ends { app } => {
                    let first = tenants[app].pods.values_mut().find(|pod| pod.is_live());
                    if let Some(pod) = first {
                        pod.state = State::Ended(End { code: -1, reason: String::new(), message: String::new(), pod: None });
                    }
                }
                Happening::Pass { app } => pass(&mut tenants, app),
                Happening::Restart => tenants.iter_mut().for_each(|tenant| tenant.app.memory = Memory::default()),
            }
            for tenant in &tenants {
                prop_assert!(within(&tenant.has(), &APPLICATION), "{:?}", tenant.has());
            }
            let together = tenants.iter().fold(Amount::default(), |sum, tenant| sum.plus(tenant.has()));
            prop_assert!(within(&together, &NAMESPACE), "{together:?}");
        }
    }
}

#[test]
fn an_application_that_the_operator_limits_hears_of_the_flag() {
    let mut tenants = [Tenant::new()];
    tenants[0].app.want(1_000_000);
    pass(&mut tenants, 0);
    assert_eq!(tenants[0].has().executors, 8);
    let condition = tenants[0].app.ledger.conditions.iter().find(|c| c.type_ == "WithinMaximum").unwrap();
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "OperatorLimit"));
    assert_eq!(
        condition.message,
        "1000000 executors of profile 0 wanted, 8 granted; the operator allows an application 8 executors, 20 cores and 16Gi \
         of memory; see its flags --max-executors-per-application, --max-executor-cores-per-application and \
         --max-executor-memory-per-application"
    );
}
