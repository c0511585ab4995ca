"""Every failure the pipeline names, in one tree. The class decides what happens next.

KfmError
├── Terminal                    trying again cannot help; a person or a new event must
│   ├── SettingsInvalid         an environment variable does not make sense
│   ├── DeclarationInvalid      a file in resources/ does not make sense
│   ├── ProducerMistaken        asked to send what no consumer of ours would take
│   ├── MessageRefused          a queue message that is no event of ours
│   │   ├── BodyUnreadable      not JSON, too deep, too large
│   │   ├── ShapeUnknown        JSON, but no shape we listen to
│   │   ├── ContractBroken      a known shape that breaks its schema
│   │   ├── UniquenessInAttributes  attributes alone tell it from another message
│   │   ├── DatasetUnknown      names a dataset nobody declared
│   │   └── LocationUndeclared  points outside the declared buckets and prefixes
│   ├── KeyInvalid              not a canonical idempotency key
│   ├── KeyOutdated             of a transform version that is not declared any more
│   ├── ObjectMissing           the event's object is not there
│   ├── ObjectForbidden         the store refuses us
│   ├── IntegrityBroken         size, ETag or digest disagree with what was promised
│   ├── InputUnreadable         the object is not in the declared format
│   ├── TransformFailed         the declared transform cannot take the table, or raised
│   ├── PolicyRefused           masking policy absent, unknown or not applied
│   ├── ReviewRefused           somebody with authority said no, or nobody is asked
│   ├── SignatureRefused        not signed by whoever may decide
│   ├── GateRefused             no green verdict for exactly these bytes
│   │   ├── QualityRefused      the data is not as good as was declared
│   │   ├── IntegrityRefused    what is staged, or what it was made of, is not what it should be
│   │   └── CareRefused         the verifier found a rule of the policy broken
│   ├── SchemaRefused           an approval of a schema that cannot be given
│   ├── QueryRefused            not SPARQL, or it asks somebody else than the graph
│   ├── AttemptsExhausted       retryable once, but too often
│   ├── DeliveryExhausted       received too often without being recorded; SQS set it aside
│   ├── PromotionRefused        the candidate has not shown that it is good, or cannot be put in place
│   ├── LetterUnknown           no such dead letter, or none that may be moved like this
│   ├── SwitchRefused           asked to move the kill switch without saying who, why or which
│   ├── RedriveStopped          what was sent again failed again
│   ├── ReplayRefused           a replay that cannot give what it promises, or is not in a state for this
│   ├── LateRefused             no such late event, or nobody said who releases it and why
│   └── TraceUnknown            nothing was told of it on this machine
├── Retryable                   the same work may succeed later
│   ├── ServiceUnavailable      throttling, 5xx, database away
│   │   └── Unreachable         nobody answers at the address
│   ├── SendIncomplete          some messages of a batch were not taken; it says which
│   ├── PointerMoved            somebody else swapped the catalog entry first
│   └── StillPublishing         killed, but a publication that had begun before is not over
├── DatasetKilled               nothing of the dataset is published now; its keys wait
├── AboveWatermark              a backfill asked for a window that is not closed yet
└── OwnershipLost               another worker holds the key now; stop quietly
    ├── KeyBusy                 it was held when we asked
    └── Fenced                  it was taken while we worked
"""

from typing import ClassVar


class KfmError(Exception):
    """A failure with a name. `triage` is the class an operator filters by."""

    triage: ClassVar[str] = "unclassified"


class Terminal(KfmError):
    """Trying again cannot help."""


class Retryable(KfmError):
    """The same work may succeed later."""

    triage = "transient"


class OwnershipLost(KfmError):
    """The key belongs to another worker; nothing failed."""

    triage = "ownership"


class DatasetKilled(KfmError):
    """Somebody stopped the dataset: no failure of the key and no attempt, it waits until the dataset is released."""

    triage = "killed"


class AboveWatermark(KfmError):
    """Nothing failed: the window may still change by itself, so it is not for a backfill to touch."""

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
    """SQS compares bodies only, so what makes a message unique has to be in its body."""


class DatasetUnknown(MessageRefused):
    pass


class LocationUndeclared(MessageRefused):
    triage = "permission"


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
    """The schema is right, the data is not."""

    triage = "quality"


class IntegrityRefused(GateRefused):
    triage = "integrity"


class CareRefused(GateRefused):
    """The verifier found a rule of the policy broken in what was about to be published."""

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
    """`positions` are those of the messages to send again, counted from 0 in what was given."""

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
