"""A program that sets what its arguments say (KEY=VALUE) before it creates its context, as programs do."""
import sys

from pyspark.sql import SparkSession

builder = SparkSession.builder.appName("mind")
for setting in sys.argv[1:]:
    builder = builder.config(*setting.split("=", 1))
spark = builder.getOrCreate()
print("the sum is", spark.sparkContext.parallelize(range(1000), 8).map(lambda number: number * number).sum())
spark.stop()
