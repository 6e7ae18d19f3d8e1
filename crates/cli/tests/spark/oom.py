"""The first attempt of its only task allocates a gigabyte outside the heap; later attempts allocate one byte."""
from pyspark import TaskContext
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.udf.register("size", lambda _: 1_000_000_000 if TaskContext.get().attemptNumber() == 0 else 1, "int")
rows = spark.range(0, 1, 1, 1).selectExpr("java_method('java.nio.ByteBuffer', 'allocateDirect', size(id)) AS buffer").collect()
print(f"answer: {rows[0].buffer}", flush=True)
spark.stop()
