"""The texts that `neoctl init` writes: settings, units of systemd, a firewall, and what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from neo.net.sockets import format_address
from neo.protocol.packets import Address
from neoctl.units import DATA, ROLES, SETTINGS, units

#: The commands on a machine into which NEO was installed by pip; the home of the Debian package, and the
#: commands that it brings.
PROGRAMS = "/opt/neo/bin"
PACKAGE_HOME = "/usr/lib/neo"
PACKAGE_PROGRAMS = "/usr/bin"
#: Ports of a machine: its three roles, and the pages of its admin node on loopback.
PORTS = len(ROLES) + 1
#: Copies besides the first, if there is more than one machine.
REPLICAS = 1
PARTITIONS = 100

FIREWALL = """\
# Load with: nft -f FILE, also again. Only machines of the cluster, and those below, reach its ports.
table inet neo
delete table inet neo
table inet neo {{
    set nodes {{
        type {family}
        elements = {{ {nodes} }}
    }}

    # masters and storage nodes: all machines with applications
    set applications {{
        type {family}
        flags interval
        # elements = {{ {example} }}
    }}

    # admin nodes: machines on which people use neoctl; who reaches them administers the cluster
    set operators {{
        type {family}
        flags interval
    }}

    chain input {{
        type filter hook input priority filter; policy accept;
        iif lo accept
        {protocol} saddr @nodes tcp dport {{ {all_ports} }} accept
        {protocol} saddr @applications tcp dport {{ {data_ports} }} accept
        {protocol} saddr @operators tcp dport {{ {admin_port} }} accept
        tcp dport {{ {all_ports} }} drop
    }}
}}
"""

BY_PIP = """\
On each machine: Python 3.11 or newer, and NEO in {home}:

       sudo apt install python3-venv
       sudo python3 -m venv {home}
       sudo {programs}/pip install 'PATH-OF-NEO[metrics]'

   and the user of the nodes:

       sudo useradd --system --home-dir {data} --shell /usr/sbin/nologin neo
"""

BY_PACKAGE = """\
On each machine the Debian package that this `neoctl` is from. It brings the commands, the units of
   systemd, and the user of the nodes:

       sudo apt install ./PATH-OF-THE-PACKAGE.deb
"""

TODO = """\
# Cluster {name}: what to do with these files

Written by `neoctl init`. {copies}

1. {install}
2. The files of each machine, from this folder (here the first one; `machine2/` to the second, and so on):

       tar -C machine1 -c . | ssh {first} sudo tar -x --no-overwrite-dir --no-same-owner -C /
       ssh {first} 'sudo chown -R root:neo {settings} && sudo chmod -R u=rwX,g=rX,o= {settings}'

3. The firewall, if others can reach the machines. `{settings}/neo.nft` has a place for the machines
   with applications:

       sudo nft -f {settings}/neo.nft
       echo 'include "{settings}/neo.nft"' | sudo tee -a /etc/nftables.conf

4. Start, on the first machine; on the others with their number instead of 1:

       sudo systemctl daemon-reload
       sudo systemctl enable --now neomaster@1 neostorage@1 neoadmin@1

5. Once, when all nodes run, on any machine: look, then create the database.

       sudo {programs}/neoctl -f {settings}/neo.conf print node
       sudo {programs}/neoctl -f {settings}/neo.conf start
       sudo {programs}/neoctl -f {settings}/neo.conf status

   From now on this page of each machine says whether the cluster serves, for monitoring on that machine:

       curl http://127.0.0.1:{http}/ready

6. Applications take the files of `application/`, and open

       {uri}

   or write into `zope.conf`:

{zconfig}
7. Keep this folder in a safe place, away from all machines: whoever has `ca.key` can make a certificate
   for this cluster. Certificates end after {days} days.
{lost}"""

LOST = """
## A machine is lost

The others go on. Give a new machine the address of the lost one, and do steps 1 to 4 on it, with the
files and the number of the lost one. Its master joins the others by itself. Its storage node has an empty
database, so it is another node, which takes the place of the lost one by a command:

       sudo {programs}/neoctl -f {settings}/neo.conf print node storage

shows the lost one as DOWN, such as S3, and the new one as PENDING, such as S4. Then

       sudo {programs}/neoctl -f {settings}/neo.conf replace S3 S4
       sudo {programs}/neoctl -f {settings}/neo.conf status
"""


class Plan(NamedTuple):
    """A cluster to be. ``machines``: the address of the master of each, whose storage node and admin
    node have the next two ports. One machine, or at least three: two masters are worse than one.
    ``packaged``: the machines have the Debian package."""

    name: str
    machines: Sequence[Address]
    packaged: bool = False

    def bind(self, machine: Address, role: str) -> str:
        return format_address((machine[0], machine[1] + ROLES.index(role)))

    @property
    def masters(self) -> list[str]:
        return [self.bind(machine, "master") for machine in self.machines]

    def conf(self) -> str:
        """Return `neo.conf`, the same on all machines."""
        replicas = REPLICAS if len(self.machines) > 1 else 0
        lines = [
            "# written by neoctl init; the same on all machines",
            "[DEFAULT]",
            f"cluster = {self.name}",
            f"masters = {' '.join(self.masters)}",
            f"partitions = {PARTITIONS}",
            f"replicas = {replicas}",
            f"ca = {SETTINGS}/ca.crt",
            f"cert = {SETTINGS}/node.crt",
            f"key = {SETTINGS}/node.key",
        ]
        for number, machine in enumerate(self.machines, 1):
            for role in ROLES:
                lines += ["", f"[{role}{number}]", f"bind = {self.bind(machine, role)}"]
                if role == "master" and len(self.machines) > 1:
                    lines.append(f"election_log = {DATA}/master{number}.election")
                elif role == "storage":
                    lines.append(f"database = {DATA}/storage{number}.sqlite")
                elif role == "admin":
                    lines.append(f"http = {machine[1] + len(ROLES)}")
        return "\n".join(lines) + "\n"

    def units(self) -> dict[str, str]:
        """Return the units of systemd, by the names of their files; none if the package brings them."""
        return {} if self.packaged else units(PROGRAMS)

    def firewall(self) -> str:
        """Return the rules of a firewall, for nft."""
        hosts = [host for host, _ in self.machines]
        version6 = ":" in hosts[0]
        ports = sorted({port + n for _, port in self.machines for n in range(len(ROLES))})
        admin = sorted({port + ROLES.index("admin") for _, port in self.machines})
        return FIREWALL.format(
            family="ipv6_addr" if version6 else "ipv4_addr",
            protocol="ip6" if version6 else "ip",
            nodes=", ".join(dict.fromkeys(hosts)),
            example="fd00:1::/64" if version6 else "10.0.1.0/24",
            all_ports=_ports(ports),
            data_ports=_ports([port for port in ports if port not in admin]),
            admin_port=_ports(admin),
        )

    def zconfig(self) -> str:
        """Return the section of `zope.conf` of an application."""
        return (
            "%import neo.client\n<zodb_db main>\n  mount-point /\n  <NEOStorage>\n"
            f"    master_nodes {' '.join(self.masters)}\n    name {self.name}\n"
            f"    ca {SETTINGS}/ca.crt\n    cert {SETTINGS}/application.crt\n"
            f"    key {SETTINGS}/application.key\n  </NEOStorage>\n</zodb_db>\n"
        )

    def uri(self) -> str:
        files = (
            f"ca={SETTINGS}/ca.crt&cert={SETTINGS}/application.crt&key={SETTINGS}/application.key"
        )
        return f"neos://{self.name}@{','.join(self.masters)}?{files}"

    def todo(self, days: int) -> str:
        """Return what to do with the folder. ``days``: until certificates end."""
        count = len(self.machines)
        programs = PACKAGE_PROGRAMS if self.packaged else PROGRAMS
        install = BY_PACKAGE if self.packaged else BY_PIP
        places = {"programs": programs, "data": DATA, "settings": SETTINGS}
        return TODO.format(
            name=self.name,
            copies=f"{count} machines with a master and a storage node each; every object is on"
            f" {REPLICAS + 1} of them,\nand any one machine may be lost."
            if count > 1
            else "One machine, without a copy: keep backups.",
            install=install.format(home=PROGRAMS.removesuffix("/bin"), **places),
            first=self.machines[0][0],
            http=self.machines[0][1] + len(ROLES),
            uri=self.uri(),
            zconfig=re.sub("^", "       ", self.zconfig(), flags=re.MULTILINE).rstrip(" "),
            days=days,
            lost=LOST.format(**places) if count > 1 else "",
            **places,
        )


def _ports(ports: Sequence[int]) -> str:
    return ", ".join(map(str, ports))
