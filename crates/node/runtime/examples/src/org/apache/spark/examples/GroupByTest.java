package org.apache.spark.examples;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.SparkSession;
import scala.Tuple2;

/**
 * Shuffles random pairs by key and prints how many keys there are:
 * {@code GroupByTest [numMappers] [numKVPairs] [valSize] [numReducers]}.
 */
public final class GroupByTest {
  private GroupByTest() {}

  public static void main(String[] args) {
    int mappers = argument(args, 0, 2);
    int pairs = argument(args, 1, 1000);
    int size = argument(args, 2, 1000);
    int reducers = argument(args, 3, mappers);
    SparkSession session = SparkSession.builder().appName("GroupBy Test").getOrCreate();
    JavaSparkContext context = JavaSparkContext.fromSparkContext(session.sparkContext());
    List<Integer> numbers = IntStream.range(0, mappers).boxed().collect(Collectors.toList());
    JavaPairRDD<Integer, byte[]> values =
        context.parallelize(numbers, mappers).flatMapToPair(mapper -> random(pairs, size).iterator()).cache();
    // All of it is made before it is grouped, so that the shuffle is what the last stages measure.
    values.count();
    System.out.println(values.groupByKey(reducers).count());
    session.stop();
  }

  private static int argument(String[] args, int at, int otherwise) {
    return args.length > at ? Integer.parseInt(args[at]) : otherwise;
  }

  private static List<Tuple2<Integer, byte[]>> random(int pairs, int size) {
    Random random = new Random();
    List<Tuple2<Integer, byte[]>> made = new ArrayList<>(pairs);
    for (int pair = 0; pair < pairs; pair++) {
      byte[] value = new byte[size];
      random.nextBytes(value);
      made.add(new Tuple2<>(random.nextInt(Integer.MAX_VALUE), value));
    }
    return made;
  }
}
