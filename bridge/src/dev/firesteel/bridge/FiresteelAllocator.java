package dev.firesteel.bridge;

import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.KubernetesClient;
import java.util.HashMap;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SecurityManager;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.resource.ResourceProfile;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import org.apache.spark.scheduler.cluster.k8s.AbstractPodsAllocator;
import org.apache.spark.scheduler.cluster.k8s.ExecutorPodsSnapshotsStore;
import org.apache.spark.scheduler.cluster.k8s.KubernetesClusterSchedulerBackend;
import org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBuilder;
import org.apache.spark.util.Clock;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.immutable.Map;

/**
 * Hands executor allocation to Firesteel's operator: spark.kubernetes.allocation.pods.allocator names this class.
 *
 * It creates no pods. Spark's demand goes into the status of the ExecutorGrant named like the driver pod; the fate of
 * executors comes from the ExecutorLedger of the same name, and each loss is reported to Spark once. See
 * docs/executors.md. No method called by Spark waits for the API server, except stop (5 s at most).
 */
public final class FiresteelAllocator extends AbstractPodsAllocator {
    static final String VERSION = "0.1.0";

    /** The code Spark itself uses when too many executors failed. */
    private static final int EXIT_EXECUTORS_FAILED = 11;

    private static final long STOP_SECONDS = 5;
    private static final long CLOSE_MILLIS = 1000;
    private static final long SCAN_MILLIS = 100;
    private static final long WAITING_NANOS = 60_000_000_000L;
    private static final Logger LOG = LoggerFactory.getLogger(FiresteelAllocator.class);

    /** The highest executor id seen in this JVM: a second SparkContext must not reuse ids of the first. */
    private static int highestId;

    private final SparkConf conf;
    private final SecurityManager security;
    private final KubernetesExecutorBuilder builder;
    private final KubernetesClient client;
    private final String where;
    private final Api api;
    private final Demand demand = new Demand();
    /** Ended or withdrawn executors: Spark must reject them if they still register. */
    private final Set<String> ended = ConcurrentHashMap.newKeySet();

    private volatile Publisher publisher;
    private volatile Thread publishing;
    private volatile Thread scanning;
    private volatile Thread reading;
    private volatile boolean sentenced;

    public FiresteelAllocator(SparkConf conf, SecurityManager security, KubernetesExecutorBuilder builder,
            KubernetesClient client, ExecutorPodsSnapshotsStore store, Clock clock) {
        this.conf = conf;
        this.security = security;
        this.builder = builder;
        this.client = client;
        String pod = conf.get("spark.kubernetes.driver.pod.name", "").trim();
        if (pod.isEmpty()) {
            throw new IllegalArgumentException("Firesteel's executor allocator needs spark.kubernetes.driver.pod.name, which"
                    + " firesteel submit and the operator set; submit the application with one of them, or set"
                    + " spark.kubernetes.allocation.pods.allocator to direct.");
        }
        // Spark's own default.
        String namespace = conf.get("spark.kubernetes.namespace", "default");
        this.where = namespace + "/" + pod;
        this.api = new Api(client, namespace, pod);
    }

    @Override
    public void start(String appId, KubernetesClusterSchedulerBackend schedulerBackend) {
        Backend backend = new Backend(schedulerBackend);
        SparkContext context = backend.context();
        backend.dropCallsOnPods();
        synchronized (FiresteelAllocator.class) {
            backend.skipIdsThrough(highestId);
        }
        // If executors cannot be built, the application must fail here rather than unnoticed in a thread.
        ResourceProfile profile = context.resourceProfileManager().defaultResourceProfile();
        demand.shape(profile.id(), Shape.of(conf, security, builder, client, appId, profile));

        publisher = new Publisher(api, demand, wanted -> Shape.of(conf, security, builder, client, appId, wanted),
                context.version(), "ExecutorGrant " + where);
        publishing = thread("firesteel-demand", publisher);
        scanning = thread("firesteel-executors", () -> scan(backend));
        reading = thread("firesteel-ledger", new Ledger(api, new Losses(backend), "ExecutorLedger " + where));
        context.addSparkListener(new SparkListener() {
            @Override
            public void onApplicationEnd(SparkListenerApplicationEnd end) {
                // Runs before the executors are told to exit: they must not be replaced.
                demand.stop();
            }
        });
        PromptExit.arrange();
        publishing.start();
        scanning.start();
        reading.start();
        LOG.info("Executors are allocated by Firesteel's operator through ExecutorGrant {} (bridge {}).", where, VERSION);
    }

    /** Called by Spark under its lock, and from threads that must not die: only records the demand. */
    @Override
    public void setTotalExpectedExecutors(Map<ResourceProfile, Object> total) {
        Iterator<Tuple2<ResourceProfile, Object>> all = total.iterator();
        while (all.hasNext()) {
            Tuple2<ResourceProfile, Object> entry = all.next();
            demand.want(entry._1(), ((Number) entry._2()).intValue());
        }
    }

    /** The driver may not read its own pod, and nothing here needs it. */
    @Override
    public Option<Pod> driverPod() {
        return Option.empty();
    }

    @Override
    public boolean isDeleted(String executorId) {
        return ended.contains(executorId);
    }

    @Override
    public void stop(String appId) {
        if (publishing == null) {
            return;
        }
        demand.stop();
        scanning.interrupt();
        reading.interrupt();
        publisher.finishBy(System.nanoTime() + TimeUnit.SECONDS.toNanos(STOP_SECONDS));
        try {
            publishing.join(TimeUnit.SECONDS.toMillis(STOP_SECONDS));
            // Spark closes the client next. A connection with an open watch would then linger for minutes, and with HTTP/2
            // it has a thread that keeps the JVM alive.
            reading.join(CLOSE_MILLIS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        if (publishing.isAlive()) {
            LOG.warn("ExecutorGrant {} did not accept the application's end within {} s; the operator learns of it from the"
                    + " driver pod.", where, STOP_SECONDS);
            publishing.interrupt();
        }
    }

    /** Observes registrations, removals and broken connections as Spark does; several of them become one patch. */
    private void scan(Backend backend) {
        try {
            while (!demand.isStopped()) {
                java.util.Map<String, String> registered = backend.registered();
                noteIds(registered.keySet());
                demand.executors(registered, backend.disconnected());
                Thread.sleep(SCAN_MILLIS);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (Throwable e) {
            LOG.error("Firesteel's bridge can no longer watch Spark's executors for {}.", where, e);
        }
    }

    private static void noteIds(Set<String> ids) {
        synchronized (FiresteelAllocator.class) {
            for (String id : ids) {
                try {
                    highestId = Math.max(highestId, Integer.parseInt(id));
                } catch (NumberFormatException e) {
                    // Spark accepts only numbers; not checked here.
                }
            }
        }
    }

    /** Passes the ledger's content on to Spark. */
    private final class Losses implements Ledger.Reader {
        private final Backend backend;
        private final java.util.Map<String, Long> toldAt = new HashMap<>();
        private boolean gateOpen;

        Losses(Backend backend) {
            this.backend = backend;
        }

        @Override
        public void losses(List<Ledger.Loss> losses) {
            for (Ledger.Loss loss : losses) {
                // An id ends only once: the ledger may be reread, or recreated after a deletion.
                if (ended.add(loss.id)) {
                    boolean withdrawn = "withdrawn".equals(loss.cause);
                    // A withdrawn executor that registered before its withdrawal is a lost one.
                    if (!withdrawn || backend.knows(loss.id)) {
                        LOG.info("Executor {} ended with code {} ({}): {}", loss.id, loss.code, loss.cause, loss.text);
                        backend.remove(loss.id, loss.code, "application".equals(loss.cause), loss.text);
                    }
                }
                demand.lossSeen(loss.seq);
            }
        }

        @Override
        public void admitted() {
            if (!gateOpen) {
                gateOpen = true;
                backend.openGate();
            }
        }

        @Override
        public void verdict(String reason, String message) {
            if (!sentenced && !demand.isStopped()) {
                sentenced = true;
                LOG.error("Firesteel's operator ends this application: {}: {}", reason, message);
                exit();
            }
        }

        /** In the driver's log, where people look first; each reason at most once a minute. */
        @Override
        public void waiting(String reason, String message) {
            long now = System.nanoTime();
            Long before = toldAt.get(reason);
            if (!message.isEmpty() && !demand.isStopped() && (before == null || now - before > WAITING_NANOS)) {
                toldAt.put(reason, now);
                LOG.warn("Fewer executors than wanted ({}): {}", reason, message);
            }
        }
    }

    /**
     * The shutdown hooks stop the SparkContext, which calls {@link #stop}: none of that may wait for our threads. Hanging
     * hooks of user code must not keep a doomed application alive.
     */
    private static void exit() {
        Thread last = thread("firesteel-halt", () -> {
            try {
                Thread.sleep(60_000);
                Runtime.getRuntime().halt(EXIT_EXECUTORS_FAILED);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        });
        last.start();
        new Thread(() -> System.exit(EXIT_EXECUTORS_FAILED), "firesteel-exit").start();
    }

    private static Thread thread(String name, Runnable body) {
        Thread thread = new Thread(body, name);
        thread.setDaemon(true);
        return thread;
    }
}
