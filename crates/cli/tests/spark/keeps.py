"""A sum, again and again, until its test has seen enough; says how many executors are at work, of how many there ever were."""
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


# Two jobs at a time, so that executors have tasks between two of them, too.
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
