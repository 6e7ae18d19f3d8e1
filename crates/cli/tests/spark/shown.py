"""Slow tasks, so that there is progress to show."""
import os
import time

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print("the word is", os.environ["WORD"], flush=True)
spark.sparkContext.parallelize(range(8), 8).foreach(lambda _: time.sleep(1))
spark.stop()
