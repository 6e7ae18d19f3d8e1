package dev.firesteel.bridge;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Random;

/** Random documents: a patch turns one into the other, whichever earlier patches arrived, and contains only what is needed. */
public class MergePatchCheck {
    private static final int ROUNDS = 20_000;

    public static void main(String[] arguments) {
        long seed = arguments.length > 0 ? Long.parseLong(arguments[0]) : System.nanoTime();
        Random random = new Random(seed);
        for (int round = 0; round < ROUNDS; round++) {
            Map<String, Object> first = document(random, 3);
            Map<String, Object> second = document(random, 3);
            Map<String, Object> third = document(random, 3);
            Map<String, Object> patch = MergePatch.between(first, second);
            check(seed, round, apply(first, patch).equals(second), "a patch leads from the first to the second");
            check(seed, round, MergePatch.between(second, second).isEmpty(), "nothing to change, nothing to send");
            check(seed, round, patch.isEmpty() == first.equals(second), "a patch is empty if and only if both are equal");
            // Whether or not the patch arrived, the next one produces the third document.
            Map<String, Object> next = MergePatch.between(MergePatch.uncertain(first, patch), third);
            check(seed, round, apply(first, next).equals(third), "the lost patch does not matter");
            check(seed, round, apply(apply(first, patch), next).equals(third), "the arrived patch does not matter");
            // The same if it is unknown whether the document existed at all.
            Map<String, Object> again = MergePatch.between(MergePatch.uncertain(MergePatch.uncertain(first, patch), first), third);
            check(seed, round, apply(first, again).equals(third), "what stood there is not forgotten");
            check(seed, round, apply(apply(first, patch), again).equals(third), "what was sent is not forgotten");
            check(seed, round, apply(new LinkedHashMap<>(), again).equals(third), "a new document gets all");
            Map<String, Object> all = MergePatch.between(MergePatch.uncertain(third, third), third);
            check(seed, round, apply(new LinkedHashMap<>(), all).equals(third), "all is sent again");
        }
        System.out.println("merge patches: " + ROUNDS + " rounds, seed " + seed);
    }

    private static void check(long seed, int round, boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what + " (seed " + seed + ", round " + round + ")");
        }
    }

    /** RFC 7386, as the API server does it. */
    private static Map<String, Object> apply(Map<String, Object> document, Map<String, Object> patch) {
        Map<String, Object> result = new LinkedHashMap<>(document);
        for (Map.Entry<String, Object> entry : patch.entrySet()) {
            if (entry.getValue() == null) {
                result.remove(entry.getKey());
            } else if (entry.getValue() instanceof Map) {
                Object before = result.get(entry.getKey());
                result.put(entry.getKey(), apply(before instanceof Map ? MergePatch.object(before) : new LinkedHashMap<>(),
                        MergePatch.object(entry.getValue())));
            } else {
                result.put(entry.getKey(), entry.getValue());
            }
        }
        return result;
    }

    private static Map<String, Object> document(Random random, int depth) {
        Map<String, Object> result = new LinkedHashMap<>();
        for (String key : Arrays.asList("a", "b", "c", "d")) {
            int kind = random.nextInt(6);
            if (kind <= 1 && depth > 0) {
                Map<String, Object> inner = document(random, depth - 1);
                if (!inner.isEmpty()) {
                    result.put(key, inner);
                }
            } else if (kind == 2) {
                result.put(key, random.nextInt(3));
            } else if (kind == 3) {
                result.put(key, Arrays.asList(random.nextInt(2), "x"));
            }
        }
        return result;
    }
}
