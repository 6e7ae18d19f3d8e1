//! Batch schedulers: until pod groups and queues are created for them, an application that needs one cannot run. Its pods
//! would wait for a group that nobody makes, so it is refused, with what works today.

use firesteel_api::spark_application::SparkApplicationSpec;
use firesteel_api::validate::Problem;

/// Batch schedulers that the existing operator knows by name.
pub const KNOWN: [&str; 2] = ["volcano", "yunikorn"];

/// The operator's settings for batch schedulers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BatchSchedulers {
    /// Schedulers with the coscheduling plugin.
    pub kube_schedulers: Vec<String>,
    /// For applications that name none.
    pub default: Option<String>,
}

impl BatchSchedulers {
    pub fn knows(&self, name: &str) -> bool {
        KNOWN.contains(&name) || self.kube_schedulers.iter().any(|known| known == name)
    }

    /// Why an application cannot run, if it needs a batch scheduler.
    pub fn problem(&self, spec: &SparkApplicationSpec) -> Option<Problem> {
        let own = spec.batch_scheduler.as_deref().filter(|name| !name.is_empty());
        let name = own.or(self.default.as_deref())?;
        let known = match self.knows(name) {
            true => "Firesteel does not create pod groups and queues for it yet".to_owned(),
            false => {
                let all: Vec<&str> = KNOWN.into_iter().chain(self.kube_schedulers.iter().map(String::as_str)).collect();
                format!("it is not a batch scheduler that the operator knows ({})", all.join(", "))
            }
        };
        let (what, remedy) = match own {
            Some(_) => (format!("{name:?}"), "remove spec.batchScheduler".to_owned()),
            None => (
                format!("is not set, so the operator's --default-batch-scheduler={name} holds"),
                "start the operator without that flag".to_owned(),
            ),
        };
        let message = format!(
            "{what}: {known}; {remedy} and set spec.driver.schedulerName and spec.executor.schedulerName to {name}, \
             which then places each pod on its own"
        );
        Some(Problem { path: "spec.batchScheduler".to_owned(), message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(settings: &BatchSchedulers, name: Option<&str>) -> Option<String> {
        let spec = SparkApplicationSpec { batch_scheduler: name.map(str::to_owned), ..SparkApplicationSpec::default() };
        settings.problem(&spec).map(|problem| problem.to_string())
    }

    #[test]
    fn an_application_that_needs_a_batch_scheduler_says_what_to_do() {
        let settings = BatchSchedulers { kube_schedulers: vec!["gang".to_owned()], default: None };
        assert_eq!(sentence(&settings, None), None);
        assert_eq!(sentence(&settings, Some("")), None);
        for name in ["volcano", "yunikorn", "gang"] {
            assert_eq!(
                sentence(&settings, Some(name)).unwrap(),
                format!(
                    "spec.batchScheduler: \"{name}\": Firesteel does not create pod groups and queues for it yet; remove \
                     spec.batchScheduler and set spec.driver.schedulerName and spec.executor.schedulerName to {name}, which \
                     then places each pod on its own"
                )
            );
        }
        let unknown = sentence(&settings, Some("mine")).unwrap();
        assert!(
            unknown.contains("not a batch scheduler that the operator knows (volcano, yunikorn, gang)"),
            "{unknown}"
        );
    }

    #[test]
    fn the_operators_default_is_named_as_such() {
        let settings = BatchSchedulers { default: Some("volcano".to_owned()), ..BatchSchedulers::default() };
        let said = sentence(&settings, None).unwrap();
        assert!(
            said.starts_with("spec.batchScheduler: is not set, so the operator's --default-batch-scheduler=volcano"),
            "{said}"
        );
        assert!(said.contains("start the operator without that flag and set spec.driver.schedulerName"), "{said}");
        assert!(sentence(&settings, Some("yunikorn")).unwrap().contains("\"yunikorn\""), "its own comes first");
    }
}
