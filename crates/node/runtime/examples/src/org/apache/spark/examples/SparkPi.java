package org.apache.spark.examples;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Random;

import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.java.function.Function;
import org.apache.spark.api.java.function.Function2;
import org.apache.spark.sql.SparkSession;

/**
 * Estimates pi by throwing darts at a square: {@code SparkPi [slices]}.
 *
 * <p>The classes of this package stand in for those of the same name in Spark's examples, which the PySpark package does not
 * carry: same arguments, same output, so that public manifests run unchanged. Written for Java 8 so that Spark 3.5 can run them.
 */
public final class SparkPi {
  private static final int DARTS_PER_SLICE = 100_000;

  private SparkPi() {}

  /** The darts of one slice that hit the circle. */
  private static final class Throw implements Function<Integer, Long> {
    private static final long serialVersionUID = 1L;

    @Override
    public Long call(Integer slice) {
      Random random = new Random(31L * slice + System.nanoTime());
      long hits = 0;
      for (int dart = 0; dart < DARTS_PER_SLICE; dart++) {
        double x = random.nextDouble() * 2 - 1;
        double y = random.nextDouble() * 2 - 1;
        if (x * x + y * y <= 1) {
          hits++;
        }
      }
      return hits;
    }
  }

  private static final class Sum implements Function2<Long, Long, Long> {
    private static final long serialVersionUID = 1L;

    @Override
    public Long call(Long left, Long right) {
      return left + right;
    }
  }

  public static void main(String[] args) {
    run("Spark Pi", args);
  }

  /** The program under the name of its application. */
  static void run(String name, String[] args) {
    int slices = args.length > 0 ? Integer.parseInt(args[0]) : 2;
    SparkSession session = SparkSession.builder().appName(name).getOrCreate();
    JavaSparkContext context = JavaSparkContext.fromSparkContext(session.sparkContext());
    List<Integer> numbers = new ArrayList<>(slices);
    for (int slice = 0; slice < slices; slice++) {
      numbers.add(slice);
    }
    long hits = context.parallelize(numbers, slices).map(new Throw()).reduce(new Sum());
    double pi = 4.0 * hits / ((double) DARTS_PER_SLICE * slices);
    System.out.println(String.format(Locale.ROOT, "Pi is roughly %s", pi));
    session.stop();
  }
}
