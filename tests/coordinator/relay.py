"""A TCP relay in front of a server: a network that can be cut or silenced."""

from __future__ import annotations

import asyncio


class Relay:
    """A TCP relay to one address, for connections that can be broken, cut or silenced."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._writers: list[asyncio.StreamWriter] = []
        self.silent = False

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        self._writers += [writer, far_writer]
        await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                if not self.silent:
                    writer.write(data)
        except OSError:
            pass
        finally:
            if not self.silent:
                writer.close()

    def break_connections(self) -> None:
        """Those that there are; new ones get through."""
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    def cut(self) -> None:
        self._server.close()
        self.break_connections()
