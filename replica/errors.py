"""The errors that a replica answers with, under ClickHouse's names and numbers (`ErrorCodes.cpp`).

An error crosses between processes as `to_json()` and comes out of `error_from_json()` as the same class, so a
client, another replica and a test all catch the same thing.
"""

from __future__ import annotations

import json
from typing import ClassVar


class ClickHouseError(Exception):
    """Base of all of them. The message says what happened, to what, and what to do about it."""

    code: ClassVar[int] = 1002
    name: ClassVar[str] = "UNKNOWN_EXCEPTION"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def to_json(self) -> str:
        return json.dumps({"code": self.code, "name": self.name, "message": self.message})


class CannotParseText(ClickHouseError):
    code, name = 6, "CANNOT_PARSE_TEXT"


class ThereIsNoColumn(ClickHouseError):
    code, name = 8, "THERE_IS_NO_COLUMN"


class DuplicateColumn(ClickHouseError):
    code, name = 15, "DUPLICATE_COLUMN"


class NoSuchColumnInTable(ClickHouseError):
    code, name = 16, "NO_SUCH_COLUMN_IN_TABLE"


class NumberOfColumnsDoesntMatch(ClickHouseError):
    code, name = 20, "NUMBER_OF_COLUMNS_DOESNT_MATCH"


class BadArguments(ClickHouseError):
    code, name = 36, "BAD_ARGUMENTS"


class CannotParseDate(ClickHouseError):
    code, name = 38, "CANNOT_PARSE_DATE"


class ChecksumDoesntMatch(ClickHouseError):
    code, name = 40, "CHECKSUM_DOESNT_MATCH"


class NumberOfArgumentsDoesntMatch(ClickHouseError):
    code, name = 42, "NUMBER_OF_ARGUMENTS_DOESNT_MATCH"


class IllegalTypeOfArgument(ClickHouseError):
    code, name = 43, "ILLEGAL_TYPE_OF_ARGUMENT"


class IllegalColumn(ClickHouseError):
    code, name = 44, "ILLEGAL_COLUMN"


class UnknownFunction(ClickHouseError):
    code, name = 46, "UNKNOWN_FUNCTION"


class UnknownIdentifier(ClickHouseError):
    code, name = 47, "UNKNOWN_IDENTIFIER"


class NotImplementedInModel(ClickHouseError):
    code, name = 48, "NOT_IMPLEMENTED"


class LogicalError(ClickHouseError):
    code, name = 49, "LOGICAL_ERROR"


class UnknownType(ClickHouseError):
    code, name = 50, "UNKNOWN_TYPE"


class TypeMismatch(ClickHouseError):
    code, name = 53, "TYPE_MISMATCH"


class UnknownStorage(ClickHouseError):
    code, name = 56, "UNKNOWN_STORAGE"


class TableAlreadyExists(ClickHouseError):
    code, name = 57, "TABLE_ALREADY_EXISTS"


class UnknownTable(ClickHouseError):
    code, name = 60, "UNKNOWN_TABLE"


class SqlSyntaxError(ClickHouseError):
    code, name = 62, "SYNTAX_ERROR"


class UnknownAggregateFunction(ClickHouseError):
    code, name = 63, "UNKNOWN_AGGREGATE_FUNCTION"


class ArgumentOutOfBound(ClickHouseError):
    code, name = 69, "ARGUMENT_OUT_OF_BOUND"


class UnknownFormat(ClickHouseError):
    code, name = 73, "UNKNOWN_FORMAT"


class IncorrectFileName(ClickHouseError):
    code, name = 79, "INCORRECT_FILE_NAME"


class IncorrectQuery(ClickHouseError):
    code, name = 80, "INCORRECT_QUERY"


class UnknownDatabase(ClickHouseError):
    code, name = 81, "UNKNOWN_DATABASE"


class EmptyListOfColumnsPassed(ClickHouseError):
    code, name = 90, "EMPTY_LIST_OF_COLUMNS_PASSED"


class UnknownSetting(ClickHouseError):
    code, name = 115, "UNKNOWN_SETTING"


class IncompatibleColumns(ClickHouseError):
    code, name = 122, "INCOMPATIBLE_COLUMNS"


class IllegalDivision(ClickHouseError):
    code, name = 153, "ILLEGAL_DIVISION"


class TimeoutExceeded(ClickHouseError):
    code, name = 159, "TIMEOUT_EXCEEDED"


class CyclicAliases(ClickHouseError):
    code, name = 174, "CYCLIC_ALIASES"


class SizesOfArraysDontMatch(ClickHouseError):
    code, name = 190, "SIZES_OF_ARRAYS_DONT_MATCH"


class NetworkError(ClickHouseError):
    code, name = 210, "NETWORK_ERROR"


class TableIsDropped(ClickHouseError):
    code, name = 218, "TABLE_IS_DROPPED"


class UnexpectedAstStructure(ClickHouseError):
    code, name = 223, "UNEXPECTED_AST_STRUCTURE"


class ReplicaIsAlreadyActive(ClickHouseError):
    code, name = 224, "REPLICA_IS_ALREADY_ACTIVE"


class TooManyUnexpectedDataParts(ClickHouseError):
    code, name = 231, "TOO_MANY_UNEXPECTED_DATA_PARTS"


class NoSuchDataPart(ClickHouseError):
    code, name = 232, "NO_SUCH_DATA_PART"


class BadDataPartName(ClickHouseError):
    code, name = 233, "BAD_DATA_PART_NAME"


class NoReplicaHasPart(ClickHouseError):
    code, name = 234, "NO_REPLICA_HAS_PART"


class DuplicateDataPart(ClickHouseError):
    code, name = 235, "DUPLICATE_DATA_PART"


class Aborted(ClickHouseError):
    code, name = 236, "ABORTED"


class TableIsReadOnly(ClickHouseError):
    code, name = 242, "TABLE_IS_READ_ONLY"


class UnexpectedZooKeeperError(ClickHouseError):
    code, name = 244, "UNEXPECTED_ZOOKEEPER_ERROR"


class CorruptedData(ClickHouseError):
    code, name = 246, "CORRUPTED_DATA"


class InvalidPartitionValue(ClickHouseError):
    code, name = 248, "INVALID_PARTITION_VALUE"


class TooManyParts(ClickHouseError):
    code, name = 252, "TOO_MANY_PARTS"


class ReplicaAlreadyExists(ClickHouseError):
    code, name = 253, "REPLICA_ALREADY_EXISTS"


class UnknownFormatVersion(ClickHouseError):
    code, name = 287, "UNKNOWN_FORMAT_VERSION"


class TableWasNotDropped(ClickHouseError):
    code, name = 305, "TABLE_WAS_NOT_DROPPED"


class TooDeepRecursion(ClickHouseError):
    code, name = 306, "TOO_DEEP_RECURSION"


class UnexpectedNodeInZooKeeper(ClickHouseError):
    code, name = 308, "UNEXPECTED_NODE_IN_ZOOKEEPER"


class UnknownStatusOfInsert(ClickHouseError):
    code, name = 319, "UNKNOWN_STATUS_OF_INSERT"


class ValueIsOutOfRangeOfDataType(ClickHouseError):
    code, name = 321, "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE"


class Unfinished(ClickHouseError):
    code, name = 341, "UNFINISHED"


class MetadataMismatch(ClickHouseError):
    code, name = 342, "METADATA_MISMATCH"


class SupportIsDisabled(ClickHouseError):
    code, name = 344, "SUPPORT_IS_DISABLED"


class CannotInsertNullInOrdinaryColumn(ClickHouseError):
    code, name = 349, "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN"


class PartIsTemporarilyLocked(ClickHouseError):
    code, name = 384, "PART_IS_TEMPORARILY_LOCKED"


class NoCommonType(ClickHouseError):
    code, name = 386, "NO_COMMON_TYPE"


class InsertWasDeduplicated(ClickHouseError):
    code, name = 389, "INSERT_WAS_DEDUPLICATED"


class CannotGetCreateTableQuery(ClickHouseError):
    code, name = 390, "CANNOT_GET_CREATE_TABLE_QUERY"


class QueryWasCancelled(ClickHouseError):
    code, name = 394, "QUERY_WAS_CANCELLED"


class DecimalOverflow(ClickHouseError):
    code, name = 407, "DECIMAL_OVERFLOW"


class AllReplicasLost(ClickHouseError):
    code, name = 415, "ALL_REPLICAS_LOST"


class ReplicaStatusChanged(ClickHouseError):
    code, name = 416, "REPLICA_STATUS_CHANGED"


class ReadonlySetting(ClickHouseError):
    code, name = 472, "READONLY_SETTING"


class CannotAssignAlter(ClickHouseError):
    code, name = 517, "CANNOT_ASSIGN_ALTER"


class DataTypeCannotBeUsedInKey(ClickHouseError):
    code, name = 549, "DATA_TYPE_CANNOT_BE_USED_IN_KEY"


class UnknownElementOfEnum(ClickHouseError):
    code, name = 691, "UNKNOWN_ELEMENT_OF_ENUM"


class CannotForgetPartition(ClickHouseError):
    code, name = 716, "CANNOT_FORGET_PARTITION"


class TableIsBeingRestarted(ClickHouseError):
    code, name = 733, "TABLE_IS_BEING_RESTARTED"


class DeduplicationIsNotPossible(ClickHouseError):
    code, name = 764, "DEDUPLICATION_IS_NOT_POSSIBLE"


class KeeperException(ClickHouseError):
    code, name = 999, "KEEPER_EXCEPTION"


_BY_NAME: dict[str, type[ClickHouseError]] = {kind.name: kind for kind in ClickHouseError.__subclasses__()}


def error_from_json(text: str) -> ClickHouseError:
    """The error that `to_json` wrote; text of any other form becomes the message of a plain ClickHouseError."""
    try:
        record = json.loads(text)
        return _BY_NAME.get(record["name"], ClickHouseError)(record["message"])
    except (ValueError, KeyError, TypeError):
        return ClickHouseError(text)
