import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.SparkConf;
import org.apache.spark.deploy.k8s.KubernetesVolumeSpec;
import org.apache.spark.deploy.k8s.KubernetesVolumeUtils$;
import scala.collection.Iterator;

/**
 * Asks Spark in which order it takes volumes, for capture-volumes. Input: lines of KEY=VALUE (those of volumes without their prefix), an empty line after each
 * configuration. Output: one line for each, with the names of its volumes in Spark's order.
 */
public final class Volumes {
  private static final String PREFIX = "spark.kubernetes.driver.volumes.";

  public static void main(String[] arguments) throws Exception {
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    SparkConf conf = new SparkConf(false);
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      if (line.isEmpty()) {
        System.out.println(String.join(" ", order(conf.clone())));
        conf = new SparkConf(false);
      } else {
        int at = line.indexOf('=');
        String key = line.substring(0, at);
        conf.set(key.startsWith("spark.") ? key : PREFIX + key, line.substring(at + 1));
      }
    }
  }

  private static List<String> order(SparkConf conf) {
    List<String> names = new ArrayList<>();
    Iterator<KubernetesVolumeSpec> specs = KubernetesVolumeUtils$.MODULE$.parseVolumesWithPrefix(conf, PREFIX).iterator();
    while (specs.hasNext()) {
      names.add(specs.next().volumeName());
    }
    return names;
  }
}
