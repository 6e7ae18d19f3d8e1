#!/bin/sh
# Builds spark-examples.jar from SparkPi.java: build.sh SPARK_HOME (any 3.5 or later). The result is committed, because a
# machine that runs pods may have no Java compiler. Times in the jar are fixed, so the same source gives the same file.
set -eu
spark_home=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
javac --release 8 -Xlint:-options -cp "$spark_home/jars/*" -d "$work" "$here/SparkPi.java"
jar --create --file "$here/spark-examples.jar" --date 2026-11-15T00:00:00Z -C "$work" .
