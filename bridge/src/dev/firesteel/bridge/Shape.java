package dev.firesteel.bridge;

import io.fabric8.kubernetes.api.model.Container;
import io.fabric8.kubernetes.api.model.EnvVar;
import io.fabric8.kubernetes.api.model.Quantity;
import io.fabric8.kubernetes.client.KubernetesClient;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.SecurityManager;
import org.apache.spark.SparkConf;
import org.apache.spark.deploy.k8s.KubernetesConf;
import org.apache.spark.deploy.k8s.KubernetesExecutorConf;
import org.apache.spark.resource.ResourceProfile;
import org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBuilder;
import scala.Option;

/**
 * What an executor of a resource profile looks like, from Spark's own builder: only it knows the driver's port, the JVM
 * options Spark adds at run time, and what user code changed in the SparkConf.
 *
 * Sizes and literal environment only. Image, volumes, account and placement are not the driver's choice, and the
 * secret of spark.authenticate stays here.
 */
final class Shape {
    /** Stands for the executor's id, as in Spark's own StatefulSets. */
    static final String EXECUTOR_ID = "EXECID";

    private static final String SECRET = "_SPARK_AUTH_SECRET";

    /** Limits of the grant's schema. The API server would otherwise reject the whole patch. */
    private static final int MAX_CHARACTERS = 16_384;
    private static final int MAX_VARIABLES = 1024;

    private Shape() {}

    static Map<String, Object> of(SparkConf conf, SecurityManager security, KubernetesExecutorBuilder builder,
            KubernetesClient client, String appId, ResourceProfile profile) {
        KubernetesExecutorConf executor =
                KubernetesConf.createExecutorConf(conf, EXECUTOR_ID, appId, Option.empty(), profile.id());
        Container container = builder.buildFromFeatures(executor, security, client, profile).pod().container();
        if (security.isAuthenticationEnabled()) {
            checkSecret(container);
        }
        return of(container);
    }

    /**
     * With spark.authenticate at submission the secret is in a file, and Spark puts none into the environment. If it
     * does, user code enabled it: there is no Secret, and executors without one cannot register.
     */
    private static void checkSecret(Container container) {
        boolean literal = false;
        for (EnvVar variable : container.getEnv()) {
            if (SECRET.equals(variable.getName())) {
                if (variable.getValueFrom() != null) {
                    return;
                }
                literal = variable.getValue() != null && !variable.getValue().isEmpty();
            }
        }
        if (literal) {
            throw new IllegalArgumentException("spark.authenticate is on but was not set at submission, so the executors have no"
                    + " secret to register with. Set it when the application is submitted, and not in its code or image.");
        }
    }

    private static Map<String, Object> of(Container container) {
        Map<String, Object> env = new TreeMap<>();
        for (EnvVar variable : container.getEnv()) {
            if (variable.getValueFrom() == null && !SECRET.equals(variable.getName())) {
                String value = variable.getValue() == null ? "" : variable.getValue();
                int characters = value.codePointCount(0, value.length());
                if (characters > MAX_CHARACTERS) {
                    throw new IllegalArgumentException("The executors' environment variable " + variable.getName() + " has "
                            + characters + " characters, and an ExecutorGrant takes " + MAX_CHARACTERS + " at most. Make it shorter,"
                            + " or put its content into a file.");
                }
                env.put(variable.getName(), value);
            }
        }
        if (env.size() > MAX_VARIABLES) {
            throw new IllegalArgumentException("The executors have " + env.size() + " environment variables (each Java option is"
                    + " one), and an ExecutorGrant takes " + MAX_VARIABLES + " at most.");
        }
        Map<String, Quantity> requests = Collections.emptyMap();
        Map<String, Quantity> limits = Collections.emptyMap();
        if (container.getResources() != null) {
            if (container.getResources().getRequests() != null) {
                requests = container.getResources().getRequests();
            }
            if (container.getResources().getLimits() != null) {
                limits = container.getResources().getLimits();
            }
        }
        Map<String, Object> shape = new LinkedHashMap<>();
        Object cores = env.get("SPARK_EXECUTOR_CORES");
        if (cores != null) {
            shape.put("cores", Integer.parseInt(cores.toString()));
        }
        put(shape, "cpu", requests.get("cpu"));
        put(shape, "cpuLimit", limits.get("cpu"));
        put(shape, "memory", requests.get("memory"));
        Map<String, Object> named = new TreeMap<>();
        for (Map.Entry<String, Quantity> limit : limits.entrySet()) {
            if (limit.getKey().indexOf('/') >= 0) {
                put(named, limit.getKey(), limit.getValue());
            }
        }
        if (!named.isEmpty()) {
            shape.put("resources", named);
        }
        shape.put("env", env);
        return shape;
    }

    private static void put(Map<String, Object> map, String key, Quantity quantity) {
        if (quantity != null) {
            String format = quantity.getFormat();
            map.put(key, quantity.getAmount() + (format == null ? "" : format));
        }
    }
}
