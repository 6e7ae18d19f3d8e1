package org.apache.spark.examples;

import java.util.ArrayList;
import java.util.List;

import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.SparkSession;
import scala.Tuple2;

/**
 * Ranks pages by the links between them: {@code SparkPageRank <file> [iterations]}. A line of the file is a page and a page it
 * links to, separated by white space.
 */
public final class SparkPageRank {
  private static final double DAMPING = 0.85;

  private SparkPageRank() {}

  public static void main(String[] args) {
    if (args.length < 1) {
      System.err.println("Usage: SparkPageRank <file> <iter>");
      System.exit(1);
    }
    int iterations = args.length > 1 ? Integer.parseInt(args[1]) : 10;
    SparkSession session = SparkSession.builder().appName("SparkPageRank").getOrCreate();
    JavaPairRDD<String, Iterable<String>> links =
        session
            .read()
            .text(args[0])
            .as(Encoders.STRING())
            .javaRDD()
            .map(line -> line.trim().split("\\s+"))
            .filter(pages -> pages.length > 1)
            .mapToPair(pages -> new Tuple2<>(pages[0], pages[1]))
            .distinct()
            .groupByKey()
            .cache();
    JavaPairRDD<String, Double> ranks = links.mapValues(pages -> 1.0);
    for (int round = 0; round < iterations; round++) {
      ranks =
          links
              .join(ranks)
              .values()
              .flatMapToPair(page -> shares(page._1(), page._2()).iterator())
              .reduceByKey(Double::sum)
              .mapValues(sum -> 1 - DAMPING + DAMPING * sum);
    }
    for (Tuple2<String, Double> rank : ranks.collect()) {
      System.out.println(rank._1() + " has rank:  " + rank._2() + " .");
    }
    session.stop();
  }

  /** What a page of this rank gives to each page it links to. */
  private static List<Tuple2<String, Double>> shares(Iterable<String> targets, double rank) {
    List<String> pages = new ArrayList<>();
    targets.forEach(pages::add);
    List<Tuple2<String, Double>> shares = new ArrayList<>(pages.size());
    for (String page : pages) {
      shares.add(new Tuple2<>(page, rank / pages.size()));
    }
    return shares;
  }
}
