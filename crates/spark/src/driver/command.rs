//! What the driver container runs.

use super::{Draft, PlanError, upload};
use crate::input::Input;
use crate::names::{NO_RESOURCE, env, key, path};
use crate::submission::MainResource;

pub(super) fn apply(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    let submission = draft.submission;
    let (resource, kind) = match &submission.main {
        // A local jar is already in spark.jars and reaches the driver that way.
        MainResource::Jar(uri) if upload::is_local(uri) => (NO_RESOURCE.to_owned(), "java"),
        MainResource::Jar(uri) => (uri.clone(), "java"),
        MainResource::None => (NO_RESOURCE.to_owned(), "java"),
        MainResource::Python(uri) if upload::is_local(uri) => (upload::one(draft, &Input::Application, uri)?, "python"),
        MainResource::Python(uri) => (uri.clone(), "python"),
        MainResource::R(uri) => (uri.clone(), "r"),
    };
    let args = draft.container.args.get_or_insert_default();
    args.push("driver".to_owned());
    if let Some(user) = &submission.proxy_user {
        args.extend(["--proxy-user".to_owned(), user.clone()]);
    }
    args.extend(["--properties-file", path::PROPERTIES, "--class", &submission.main_class].map(str::to_owned));
    args.push(resource);
    args.extend(submission.arguments.iter().cloned());
    if kind == "python" {
        python_environment(draft);
    }
    draft.set_property(key::RESOURCE_TYPE, kind);
    Ok(())
}

fn python_environment(draft: &mut Draft<'_>) {
    let submitter = |name: &str| draft.context.env.get(name).map(String::as_str).filter(|v| !v.is_empty());
    let python = draft.conf.get(key::PYSPARK_PYTHON);
    let driver_python = draft
        .conf
        .get(key::PYSPARK_DRIVER_PYTHON)
        .or(python)
        .or_else(|| submitter(env::PYSPARK_DRIVER_PYTHON))
        .or_else(|| submitter(env::PYSPARK_PYTHON))
        .map(str::to_owned);
    let python = python.or_else(|| submitter(env::PYSPARK_PYTHON)).map(str::to_owned);
    for (name, value) in [(env::PYSPARK_PYTHON, python), (env::PYSPARK_DRIVER_PYTHON, driver_python)] {
        if let Some(value) = value {
            draft.add_env(name, &value);
        }
    }
}
