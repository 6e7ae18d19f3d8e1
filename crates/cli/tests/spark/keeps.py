"""A sum, again and again, until its test has seen enough; says how many executors are at work, of how many there ever were."""
import os
import sys
import time

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
sc = spark.sparkContext
deadline = time.time() + 400
ever, said = set(), None
while not os.path.exists(sys.argv[1]) and time.time() < deadline:
    total = sc.parallelize(range(1000), 20).map(lambda n: (time.sleep(0.002), n)[1]).sum()
    # The driver itself is in the list.
    keys, now = sc._jsc.sc().getExecutorMemoryStatus().keysIterator(), set()
    while keys.hasNext():
        now.add(keys.next())
    ever |= now
    if (len(now), len(ever)) != said:
        said = len(now), len(ever)
        print(f"at work: {len(now) - 1} of {len(ever) - 1}", flush=True)
print(f"sum: {total}", flush=True)
spark.stop()
