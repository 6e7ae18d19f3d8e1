package dev.firesteel.bridge;

import java.lang.instrument.Instrumentation;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.URI;
import java.security.Security;
import org.apache.spark.SecurityManager;
import org.apache.spark.SparkConf;
import org.apache.spark.rpc.RpcEnv;
import scala.Option;

/**
 * Holds an executor that was started before its driver asked for it: a Java agent, called before Spark's main method.
 *
 * It loads what an executor needs, and waits until the driver has opened its {@link Gate}. Spark's own executor would try
 * to connect a few times without a pause and give up. An executor that is not wanted is deleted while it waits here, and Spark
 * never hears of it. Whatever goes wrong in here, the executor starts as it would without this agent, once the driver listens.
 */
public final class EarlyExecutor {
    private static final int CONNECT_MILLIS = 2000;
    private static final long FIRST_PAUSE_MILLIS = 100;
    private static final long LONGEST_PAUSE_MILLIS = 250;
    /** How long pauses stay short. */
    private static final long SOON_NANOS = 120_000_000_000L;

    /** Below this part of the time on the clock, somebody else needs the processors. */
    private static final double CONTENDED = 0.75;
    private static final long BACK_OFF_MILLIS = 300;

    /** What an executor uses first, besides what the connection to the driver has loaded already. */
    private static final String[] CLASSES = {
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        "org.apache.spark.executor.CoarseGrainedExecutorBackend",
        "org.apache.spark.executor.Executor",
        "org.apache.spark.executor.ExecutorMetricsPoller",
        "org.apache.spark.executor.TaskMetrics",
        "org.apache.spark.SparkEnv",
        "org.apache.spark.MapOutputTrackerWorker",
        "org.apache.spark.broadcast.TorrentBroadcastFactory",
        "org.apache.spark.memory.UnifiedMemoryManager",
        "org.apache.spark.network.netty.NettyBlockTransferService",
        "org.apache.spark.scheduler.OutputCommitCoordinator",
        "org.apache.spark.scheduler.ResultTask",
        "org.apache.spark.scheduler.ShuffleMapTask",
        "org.apache.spark.scheduler.TaskDescription",
        "org.apache.spark.serializer.JavaSerializer",
        "org.apache.spark.serializer.KryoSerializer",
        "org.apache.spark.shuffle.sort.SortShuffleManager",
        "org.apache.spark.storage.BlockManager",
        "org.apache.spark.storage.BlockManagerMaster",
        "org.apache.spark.storage.DiskBlockManager",
        "org.apache.spark.storage.memory.MemoryStore",
        "org.apache.spark.rdd.MapPartitionsRDD",
        "org.apache.spark.metrics.MetricsSystem",
        "org.apache.spark.deploy.SparkHadoopUtil",
        "org.apache.spark.util.MutableURLClassLoader",
    };

    private EarlyExecutor() {
    }

    public static void premain(String arguments, Instrumentation instrumentation) {
        String url = System.getenv("SPARK_DRIVER_URL");
        if (url == null) {
            return;
        }
        // The driver's name may not resolve yet, and Java would remember that for ten seconds.
        String remembered = Security.getProperty("networkaddress.cache.negative.ttl");
        Security.setProperty("networkaddress.cache.negative.ttl", "0");
        Loading loading = new Loading();
        try {
            URI driver = URI.create(url);
            loading.setDaemon(true);
            loading.start();
            waitForPort(driver.getHost(), driver.getPort());
            loading.hurry = true;
            RpcEnv rpc = connection();
            if (rpc != null) {
                waitForGate(rpc, "spark://" + Gate.NAME + "@" + driver.getHost() + ":" + driver.getPort());
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (Throwable e) {
            System.err.println("Firesteel's agent cannot wait for the driver, so this executor starts now: " + e);
        } finally {
            Security.setProperty("networkaddress.cache.negative.ttl", remembered == null ? "10" : remembered);
        }
    }

    /** A connection as the executor itself will have; null if this Spark has another one. */
    private static RpcEnv connection() {
        try {
            SparkConf conf = new SparkConf();
            SecurityManager security = new SecurityManager(conf, Option.empty(), SecurityManager.$lessinit$greater$default$3());
            String address = System.getenv("SPARK_EXECUTOR_POD_IP");
            return RpcEnv.create("firesteel-early", address, address, -1, conf, security, 0, true);
        } catch (LinkageError e) {
            System.err.println("Firesteel's agent does not know this Spark, so it waits for the driver's port only: " + e);
            return null;
        }
    }

    /** Until something listens there. The name may not exist yet. */
    private static void waitForPort(String host, int port) throws InterruptedException {
        Pause pause = new Pause();
        while (true) {
            try (Socket socket = new Socket()) {
                socket.connect(new InetSocketAddress(host, port), CONNECT_MILLIS);
                return;
            } catch (java.io.IOException e) {
                pause.pass();
            }
        }
    }

    /** Until the driver has an endpoint of that name. */
    private static void waitForGate(RpcEnv rpc, String gate) throws InterruptedException {
        Pause pause = new Pause();
        while (true) {
            try {
                rpc.setupEndpointRefByURI(gate);
                rpc.shutdown();
                return;
            } catch (Exception e) {
                // Not there yet, or the driver does not answer.
                if (e instanceof InterruptedException) {
                    throw (InterruptedException) e;
                }
                pause.pass();
            }
        }
    }

    /**
     * Loads classes while the processors have nothing better to do. The driver starts at the same time, perhaps on this machine, and
     * everybody waits for it: where this thread gets less of a processor than it asks for, it steps back until the driver listens.
     */
    private static final class Loading extends Thread {
        volatile boolean hurry;

        Loading() {
            super("firesteel-classes");
        }

        @Override
        public void run() {
            ThreadMXBean clock = ManagementFactory.getThreadMXBean();
            ClassLoader loader = ClassLoader.getSystemClassLoader();
            try {
                for (String name : CLASSES) {
                    long wall = System.nanoTime();
                    long used = clock.getCurrentThreadCpuTime();
                    try {
                        Class.forName(name, true, loader);
                    } catch (ClassNotFoundException | LinkageError e) {
                        // Another Spark may not have it.
                    }
                    used = clock.getCurrentThreadCpuTime() - used;
                    wall = System.nanoTime() - wall;
                    if (!hurry && used < CONTENDED * wall) {
                        Thread.sleep(BACK_OFF_MILLIS);
                    }
                }
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /** Short pauses at first, because the driver is about to start; longer ones later, to use no processor. */
    private static final class Pause {
        private final long soon = System.nanoTime() + SOON_NANOS;

        void pass() throws InterruptedException {
            Thread.sleep(System.nanoTime() - soon < 0 ? FIRST_PAUSE_MILLIS : LONGEST_PAUSE_MILLIS);
        }
    }
}
