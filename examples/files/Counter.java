package example.counter;

import java.util.HashMap;
import java.util.Map;
import java.util.Objects;

/** Counts keys. */
public final class Counter<K> {
    private final Map<K, Long> counts = new HashMap<>();

    public void add(final K key) {
        counts.merge(Objects.requireNonNull(key), 1L, Long::sum);
    }

    public long get(final K key) {
        return counts.getOrDefault(key, 0L);
    }

    @Override
    public String toString() {
        return counts.toString();
    }

    public static void main(String[] args) {
        Counter<String> counter = new Counter<>();
        for (String word : args) {
            counter.add(word);
        }
        System.out.println(counter);
    }
}
