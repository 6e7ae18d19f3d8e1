"""An endless stream."""
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()


def tell(rows, number):
    print(f"batch {number} has {rows.count()} rows", flush=True)


spark.readStream.format("rate").option("rowsPerSecond", 5).load().writeStream.foreachBatch(tell).start().awaitTermination()
