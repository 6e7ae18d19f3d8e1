import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.StringReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.List;
import java.util.Properties;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.deploy.SparkSubmit;
import org.apache.spark.resource.ExecutorResourceRequests;
import org.apache.spark.resource.ResourceProfileBuilder;
import org.apache.spark.resource.TaskResourceRequests;

/**
 * Runs drivers one after another in one JVM, for capture-executors. Each line of input is the arguments of a spark-submit in cluster mode, in
 * base64 and separated by blanks. It is submitted by Spark's own client; then a SparkContext is made from what the driver pod would read, as in
 * that pod. "submitted" and "started" are said on standard output, and each waits for a line of input. With the last argument "profile"
 * the application asks for a resource profile of its own.
 */
public final class Drivers {
  private static final String NAMESPACE = "default";

  public static void main(String[] arguments) throws Exception {
    PrintStream answers = System.out;
    System.setOut(System.err);
    BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
    try (KubernetesClient client = new KubernetesClientBuilder().build()) {
      for (String line = questions.readLine(); line != null; line = questions.readLine()) {
        List<String> argv = List.of(line.split(" ")).stream().map(word -> new String(Base64.getDecoder().decode(word))).toList();
        try {
          new SparkSubmit().doSubmit(argv.toArray(String[]::new));
          SparkConf conf = driverConf(client, arguments[0], arguments[1]);
          answers.println("submitted");
          questions.readLine();
          JavaSparkContext context = new JavaSparkContext(conf);
          if (argv.get(argv.size() - 1).equals("profile")) {
            useProfile(context);
          }
          answers.println("started");
          questions.readLine();
          context.close();
          answers.println("stopped");
        } catch (Throwable problem) {
          problem.printStackTrace();
          answers.println("failed: " + problem);
        }
      }
    }
    System.exit(0);
  }

  /** The settings of the one driver pod there is, with addresses and files as they are here. */
  private static SparkConf driverConf(KubernetesClient client, String address, String scratch) throws Exception {
    Pod pod = client.pods().inNamespace(NAMESPACE).withLabel("spark-role", "driver").list().getItems().get(0);
    SparkConf conf = new SparkConf(false);
    for (ConfigMap map : client.configMaps().inNamespace(NAMESPACE).list().getItems()) {
      String name = map.getMetadata().getName();
      if (name.startsWith("spark-drv-")) {
        Properties properties = new Properties();
        properties.load(new StringReader(map.getData().get("spark.properties")));
        properties.forEach((key, value) -> conf.set((String) key, (String) value));
      }
    }
    for (ConfigMap map : client.configMaps().inNamespace(NAMESPACE).list().getItems()) {
      if (map.getMetadata().getName().endsWith("-driver-podspec-conf-map")) {
        Path template = Path.of(scratch, "template.yaml");
        Files.writeString(template, map.getData().values().iterator().next());
        conf.set("spark.kubernetes.executor.podTemplateFile", template.toString());
      }
    }
    // What the entry point of the image adds.
    conf.set("spark.driver.bindAddress", address).set("spark.executorEnv.SPARK_DRIVER_POD_IP", address);
    conf.set("spark.kubernetes.driver.master", conf.get("spark.master").substring("k8s://".length()));
    conf.set("spark.kubernetes.driver.pod.name", pod.getMetadata().getName());
    // Nothing that is captured depends on these: no executor will ever register.
    return conf.set("spark.ui.enabled", "false").set("spark.scheduler.maxRegisteredResourcesWaitingTime", "0s");
  }

  private static void useProfile(JavaSparkContext context) {
    ResourceProfileBuilder builder = new ResourceProfileBuilder();
    builder.require(new ExecutorResourceRequests().cores(3).memory("1g").memoryOverhead("200m").resource("gpu", 1, "", "nvidia.com"));
    builder.require(new TaskResourceRequests().cpus(1));
    Thread job = new Thread(() -> context.parallelize(List.of(1, 2), 2).withResources(builder.build()).count());
    job.setDaemon(true);
    job.setUncaughtExceptionHandler((thread, stopped) -> { });
    job.start();
  }
}
