"""What can go wrong with a cluster as a whole; each message says what to do."""

from __future__ import annotations


class ClusterError(Exception):
    """Something asked of the cluster cannot be done."""


class ClusterUnreachable(ClusterError):
    """There is no cluster here, or the member that is asked for does not run."""


class UnknownMember(ClusterError):
    """The cluster has no member of that name."""
