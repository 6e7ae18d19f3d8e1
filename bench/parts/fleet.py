"""Many SparkApplications on a control plane with kwok nodes, which run each driver for a second: created over several connections, and awaited."""
import concurrent.futures
import time

from plane import request

GROUP = "/apis/sparkoperator.k8s.io/v1beta2/namespaces"
ENDS = ("COMPLETED", "FAILED")


def application(name, suspend=False):
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "metadata": {"name": name},
        "spec": {
            "type": "Scala", "mode": "cluster", "sparkVersion": "4.1.4", "image": "apache/spark:4.1.4", "suspend": suspend,
            "mainClass": "org.apache.spark.examples.SparkPi", "arguments": ["100"],
            "mainApplicationFile": "local:///opt/spark/examples/jars/spark-examples.jar",
            "driver": {"cores": 1, "coreRequest": "10m", "memory": "512m", "serviceAccount": "spark", "labels": {"version": "4.1.4"}},
            "executor": {"cores": 1, "instances": 2, "memory": "512m", "labels": {"version": "4.1.4"}},
        },
    }


def create(connection, namespace, name, suspend=False):
    return request(connection, "POST", f"{GROUP}/{namespace}/sparkapplications", application(name, suspend))


def spread(plane, jobs, threads, work):
    """Runs all jobs over this many connections; returns the results."""
    def lane(some):
        connection = plane.connect()
        return [work(connection, job) for job in some]
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return [result for lane_results in pool.map(lane, [jobs[i::threads] for i in range(threads)]) for result in lane_results]


def states(connection, namespace):
    items = request(connection, "GET", f"{GROUP}/{namespace}/sparkapplications")["items"]
    return [app.get("status", {}).get("applicationState", {}).get("state") for app in items]


def wait_ended(plane, namespace, count, patience):
    """Waits until this many applications exist and all have ended; returns their states, also if that takes too long."""
    connection, deadline = plane.connect(), time.time() + patience
    while True:
        found = states(connection, namespace)
        if (len(found) >= count and all(state in ENDS for state in found)) or time.time() > deadline:
            return found
        time.sleep(1)
