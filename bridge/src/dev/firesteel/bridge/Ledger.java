package dev.firesteel.bridge;

import com.fasterxml.jackson.core.JsonProcessingException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Follows the ExecutorLedger: a watch that starts with the current state and is reopened whenever it ends, and a GET
 * every 30 s, which detects a silent watch. One thread passes what it reads to the {@link Reader}.
 */
final class Ledger implements Runnable {
    /** An executor that ended. */
    static final class Loss {
        final long seq;
        final String id;
        final int code;
        final String cause;
        final String text;

        Loss(long seq, String id, int code, String cause, String text) {
            this.seq = seq;
            this.id = id;
            this.code = code;
            this.cause = cause;
            this.text = text;
        }
    }

    /** Called only by the ledger's thread. */
    interface Reader {
        /** All losses in the ledger, in order, seen before or not. */
        void losses(List<Loss> losses);

        /** Executors started early may register. May be called again. */
        void admitted();

        void verdict(String reason, String message);

        /** Why there are fewer executors than wanted: no more are possible now, or no more were granted. */
        void waiting(String reason, String message);
    }

    private static final Logger LOG = LoggerFactory.getLogger(FiresteelAllocator.class);
    private static final long LOOK_NANOS = 30_000_000_000L;

    private final Api api;
    private final Reader reader;
    private final String where;
    private final LinkedBlockingQueue<Object> events = new LinkedBlockingQueue<>();
    private String version = "";
    private String told = "";

    Ledger(Api api, Reader reader, String where) {
        this.api = api;
        this.reader = reader;
        this.where = where;
    }

    @Override
    public void run() {
        int failures = 0;
        try {
            while (true) {
                long opened = System.nanoTime();
                Api.Answer end = follow();
                if (end.ok() && System.nanoTime() - opened > 5_000_000_000L) {
                    failures = 0;
                    continue;
                }
                failures++;
                long pause = Math.min(5000, 50L << Math.min(failures, 7));
                if (end.code == 401 || end.code == 403) {
                    tell("forbidden", "The driver's service account may not watch " + where + " (" + end.message() + "), so Spark"
                            + " learns of lost executors only by their silence. Give it the role that firesteel setup makes:"
                            + " patch on executorgrants/status, get and watch on executorledgers.");
                    pause = 10_000;
                } else if (failures == 5) {
                    LOG.warn("{} cannot be watched ({} {}). Retrying.", where, end.code, end.message());
                }
                pause = Math.max(end.retryAfterMillis, pause / 2 + ThreadLocalRandom.current().nextLong(pause / 2 + 1));
                Thread.sleep(pause);
                look();
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (Throwable e) {
            LOG.error("Firesteel's bridge can no longer read {}: lost executors will be noticed late.", where, e);
        }
    }

    /** One watch from its beginning to its end. */
    private Api.Answer follow() throws InterruptedException {
        events.clear();
        Object thisWatch = new Object();
        Runnable close = api.watchLedger(240 + ThreadLocalRandom.current().nextInt(60),
                line -> events.add(new Object[] {thisWatch, line}),
                end -> events.add(new Object[] {thisWatch, end}));
        try {
            long look = System.nanoTime() + LOOK_NANOS;
            while (true) {
                Object[] event = (Object[]) events.poll(Math.max(0, look - System.nanoTime()), TimeUnit.NANOSECONDS);
                if (event == null) {
                    look = System.nanoTime() + LOOK_NANOS;
                    if (look()) {
                        return new Api.Answer(0, "the watch missed a change", 0);
                    }
                } else if (event[0] == thisWatch && event[1] instanceof Api.Answer) {
                    return (Api.Answer) event[1];
                } else if (event[0] == thisWatch && !event((String) event[1])) {
                    return new Api.Answer(200, "", 0);
                }
            }
        } finally {
            close.run();
        }
    }

    /** Handles one line of a watch; false if the watch is over. */
    private boolean event(String line) {
        try {
            Map<String, Object> event = Api.parse(line);
            if ("ERROR".equals(event.get("type"))) {
                return false;
            }
            if (("ADDED".equals(event.get("type")) || "MODIFIED".equals(event.get("type")))
                    && event.get("object") instanceof Map) {
                read(MergePatch.object(event.get("object")));
            }
            return true;
        } catch (JsonProcessingException e) {
            LOG.warn("{} sent an event that is not JSON: {}", where, e.getMessage());
            return false;
        }
    }

    /** Gets the ledger; true if it holds something the watch missed. */
    private boolean look() throws InterruptedException {
        Api.Answer answer = api.getLedger();
        if (!answer.ok()) {
            return false;
        }
        try {
            return read(Api.parse(answer.body));
        } catch (JsonProcessingException e) {
            LOG.warn("{} is not JSON: {}", where, e.getMessage());
            return false;
        }
    }

    private boolean read(Map<String, Object> ledger) {
        Map<String, Object> metadata = map(ledger.get("metadata"));
        String seen = metadata.get("uid") + "/" + metadata.get("resourceVersion");
        if (seen.equals(version)) {
            return false;
        }
        version = seen;
        Map<String, Object> status = map(ledger.get("status"));
        List<Loss> losses = new ArrayList<>();
        if (status.get("losses") instanceof List) {
            for (Object entry : (List<?>) status.get("losses")) {
                Map<String, Object> loss = map(entry);
                if (loss.get("id") != null) {
                    losses.add(new Loss(number(loss.get("seq"), 0), loss.get("id").toString(), (int) number(loss.get("code"), -1),
                            text(loss.get("cause")), text(loss.get("text"))));
                }
            }
        }
        losses.sort(Comparator.comparingLong(loss -> loss.seq));
        reader.losses(losses);
        // After the losses: those withdrawn are refused from now on.
        if (map(status.get("early")).get("admitted") != null) {
            reader.admitted();
        }
        Map<String, Object> verdict = map(status.get("verdict"));
        if (verdict.get("reason") != null) {
            reader.verdict(verdict.get("reason").toString(), text(verdict.get("message")));
        }
        if (Boolean.FALSE.equals(status.get("accepted"))) {
            reader.waiting("NotAccepted", text(status.get("message")));
        } else if (status.get("conditions") instanceof List) {
            for (Object entry : (List<?>) status.get("conditions")) {
                Map<String, Object> condition = map(entry);
                boolean told = "Satisfied".equals(condition.get("type")) || "WithinMaximum".equals(condition.get("type"));
                if (told && "False".equals(condition.get("status"))) {
                    reader.waiting(text(condition.get("reason")), text(condition.get("message")));
                }
            }
        }
        return true;
    }

    private void tell(String kind, String sentence) {
        if (!kind.equals(told)) {
            LOG.error(sentence);
            told = kind;
        }
    }

    private static Map<String, Object> map(Object value) {
        return value instanceof Map ? MergePatch.object(value) : Collections.emptyMap();
    }

    private static String text(Object value) {
        return value == null ? "" : value.toString();
    }

    private static long number(Object value, long otherwise) {
        return value instanceof Number ? ((Number) value).longValue() : otherwise;
    }
}
