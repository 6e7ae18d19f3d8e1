"""The embedded API server next to the real kube-apiserver, in one run on one machine.

- Start: from the start of the process to the first 200 from /readyz, and the resident memory two seconds later, alternating.
- Creates: the same client creates the same executor-like pods over the same number of connections, each sending its next request when the
  last one is answered; alternating, a fresh server each time, after a few hundred uncounted pods. The real server runs with its etcd alone
  (no controllers, no scheduler, no audit log), once with an etcd that syncs each write to disk as ours does, once with the etcd of testenv,
  which does not. The promise compares with the faster of the two.
- Watches: pods are created and changed under many watches; the client checks that each watch delivered every change once, in order, by
  comparing it with the revisions in the answers."""
import argparse
import json
import statistics
import subprocess
import time
from pathlib import Path

import results
from results import MIB, say, spread
from servers import Ours, Real

READY_SECONDS, READY_MEMORY = 0.3, 40 * MIB
CREATE_RATIO = 3
WATCH_SECONDS, WATCH_MEMORY = 20, 200 * MIB


def main(program, words):
    parser = argparse.ArgumentParser(prog=program, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pods", type=int, default=5000, help="creates in each round")
    parser.add_argument("--workers", type=int, default=32, help="connections that create")
    parser.add_argument("--watches", type=int, default=100)
    parser.add_argument("--events", type=int, default=10000, help="changes that each watch must deliver")
    parser.add_argument("--only-ours", action="store_true", help="skip the real server (for profiling); writes no results")
    parser.add_argument("--binaries", type=Path, metavar="DIRECTORY", help="default: built with cargo build --release")
    parser.add_argument("--no-write", action="store_true")
    args = parser.parse_args(words)
    binaries = (args.binaries or results.build("firesteel-apiserver", "firesteel-load")).resolve()
    kinds = {"ours": lambda: Ours(binaries / "firesteel-apiserver", True), "memory": lambda: Ours(binaries / "firesteel-apiserver", False)}
    if not args.only_ours:
        kinds |= {"real": lambda: Real(False), "synced": lambda: Real(True)}
    client = Client(binaries / "firesteel-load", args)
    starts, creates, watches = {}, {}, {}
    for number in range(args.rounds):
        for name, server in kinds.items():
            starts.setdefault(name, []).append(measure_start(server()))
            creates.setdefault(name, []).append(client.create(server()))
            say(f"round {number + 1}/{args.rounds}: {name}: {starts[name][-1]}, {creates[name][-1]}")
    for name in [name for name in ("ours", "memory", "real") if name in kinds]:
        try:
            watches[name] = client.watch(kinds[name]())
        except SystemExit as failed:
            # The real server ends watches that fall behind; that says nothing about ours.
            if name != "real":
                raise
            say(f"{name}: {str(failed)[:300]}")
            continue
        say(f"{name}: {watches[name]}")
    if args.only_ours:
        return 0
    text, kept = report(program, args, starts, creates, watches)
    print(text)
    if not args.no_write:
        results.write("local-api", text)
    return 0 if kept else 1


def measure_start(server):
    with server:
        time.sleep(2)
        return {"seconds": server.started, "memory": server.memory()}


class Client:
    def __init__(self, program, args):
        self.program, self.args = program, args

    def run(self, server, verb, **options):
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        command = [str(self.program), verb, "--kubeconfig", str(server.kubeconfig), *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)} failed; the server's log: {server.words()}")
        return json.loads(done.stdout)

    def create(self, server):
        with server:
            # The real server's work after readiness must not count against it.
            time.sleep(3 if isinstance(server, Real) else 0.5)
            self.run(server, "create", pods=300, workers=self.args.workers, prefix="warm")
            before = server.cpu()
            measured = self.run(server, "create", pods=self.args.pods, workers=self.args.workers)
            return measured | {"cpu_ms": (server.cpu() - before) * 1000 / self.args.pods, "memory": server.memory()}

    def watch(self, server):
        with server:
            time.sleep(3 if isinstance(server, Real) else 0.5)
            measured = self.run(server, "watch", watches=self.args.watches, events=self.args.events)
            return measured | {"memory": server.memory("VmHWM")}


def report(program, args, starts, creates, watches):
    names = {"ours": "firesteel-apiserver, data directory", "memory": "firesteel-apiserver, in memory",
             "real": "kube-apiserver, etcd without sync", "synced": "kube-apiserver, etcd with sync"}

    def middle(samples, what):
        return statistics.median(sample[what] for sample in samples)

    def of(samples, what, scale, digits=0):
        return spread([sample[what] * scale for sample in samples], digits)
    rate = {name: middle(samples, "perSecond") for name, samples in creates.items()}
    ratio = rate["ours"] / max(rate["real"], rate["synced"])
    held = [
        (middle(starts[name], "seconds") <= READY_SECONDS and middle(starts[name], "memory") <= READY_MEMORY,
         f"{names[name]}: ready in {middle(starts[name], 'seconds'):.3f} s with {middle(starts[name], 'memory') / MIB:.1f} MiB "
         f"(promised: {READY_SECONDS} s, {READY_MEMORY // MIB} MiB)") for name in ("memory", "ours")]
    held.append((ratio >= CREATE_RATIO, f"with a data directory {ratio:.1f} times the pod creates of the faster real server (promised: {CREATE_RATIO}); "
                 f"in memory {rate['memory'] / max(rate['real'], rate['synced']):.1f} times"))
    held += [(watches[name]["seconds"] <= WATCH_SECONDS and watches[name]["memory"] <= WATCH_MEMORY,
              f"{names[name]}: {watches[name]['watches']} watches of {watches[name]['events']} events, all in order, none lost, in "
              f"{watches[name]['seconds']:.1f} s with at most {watches[name]['memory'] / MIB:.0f} MiB (promised: {WATCH_SECONDS} s, {WATCH_MEMORY // MIB} MiB)")
             for name in ("ours", "memory")]
    lines = [
        f"# The API server next to the real one, {results.today()}", "",
        f"`{program} --rounds {args.rounds} --pods {args.pods} --workers {args.workers} --watches {args.watches} --events {args.events}`: "
        f"median (least … most) of {args.rounds} rounds in turn, a fresh server each; client and server share the machine.", "",
        "| | ready after, ms | memory then, MiB | pod creates/s | answer, ms: median, p99 | CPU per create, ms |", "|---|---|---|---|---|---|",
        *[f"| {names[name]} | {of(starts[name], 'seconds', 1e3)} | {of(starts[name], 'memory', 1 / MIB, 1)} | {of(creates[name], 'perSecond', 1)} "
          f"| {middle(creates[name], 'median_ms'):.1f}, {middle(creates[name], 'p99_ms'):.1f} | {middle(creates[name], 'cpu_ms'):.2f} |" for name in names], "",
        f"{args.watches} watches of {args.events} events each:", "",
        "| | all delivered after, s | of that writing, s | peak memory, MiB | sent, MiB |", "|---|---|---|---|---|",
        *[f"| {names[name]} | {each['seconds']:.1f} | {each['writing_seconds']:.1f} | {each['memory'] / MIB:.0f} | {each['bytes'] / MIB:.0f} |"
          for name, each in watches.items()],
        *([] if "real" in watches else [f"| {names['real']} | it ended a watch that fell behind | | | |"]), "",
        *results.promises(held), "",
        "Memory is that of the API server's process (the real one's etcd not counted), CPU that of server and etcd. The real server runs without "
        "controllers, scheduler and audit log. " + results.machine(),
    ]
    return "\n".join(lines), all(kept for kept, _ in held)
