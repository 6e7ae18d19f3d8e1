package org.apache.spark.examples;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.List;

import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.SparkSession;

/**
 * Writes a file of the driver to a directory that all executors see, reads it back there and compares the number of words:
 * {@code DFSReadWriteTest <localFile> <dfsDir>}.
 */
public final class DFSReadWriteTest {
  private static final String USAGE =
      "DFS Read-Write Test\n"
          + "Usage: localFile dfsDir\n"
          + "localFile - (string) local file to use in test\n"
          + "dfsDir - (string) DFS directory for read/write tests\n";

  private DFSReadWriteTest() {}

  public static void main(String[] args) throws IOException {
    if (args.length != 2) {
      refuse("");
    }
    File file = new File(args[0]);
    if (!file.exists()) {
      refuse("Given path (" + args[0] + ") does not exist.\n");
    }
    if (!file.isFile()) {
      refuse("Given path (" + args[0] + ") is not a file.\n");
    }

    System.out.println("Performing local word count");
    List<String> lines = Files.readAllLines(file.toPath(), StandardCharsets.UTF_8);
    long here = lines.stream().mapToLong(DFSReadWriteTest::words).sum();

    System.out.println("Creating SparkSession");
    SparkSession session = SparkSession.builder().appName("DFS Read Write Test").getOrCreate();
    JavaSparkContext context = JavaSparkContext.fromSparkContext(session.sparkContext());

    System.out.println("Writing local file to DFS");
    Path target = new Path(args[1] + "/dfs_read_write_test");
    FileSystem files = target.getFileSystem(context.hadoopConfiguration());
    if (files.exists(target)) {
      files.delete(target, true);
    }
    context.parallelize(lines).saveAsTextFile(target.toString());

    System.out.println("Reading file from DFS and running Word Count");
    long there = context.textFile(target.toString()).map(DFSReadWriteTest::words).fold(0L, Long::sum);
    session.stop();

    if (here == there) {
      System.out.println("Success! Local Word Count " + here + " and DFS Word Count " + there + " agree.");
    } else {
      System.out.println("Failure! Local Word Count " + here + " and DFS Word Count " + there + " disagree.");
    }
  }

  private static void refuse(String problem) {
    System.err.print(problem);
    System.out.println(USAGE);
    System.exit(1);
  }

  private static long words(String line) {
    return Arrays.stream(line.split("[ \t]")).filter(word -> !word.isEmpty()).count();
  }
}
