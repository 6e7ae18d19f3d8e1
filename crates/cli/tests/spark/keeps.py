"""Computes a sum repeatedly until its test has seen enough; prints the number of executors, now and so far."""
import os
import sys
import threading
import time

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
sc = spark.sparkContext
deadline = time.time() + 400
ever, said = set(), None


def enough():
    return os.path.exists(sys.argv[1]) or time.time() > deadline


def work():
    return sc.parallelize(range(1000), 10).map(lambda n: (time.sleep(0.002), n)[1]).sum()


def more():
    while not enough():
        work()


# Two concurrent jobs, so that executors always have tasks.
thread = threading.Thread(target=more)
thread.start()
while not enough():
    total = work()
    # The driver itself is in the list.
    keys, now = sc._jsc.sc().getExecutorMemoryStatus().keysIterator(), set()
    while keys.hasNext():
        now.add(keys.next())
    ever |= now
    if (len(now), len(ever)) != said:
        said = len(now), len(ever)
        print(f"at work: {len(now) - 1} of {len(ever) - 1}", flush=True)
thread.join()
print(f"sum: {total}", flush=True)
spark.stop()
