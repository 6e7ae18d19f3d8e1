package dev.firesteel.bridge;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;

/**
 * JSON merge patches (RFC 7386) between two states of a document made of maps, lists and scalars. Pure.
 *
 * A null in a patch removes a key; the documents themselves hold no nulls, and an empty map in them equals a missing one.
 */
final class MergePatch {
    /** Stands for a value that may or may not have arrived: it differs from every value, itself included. */
    static final Object UNKNOWN = new Object() {
        @Override
        public boolean equals(Object other) {
            return false;
        }

        @Override
        public int hashCode() {
            return 0;
        }

        @Override
        public String toString() {
            return "UNKNOWN";
        }
    };

    private MergePatch() {}

    /** The smallest patch that turns {@code from} into {@code to}; empty if there is nothing to change. */
    static Map<String, Object> between(Map<String, Object> from, Map<String, Object> to) {
        Map<String, Object> patch = new LinkedHashMap<>();
        for (String key : from.keySet()) {
            if (!to.containsKey(key)) {
                patch.put(key, null);
            }
        }
        for (Map.Entry<String, Object> entry : to.entrySet()) {
            Object before = from.get(entry.getKey());
            Object after = entry.getValue();
            if (before instanceof Map && after instanceof Map) {
                Map<String, Object> inner = between(object(before), object(after));
                if (!inner.isEmpty()) {
                    patch.put(entry.getKey(), inner);
                }
            } else if (!Objects.equals(before, after)) {
                patch.put(entry.getKey(), after);
            }
        }
        return patch;
    }

    /** What is known of the document after {@code patch} was sent and may or may not have arrived. */
    static Map<String, Object> uncertain(Map<String, Object> document, Map<String, Object> patch) {
        Map<String, Object> result = new LinkedHashMap<>(document);
        for (Map.Entry<String, Object> entry : patch.entrySet()) {
            Object before = document.get(entry.getKey());
            if (entry.getValue() instanceof Map) {
                result.put(entry.getKey(), uncertain(
                        before instanceof Map ? object(before) : new LinkedHashMap<>(), object(entry.getValue())));
            } else if (before instanceof Map) {
                // Its keys must be kept, to remove them if they are still there.
                result.put(entry.getKey(), uncertain(object(before), object(before)));
            } else {
                result.put(entry.getKey(), UNKNOWN);
            }
        }
        return result;
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> object(Object value) {
        return (Map<String, Object>) value;
    }
}
