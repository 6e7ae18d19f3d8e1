package dev.firesteel.bridge;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.spark.resource.ResourceProfile;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Keeps the status of the ExecutorGrant equal to {@link Demand}: one thread, one request at a time, only what changed,
 * until it is accepted. Changes that come while a request is on its way go into the next one.
 */
final class Publisher implements Runnable {
    /** How a profile becomes numbers and environment; may throw. */
    interface Shaper {
        Map<String, Object> shape(ResourceProfile profile);
    }

    private static final Logger LOG = LoggerFactory.getLogger(FiresteelAllocator.class);
    private static final long SLOW_MILLIS = 10_000;
    /** All is sent again so often, in case somebody edited the status by hand. */
    private static final long RESEND_NANOS = 600_000_000_000L;
    private static final long QUIET_NANOS = 300_000_000_000L;

    /**
     * What the API server has. Of the JVM, not of the instance: a second SparkContext in the same driver goes on with the
     * same grant, and has to take out what the first one left there.
     */
    private static volatile Map<String, Object> published = new LinkedHashMap<>();

    private final Api api;
    private final Demand demand;
    private final Shaper shaper;
    private final String sparkVersion;
    private final String where;
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
        if (published.get("lossSeen") instanceof Long) {
            demand.lossSeen((Long) published.get("lossSeen"));
        }
    }

    /** Ends the thread as soon as all is published, and at this time (of System.nanoTime) in any case. */
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
            LOG.error("Firesteel's bridge cannot go on publishing the demand for executors in {}.", where, e);
        }
    }

    /** Sends one patch. The answer is how long to wait before the next: 0 after success, below 0 if the grant is gone. */
    private long send(Map<String, Object> patch, Map<String, Object> wanted) throws InterruptedException {
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
        switch (answer.code) {
            case 404:
                // Not created yet, or deleted: all has to be said again.
                published = new LinkedHashMap<>();
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
                if (answer.code == 0 || answer.code >= 500) {
                    published = MergePatch.uncertain(published, patch);
                }
                if (failures >= 3 && isNews("unreachable")) {
                    LOG.warn("The demand for executors cannot be sent to " + where + " (attempt " + failures + ": "
                            + (answer.code == 0 ? "" : answer.code + " ") + answer.message() + "). It is tried again.");
                }
                return Math.max(answer.retryAfterMillis, jitter(Math.min(5000, 100L << Math.min(failures, 6))));
        }
    }

    private void shapeProfiles() {
        for (ResourceProfile profile : demand.shapeless()) {
            try {
                demand.shape(profile.id(), shaper.shape(profile));
            } catch (RuntimeException e) {
                tell("profile " + profile.id(), "Executors of resource profile " + profile.id()
                        + " cannot be built, so none are asked for: " + e);
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

    /** Each kind of trouble at most every five minutes. */
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
