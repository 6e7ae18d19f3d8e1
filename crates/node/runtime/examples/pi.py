"""Estimates pi by throwing darts at a square: pi.py [partitions]."""

import random
import sys

from pyspark.sql import SparkSession

DARTS = 100_000


def hits(_):
    return sum(1 for _ in range(DARTS) if random.uniform(-1, 1) ** 2 + random.uniform(-1, 1) ** 2 <= 1)


if __name__ == "__main__":
    partitions = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    spark = SparkSession.builder.appName("PythonPi").getOrCreate()
    inside = spark.sparkContext.parallelize(range(partitions), partitions).map(hits).sum()
    print("Pi is roughly %f" % (4.0 * inside / (DARTS * partitions)))
    spark.stop()
