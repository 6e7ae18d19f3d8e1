package dev.firesteel.bridge;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadPoolExecutor;
import org.apache.spark.SparkContext;
import org.apache.spark.rpc.RpcEnv;
import org.apache.spark.scheduler.ExecutorExited;
import org.apache.spark.scheduler.cluster.ExecutorData;
import org.apache.spark.scheduler.cluster.k8s.KubernetesClusterSchedulerBackend;
import scala.Tuple2;
import scala.collection.Iterator;

/**
 * All uses of Spark's scheduler backend.
 *
 * The Scala private members used here are public in the class files, under these names in Spark 3.5 to 4.3; the
 * build checks each against each version.
 */
final class Backend {
    private final KubernetesClusterSchedulerBackend backend;

    Backend(KubernetesClusterSchedulerBackend backend) {
        this.backend = backend;
    }

    SparkContext context() {
        return backend.org$apache$spark$scheduler$cluster$k8s$KubernetesClusterSchedulerBackend$$sc;
    }

    /** Id and address of each executor that Spark knows. */
    Map<String, String> registered() {
        Map<String, String> result = new TreeMap<>();
        // Spark's rule: outside its endpoint, read this map under the backend's lock.
        synchronized (backend) {
            Iterator<Tuple2<String, ExecutorData>> all =
                    backend.org$apache$spark$scheduler$cluster$CoarseGrainedSchedulerBackend$$executorDataMap().iterator();
            while (all.hasNext()) {
                Tuple2<String, ExecutorData> entry = all.next();
                String host = entry._2().executorHost();
                // Spark writes IPv6 addresses in brackets.
                result.put(entry._1(), host.startsWith("[") ? host.substring(1, host.length() - 1) : host);
            }
        }
        return result;
    }

    /** Disconnected executors whose tasks wait for a loss reason. */
    List<String> disconnected() {
        List<String> result = new ArrayList<>();
        synchronized (backend) {
            Iterator<String> all = backend.executorsPendingLossReason().iterator();
            while (all.hasNext()) {
                result.add(all.next());
            }
        }
        Collections.sort(result);
        return result;
    }

    boolean knows(String id) {
        synchronized (backend) {
            return backend.org$apache$spark$scheduler$cluster$CoarseGrainedSchedulerBackend$$executorDataMap().contains(id);
        }
    }

    /** Reports an executor's loss to Spark. Returns at once: Spark handles the message in its own thread. */
    void remove(String id, int code, boolean causedByApplication, String text) {
        backend.doRemoveExecutor(id, new ExecutorExited(code, causedByApplication, text));
    }

    /** From now on executors that were started early may register. */
    void openGate() {
        RpcEnv rpcEnv = backend.rpcEnv();
        rpcEnv.setupEndpoint(Gate.NAME, new Gate(rpcEnv));
    }

    /** Spark assigns ids above this to executors that register without one. */
    void skipIdsThrough(int id) {
        backend.execId().accumulateAndGet(id, Math::max);
    }

    /**
     * Spark labels executor pods and deletes stopped ones from one thread pool. This driver
     * has no pod permissions and the operator does that work, so the pool drops its tasks.
     */
    void dropCallsOnPods() {
        ScheduledExecutorService pool =
                backend.org$apache$spark$scheduler$cluster$k8s$KubernetesClusterSchedulerBackend$$executorService;
        if (pool instanceof ThreadPoolExecutor) {
            ((ThreadPoolExecutor) pool).setRejectedExecutionHandler(new ThreadPoolExecutor.DiscardPolicy());
            pool.shutdownNow();
        }
    }
}
