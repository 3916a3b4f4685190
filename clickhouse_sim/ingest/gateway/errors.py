"""What a gateway refuses; `code` is for programs, the message says what to do."""

from __future__ import annotations

from typing import ClassVar


class DedupeError(Exception):
    """Base of all of them."""

    code: ClassVar[str] = "ERR_DEDUPE"


class DedupeConfigError(DedupeError, ValueError):
    """An option of a gateway, or a field of its file, that it cannot work with."""

    code = "ERR_DEDUPE_CONFIG"


class DedupeGatewayDestroyedError(DedupeError):
    """The gateway was destroyed: it remembers nothing and decides nothing any more."""

    code = "ERR_DEDUPE_GATEWAY_DESTROYED"


class DedupeIdentityLedgerError(DedupeError):
    """The ledger cannot be opened or did not take the claim. Whoever asked may ask again."""

    code = "ERR_DEDUPE_IDENTITY_LEDGER"


class DedupeIdentityLedgerCapacityError(DedupeIdentityLedgerError):
    """The ledger is full and the identity is new: it is refused, and nothing is evicted for it."""

    code = "ERR_DEDUPE_IDENTITY_LEDGER_CAPACITY"

    def __init__(self, stored_identities: int, max_identities: int) -> None:
        super().__init__(
            f"The identity ledger is full ({stored_identities:,} of {max_identities:,}) and refuses a new identity; "
            "known ones are still recognised. Hold events back until the ledger is archived or replaced."
        )
        self.stored_identities = stored_identities
        self.max_identities = max_identities
