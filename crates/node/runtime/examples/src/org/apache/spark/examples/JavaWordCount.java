package org.apache.spark.examples;

import java.util.Arrays;

import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.SparkSession;
import scala.Tuple2;

/** Counts the words of a text: {@code JavaWordCount <file>}, which prints a line {@code word: count} for each. */
public final class JavaWordCount {
  private JavaWordCount() {}

  public static void main(String[] args) {
    if (args.length < 1) {
      System.err.println("Usage: JavaWordCount <file>");
      System.exit(1);
    }
    SparkSession session = SparkSession.builder().appName("JavaWordCount").getOrCreate();
    JavaPairRDD<String, Integer> counts =
        session
            .read()
            .text(args[0])
            .as(Encoders.STRING())
            .javaRDD()
            .flatMap(line -> Arrays.asList(line.split(" ")).iterator())
            .mapToPair(word -> new Tuple2<>(word, 1))
            .reduceByKey(Integer::sum);
    for (Tuple2<String, Integer> count : counts.collect()) {
      System.out.println(count._1() + ": " + count._2());
    }
    session.stop();
  }
}
