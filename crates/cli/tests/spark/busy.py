"""Computes a sum until an executor is lost and replaced: until three executors have registered."""
import time

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
sc = spark.sparkContext
deadline = time.time() + 240
seen = set()
while len(seen) < 4 and time.time() < deadline:
    total = sc.parallelize(range(1000), 8).map(lambda n: (time.sleep(0.002), n)[1]).sum()
    # The driver and all executors so far, by address.
    keys = sc._jsc.sc().getExecutorMemoryStatus().keysIterator()
    while keys.hasNext():
        seen.add(keys.next())
    if len(seen) == 3:
        # From now on one may be lost: both have been counted.
        print("two executors are at work", flush=True)
print(f"sum: {total}", flush=True)
spark.stop()
