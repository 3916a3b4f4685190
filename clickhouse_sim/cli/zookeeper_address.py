"""The address of a ZooKeeper on the command line."""

from __future__ import annotations

import click


class ZooKeeperAddress(click.ParamType[str]):
    """`host:port[,host:port...][/chroot]`, in one spelling: without spaces, and without a `/` at the end."""

    name = "host:port[,host:port...][/chroot]"

    def convert(self, value: str, param: click.Parameter | None, context: click.Context | None) -> str:
        from coordinator.paths import is_valid_path

        hosts, slash, chroot = value.strip().rstrip("/").partition("/")
        servers = [server.strip() for server in hosts.split(",")]
        for server in servers:
            host, _, port = server.rpartition(":")
            if not host or not port.isdecimal() or not 0 < int(port) < 65536:
                self.fail(f"{server!r} is not host:port, as in 127.0.0.1:2181", param, context)
        if slash and not is_valid_path(slash + chroot):
            self.fail(f"{slash + chroot!r} cannot be the path of a znode", param, context)
        return ",".join(servers) + slash + chroot
