//! Everything that one run takes of its namespace: its pods with the resources they request, and the objects around them. What
//! Spark's own allocator will create in the driver is planned with the same functions as what the operator creates.

use std::collections::BTreeMap;

use firesteel_api::spark_application::SparkApplicationSpec;
use firesteel_spark::driver::{Object, PlanError};
use firesteel_spark::executor::{self, ExecutorPlan};
use firesteel_spark::names::key;
use firesteel_spark::value::Quantity;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PodSpec, Service};

use crate::run::Run;
use crate::ui::Exposure;

/// What a run takes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Footprint {
    pub pods: Vec<PodGroup>,
    /// Objects besides pods, by the names that quotas use, such as `count/services` and `requests.storage`.
    pub objects: BTreeMap<String, Quantity>,
    /// What could not be taken into account, and why.
    pub remarks: Vec<String>,
    /// What Spark will not be able to create, and why.
    pub warnings: Vec<String>,
}

/// Pods of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct PodGroup {
    /// `driver`, `server` or `executor`.
    pub role: &'static str,
    /// The field to change for fewer or smaller pods.
    pub path: String,
    pub spec: PodSpec,
    pub count: u64,
}

impl Footprint {
    /// The driver of a run, and the objects around it.
    pub(crate) fn of_driver(run: &Run, path: &str, role: &'static str) -> Self {
        let spec = run.pod.spec.clone().unwrap_or_default();
        let driver = PodGroup { role, path: path.to_owned(), spec, count: 1 };
        let mut needs = Footprint { pods: vec![driver], ..Footprint::default() };
        for object in &run.objects {
            match object {
                Object::ConfigMap(_) => needs.add_core("configmaps", 1),
                Object::Secret(_) => needs.add_core("secrets", 1),
                Object::Service(service) => needs.add_service(service),
                Object::PersistentVolumeClaim(claim) => needs.add_claim(claim, 1),
                Object::NetworkPolicy(_) => needs.add("count/networkpolicies.networking.k8s.io", one(), 1),
            }
        }
        needs
    }

    /// The objects through which a driver can be reached.
    pub(crate) fn expose(&mut self, exposure: &Exposure) {
        exposure.services.iter().for_each(|service| self.add_service(service));
        for _ in &exposure.ingresses {
            self.add("count/ingresses.networking.k8s.io", one(), 1);
        }
        if exposure.budget.is_some() {
            self.add("count/poddisruptionbudgets.policy", one(), 1);
        }
    }

    /// The executors: with dynamic allocation as many as there may be.
    pub(crate) fn add_executors(&mut self, plan: Result<ExecutorPlan, PlanError>, spec: &SparkApplicationSpec) {
        let plan = match plan {
            Ok(plan) => plan,
            Err(error) => {
                self.warnings.push(format!("executors cannot be created like this: {error}"));
                self.remarks.push("executors could not be planned and are not counted".to_owned());
                return;
            }
        };
        let allocation = &plan.allocation;
        let path = match (allocation.dynamic, spec.dynamic_allocation.as_ref().is_some_and(|dynamic| dynamic.enabled)) {
            (true, true) => "spec.dynamicAllocation.maxExecutors".to_owned(),
            (true, false) => format!("spec.sparkConf[{}]", key::DYNAMIC_MAXIMUM),
            (false, _) => "spec.executor.instances".to_owned(),
        };
        let count = u64::from(allocation.maximum.unwrap_or(allocation.initial));
        if allocation.maximum.is_none() {
            let initial = allocation.initial;
            self.remarks.push(format!(
                "{path} is not set: dynamic allocation has no limit, and only the first {initial} executors are counted"
            ));
        }
        for claim in &plan.claims {
            self.add_claim(claim, count);
        }
        if plan.config_map.is_some() && count > 0 {
            self.add_core("configmaps", 1);
        }
        let pod = executor::executor(&plan.template, &plan.container, 1, &plan.profile, &plan.name_prefix);
        self.pods.push(PodGroup { role: "executor", path, spec: pod.spec.unwrap_or_default(), count });
    }

    pub(crate) fn add_service(&mut self, service: &Service) {
        self.add_core("services", 1);
        let kind = service.spec.as_ref().and_then(|spec| spec.type_.as_deref()).unwrap_or_default();
        let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref()).map_or(0, Vec::len);
        if kind == "LoadBalancer" {
            self.add("services.loadbalancers", one(), 1);
        }
        if matches!(kind, "NodePort" | "LoadBalancer") {
            self.add("services.nodeports", one(), u64::try_from(ports).unwrap_or_default());
        }
    }

    fn add_claim(&mut self, claim: &PersistentVolumeClaim, count: u64) {
        self.add_core("persistentvolumeclaims", count);
        let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
        if let Some(size) = requests.and_then(|requests| requests.get("storage")?.0.parse().ok()) {
            self.add("requests.storage", size, count);
        }
    }

    /// Objects of the core group, which quotas can name in two ways.
    fn add_core(&mut self, resource: &str, count: u64) {
        self.add(resource, one(), count);
        self.add(&format!("count/{resource}"), one(), count);
    }

    fn add(&mut self, resource: &str, amount: Quantity, count: u64) {
        let slot = self.objects.entry(resource.to_owned()).or_insert(Quantity::ZERO);
        *slot = slot.plus(amount.times(count));
    }
}

fn one() -> Quantity {
    Quantity::from(1)
}
