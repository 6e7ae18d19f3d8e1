"""Counts its executors before work, at work and after it; with dynamic allocation they come and go. With the word `shuffle` it leaves
shuffle data on all of them and reads it when most are gone: `mapped` says how many records were computed for it. With the word
`profile` it ends with work for larger executors."""
import sys
import threading
import time

from pyspark.resource import ExecutorResourceRequests, ResourceProfileBuilder
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
sc = spark.sparkContext
mapped = sc.accumulator(0)


def executors():
    # The driver itself is in the list.
    return sc._jsc.sc().getExecutorMemoryStatus().size() - 1


def wait_for(number):
    deadline = time.time() + 240
    while executors() != number and time.time() < deadline:
        time.sleep(0.2)
    return executors()


def one(number):
    mapped.add(1)
    time.sleep(0.002)
    return number % 8, number


first = wait_for(1)
# More than four executors could do at once, for as long as it takes them to come.
work = sc.parallelize(range(400), 400).map(lambda n: (time.sleep(0.5), n)[1])


thread = threading.Thread(target=lambda: work.count(), daemon=True)
thread.start()
most = wait_for(4)
sc.cancelAllJobs()
thread.join(30)
pairs = sc.parallelize(range(1000), 16).map(one).partitionBy(4)
if "shuffle" in sys.argv:
    pairs.count()
last = wait_for(1)
print(f"counted: {first} {most} {last}", flush=True)
if "shuffle" in sys.argv:
    print(f"sum: {pairs.values().sum()}, mapped {mapped.value}", flush=True)
if "profile" in sys.argv:
    large = ResourceProfileBuilder().require(ExecutorResourceRequests().cores(1).memory("600m")).build
    print(f"larger: {sc.parallelize(range(1000), 2).withResources(large).map(one).values().sum()}", flush=True)
spark.stop()
