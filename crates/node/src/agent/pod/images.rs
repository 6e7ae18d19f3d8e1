//! The images of a pod's containers.

use std::time::Duration;

use tokio::time::Instant;

use super::{Backoff, PULL_RETRY, PodWorker, SLOW_PULL, TaskReport};
use crate::agent::apart;
use crate::agent::events::Kind;
use crate::image::ImageError;
use crate::lifecycle::{ImageState, NoImage, containers};
use crate::runtime::{Image, RuntimeError, Runtimes};

impl PodWorker {
    pub(super) fn pull_images(&mut self) {
        let Some(spec) = self.pod.spec.as_ref() else { return };
        let wanted: Vec<(String, String, bool)> = containers(spec)
            .into_iter()
            .map(|(_, c)| {
                let never = c.image_pull_policy.as_deref() == Some("Never");
                (c.name.clone(), c.image.clone().unwrap_or_default(), never)
            })
            .collect();
        for (container, reference, never) in wanted {
            let again = match self.images.get(&container) {
                None => true,
                Some(ImageState::Failed { .. }) => self.pull_delays.get(&container).is_some_and(Backoff::is_over),
                Some(ImageState::Pulling | ImageState::Ready { .. }) => false,
            };
            if !again {
                continue;
            }
            self.images.insert(container.clone(), ImageState::Pulling);
            let (runtimes, notes, begun) = (self.shared.runtimes.clone(), self.notes.0.clone(), Instant::now());
            tokio::spawn(async move {
                let mut resolving = Box::pin(apart(move || find(&runtimes, &reference, never)));
                let result = match tokio::time::timeout(SLOW_PULL, &mut resolving).await {
                    Ok(result) => result,
                    Err(_) => {
                        let _ = notes.send(TaskReport::Pulling { container: container.clone() }).await;
                        resolving.await
                    }
                };
                let result = match result {
                    Ok(found) => found,
                    Err(error) => Err((NoImage::NotPulled, error.to_string())),
                };
                let _ = notes.send(TaskReport::Pulled { container, result, took: begun.elapsed() }).await;
            });
        }
    }

    pub(super) fn image_of(&self, container: &str) -> String {
        let spec = self.pod.spec.as_ref();
        spec.and_then(|s| containers(s).into_iter().find(|(_, c)| c.name == container))
            .and_then(|(_, c)| c.image.clone())
            .unwrap_or_default()
    }

    pub(super) fn pulled(&mut self, container: &str, result: Result<Box<Image>, (NoImage, String)>, took: Duration) {
        let reference = self.image_of(container);
        let recorder = &self.shared.recorder;
        match result {
            Ok(image) => {
                let message = if took > SLOW_PULL {
                    format!("Successfully pulled image \"{reference}\" in {:.3}s", took.as_secs_f64())
                } else {
                    format!("Container image \"{reference}\" already present on machine")
                };
                // After a restart the agent resolves the image of a running container again.
                if !self.record.containers.contains_key(container) {
                    recorder.record(&self.pod, Some(container), Kind::Normal, "Pulled", message);
                }
                self.images.insert(container.to_owned(), ImageState::Ready { id: image.id.clone() });
                self.ready_images.insert(container.to_owned(), *image);
                self.pull_delays.remove(container);
            }
            Err((why, message)) => {
                let previous = self.pull_delays.get(container).copied();
                let record = |kind, reason, message: String| {
                    recorder.record(&self.pod, Some(container), kind, reason, message);
                };
                match why {
                    NoImage::InvalidName => record(Kind::Warning, "InspectFailed", message.clone()),
                    NoImage::NeverPull => record(Kind::Warning, why.reason(), message.clone()),
                    NoImage::NotPulled | NoImage::BackingOff => {
                        record(Kind::Warning, "Failed", format!("Failed to pull image \"{reference}\": {message}"));
                    }
                }
                record(Kind::Warning, "Failed", format!("Error: {}", why.reason()));
                // The first failure is reported as `ErrImagePull`, later ones as back-off.
                let why = match (why, previous) {
                    (NoImage::NotPulled, Some(_)) => {
                        record(Kind::Normal, "BackOff", format!("Back-off pulling image \"{reference}\""));
                        NoImage::BackingOff
                    }
                    (why, _) => why,
                };
                self.images.insert(container.to_owned(), ImageState::Failed { why, message });
                self.pull_delays.insert(container.to_owned(), Backoff::after(previous, PULL_RETRY.0, PULL_RETRY.1));
            }
        }
    }
}

/// Resolves an image reference. Blocks.
fn find(runtimes: &Runtimes, reference: &str, never_pull: bool) -> Result<Box<Image>, (NoImage, String)> {
    let refused = |error: RuntimeError| match error {
        RuntimeError::Image(ImageError::Invalid(_)) => {
            (NoImage::InvalidName, format!("Failed to apply default image tag \"{reference}\": {error}"))
        }
        _ if never_pull => {
            (NoImage::NeverPull, format!("Container image \"{reference}\" is not present with pull policy of Never"))
        }
        _ => (NoImage::NotPulled, error.to_string()),
    };
    let image = if never_pull { runtimes.resolve_present(reference) } else { runtimes.resolve(reference) };
    image.map(Box::new).map_err(refused)
}
