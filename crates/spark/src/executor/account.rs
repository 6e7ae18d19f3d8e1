//! The executors' service account: the template's, else the executors' setting, else the driver's.

use super::PlanError;
use crate::names::key;
use crate::pod::Draft;

pub(super) fn apply(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    let account = draft.conf.get(key::EXECUTOR_SERVICE_ACCOUNT).or(draft.conf.get(key::DRIVER_SERVICE_ACCOUNT));
    let spec = draft.spec();
    let given = spec.service_account_name.as_deref().is_some_and(|name| !name.is_empty());
    if let (Some(account), false) = (account, given) {
        spec.service_account = Some(account.to_owned());
        spec.service_account_name = Some(account.to_owned());
    }
    Ok(())
}
