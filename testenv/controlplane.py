"""Starts, watches and stops one control plane, all of it in one directory and on loopback.

`start` runs this file as a supervisor in its own session. The supervisor is the parent of every component and holds the
lock file of the directory as long as it lives, so "running" means "the lock is held" and nothing has to trust an old pid.
Components die with the supervisor, however that ends (Linux: parent-death signal). The supervisor exits and removes the
directory on `stop`, when its owner process is gone, or when the caller of `start` dies before it has read "ready"."""
import concurrent.futures
import contextlib
import ctypes
import fcntl
import http.client
import json
import os
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import certificates
import components
import realnode
import toolchain
from toolchain import Problem, say

READY_SECONDS = 120
PR_SET_PDEATHSIG = 1


class Abandoned(Exception):
    """This control plane is no longer needed."""


# --- what the verbs call


def start(directory, kwok_nodes, owner_pid, real_node=False):
    began = time.monotonic()
    if not shutil.which("openssl"):
        raise toolchain.Unavailable("openssl is needed to create certificates and is not on PATH")
    if real_node:
        realnode.available()
        realnode.fetch_tools()
    directory = new_directory(directory)
    ours, theirs = socket.socketpair()
    with ours, theirs, open(directory / "logs" / "supervisor.log", "wb") as log:
        command = [sys.executable, "-B", __file__, str(directory), str(kwok_nodes), str(owner_pid or 0), str(theirs.fileno()),
                   "real-node" if real_node else ""]
        subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                         start_new_session=True, cwd="/")
        theirs.close()
        answer = ours.makefile().readline().strip()
        if answer != "ready":
            text = answer or f"the supervisor ended early, see {directory}/logs"
            raise Problem(text)
        ours.sendall(b"taken\n")
    say(f"{toolchain.kubernetes_version()} ready in {time.monotonic() - began:.1f} s, KUBECONFIG={directory}/kubeconfig")
    return directory


def stop(directory):
    directory = directory.resolve()
    if not (directory / "lock").exists():
        raise Problem(f"{directory} was not created by `testenv start`")
    if held(directory):
        pid = json.loads((directory / "env.json").read_text())["supervisor"]
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 15
        while held(directory):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                deadline += 15
            time.sleep(0.02)
    shutil.rmtree(directory, ignore_errors=True)


def status(directory):
    """Exit code 0 if something runs, 3 if nothing does."""
    found = [directory.resolve()] if directory else [link.resolve() for link in running_links()]
    alive = [path for path in found if held(path)]
    for path in alive:
        env = json.loads((path / "env.json").read_text()) if (path / "env.json").exists() else {}
        print(f"{path}  {env.get('version', 'starting')}  {env.get('server', '')}  kwok nodes: {env.get('kwokNodes', 0)}")
    return 0 if alive else 3


# --- directories and locks


def new_directory(directory):
    if directory is None:
        directory = Path(tempfile.mkdtemp(prefix="firesteel-testenv-"))
    elif directory.exists() and any(directory.iterdir()):
        raise Problem(f"{directory} is not empty")
    directory = directory.resolve()
    (directory / "logs").mkdir(parents=True, exist_ok=True)
    (directory / "lock").touch()
    return directory


def held(directory):
    try:
        with open(directory / "lock") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True


def running_links():
    links = toolchain.cache() / "running"
    for link in sorted(links.glob("*")) if links.exists() else []:
        if link.exists() and held(link.resolve()):
            yield link
        else:
            link.unlink(missing_ok=True)


# --- the supervisor


class Supervisor:
    def __init__(self, directory, kwok_nodes, owner_pid, starter, real_node):
        self.real_node, self.node = real_node, None
        self.dir, self.kwok_nodes, self.owner_pid, self.starter = directory, kwok_nodes, owner_pid, starter
        self.children = {}
        self.told_to_stop = False
        self.link = toolchain.cache() / "running" / str(os.getpid())

    def run(self):
        lock = open(self.dir / "lock")
        fcntl.flock(lock, fcntl.LOCK_EX)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self.on_signal)
        self.write_env({})
        self.link.parent.mkdir(parents=True, exist_ok=True)
        self.link.symlink_to(self.dir)
        keep = False
        try:
            self.bring_up()
            self.hand_over()
            self.watch()
        except Abandoned:
            pass
        except Exception as problem:
            # The directory stays: its logs say why, and `stop` removes it.
            keep = True
            traceback.print_exc()
            with contextlib.suppress(OSError):
                self.starter.sendall(f"{problem}\n".encode())
        finally:
            self.end_children()
            if self.node:
                self.node.clean()
            self.link.unlink(missing_ok=True)
            if not keep:
                shutil.rmtree(self.dir, ignore_errors=True)

    def on_signal(self, *_):
        self.told_to_stop = True

    def bring_up(self):
        certificates.make(self.dir / "pki")
        for attempt in (1, 2, 3):
            self.plane = components.Plane(self.dir, toolchain.bin_dir())
            try:
                self.start_control_plane()
                break
            except Problem:
                # The free ports were picked a moment ago; another process may have taken one since.
                if attempt == 3 or not self.plane.port_was_taken():
                    raise
                self.end_children()
        if self.kwok_nodes:
            self.start_kwok()
        if self.real_node:
            self.node = realnode.Node(self.plane, self.request)
            self.node.start(self.spawn, self.wait_until)
        self.write_env({"version": toolchain.kubernetes_version(), "server": self.plane.server,
                        "kubeconfig": str(self.dir / "kubeconfig"), "bin": str(toolchain.bin_dir()), "kwokNodes": self.kwok_nodes,
                        "components": {name: child.pid for name, child in self.children.items()}})

    def start_control_plane(self):
        self.plane.write_files()
        with contextlib.suppress(FileExistsError):
            (self.dir / "bin").symlink_to(toolchain.bin_dir())
        self.spawn("etcd")
        self.spawn("kube-apiserver")
        self.wait_for("/readyz", "kube-apiserver")
        self.spawn("kube-controller-manager")
        self.spawn("kube-scheduler")
        self.wait_for("/api/v1/namespaces/default/serviceaccounts/default", "kube-controller-manager")

    def start_kwok(self):
        self.spawn("kwok")
        nodes = [self.plane.kwok_node(number) for number in range(self.kwok_nodes)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for code in pool.map(lambda node: self.request("POST", "/api/v1/nodes", node)[0], nodes):
                if code != 201:
                    raise Problem(f"could not create a kwok node: status {code}")
        deadline = time.monotonic() + READY_SECONDS
        while True:
            listed = json.loads(self.request("GET", "/api/v1/nodes")[1])["items"]
            ready = sum(any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", [])) for node in listed)
            if ready >= self.kwok_nodes:
                return
            self.check(deadline, f"{ready} of {self.kwok_nodes} kwok nodes are ready")
            time.sleep(0.1)

    def hand_over(self):
        try:
            self.starter.sendall(b"ready\n")
            taken = self.starter.recv(16)
        except OSError:
            taken = b""
        if not taken:
            raise Abandoned
        self.starter.close()
        self.starter = None

    def watch(self):
        """Waits for a reason to stop."""
        owner = None
        if self.owner_pid and hasattr(os, "pidfd_open"):
            try:
                owner = os.pidfd_open(self.owner_pid)
            except ProcessLookupError:
                raise Abandoned from None
        while True:
            if owner is None:
                time.sleep(0.25)
                gone = self.owner_pid and not exists(self.owner_pid)
            else:
                gone = bool(select.select([owner], [], [], 0.25)[0])
            if gone or not (self.dir / "lock").exists():
                raise Abandoned
            self.check()

    def check(self, deadline=None, otherwise=""):
        """Raises if it should stop, a component has died, or the deadline has passed."""
        if self.told_to_stop:
            raise Abandoned
        if self.starter and select.select([self.starter], [], [], 0)[0]:
            raise Abandoned
        for name, child in self.children.items():
            if child.poll() is not None:
                raise Problem(f"{name} exited with code {child.returncode}: {self.plane.last_words(name)} (see {self.dir}/logs)")
        if deadline and time.monotonic() > deadline:
            raise Problem(f"not ready after {READY_SECONDS} s: {otherwise} (see {self.dir}/logs)")

    def wait_for(self, path, name):
        deadline = time.monotonic() + READY_SECONDS
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.request("GET", path)[0] == 200:
                    return
            self.check(deadline, f"{name}: {path} does not answer")
            time.sleep(0.05)

    def wait_until(self, condition, otherwise):
        deadline = time.monotonic() + READY_SECONDS
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if condition():
                    return
            self.check(deadline, otherwise)
            time.sleep(0.1)

    def request(self, method, path, body=None):
        pki = self.dir / "pki"
        context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        context.load_cert_chain(str(pki / "admin.crt"), str(pki / "admin.key"))
        connection = http.client.HTTPSConnection("127.0.0.1", self.plane.port, context=context, timeout=20)
        with contextlib.closing(connection):
            connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def spawn(self, name, command=None):
        with open(self.dir / "logs" / f"{name}.log", "wb") as log:
            self.children[name] = subprocess.Popen(command or self.plane.command(name), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                   cwd=self.dir, preexec_fn=die_with_parent, close_fds=True)
        return self.children[name]

    def end_children(self):
        for child in self.children.values():
            with contextlib.suppress(ProcessLookupError):
                child.kill()
        for child in self.children.values():
            child.wait()
        self.children.clear()

    def write_env(self, more):
        # Written to a temporary file and renamed: readers see all of it or nothing.
        scratch = self.dir / ".env.json"
        scratch.write_text(json.dumps({"dir": str(self.dir), "supervisor": os.getpid(), **more}, indent=1) + "\n")
        scratch.replace(self.dir / "env.json")


LIBC = ctypes.CDLL(None) if sys.platform.startswith("linux") else None


def die_with_parent():
    if LIBC:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def exists(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


if __name__ == "__main__":
    Supervisor(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), socket.socket(fileno=int(sys.argv[4])),
               sys.argv[5:] == ["real-node"]).run()
