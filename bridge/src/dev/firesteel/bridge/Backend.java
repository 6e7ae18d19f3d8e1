package dev.firesteel.bridge;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadPoolExecutor;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.ExecutorExited;
import org.apache.spark.scheduler.cluster.ExecutorData;
import org.apache.spark.scheduler.cluster.k8s.KubernetesClusterSchedulerBackend;
import scala.Tuple2;
import scala.collection.Iterator;

/**
 * The parts of Spark's scheduler backend that the bridge touches, all of them in this file.
 *
 * Scala's private members used here are public in the class files, under these names in every Spark from 3.5 to 4.3; the
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
        // Spark's rule: outside of its endpoint this map is read under the backend's lock.
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

    /** Executors that hung up and whose tasks wait until somebody says why. */
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

    /** Tells Spark that an executor is gone. It returns at once: Spark takes the message in its own thread. */
    void remove(String id, int code, boolean causedByApplication, String text) {
        backend.doRemoveExecutor(id, new ExecutorExited(code, causedByApplication, text));
    }

    /** The next id that Spark gives to an executor that comes without one is above this. */
    void skipIdsThrough(int id) {
        backend.execId().accumulateAndGet(id, Math::max);
    }

    /**
     * Spark runs its own calls on executor pods (label them, delete those that were told to stop) in one pool. This driver
     * has no right on pods and the operator does these things, so the pool takes its tasks and forgets them.
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
