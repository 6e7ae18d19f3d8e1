//! The images of a pod's containers.

use std::time::Duration;

use tokio::time::Instant;

use super::{Delay, Note, PULL_RETRY, PodWorker, SLOW_PULL};
use crate::agent::apart;
use crate::agent::events::Kind;
use crate::lifecycle::{ImageState, containers};
use crate::runtime::Image;

impl PodWorker {
    pub(super) fn pull_images(&mut self) {
        let Some(spec) = self.pod.spec.as_ref() else { return };
        let wanted: Vec<(String, String)> =
            containers(spec).into_iter().map(|(_, c)| (c.name.clone(), c.image.clone().unwrap_or_default())).collect();
        for (container, reference) in wanted {
            let again = match self.images.get(&container) {
                None => true,
                Some(ImageState::Failed { .. }) => self.pull_delays.get(&container).is_some_and(Delay::is_over),
                Some(ImageState::Pulling | ImageState::Ready { .. }) => false,
            };
            if !again {
                continue;
            }
            self.images.insert(container.clone(), ImageState::Pulling);
            let (runtimes, notes, begun) = (self.shared.runtimes.clone(), self.notes.0.clone(), Instant::now());
            tokio::spawn(async move {
                let mut resolving = Box::pin(apart(move || runtimes.resolve(&reference)));
                let result = match tokio::time::timeout(SLOW_PULL, &mut resolving).await {
                    Ok(result) => result,
                    Err(_) => {
                        let _ = notes.send(Note::Pulling { container: container.clone() }).await;
                        resolving.await
                    }
                };
                let result = match result {
                    Ok(Ok(image)) => Ok(Box::new(image)),
                    Ok(Err(error)) => Err(error.to_string()),
                    Err(error) => Err(error.to_string()),
                };
                let _ = notes.send(Note::Pulled { container, result, took: begun.elapsed() }).await;
            });
        }
    }

    pub(super) fn image_of(&self, container: &str) -> String {
        let spec = self.pod.spec.as_ref();
        spec.and_then(|s| containers(s).into_iter().find(|(_, c)| c.name == container))
            .and_then(|(_, c)| c.image.clone())
            .unwrap_or_default()
    }

    pub(super) fn pulled(&mut self, container: &str, result: Result<Box<Image>, String>, took: Duration) {
        let reference = self.image_of(container);
        let recorder = &self.shared.recorder;
        match result {
            Ok(image) => {
                let message = if took > SLOW_PULL {
                    format!("Successfully pulled image \"{reference}\" in {:.3}s", took.as_secs_f64())
                } else {
                    format!("Container image \"{reference}\" already present on machine")
                };
                // An agent that has just restarted finds again what a running container came from.
                if !self.record.containers.contains_key(container) {
                    recorder.record(&self.pod, Some(container), Kind::Normal, "Pulled", message);
                }
                self.images.insert(container.to_owned(), ImageState::Ready { id: image.id.clone() });
                self.ready_images.insert(container.to_owned(), *image);
                self.pull_delays.remove(container);
            }
            Err(message) => {
                let previous = self.pull_delays.get(container).copied();
                recorder.record(
                    &self.pod,
                    Some(container),
                    Kind::Warning,
                    "Failed",
                    format!("Failed to pull image \"{reference}\": {message}"),
                );
                recorder.record(&self.pod, Some(container), Kind::Warning, "Failed", "Error: ErrImagePull");
                if previous.is_some() {
                    recorder.record(
                        &self.pod,
                        Some(container),
                        Kind::Normal,
                        "BackOff",
                        format!("Back-off pulling image \"{reference}\""),
                    );
                }
                // The first failure is shown as such, later ones as waiting.
                self.images
                    .insert(container.to_owned(), ImageState::Failed { message, backing_off: previous.is_some() });
                self.pull_delays.insert(container.to_owned(), Delay::after(previous, PULL_RETRY.0, PULL_RETRY.1));
            }
        }
    }
}
