"""The image's health check: whether the member whose data lie in /data says that it serves, and is listened to."""

import json
import socket
import sys
from pathlib import Path

try:
    endpoint = json.loads(Path("/data/ready.json").read_text())["addresses"]["endpoint"]
    host, _, port = endpoint.rpartition(":")
    socket.create_connection((host, int(port)), timeout=2).close()
except (OSError, ValueError, KeyError, TypeError) as problem:
    sys.exit(f"not yet: {problem}")
