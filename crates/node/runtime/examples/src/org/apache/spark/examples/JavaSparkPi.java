package org.apache.spark.examples;

/** {@link SparkPi} under its other name: {@code JavaSparkPi [slices]}. */
public final class JavaSparkPi {
  private JavaSparkPi() {}

  public static void main(String[] args) {
    SparkPi.run("JavaSparkPi", args);
  }
}
