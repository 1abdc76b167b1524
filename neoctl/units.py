"""The units of systemd for the three roles, of ``neoctl init`` and of the Debian package."""

from __future__ import annotations

#: Where things are on a machine.
SETTINGS = "/etc/neo"
DATA = "/var/lib/neo"
ROLES = ("master", "storage", "admin")

#: What is the same in the units of all roles. `%i`: the number of the machine.
UNIT = """\
# written by neoctl init, or part of the Debian package
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


def units(programs: str) -> dict[str, str]:
    """Return the units, by the names of their files. ``programs``: the folder of the commands."""
    words = {"data": DATA, "programs": programs, "settings": SETTINGS}
    return {f"neo{role}@.service": UNIT.format(role=role, **words) for role in ROLES}
