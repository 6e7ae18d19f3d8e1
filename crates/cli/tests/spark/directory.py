"""Reads a CSV and writes Parquet next to it; leaves a table and a file in its working directory."""
import os
import sys

from pyspark.sql import SparkSession

import beside
import packed

source, target = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
rows = spark.read.option("header", True).option("inferSchema", True).csv(source)
rows.repartition(2).write.parquet(target)
print("sum:", spark.read.parquet(target).agg({"n": "sum"}).first()[0])

spark.sql("create table kept (n int) using parquet")
spark.sql("insert into kept select /*+ repartition(2) */ cast(id as int) from range(7)")
print("kept:", spark.sql("select count(*) from kept").first()[0])

directory = spark.sparkContext.parallelize([0], 1).map(lambda _: (os.getcwd(), os.geteuid(), packed.twice(21))).first()
print("executor:", directory == (os.getcwd(), os.geteuid(), 42), beside.WORD)
with open("notes.txt", "w") as notes:
    notes.write("written by the driver")
