"""Shuffles, waits until an executor is lost and replaced, and reads the shuffle again. Shuffle data that was kept need not be
recomputed: `mapped` is the number of records computed."""
import time

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
sc = spark.sparkContext
mapped = sc.accumulator(0)
outputs = sc._jvm.org.apache.spark.SparkEnv.get().mapOutputTracker()


def one(number):
    mapped.add(1)
    return number % 8, number


def executors():
    keys, found = sc._jsc.sc().getExecutorMemoryStatus().keysIterator(), set()
    while keys.hasNext():
        found.add(keys.next())
    return found


def until(condition):
    deadline = time.time() + 240
    while not condition() and time.time() < deadline:
        time.sleep(0.2)


pairs = sc.parallelize(range(1000), 8).map(one).partitionBy(4)
until(lambda: len(executors()) == 3)
before = executors()
pairs.count()
print(f"shuffled: {outputs.getNumAvailableOutputs(0)} outputs, mapped {mapped.value}", flush=True)
# One executor is replaced; the new one brings back what the old one wrote.
until(lambda: len(executors()) == 3 and executors() != before)
# An executor scans its disk when it first takes part in a shuffle.
deadline = time.time() + 120
while outputs.getNumAvailableOutputs(0) < 8 and time.time() < deadline:
    sc.parallelize(range(8), 8).map(lambda n: (time.sleep(0.5), (n, n))[1]).partitionBy(2).count()
print(f"sum: {pairs.values().sum()}, mapped {mapped.value}", flush=True)
spark.stop()
