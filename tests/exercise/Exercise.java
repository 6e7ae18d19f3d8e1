// The exercise of tests/clients with the Kubernetes client inside Spark (fabric8): create, watch, patch, apply, logs, exec, delete.
// Run as a source file with the jars of a Spark on the class path: KUBECONFIG=FILE java -cp "$SPARK_HOME/jars/*" Exercise.java NAMESPACE

import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.api.model.NamespaceBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.ConfigBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.Watch;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import io.fabric8.kubernetes.client.dsl.ExecWatch;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.BiPredicate;

public class Exercise {
  static final String NAME = "exercise";
  static final long PATIENCE_SECONDS = 100;

  record Event(Watcher.Action action, Pod pod) {}

  public static void main(String[] args) throws Exception {
    Config config = new ConfigBuilder(Config.autoConfigure(null)).withNamespace(args[0]).build();
    try (KubernetesClient client = new KubernetesClientBuilder().withConfig(config).build()) {
      client.namespaces().resource(new NamespaceBuilder().withNewMetadata().withName(args[0]).endMetadata().build()).create();
      BlockingQueue<Event> events = new LinkedBlockingQueue<>();
      Watcher<Pod> watcher = new Watcher<Pod>() {
        @Override public void eventReceived(Action action, Pod pod) {
          events.add(new Event(action, pod));
        }
        @Override public void onClose(WatcherException cause) {}
      };
      try (Watch watch = client.pods().withName(NAME).watch(watcher)) {
        pod(client, events);
        apply(client);
        logs(client);
        exec(client);
        client.pods().withName(NAME).delete();
        await(events, "DELETED", (action, pod) -> action == Watcher.Action.DELETED);
        check(client.pods().withName(NAME).get() == null, "the pod is gone");
        client.namespaces().withName(args[0]).delete();
        step("delete");
      }
    }
    System.out.println("done");
    System.exit(0);
  }

  static void pod(KubernetesClient client, BlockingQueue<Event> events) throws Exception {
    client.pods().resource(new PodBuilder().withNewMetadata().withName(NAME).endMetadata()
        .withNewSpec().withTerminationGracePeriodSeconds(1L).addNewContainer().withName("main").withImage("busybox")
        .withCommand("sh", "-c", "echo hello from $HOSTNAME; sleep 600").endContainer().endSpec().build()).create();
    step("create");
    await(events, "ADDED", (action, pod) -> action == Watcher.Action.ADDED);
    await(events, "Ready", (action, pod) -> "Running".equals(pod.getStatus().getPhase())
        && pod.getStatus().getConditions().stream().anyMatch(c -> c.getType().equals("Ready") && c.getStatus().equals("True")));
    step("watch");
    Pod patched = client.pods().withName(NAME).patch(PatchContext.of(PatchType.STRATEGIC_MERGE),
        new PodBuilder().withNewMetadata().addToLabels("step", "patched").endMetadata().build());
    check("patched".equals(patched.getMetadata().getLabels().get("step")), "the label is there");
    await(events, "the patch", (action, pod) -> pod.getMetadata().getLabels() != null && "patched".equals(pod.getMetadata().getLabels().get("step")));
    step("patch");
  }

  static void apply(KubernetesClient client) {
    for (Map<String, String> data : List.of(Map.of("a", "1", "b", "1"), Map.of("a", "2"))) {
      ConfigMap wanted = new ConfigMapBuilder().withNewMetadata().withName(NAME).endMetadata().withData(data).build();
      ConfigMap applied = client.configMaps().resource(wanted).forceConflicts().serverSideApply();
      check(data.equals(applied.getData()), "applied " + data + ", found " + applied.getData());
    }
    step("apply");
  }

  static void logs(KubernetesClient client) throws Exception {
    String log = "";
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
    while (log.isEmpty() && System.nanoTime() < end) log = client.pods().withName(NAME).getLog();
    check(log.equals("hello from " + NAME + "\n"), "the log is " + log);
    step("logs");
  }

  static void exec(KubernetesClient client) throws Exception {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    ByteArrayOutputStream err = new ByteArrayOutputStream();
    try (ExecWatch running = client.pods().withName(NAME).readingInput(new ByteArrayInputStream("in\n".getBytes()))
        .writingOutput(out).writingError(err).exec("sh", "-c", "read line; echo $line; echo err >&2; exit 3")) {
      int code = running.exitCode().get(PATIENCE_SECONDS, TimeUnit.SECONDS);
      check(code == 3, "the exit code is " + code + ": " + err);
    }
    check(out.toString().equals("in\n") && err.toString().equals("err\n"), "out " + out + ", err " + err);
    step("exec");
  }

  static void await(BlockingQueue<Event> events, String what, BiPredicate<Watcher.Action, Pod> holds) throws Exception {
    while (true) {
      Event event = events.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
      check(event != null, "the watch shows " + what);
      if (holds.test(event.action(), event.pod())) return;
    }
  }

  static void step(String what) {
    System.out.println("ok: " + what);
  }

  static void check(boolean holds, String what) {
    if (!holds) throw new AssertionError("not as expected: " + what);
  }
}
