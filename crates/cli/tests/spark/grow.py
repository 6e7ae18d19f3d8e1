"""Counts its executors before, during and after work; with dynamic allocation they come and go. With the argument `shuffle` it
leaves shuffle data on all of them and reads it when most are gone: `mapped` is the number of records computed for it. With the
argument `profile` it ends with a stage that needs larger executors."""
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
# More tasks than four executors can run at once, to keep them busy until all have registered.
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
