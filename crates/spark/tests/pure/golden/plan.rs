//! The plan of a golden case's driver, with fixed ids.

use std::collections::BTreeMap;

use firesteel_spark::context::{Ids, PlanContext, Templates, submitting_user};
use firesteel_spark::driver::{self, DriverPlan};
use firesteel_spark::submission::Submission;

use super::resolve::{Disk, resolve};

pub(crate) fn plan(
    argv: &[String],
    env: BTreeMap<String, String>,
) -> Result<(Submission, PlanContext<'static>, DriverPlan), String> {
    let submission = resolve(argv, &env)?;
    let context = PlanContext {
        ids: Ids::from_bytes(&[0xab; 64], 0x19a_e1e0_617a),
        user: submitting_user(&env, || "root".to_owned()),
        env,
        files: &Disk,
        templates: Templates::default(),
    };
    let plan = driver::plan(&submission, &context).map_err(|e| e.to_string())?;
    Ok((submission, context, plan))
}
