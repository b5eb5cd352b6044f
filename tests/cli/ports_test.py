"""launch.port_range: where the ranks of a job listen."""

import os
import pathlib

import harness
from harness import TrainctlTest

RANGE = "launch.port_range='23400-23415'"


LOOPBACK = "0100007F"  # 127.0.0.1, as /proc/net writes it


def listening_ports(pid):
    """TCP ports on which other hosts could reach a process: its sockets among those of its network namespace."""
    sockets = set()
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(os.readlink(entry))
        except FileNotFoundError:
            pass
    ports = []
    for family in ("tcp", "tcp6"):
        table = pathlib.Path(f"/proc/{pid}/net/{family}")
        for line in table.read_text().splitlines()[1:] if table.exists() else []:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                address, _, port = words[1].rpartition(":")
                if address != LOOPBACK:
                    ports.append(int(port, 16))
    return ports


class Ports(TrainctlTest):

    def start_on_two(self, **mca):
        """Two ranks in training that talk over TCP, and the ports that each of them listens on."""
        options = [word for name, value in mca.items() for word in ("--mca", name, value)]
        launcher = [*harness.mpirun(2), "--mca", "btl", "tcp,self", *options]
        process = self.start_train(settings=["job.steps=1000000", RANGE], launcher=launcher)
        self.wait_for_step(process, 1)
        ports = [listening_ports(pid) for pid in process.ranks().values()]
        self.assertEqual(len(ports), 2)
        return process, ports

    def within(self, ports, first, last):
        self.assertTrue(ports, "listens nowhere: nothing was tested")
        self.assertTrue(all(first <= port <= last for port in ports), ports)

    def test_ranks_stay_in_the_range(self):
        # mpirun's part as `config explain launch.port_range` tells it.
        process, ranks = self.start_on_two(oob_tcp_dynamic_ipv4_ports="23416", oob_tcp_dynamic_ipv6_ports="23417")
        for ports in ranks:
            self.within(ports, 23400, 23415)
        self.within(listening_ports(process.pid), 23416, 23417)
        self.assertIn("ranks listen on TCP ports 23400-23415", process.err)

    def test_the_users_own_setting_wins(self):
        process, ranks = self.start_on_two(btl_tcp_port_min_v4="23500", btl_tcp_port_range_v4="10",
                                           btl_tcp_port_min_v6="23500", btl_tcp_port_range_v6="10")
        for ports in ranks:
            self.within(ports, 23500, 23509)
        self.assertIn("launch.port_range 23400-23415 is not used: OMPI_MCA_btl_tcp_port_min_v4=23500 is set and wins",
                      process.err)

    def test_refused(self):
        few = self.train(settings=["launch.port_range='23400-23400'"], ranks=2, code=2)
        self.one_error(few, "23400-23400 has 1 port for 2 ranks")
        self.one_error(self.train(settings=["launch.port_range='80-90'"], code=2), "launch.port_range", "80-90")


if __name__ == "__main__":
    harness.main()
