"""How fast demand is followed: a driver requests more and fewer executors, step by step, while their pods stay pending.

A step lasts from the driver's call of requestTotalExecutors (by its own clock, which is the API server's) to the answer to the last create or
delete of a pod that follows from it, by the audit log. With a ReplicaSet, Kubernetes' own controller creates and deletes the pods, so the
answer to the operator's last write of the set is reported separately."""
import random
import statistics
import time

import results
from applications import ALLOCATOR, NAMESPACE, Applications, is_pod
from plane import OPERATOR

# Like dynamic allocation: doubled while tasks wait, and reduced in one step when they are done.
UP, DOWN = (1, 2, 4, 8, 16, 32), (20, 6, 1, 0)
PROMISE = 0.250
PATIENCE = 120
NOWHERE = {"spark.kubernetes.executor.node.selector.bench": "nowhere"}
OURS, SETS, SPARK = "firesteel", "firesteel-replicaset", "Spark, default"
CASES = {
    OURS: ("outside", {ALLOCATOR: "firesteel"}),
    SETS: ("outside", {ALLOCATOR: "firesteel-replicaset"}),
    # Spark leaves newer pods alone; the default is a minute.
    SPARK: ("spark", {"spark.dynamicAllocation.executorIdleTimeout": "0s"}),
}
SET_WRITTEN = f"{SETS}: the set is written"
STAGES = ("the API server has the demand", "the ledger is written", "the first pod request arrives", "the last is answered")


def measure(applications: Applications, rounds, with_spark):
    found = {}
    for number, (name, (account, conf)) in enumerate(CASES.items()):
        if name != SPARK:
            with applications.operator():
                found[name] = case(applications, name, f"demand-{number}", account, conf, rounds)
        elif with_spark:
            found[name] = case(applications, name, f"demand-{number}", account, conf, rounds)
        applications.clear()
    return found


def case(applications, name, pod, account, conf, rounds):
    """The steps of one application, each with its direction and the seconds its parts took."""
    began = time.time()
    with applications.driver(pod, account, max(UP), NOWHERE | conf) as driver:
        steps, have = [], 1
        step(driver, have, 0)
        have = 0
        for _ in range(rounds):
            for want in (*UP, *DOWN):
                steps.append((have, want, step(driver, have, want)))
                have = want
        driver.ask("end")
        driver.ended()
    events = [event for event in applications.plane.audit(began) if event["objectRef"].get("namespace") == NAMESPACE and event["responseStatus"]["code"] < 300]
    events.sort(key=lambda event: event["at"])
    ends = [asked for _, _, asked in steps[1:]] + [steps[-1][2] + PATIENCE]
    found = [parts(name, have, want, asked, [event for event in events if asked <= event["at"] < end]) for (have, want, asked), end in zip(steps, ends)]
    for up in (True, False):
        results.say(f"{name}, {'more' if up else 'fewer'}: " + ", ".join(f"{each['done'] * 1000:.0f}" for each in found if each["up"] == up) + " ms")
    return found


def step(driver, have, want):
    """Changes the demand and waits until the pods exist or are gone; returns the time of the change."""
    said = driver.ask(f"want {want}").split()
    if said[:2] != ["want", "true"]:
        raise SystemExit(f"the driver says {said}")
    driver.pods.until(f"{want} pods after {have}", lambda names: len(names) == want, PATIENCE)
    # Dynamic allocation asks at most once a second, at any point of Spark's rounds.
    time.sleep(random.uniform(0.7, 1.7))
    return int(said[2]) / 1000


def parts(name, have, want, asked, events):
    verbs = ("create",) if want > have else ("delete", "deletecollection")
    pods = [event for event in events if is_pod(event, *verbs)]
    if not pods or (want > have and len(pods) != want - have):
        raise SystemExit(f"{name}: {len(pods)} requests for pods in the step from {have} to {want}")
    since = lambda times: max(times) - asked if times else None
    written = lambda resource: [event["at"] for event in events if event["objectRef"]["resource"] == resource and event["verb"] in ("create", "patch", "delete")]
    first = min(event["began"] for event in pods)
    return {
        "up": want > have, "done": since([event["at"] for event in pods]),
        "set": since([event["at"] for event in events if event["objectRef"]["resource"] == "replicasets" and event["by"] == OPERATOR]),
        # Those before the pods; later ones only report.
        "stages": (since(written("executorgrants")[:1]), since([at for at in written("executorledgers") if at <= first]), first - asked,
                   since([event["at"] for event in pods])),
    }


def report(found, rounds, held):
    times = {name: {up: [each["done"] for each in samples if each["up"] == up] for up in (True, False)} for name, samples in found.items()}
    times[SET_WRITTEN] = {up: [each["set"] for each in found[SETS] if each["up"] == up] for up in (True, False)}
    order = [name for name in (OURS, SET_WRITTEN, SETS, SPARK) if name in times]
    p95 = {name: max(results.percentile(values, 95) for values in times[name].values()) for name in order}
    for name in (OURS, SET_WRITTEN):
        held.append((p95[name] <= PROMISE, f"{name}: demand followed after {p95[name] * 1000:.0f} ms at p95 (promised: at most {PROMISE * 1000:.0f} ms)"))

    def cells(values):
        return f"{statistics.median(values) * 1000:.0f} | {results.percentile(values, 95) * 1000:.0f} | {max(values) * 1000:.0f}"

    def stages(up):
        middle = [statistics.median(each["stages"][stage] or 0 for each in found[OURS] if each["up"] == up) * 1000 for stage in range(len(STAGES))]
        return ", ".join(f"{words} {at:.0f} ms" for words, at in zip(STAGES, middle))
    return "\n".join([
        "## Demand followed", "",
        f"{rounds} times {' → '.join(map(str, (0, *UP)))} and {' → '.join(map(str, (max(UP), *DOWN)))} executors, whose pods fit no node; milliseconds from "
        "the driver's call of requestTotalExecutors to the answer to the step's last create or delete.", "",
        "| | more: p50 | p95 | most | fewer: p50 | p95 | most |", "|---|---|---|---|---|---|---|",
        *[f"| {name + (': pods, created by Kubernetes' if name == SETS else '')} | {cells(times[name][True])} | {cells(times[name][False])} |" for name in order], "",
        f"Median times of {OURS} after the call: for more, {stages(True)}; for fewer, {stages(False)}. Spark is set to withdraw pending pods at once; by "
        "default it leaves them alone for spark.dynamicAllocation.executorIdleTimeout, 60 s.",
    ])
