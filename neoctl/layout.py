"""The texts that `neoctl init` writes: settings, units of systemd, a firewall, and what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from neo.net.sockets import format_address
from neo.protocol.packets import Address

#: Where things are on a machine.
SETTINGS = "/etc/neo"
PROGRAMS = "/opt/neo/bin"
DATA = "/var/lib/neo"
ROLES = ("master", "storage", "admin")
#: Copies besides the first, if there is more than one machine.
REPLICAS = 1
PARTITIONS = 100

#: What is the same in the units of all roles. `%i`: the number of the machine.
UNIT = """\
# written by neoctl init
[Unit]
Description=NEO {role} %i
Wants=network-online.target
After=network-online.target
RequiresMountsFor={data}

[Service]
# ready when it listens; a loop that stands still for two minutes is ended, and starts again
Type=notify
WatchdogSec=120
# a database of an older format is converted before the node listens, which may take long
TimeoutStartSec=infinity
ExecStart={programs}/neo{role} -f {settings}/neo.conf -s {role}%i
ExecReload=/bin/kill -USR2 $MAINPID
Restart=on-failure
RestartSec=2
# 2: a setting is wrong, starting again would not help
RestartPreventExitStatus=2

User=neo
Group=neo
StateDirectory=neo
StateDirectoryMode=0750
WorkingDirectory={data}
UMask=0077
LimitNOFILE=65536

NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
CapabilityBoundingSet=
AmbientCapabilities=
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""

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

TODO = """\
# Cluster {name}: what to do with these files

Written by `neoctl init`. {copies}

1. On each machine: Python 3.11 or newer, and NEO in {home}:

       sudo apt install python3-venv
       sudo python3 -m venv {home}
       sudo {programs}/pip install PATH-OF-NEO

2. The user of the nodes, on each machine:

       sudo useradd --system --home-dir {data} --shell /usr/sbin/nologin neo

3. The files of each machine, from this folder (here the first one; `machine2/` to the second, and so on):

       tar -C machine1 -c . | ssh {first} sudo tar -x --no-overwrite-dir --no-same-owner -C /
       ssh {first} 'sudo chown -R root:neo {settings} && sudo chmod 640 {settings}/node.key'

4. The firewall, if others can reach the machines. `{settings}/neo.nft` has a place for the machines
   with applications:

       sudo nft -f {settings}/neo.nft
       echo 'include "{settings}/neo.nft"' | sudo tee -a /etc/nftables.conf

5. Start, on the first machine; on the others with their number instead of 1:

       sudo systemctl daemon-reload
       sudo systemctl enable --now neomaster@1 neostorage@1 neoadmin@1

6. Once, when all nodes run, on any machine: look, then create the database.

       sudo {programs}/neoctl -f {settings}/neo.conf print node
       sudo {programs}/neoctl -f {settings}/neo.conf start
       sudo {programs}/neoctl -f {settings}/neo.conf status

7. Applications take the files of `application/`, and open

       {uri}

   or write into `zope.conf`:

{zconfig}
8. Keep `ca.key` away from all machines, in a safe place: whoever has it can make a certificate for
   this cluster. Certificates end after {days} days.
"""


class Plan(NamedTuple):
    """A cluster to be. ``machines``: the address of the master of each, whose storage node and admin
    node have the next two ports. One machine, or at least three: two masters are worse than one."""

    name: str
    machines: Sequence[Address]

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
        return "\n".join(lines) + "\n"

    def units(self) -> dict[str, str]:
        """Return the units of systemd, by the names of their files."""
        words = {"data": DATA, "programs": PROGRAMS, "settings": SETTINGS}
        return {f"neo{role}@.service": UNIT.format(role=role, **words) for role in ROLES}

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
        return TODO.format(
            name=self.name,
            copies=f"{count} machines with a master and a storage node each; every object is on"
            f" {REPLICAS + 1} of them,\nand any one machine may be lost."
            if count > 1
            else "One machine, without a copy: keep backups.",
            home=PROGRAMS.removesuffix("/bin"),
            programs=PROGRAMS,
            data=DATA,
            settings=SETTINGS,
            first=self.machines[0][0],
            uri=self.uri(),
            zconfig=re.sub("^", "       ", self.zconfig(), flags=re.MULTILINE).rstrip(" "),
            days=days,
        )


def _ports(ports: Sequence[int]) -> str:
    return ", ".join(map(str, ports))
