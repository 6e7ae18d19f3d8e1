package dev.firesteel.bridge;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.resource.ResourceProfile;

/**
 * Everything the driver publishes: the status of its ExecutorGrant.
 *
 * Spark's threads, the executor watcher and the ledger reader write here without blocking;
 * the publisher waits here for changes. Nothing here does I/O.
 */
final class Demand {
    /** Seen losses are acknowledged with the next change, at the latest this long after the first of them. */
    private static final long SEEN_NANOS = 2_000_000_000L;

    /** How many profiles are published; more only if they want executors. The API server accepts 64. */
    private static final int MANY_PROFILES = 32;

    private final Map<Integer, ResourceProfile> profiles = new TreeMap<>();
    private final Map<Integer, Integer> wanted = new TreeMap<>();
    private final Map<Integer, Map<String, Object>> shapes = new TreeMap<>();
    /** Profiles with no demand, the longest idle first. */
    private final Set<Integer> idle = new LinkedHashSet<>();
    private Map<String, String> registered = Collections.emptyMap();
    private List<String> disconnected = Collections.emptyList();
    private Long lossSeen;
    /** When to publish, if there is a change. */
    private Long lossSeenBy;
    private boolean stopped;
    private boolean changed;

    synchronized void want(ResourceProfile profile, int executors) {
        profiles.put(profile.id(), profile);
        int number = Math.max(0, executors);
        Integer before = wanted.put(profile.id(), number);
        if (before == null || before != number) {
            idle.remove(profile.id());
            if (number == 0) {
                idle.add(profile.id());
            }
            signal();
        }
    }

    /** Wanted profiles whose executor shape is not known yet. */
    synchronized List<ResourceProfile> shapeless() {
        List<ResourceProfile> result = new ArrayList<>();
        for (ResourceProfile profile : profiles.values()) {
            if (!shapes.containsKey(profile.id())) {
                result.add(profile);
            }
        }
        return result;
    }

    synchronized void shape(int profile, Map<String, Object> shape) {
        shapes.put(profile, shape);
    }

    synchronized void executors(Map<String, String> registeredNow, List<String> disconnectedNow) {
        if (!stopped && (!registered.equals(registeredNow) || !disconnected.equals(disconnectedNow))) {
            registered = registeredNow;
            disconnected = disconnectedNow;
            signal();
        }
    }

    synchronized void lossSeen(long seq) {
        if (lossSeen == null || seq > lossSeen) {
            lossSeen = seq;
            if (lossSeenBy == null) {
                lossSeenBy = System.nanoTime() + SEEN_NANOS;
                notifyAll();
            }
        }
    }

    /** From now on demand is zero, whatever Spark still requests. */
    synchronized void stop() {
        stopped = true;
        registered = Collections.emptyMap();
        disconnected = Collections.emptyList();
        signal();
    }

    synchronized void signal() {
        changed = true;
        notifyAll();
    }

    /** Returns when something changed since the last call, or after this time. */
    synchronized void await(long milliseconds) throws InterruptedException {
        long end = System.nanoTime() + milliseconds * 1_000_000L;
        while (!changed) {
            long now = System.nanoTime();
            long left = end - now;
            if (lossSeenBy != null) {
                left = Math.min(left, lossSeenBy - now);
            }
            if (left <= 0) {
                break;
            }
            wait(left / 1_000_000L + 1);
        }
        changed = false;
        lossSeenBy = null;
    }

    synchronized boolean isStopped() {
        return stopped;
    }

    /** The document to publish. Profiles without a shape are left out until they have one. */
    synchronized Map<String, Object> document(String sparkVersion) {
        lossSeenBy = null;
        Map<String, Object> document = new LinkedHashMap<>();
        document.put("bridge", FiresteelAllocator.VERSION);
        document.put("sparkVersion", sparkVersion);
        Set<Integer> needless = needless();
        Map<String, Object> rendered = new LinkedHashMap<>();
        for (Map.Entry<Integer, Integer> entry : wanted.entrySet()) {
            Map<String, Object> shape = shapes.get(entry.getKey());
            if (shape != null && !needless.contains(entry.getKey())) {
                Map<String, Object> profile = new LinkedHashMap<>();
                profile.put("wanted", stopped ? 0 : entry.getValue());
                profile.putAll(shape);
                rendered.put(String.valueOf(entry.getKey()), profile);
            }
        }
        document.put("profiles", rendered);
        document.put("registered", new LinkedHashMap<String, Object>(registered));
        document.put("disconnected", disconnected);
        if (lossSeen != null) {
            document.put("lossSeen", lossSeen);
        }
        document.put("stopped", stopped);
        return document;
    }

    /**
     * Profiles to omit because there are too many: Spark never drops one, and some applications create one per query.
     * The longest idle go first, since others may still have executors.
     */
    private Set<Integer> needless() {
        Set<Integer> needless = new HashSet<>();
        for (Integer profile : idle) {
            boolean published = shapes.containsKey(profile) && profile != ResourceProfile.DEFAULT_RESOURCE_PROFILE_ID();
            if (published && shapes.size() - needless.size() > MANY_PROFILES) {
                needless.add(profile);
            }
        }
        return needless;
    }
}
