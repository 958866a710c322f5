"""Hosts on one machine, network namespaces whose links of limited rate meet in a switch, which is a namespace, too."""
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "scripts"))
import two_hosts  # noqa: E402


class SwitchedHosts(two_hosts.TwoHosts):
    """with SwitchedHosts(4, "200mbit") as hosts: hosts.start(3, ["command", ...])"""

    def __init__(self, count, rate):
        super().__init__(rate)
        self.hosts = [f"herd-{os.getpid()}-{host}" for host in range(count)]
        self.switch = f"herd-{os.getpid()}-switch"
        self.names = [*self.hosts, self.switch]  # which end with this
        self.addresses = [f"10.231.8.{host + 1}" for host in range(count)]

    def join(self):
        def ip(name, *commands):
            for command in commands:
                subprocess.run(["ip", "-n", name, *command.split()], check=True)

        for name in self.names:
            subprocess.run(["ip", "netns", "add", name], check=True)
            ip(name, "link set lo up")
            subprocess.run(["ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno"], check=True)
        ip(self.switch, "link add switch type bridge", "link set switch up")
        for host, name in enumerate(self.hosts):
            port = f"port{host}"
            ip(self.switch, f"link add {port} type veth peer name cable0 netns {name}", f"link set {port} master switch",
               f"link set {port} up")
            ip(name, f"addr add {self.addresses[host]}/24 dev cable0", "link set cable0 up")
            for where, interface in ((name, "cable0"), (self.switch, port)):
                subprocess.run(["tc", "-n", where, "qdisc", "add", "dev", interface, "root", "tbf", "rate", self.rate, "burst",
                                "256kb", "latency", "50ms"], check=True)


def run_job(build, rate, num_hosts, program):
    """What each host of a job printed that ran `program` with a rank on each host; exits where one failed."""
    with SwitchedHosts(num_hosts, rate) as hosts:
        started = [hosts.start(node, [f"{build}/herd", "run", "-n", "1", "--nnodes", str(num_hosts), "--node-rank", str(node),
                                      "--rendezvous", f"{hosts.addresses[0]}:29400", "--", *program],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for node in range(num_hosts)]
        texts = [one.communicate(timeout=600)[0] for one in started]
    if any(one.returncode for one in started):
        sys.exit("".join(texts))
    return texts


def rounds_of(text):
    """Seconds of the rounds that build/release/bench/round printed, but for the first."""
    return [json.loads(line[line.index("{"):])["s"] for line in text.splitlines() if '"round"' in line][1:]
