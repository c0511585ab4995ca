"""Every named failure, in one tree. The class decides whether work is retried.

KfmError
├── Terminal                    retrying cannot help: a person or a new event must
│   ├── SettingsInvalid         an environment variable is invalid
│   ├── DeclarationInvalid      a file in resources/ is invalid
│   ├── ProducerMistaken        asked to send what no consumer would accept
│   ├── MessageRefused          a queue message that is not a valid event
│   │   ├── BodyUnreadable      not JSON, too deep or too large
│   │   ├── ShapeUnknown        JSON, but not an accepted shape
│   │   ├── ContractBroken      a known shape that breaks its schema
│   │   ├── UniquenessInAttributes  unique by its attributes only
│   │   ├── SenderUnproven      not signed by SNS for the provider's topic
│   │   ├── DatasetUnknown      names an undeclared dataset
│   │   └── LocationUndeclared  outside the declared buckets and prefixes
│   │       └── NoticeUnwanted  of a provider, about something that no dataset takes; acknowledged and counted
│   ├── KeyInvalid              not a canonical key
│   ├── KeyOutdated             its transform version is no longer declared
│   ├── ObjectMissing           the event's object does not exist
│   ├── ObjectForbidden         the store denies access
│   ├── IntegrityBroken         size, ETag or digest differ from what was announced
│   ├── InputUnreadable         the object is not in the declared format
│   ├── TransformFailed         the declared transform refused the table or raised
│   ├── PolicyRefused           masking policy missing, unknown or not applied
│   ├── ReviewRefused           rejected by an authority, or none can be asked
│   ├── SignatureRefused        not signed by an authority
│   ├── GateRefused             no green verdict for exactly these bytes
│   │   ├── QualityRefused      the data misses a declared threshold
│   │   ├── IntegrityRefused    staged bytes or their inputs are not what they should be
│   │   └── CareRefused         the verifier found a broken policy rule
│   ├── SchemaRefused           the schema cannot be approved
│   ├── QueryRefused            not SPARQL, or it queries another service
│   ├── AttemptsExhausted       retried too often
│   ├── DeliveryExhausted       received too often without being recorded
│   ├── PromotionRefused        the candidate has not passed, or cannot be put in place
│   ├── LetterUnknown           no such dead letter, or not in a state for this
│   ├── SwitchRefused           the kill switch needs a dataset, an actor and a reason
│   ├── RedriveStopped          redriven messages failed again
│   ├── ReplayRefused           the replay is impossible, or not in a state for this
│   ├── LateRefused             no such late event, or its release lacks an actor or a reason
│   └── TraceUnknown            no spans of the trace on this machine
├── Retryable                   the same work may succeed later
│   ├── ServiceUnavailable      throttling, 5xx, database down
│   │   └── Unreachable         nothing answers at the address
│   ├── SendIncomplete          some messages of a batch were not accepted
│   ├── PointerMoved            another writer swapped the catalog entry first
│   └── StillPublishing         killed, but an earlier publication is still running
├── DatasetKilled               publishing is stopped; keys wait until the dataset is released
├── AboveWatermark              a backfill asked for a window that is still open
└── OwnershipLost               another worker holds the key; nothing failed
    ├── KeyBusy                 it was held when we asked
    └── Fenced                  it was taken while we worked
"""

from typing import ClassVar


class KfmError(Exception):
    """`triage` is the class that operators filter by."""

    triage: ClassVar[str] = "unclassified"


class Terminal(KfmError):
    pass


class Retryable(KfmError):
    triage = "transient"


class OwnershipLost(KfmError):
    triage = "ownership"


class DatasetKilled(KfmError):
    triage = "killed"


class AboveWatermark(KfmError):
    triage = "late"


class SettingsInvalid(Terminal):
    triage = "configuration"


class DeclarationInvalid(Terminal):
    triage = "configuration"


class ProducerMistaken(Terminal):
    triage = "schema"


class MessageRefused(Terminal):
    triage = "schema"


class BodyUnreadable(MessageRefused):
    pass


class ShapeUnknown(MessageRefused):
    pass


class ContractBroken(MessageRefused):
    pass


class UniquenessInAttributes(MessageRefused):
    """SQS deduplicates by body, so what makes a message unique must be in its body."""


class SenderUnproven(MessageRefused):
    triage = "permission"


class DatasetUnknown(MessageRefused):
    pass


class LocationUndeclared(MessageRefused):
    triage = "permission"


class NoticeUnwanted(LocationUndeclared):
    pass


class KeyInvalid(Terminal):
    triage = "schema"


class KeyOutdated(Terminal):
    triage = "configuration"


class ObjectMissing(Terminal):
    triage = "missing-object"


class ObjectForbidden(Terminal):
    triage = "permission"


class IntegrityBroken(Terminal):
    triage = "integrity"


class InputUnreadable(Terminal):
    triage = "schema"


class TransformFailed(Terminal):
    triage = "schema"


class PolicyRefused(Terminal):
    triage = "care"


class ReviewRefused(Terminal):
    triage = "care"


class SignatureRefused(Terminal):
    triage = "care"


class GateRefused(Terminal):
    triage = "schema"


class QualityRefused(GateRefused):
    triage = "quality"


class IntegrityRefused(GateRefused):
    triage = "integrity"


class CareRefused(GateRefused):
    triage = "care"


class SchemaRefused(Terminal):
    triage = "schema"


class QueryRefused(Terminal):
    pass


class AttemptsExhausted(Terminal):
    triage = "exhausted"


class DeliveryExhausted(Terminal):
    triage = "exhausted"


class PromotionRefused(Terminal):
    triage = "configuration"


class LetterUnknown(Terminal):
    pass


class SwitchRefused(Terminal):
    pass


class RedriveStopped(Terminal):
    pass


class ReplayRefused(Terminal):
    triage = "configuration"


class LateRefused(Terminal):
    triage = "late"


class TraceUnknown(Terminal):
    pass


class ServiceUnavailable(Retryable):
    pass


class SendIncomplete(Retryable):
    """`positions` are the indexes of the messages to send again."""

    def __init__(self, message: str, positions: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.positions = positions


class Unreachable(ServiceUnavailable):
    pass


class PointerMoved(Retryable):
    pass


class StillPublishing(Retryable):
    pass


class KeyBusy(OwnershipLost):
    pass


class Fenced(OwnershipLost):
    pass
