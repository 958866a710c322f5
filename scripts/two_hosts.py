#!/usr/bin/env python3
"""Two hosts on one machine: network namespaces joined by a virtual cable, with a command on each.

  scripts/two_hosts.py [--rate 1gbit] [--delay 50us] -- herd run -n 2 --nnodes 2 --node-rank {node} \\
      --rendezvous {address}:29400 -- PROGRAM

The command runs once per host, at the same time; {node} is 0 or 1, {address} that of node 0. Output lines carry the
node. The status is the first that is not 0. Needs root, ip and (for --rate) tc; without them it says so: status 77.
"""
import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

CANNOT = 77  # what test drivers understand as skipped


def why_not():
    """Why this machine can't have two hosts; empty where it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "tc"):
        if not shutil.which(program):
            return f"{program} is not installed (package iproute2)"
    name = f"herd-{os.getpid()}-try"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if tried.returncode != 0:
        return "ip netns add: " + tried.stderr.strip()
    subprocess.run(["ip", "netns", "del", name])
    return ""


class TwoHosts:
    """with TwoHosts(rate="1gbit") as hosts: hosts.start(0, ["command", ...])"""

    addresses = ("10.231.7.1", "10.231.7.2")
    interfaces = ("cable0", "cable1")

    def __init__(self, rate=None, delay=None):
        self.names = tuple(f"herd-{os.getpid()}-{node}" for node in (0, 1))
        self.rate, self.delay = rate, delay

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that timeout(1) leaves no namespaces
        try:
            self.join()
        except BaseException:  # such as a rate that tc does not know: no namespace may stay
            self.__exit__()
            raise
        return self

    def join(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "add", name], check=True)
        subprocess.run(["ip", "link", "add", self.interfaces[0], "netns", self.names[0], "type", "veth", "peer", "name",
                        self.interfaces[1], "netns", self.names[1]], check=True)
        for name, interface, address in zip(self.names, self.interfaces, self.addresses):
            for command in (f"addr add {address}/24 dev {interface}", f"link set {interface} up", "link set lo up"):
                subprocess.run(["ip", "-n", name, *command.split()], check=True)
        self.limit(self.rate)
        deadline = time.monotonic() + 10  # the kernel may take a second to say that the cable is in
        while time.monotonic() < deadline and not all(map(self.ready, self.names, self.interfaces)):
            time.sleep(0.05)

    @staticmethod
    def ready(name, interface):
        shown = subprocess.run(["ip", "-n", name, "link", "show", interface], capture_output=True, text=True).stdout
        return "LOWER_UP" in shown and "state UP" in shown

    def limit(self, rate):
        """Each way at most so much, such as "1gbit"; None: as fast as the machine copies."""
        for name, interface in zip(self.names, self.interfaces):
            tc = ["tc", "-n", name, "qdisc"]
            subprocess.run([*tc, "del", "dev", interface, "root"], capture_output=True)
            if rate:
                subprocess.run([*tc, "add", "dev", interface, "root", "handle", "1:", "tbf", "rate", rate, "burst",
                                "256kb", "latency", "50ms"], check=True)
            if self.delay:
                parent = ["parent", "1:1"] if rate else ["root"]
                subprocess.run([*tc, "add", "dev", interface, *parent, "netem", "delay", self.delay], check=True)

    def start(self, node, command, **options):
        return subprocess.Popen(["ip", "netns", "exec", self.names[node], *command], **options)

    def plug(self, is_in):
        """Takes the cable out, or puts it back in; addresses stay."""
        subprocess.run(["ip", "-n", self.names[0], "link", "set", self.interfaces[0], "up" if is_in else "down"], check=True)

    def listening(self, node):
        """The ports at which somebody listens."""
        tables = subprocess.run(["ip", "netns", "exec", self.names[node], "cat", "/proc/net/tcp", "/proc/net/tcp6"],
                                capture_output=True, text=True).stdout
        return {int(match[1], 16) for match in re.finditer(r":\s\w+:(\w{4}) 0+:0000 0A", tables)}

    def __exit__(self, *_):
        for name in self.names:
            pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
            for pid in pids:  # whatever still runs in there was started in there
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            subprocess.run(["ip", "netns", "del", name])


def pass_on(node, stream):
    for line in stream:
        sys.stdout.write(f"[{node}] {line}")
        sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", help="of the cable, each way, as tc writes it: 1gbit")
    parser.add_argument("--delay", help="of the cable, each way: 50us")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        parser.error("no command")
    if reason := why_not():
        print(f"two_hosts: skipped: {reason}")
        return CANNOT
    os.environ.setdefault("HERD_TOKEN", os.urandom(16).hex())
    with TwoHosts(args.rate, args.delay) as hosts:
        started, readers = [], []
        for node in (0, 1):
            words = [w.replace("{node}", str(node)).replace("{address}", hosts.addresses[0]) for w in command]
            one = hosts.start(node, words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            readers.append(threading.Thread(target=pass_on, args=(node, one.stdout)))
            readers[-1].start()
            started.append(one)
        statuses = [one.wait() for one in started]
        for reader in readers:
            reader.join()
    return next((status for status in statuses if status != 0), 0)


if __name__ == "__main__":
    sys.exit(main())
