"""A process and everything it starts: its processors' time by a control group where one can be made, and its memory."""
import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

# How often memory is looked at. Reading it takes some milliseconds per JVM.
INTERVAL = 0.5
# Where control groups are, in version 1 and in version 2, and the file with the processors' time.
PLACES = (("cpuacct", "cpuacct.usage"), (".", "cpu.stat"), ("unified", "cpu.stat"))


class Metered:
    """Runs a process for the duration of a block."""

    def __init__(self, command, environment, log, directory):
        self.command, self.environment, self.log, self.directory = [str(word) for word in command], environment, log, directory
        self.group = self.file = None
        self.peak = 0

    def __enter__(self):
        self.make_group()
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(self.command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            cwd=self.directory, start_new_session=True, preexec_fn=self.join)
        self.ended = threading.Event()
        threading.Thread(target=self.watch, daemon=True).start()
        return self

    def make_group(self):
        for parent, usage in PLACES:
            directory = Path("/sys/fs/cgroup") / parent
            group = directory / f"firesteel-bench-{os.getpid()}-{time.monotonic_ns()}"
            if not (directory / "cgroup.procs").exists():
                continue
            with contextlib.suppress(OSError):
                group.mkdir()
                if (group / usage).exists():
                    self.group, self.file = group, group / usage
                    return
                group.rmdir()

    def join(self):
        if self.group:
            (self.group / "cgroup.procs").write_text(str(os.getpid()))

    def how(self):
        return "of its control group" if self.group else "of the process and the children it waited for"

    def cpu(self):
        """CPU seconds so far, those of ended children included."""
        if self.group:
            text = self.file.read_text()
            return int(text) / 1e9 if text.strip().isdigit() else int(re.search(r"usage_usec (\d+)", text)[1]) / 1e6
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def processes(self):
        if not self.group:
            return [self.process.pid]
        return [int(pid) for pid in (self.group / "cgroup.procs").read_text().split()]

    def memory(self):
        """Bytes that all its processes use now; pages that several share count once."""
        total = 0
        for pid in self.processes():
            with contextlib.suppress(OSError, AttributeError):
                total += int(re.search(r"^Pss: +(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)[1]) * 1024
        return total

    def watch(self):
        while not self.ended.wait(INTERVAL):
            with contextlib.suppress(OSError):
                self.peak = max(self.peak, self.memory())

    def alive(self):
        return self.process.poll() is None

    def __exit__(self, *_):
        self.ended.set()
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        deadline = time.time() + 20
        while self.group and time.time() < deadline:
            # A JVM may outlive the operator that started it.
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                self.group.rmdir()
                return
            time.sleep(0.1)
