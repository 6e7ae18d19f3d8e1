#!/usr/bin/env python3
"""testenv leaves nothing behind, however it ends. Run by ./test."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

TESTENV = str(Path(__file__).resolve().parent / "testenv")


def processes_in(directory):
    """Processes whose command line names the directory (Linux)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace")
            dead = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
        except OSError:
            continue
        if directory in words and int(entry.name) != os.getpid() and not dead:
            found.append(words.replace("\0", " ")[:80])
    return found


class NothingLeft(unittest.TestCase):
    def setUp(self):
        self.parent = tempfile.TemporaryDirectory(prefix="testenv-selftest-")
        self.dir = os.path.join(self.parent.name, "plane")

    def tearDown(self):
        subprocess.run([TESTENV, "stop", "--dir", self.dir], capture_output=True)
        self.parent.cleanup()

    def start(self, *more):
        done = subprocess.run([TESTENV, "start", "--dir", self.dir, *more], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.strip(), os.path.realpath(self.dir))
        return json.loads(Path(self.dir, "env.json").read_text())

    def assert_gone(self, directory_too=True):
        deadline = time.monotonic() + 10
        while processes_in(self.dir) or (directory_too and os.path.exists(self.dir)):
            self.assertLess(time.monotonic(), deadline, f"left: {processes_in(self.dir)}, directory: {os.path.exists(self.dir)}")
            time.sleep(0.05)

    def test_stop_ends_all_and_removes_the_directory(self):
        env = self.start()
        self.assertEqual(len(processes_in(self.dir)), 5, processes_in(self.dir))
        again = subprocess.run([TESTENV, "start", "--dir", self.dir], capture_output=True, text=True)
        self.assertEqual((again.returncode, "is not empty" in again.stderr), (1, True), again.stderr)
        listed = subprocess.run([TESTENV, "status", "--dir", self.dir], capture_output=True, text=True)
        self.assertIn(env["server"], listed.stdout)
        subprocess.run([TESTENV, "stop", "--dir", self.dir], check=True)
        self.assert_gone()
        self.assertEqual(subprocess.run([TESTENV, "status", "--dir", self.dir]).returncode, 3)

    def test_killed_while_starting(self):
        starter = subprocess.Popen([TESTENV, "start", "--dir", self.dir], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not any("kube-apiserver" in words for words in processes_in(self.dir)):
            time.sleep(0.02)
        starter.kill()
        starter.wait()
        self.assert_gone()

    def test_ends_with_its_owner(self):
        owner = subprocess.Popen(["sleep", "600"])
        self.start("--owner-pid", str(owner.pid))
        owner.kill()
        owner.wait()
        self.assert_gone()

    def test_supervisor_killed(self):
        os.kill(self.start()["supervisor"], signal.SIGKILL)
        self.assert_gone(directory_too=False)
        subprocess.run([TESTENV, "stop", "--dir", self.dir], check=True)
        self.assert_gone()

    def test_stop_refuses_other_directories(self):
        done = subprocess.run([TESTENV, "stop", "--dir", self.parent.name], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertTrue(os.path.isdir(self.parent.name))


if __name__ == "__main__":
    if not sys.platform.startswith("linux"):
        print("skipped: needs /proc")
    else:
        unittest.main()
