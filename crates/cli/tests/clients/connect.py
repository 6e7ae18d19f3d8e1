"""A Spark Connect client: runs queries until its server is replaced, then goes on with a new session.

usage: connect.py ADDRESS

It prints a line for each thing that happened."""
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql.functions import col


def say(*words):
    print(*words, flush=True)


def query(spark):
    frame = spark.range(1000).withColumn("bucket", col("id") % 10)
    rows = frame.groupBy("bucket").count().orderBy("bucket").collect()
    assert [row["count"] for row in rows] == [100] * 10, rows
    return spark.range(1, 101).selectExpr("sum(id) AS total").first()["total"]


def main(address):
    spark = SparkSession.builder.remote(address).getOrCreate()
    say("version", spark.version)
    say("total", query(spark))
    spark.range(10).createOrReplaceTempView("here")
    assert spark.sql("SELECT count(*) AS n FROM here").first()["n"] == 10
    say("session", "works")
    for _ in range(1000):
        try:
            query(spark)
            time.sleep(0.2)
        except Exception as error:
            say("lost", type(error).__name__, str(error).splitlines()[0])
            break
    else:
        raise SystemExit("the session outlived its server")
    for _ in range(600):
        try:
            spark = SparkSession.builder.remote(address).create()
            say("total", query(spark))
            break
        except Exception as error:
            say("again", type(error).__name__)
            time.sleep(1)
    try:
        spark.sql("SELECT * FROM here").collect()
        raise SystemExit("the view outlived its server")
    except Exception as error:
        say("view", type(error).__name__)
    spark.stop()
    say("done")


main(*sys.argv[1:])
