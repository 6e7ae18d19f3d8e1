// What Spark does through its own Kubernetes client (fabric8), and a little more: watch, informer, edit, server-side apply, delete by
// label, scale. Run as a source file with the jars of a Spark on the class path: KUBECONFIG=FILE java -cp "$SPARK_HOME/jars/*" Session.java NAMESPACE
// Ends with 0 and the line "done" if everything was as expected.

import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.api.model.DeletionPropagation;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.api.model.apps.StatefulSetBuilder;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.ConfigBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.Watch;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import io.fabric8.kubernetes.client.informers.SharedIndexInformer;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

public class Session {
  static final long PATIENCE_SECONDS = 120;

  static void check(boolean holds, String what) {
    if (!holds) throw new AssertionError(what);
    System.out.println("ok: " + what);
  }

  static void eventually(BooleanSupplier holds, String what) throws InterruptedException {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
    while (!holds.getAsBoolean()) {
      if (System.nanoTime() > end) throw new AssertionError("not in time: " + what);
      Thread.sleep(20);
    }
    System.out.println("ok: " + what);
  }

  static Pod executor(String name, String id) {
    return new PodBuilder()
        .withNewMetadata().withName(name).addToLabels("spark-app-selector", "spark-1").addToLabels("spark-role", "executor")
        .addToLabels("spark-exec-id", id).endMetadata()
        .withNewSpec().withSchedulerName("nobody").withRestartPolicy("Never")
        .addNewContainer().withName("c").withImage("apache/spark").endContainer().endSpec()
        .build();
  }

  public static void main(String[] args) throws Exception {
    // As SparkKubernetesClientFactory: what the kubeconfig says, with settings over it.
    Config config = new ConfigBuilder(Config.autoConfigure(null)).withNamespace(args[0]).build();
    try (KubernetesClient client = new KubernetesClientBuilder().withConfig(config).build()) {
      watchOfExecutors(client);
      informer(client);
      editAndConflict(client);
      serverSideApply(client);
      deleteByLabel(client);
      scale(client);
    }
    System.out.println("done");
    System.exit(0);
  }

  // As ExecutorPodsWatchSnapshotSource: a watch by label, without a resource version.
  static void watchOfExecutors(KubernetesClient client) throws Exception {
    client.pods().resource(executor("before", "0")).create();
    BlockingQueue<String> told = new LinkedBlockingQueue<>();
    Watcher<Pod> watcher = new Watcher<Pod>() {
      @Override public void eventReceived(Action action, Pod pod) {
        told.add(action + " " + pod.getMetadata().getName());
      }
      @Override public void onClose(WatcherException cause) {
        told.add("closed " + cause);
      }
    };
    try (Watch watch = client.pods().withLabel("spark-app-selector", "spark-1").withLabel("spark-role", "executor").watch(watcher)) {
      check("ADDED before".equals(told.poll(PATIENCE_SECONDS, TimeUnit.SECONDS)), "a watch tells what was there");
      client.pods().resource(executor("after", "1")).create();
      check("ADDED after".equals(told.poll(PATIENCE_SECONDS, TimeUnit.SECONDS)), "a watch tells what comes");
      // As the allocator marks executors: a strategic merge patch of labels.
      client.pods().withName("after").patch(PatchContext.of(PatchType.STRATEGIC_MERGE),
          new PodBuilder().withNewMetadata().addToLabels("spark-exec-inactive", "true").endMetadata().build());
      check("MODIFIED after".equals(told.poll(PATIENCE_SECONDS, TimeUnit.SECONDS)), "a watch tells what changes");
      client.pods().withName("after").withGracePeriod(0).delete();
      String last = told.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
      if ("MODIFIED after".equals(last)) last = told.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
      check("DELETED after".equals(last), "a watch tells what goes: " + last);
    }
    // As ExecutorPodsPollingSnapshotSource.
    List<Pod> polled = client.pods().withLabel("spark-role", "executor")
        .list(new io.fabric8.kubernetes.api.model.ListOptionsBuilder().withResourceVersion("0").build()).getItems();
    check(polled.size() == 1 && "before".equals(polled.get(0).getMetadata().getName()), "polling at resource version 0");
  }

  static void informer(KubernetesClient client) throws Exception {
    BlockingQueue<String> told = new LinkedBlockingQueue<>();
    ResourceEventHandler<ConfigMap> handler = new ResourceEventHandler<ConfigMap>() {
      @Override public void onAdd(ConfigMap map) {
        if (map.getMetadata().getName().startsWith("i")) told.add("added " + map.getMetadata().getName());
      }
      @Override public void onUpdate(ConfigMap old, ConfigMap map) {
        if (map.getMetadata().getName().startsWith("i")) told.add("updated " + map.getData());
      }
      @Override public void onDelete(ConfigMap map, boolean unknown) {
        if (map.getMetadata().getName().startsWith("i")) told.add("deleted " + map.getMetadata().getName());
      }
    };
    try (SharedIndexInformer<ConfigMap> informer = client.configMaps().inNamespace(client.getNamespace()).inform(handler)) {
      ConfigMap map = new ConfigMapBuilder().withNewMetadata().withName("i").endMetadata().addToData("a", "1").build();
      client.configMaps().resource(map).create();
      check("added i".equals(told.poll(PATIENCE_SECONDS, TimeUnit.SECONDS)), "an informer hears of what comes");
      client.configMaps().withName("i").edit(m -> new ConfigMapBuilder(m).addToData("a", "2").build());
      check("updated {a=2}".equals(told.poll(PATIENCE_SECONDS, TimeUnit.SECONDS)), "an informer hears of what changes");
      client.configMaps().withName("i").delete();
      check("deleted i".equals(told.poll(PATIENCE_SECONDS, TimeUnit.SECONDS)), "an informer hears of what goes");
      eventually(() -> informer.getStore().list().stream().noneMatch(m -> m.getMetadata().getName().equals("i")), "its store is as the server's");
    }
  }

  static void editAndConflict(KubernetesClient client) {
    ConfigMap map = new ConfigMapBuilder().withNewMetadata().withName("e").endMetadata().addToData("a", "1").build();
    ConfigMap made = client.configMaps().resource(map).create();
    ConfigMap edited = client.configMaps().withName("e").edit(m -> new ConfigMapBuilder(m).addToData("b", "2").build());
    check(edited.getData().equals(Map.of("a", "1", "b", "2")), "edit");
    int code = 0;
    try {
      client.configMaps().resource(new ConfigMapBuilder(made).addToData("c", "3").build()).lockResourceVersion(made.getMetadata().getResourceVersion()).update();
    } catch (KubernetesClientException refused) {
      code = refused.getCode();
    }
    check(code == 409, "an update of what has changed is refused: " + code);
    try {
      client.configMaps().resource(map).create();
      code = 0;
    } catch (KubernetesClientException refused) {
      code = refused.getCode();
    }
    check(code == 409, "a name that is taken is refused: " + code);
    check(client.configMaps().withName("nobody").get() == null, "what is not there is null");
  }

  // As KubernetesClientUtils and the submission client from Spark 3.4 on.
  static void serverSideApply(KubernetesClient client) {
    ConfigMap map = new ConfigMapBuilder().withNewMetadata().withName("s").endMetadata().addToData("a", "1").addToData("b", "1").build();
    client.resourceList(map).forceConflicts().serverSideApply();
    client.resourceList(new ConfigMapBuilder(map).removeFromData("b").addToData("c", "1").build()).forceConflicts().serverSideApply();
    ConfigMap found = client.configMaps().withName("s").get();
    check(found.getData().equals(Map.of("a", "1", "c", "1")), "server-side apply takes away what it no longer says: " + found.getData());
    check(found.getMetadata().getManagedFields().get(0).getManager().equals("fabric8"), "its manager is noted");
  }

  static void deleteByLabel(KubernetesClient client) throws Exception {
    for (int i = 0; i < 3; i++) client.pods().resource(executor("d" + i, "1" + i)).create();
    client.pods().withLabel("spark-app-selector", "spark-1").withLabelIn("spark-exec-id", "10", "11")
        .withPropagationPolicy(DeletionPropagation.BACKGROUND).withGracePeriod(0).delete();
    eventually(() -> client.pods().withLabelIn("spark-exec-id", "10", "11").list().getItems().isEmpty(), "deleted by label");
    check(client.pods().withName("d2").get() != null, "others stay");
  }

  // As StatefulSetPodsAllocator.
  static void scale(KubernetesClient client) {
    client.apps().statefulSets().resource(new StatefulSetBuilder()
        .withNewMetadata().withName("set").endMetadata()
        .withNewSpec().withReplicas(0).withServiceName("x").withNewSelector().addToMatchLabels("x", "y").endSelector()
        .withNewTemplate().withNewMetadata().addToLabels("x", "y").endMetadata()
        .withNewSpec().withSchedulerName("nobody").addNewContainer().withName("c").withImage("i").endContainer().endSpec().endTemplate().endSpec()
        .build()).create();
    client.apps().statefulSets().withName("set").scale(2, false);
    check(client.apps().statefulSets().withName("set").get().getSpec().getReplicas() == 2, "scaled");
    check(client.apps().statefulSets().withName("set").scale().getSpec().getReplicas() == 2, "the scale says so too");
  }
}
