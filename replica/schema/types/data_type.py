"""What every data type says about itself.

One small class a type, in the module of its family: how ClickHouse writes it (`base`), which Arrow type carries its
columns (`arrow`), which bytes its columns are in ClickHouse's memory (`contents`), how foreign values become its own
(`conversion`), and how people see them (`readable`). `replica.schema.types.families` reads the names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replica.schema.types.nested_text import NestedText

Conversion: TypeAlias = Callable[[pa.Array], pa.Array]
"""Values of some Arrow type to a type's own. Raises ValueError (ArrowInvalid is one) or OverflowError for a value
that does not fit; a NULL stays one."""


class Kind(Enum):
    """What sort of values a type has; with `width`, all that arithmetic needs to know."""

    UNSIGNED = "unsigned integer"
    SIGNED = "signed integer"
    WIDE = "integer of more than 64 bits"
    FLOAT = "float"
    BFLOAT = "brain float"
    BOOL = "bool"
    DECIMAL = "decimal"
    DATE = "date"
    DATE32 = "wide date"
    DATETIME = "date and time"
    DATETIME64 = "date and time with a fraction"
    TIME = "time of day"
    ENUM = "enumeration"
    UUID = "UUID"
    IPV4 = "IPv4 address"
    IPV6 = "IPv6 address"
    STRING = "string"
    FIXED_STRING = "string of fixed length"
    ARRAY = "array"
    TUPLE = "tuple"
    MAP = "map"
    VARIANT = "variant"
    NOTHING = "nothing"


@dataclass(frozen=True)
class DataType(ABC):
    """One ClickHouse type. `nullable` says that its columns may hold NULL."""

    nullable: bool = field(default=False, kw_only=True)

    # --- its name ---

    @property
    @abstractmethod
    def base(self) -> str:
        """The type as ClickHouse writes it, without Nullable around it."""

    @property
    def text(self) -> str:
        """The type as ClickHouse writes it: `UInt64`, `Nullable(DateTime('UTC'))`."""
        return f"Nullable({self.base})" if self.nullable else self.base

    @property
    def with_article(self) -> str:
        """For sentences: `an Int32`, `a UInt8`, `a Nullable(Date)`."""
        return f"{'an' if self.text[:1] in 'AEI' else 'a'} {self.text}"

    def __str__(self) -> str:
        return self.text

    # --- what it is ---

    @property
    @abstractmethod
    def kind(self) -> Kind:
        """The sort of its values."""

    @property
    @abstractmethod
    def arrow(self) -> pa.DataType:
        """The Arrow type of its columns in a block."""

    @property
    def arrow_is_exact(self) -> bool:
        """Whether every value of the Arrow type is one of this type, so that none needs a look."""
        return True

    @property
    def width(self) -> int:
        """The bytes of one value in ClickHouse's memory, 0 when values differ in length."""
        return 0

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The numpy type of its values in memory, where numpy has one; expressions compute with these."""
        return None

    @property
    def zone(self) -> str:
        """The time zone in which its moments are shown."""
        return "UTC"

    @property
    def value_type(self) -> DataType:
        """The type that its values have in expressions: that inside a LowCardinality, of an alias its meaning."""
        return self

    @property
    def is_integer(self) -> bool:
        """Whether it is an integer of at most 64 bits."""
        return self.kind in (Kind.UNSIGNED, Kind.SIGNED)

    @property
    def is_number(self) -> bool:
        return self.is_integer or self.kind is Kind.FLOAT

    @property
    def can_be_nullable(self) -> bool:
        return True

    @property
    def nested(self) -> tuple[DataType, ...]:
        """The types that it is made of."""
        return ()

    def with_nullable(self, nullable: bool) -> Self:
        """The same type, accepting NULL or not."""
        return replace(self, nullable=nullable)

    # --- its default ---

    @property
    def zero(self) -> Any:
        """The value of zero bytes, as `pyarrow.scalar` takes it for `arrow`. It lies under every NULL."""
        return 0

    @property
    def default(self) -> pa.Scalar:
        """The value of a column that was left out: NULL if it may be, else zero or empty."""
        return pa.scalar(None if self.nullable else self.own_default, self.arrow)

    @property
    def own_default(self) -> Any:
        """The default of the type without Nullable, as `pyarrow.scalar` takes it."""
        return self.zero

    # --- its bytes ---

    def stream(self, values: pa.Array) -> Iterator[np.ndarray]:
        """A column as ClickHouse has it in memory, in pieces as `SipHash128.update` takes them: what its type gives,
        zero under each NULL; of a Nullable then a byte a row, 1 for NULL."""
        yield from self.contents(self.filled(values))
        if self.nullable:
            yield null_map(values)

    @abstractmethod
    def contents(self, values: pa.Array) -> Iterator[np.ndarray]:
        """The bytes of values none of which is NULL."""

    def rows(self, values: pa.Array) -> pa.Array:
        """The bytes of each row by itself, large_binary: a LowCardinality is hashed by them, and rows are equal to
        ClickHouse where these are. 01 is NULL in a Nullable, 00 and the value anything else."""
        filled = self.own_rows(self.filled(values))
        if not self.nullable:
            return filled
        present = pc.binary_join_element_wise(_binary(b"\0"), filled, _binary(b""))
        return pc.if_else(pc.is_null(values), _binary(b"\1"), present)

    @abstractmethod
    def own_rows(self, values: pa.Array) -> pa.Array:
        """The same without a thought of NULL."""

    def filled(self, values: pa.Array) -> pa.Array:
        """The values with zero in place of NULL."""
        return pc.fill_null(values, pa.scalar(self.zero, self.arrow)) if values.null_count else values

    # --- its values from outside, and for people ---

    @abstractmethod
    def conversion(self, source: pa.DataType) -> Conversion | None:
        """How values of an Arrow type (neither dictionary- nor run-end-encoded) become its own; None: never."""

    @property
    def text_shape(self) -> pa.DataType:
        """The Arrow type in which text formats hand over values: the text that spells one, in whatever it is nested.
        `conversion` reads it."""
        return pa.large_binary()

    def read(self, text: NestedText) -> Any:
        """The next value in the text of something that it is nested in, in the shape of `text_shape`."""
        return text.leaf(quoted=self.kind in (Kind.STRING, Kind.FIXED_STRING))

    @property
    def default_text(self) -> Any:
        """What spells the default, in the shape of `text_shape`."""
        return b"0"

    def spells_another(self, text: str) -> bool:
        """Whether the text, which does not spell a value, spells one of a wider type of the same kind."""
        return False

    @property
    def range_text(self) -> str:
        """For sentences: from where to where its values go, if that needs saying."""
        return ""

    def readable(self, values: pa.Array) -> pa.Array:
        """The values as SELECT works with them."""
        return values


def null_map(values: pa.Array) -> np.ndarray:
    """One byte a row: 1 where the value is NULL."""
    validity = values.buffers()[0]
    if not values.null_count:
        return np.zeros(len(values), np.uint8)
    if validity is None:
        return np.ones(len(values), np.uint8)
    return unpacked_bits(validity, values.offset, len(values)) ^ np.uint8(1)


def unpacked_bits(bits: pa.Buffer, first: int, count: int) -> np.ndarray:
    """One byte, 0 or 1, for each bit of a bitmap of Arrow, from the `first` on."""
    skipped, begin = first % 8, first // 8
    packed = np.frombuffer(bits, np.uint8, (skipped + count + 7) // 8, begin)
    return np.unpackbits(packed, count=skipped + count, bitorder="little")[skipped:]


def _binary(value: bytes) -> pa.Scalar:
    return pa.scalar(value, pa.large_binary())


def rows_of_width(content: np.ndarray, width: int) -> pa.Array:
    """Contiguous values of equal width as large_binary."""
    count = content.nbytes // width
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int64)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    )


def with_length_before(content: pa.Array, added: int = 0) -> pa.Array:
    """Each binary value after its length, plus `added`, as eight bytes."""
    lengths = pc.cast(pc.binary_length(content), pa.int64()).to_numpy(zero_copy_only=False) + added
    prefixes = rows_of_width(np.ascontiguousarray(lengths, dtype="<i8"), 8)
    return pc.binary_join_element_wise(prefixes, content, _binary(b""))


def fixed_bytes(values: pa.Array, width: int) -> np.ndarray:
    """The bytes of a fixed-width Arrow array without NULL, its validity aside."""
    if len(values) == 0:
        return np.zeros(0, np.uint8)
    return np.frombuffer(values.buffers()[1], np.uint8, len(values) * width, values.offset * width)
