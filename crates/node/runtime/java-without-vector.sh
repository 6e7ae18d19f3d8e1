#!/bin/sh
# Java without the module jdk.incubator.vector, which Spark asks for in every JVM but can do without: asked for a module
# that it does not have, Java does not start at all.
for word do
  shift
  [ "$word" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$word"
done
exec "${0%/*}/java-itself" "$@"
