package dev.firesteel.bridge;

import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.spark.resource.ResourceProfile;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Keeps the status of the ExecutorGrant equal to {@link Demand}: one thread, one request at a time, only what changed,
 * until it is accepted. Changes made while a request is in flight go into the next one.
 */
final class Publisher implements Runnable {
    /** Turns a profile into sizes and environment; may throw. */
    interface Shaper {
        Map<String, Object> shape(ResourceProfile profile);
    }

    private static final Logger LOG = LoggerFactory.getLogger(FiresteelAllocator.class);
    private static final long SLOW_MILLIS = 10_000;
    /** How often everything is resent, in case someone edited the status by hand. */
    private static final long RESEND_NANOS = 600_000_000_000L;
    private static final long QUIET_NANOS = 300_000_000_000L;

    /**
     * What the API server has. Per JVM, not per instance: a second SparkContext in the same driver continues with the
     * same grant, and has to remove what the first one left there.
     */
    private static volatile Map<String, Object> published = new LinkedHashMap<>();

    /** The last acknowledged loss, also per JVM. Not read from {@link #published}, where it may be uncertain. */
    private static volatile Long lossSeen;

    private final Api api;
    private final Demand demand;
    private final Shaper shaper;
    private final String sparkVersion;
    private final String where;
    /** Profiles already logged as impossible to build executors for. */
    private final Set<Integer> unbuildable = new HashSet<>();
    private long resendAt = System.nanoTime() + RESEND_NANOS;
    private int failures;
    private long missingSince;
    private String told = "";
    private long toldAt;
    private volatile long deadline = Long.MAX_VALUE;

    Publisher(Api api, Demand demand, Shaper shaper, String sparkVersion, String where) {
        this.api = api;
        this.demand = demand;
        this.shaper = shaper;
        this.sparkVersion = sparkVersion;
        this.where = where;
        Long before = lossSeen;
        if (before != null) {
            demand.lossSeen(before);
        }
    }

    /** Ends the thread once everything is published, and at this System.nanoTime in any case. */
    void finishBy(long nanoTime) {
        deadline = nanoTime;
        demand.signal();
    }

    @Override
    public void run() {
        try {
            while (true) {
                shapeProfiles();
                Map<String, Object> wanted = demand.document(sparkVersion);
                if (System.nanoTime() - resendAt > 0) {
                    published = MergePatch.uncertain(published, published);
                    resendAt = System.nanoTime() + RESEND_NANOS;
                }
                Map<String, Object> patch = MergePatch.between(published, wanted);
                if (patch.isEmpty()) {
                    if (deadline != Long.MAX_VALUE) {
                        return;
                    }
                    demand.await(60_000);
                    continue;
                }
                long pause = send(patch, wanted);
                if (deadline != Long.MAX_VALUE && (pause < 0 || System.nanoTime() - deadline >= 0)) {
                    return;
                }
                if (pause > 0) {
                    rest(pause);
                }
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (Throwable e) {
            LOG.error("Firesteel's bridge can no longer publish the demand for executors in {}.", where, e);
        }
    }

    /** Sends one patch. Returns how long to wait before the next: 0 after success, negative if the grant is gone. */
    private long send(Map<String, Object> patch, Map<String, Object> wanted) throws InterruptedException {
        Map<String, Object> before = published;
        // Before the request, which the application's end may interrupt: a second SparkContext has to know.
        published = MergePatch.uncertain(before, patch);
        if (wanted.get("lossSeen") instanceof Long) {
            lossSeen = (Long) wanted.get("lossSeen");
        }
        Api.Answer answer = api.patchStatus(patch);
        if (answer.ok()) {
            if (failures > 0) {
                LOG.info("{} accepted the demand for executors again after {} failed attempts.", where, failures);
            }
            published = wanted;
            failures = 0;
            missingSince = 0;
            told = "";
            return 0;
        }
        failures++;
        if (answer.code == 404) {
            // Not created yet, or deleted: everything must be resent. But if the error was transient, the old content is still there:
            // keep all keys, so that they can be removed.
            published = MergePatch.uncertain(published, before);
        } else if (answer.code > 0 && answer.code < 500) {
            published = before;
        }
        switch (answer.code) {
            case 404:
                if (missingSince == 0) {
                    missingSince = System.nanoTime();
                } else if (System.nanoTime() - missingSince > 30_000_000_000L) {
                    tell("missing", where + " does not exist, so this application gets no executors. Submit it with firesteel, or"
                            + " set spark.kubernetes.allocation.pods.allocator back to direct.");
                }
                return demand.isStopped() ? -1 : jitter(Math.min(2000, 100L * failures));
            case 401:
            case 403:
                tell("forbidden", "The driver's service account may not patch " + where + " (" + answer.message() + "), so this"
                        + " application gets no executors. Give it the role that firesteel setup makes: patch on"
                        + " executorgrants/status, get and watch on executorledgers.");
                return jitter(SLOW_MILLIS);
            case 400:
            case 413:
            case 415:
            case 422:
                tell("refused", "The API server refuses the demand for executors in " + where + ": " + answer.message());
                return jitter(SLOW_MILLIS);
            case 409:
                return jitter(50);
            default:
                if (failures >= 3 && isNews("unreachable")) {
                    LOG.warn("The demand for executors cannot be sent to " + where + " (attempt " + failures + ": "
                            + (answer.code == 0 ? "" : answer.code + " ") + answer.message() + "). Retrying.");
                }
                return Math.max(answer.retryAfterMillis, jitter(Math.min(5000, 100L << Math.min(failures, 6))));
        }
    }

    private void shapeProfiles() {
        for (ResourceProfile profile : demand.shapeless()) {
            try {
                demand.shape(profile.id(), shaper.shape(profile));
                unbuildable.remove(profile.id());
            } catch (Exception e) {
                // Not only RuntimeExceptions: Scala does not declare exceptions, and SparkException is a checked one.
                if (unbuildable.add(profile.id())) {
                    LOG.error("Executors of resource profile {} cannot be built, so none are requested: {}", profile.id(),
                            e.toString());
                }
            }
        }
    }

    /** A pause that the end of the application cuts short. */
    private void rest(long milliseconds) throws InterruptedException {
        boolean stoppedBefore = demand.isStopped();
        long end = System.nanoTime() + milliseconds * 1_000_000L;
        while (System.nanoTime() - end < 0 && (stoppedBefore || !demand.isStopped()) && deadline == Long.MAX_VALUE) {
            demand.await(Math.max(1, (end - System.nanoTime()) / 1_000_000L));
        }
        if (deadline != Long.MAX_VALUE) {
            Thread.sleep(Math.min(milliseconds, 200));
        }
    }

    /** Logs each kind of problem at most every five minutes. */
    private boolean isNews(String kind) {
        if (kind.equals(told) && System.nanoTime() - toldAt <= QUIET_NANOS) {
            return false;
        }
        told = kind;
        toldAt = System.nanoTime();
        return true;
    }

    private void tell(String kind, String sentence) {
        if (isNews(kind)) {
            LOG.error(sentence);
        }
    }

    private static long jitter(long milliseconds) {
        return milliseconds / 2 + ThreadLocalRandom.current().nextLong(milliseconds / 2 + 1);
    }
}
