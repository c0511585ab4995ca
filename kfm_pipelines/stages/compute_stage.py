"""The first stage of a run: claims keys, ends what predecessors left, fetches objects, computes a table of each key."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property, partial

from kfm_pipelines.energy.emit import metered_span, record_lost_costs
from kfm_pipelines.energy.meter import Meter
from kfm_pipelines.errors import DatasetKilled, KfmError
from kfm_pipelines.events import CanonicalKey, IngestEvent
from kfm_pipelines.inbox.record import archive_events
from kfm_pipelines.parquet.parquet import write_parquet
from kfm_pipelines.stages import reproduce
from kfm_pipelines.stages.compute import inputs
from kfm_pipelines.stages.compute.members import KEPT_BYTES, fetch_announced
from kfm_pipelines.stages.compute.process import process_key
from kfm_pipelines.stages.compute.result import Computed
from kfm_pipelines.stages.compute.same_rows import order_by_window, skip_same_rows
from kfm_pipelines.stages.compute.scene import OUTSIDE
from kfm_pipelines.stages.compute.split import Splitter
from kfm_pipelines.stages.config.changes import refuse_laxer_policy
from kfm_pipelines.stages.config.key_config import KeyConfig
from kfm_pipelines.stages.publish import release
from kfm_pipelines.stages.run_keys import RunKeys
from kfm_pipelines.stages.telemetry.outcomes import SKIPPED
from kfm_pipelines.state import kill_switch, transactions, wal
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.state.revisions import FetchCounts, count_fetches
from kfm_pipelines.state.transactions import StageResult
from kfm_pipelines.state.wal import Step, Transition
from kfm_pipelines.stores.layout import clear_work
from kfm_pipelines.stores.work import write_attachments


class ComputeStage:
    def __init__(self, run: RunKeys) -> None:
        self._run = run
        self._fetches = FetchCounts()
        self._left_out = Counter({OUTSIDE: 0})

    @cached_property
    def _splitter(self) -> Splitter:
        return Splitter()

    def compute(self, keys: Sequence[str]) -> None:
        """Claims each key, finishes or undoes what a predecessor left, and computes a table from its objects."""
        run, results, skipped = self._run, list[StageResult](), dict[Claim, inputs.SkippedKey]()
        run.store.recheck_shared()
        with run.stage_scope():
            run.telemetry.load_origins(keys)
            run.telemetry.begin_traces(keys)
            claims = self._claim_keys(run.allowed_keys(keys))
            if run.dataset.key.split_by is not None:
                claims = order_by_window(claims)
            known = {} if run.is_reproduction else self._begin(claims)
            with self._fetcher(known) as fetcher:
                for claim in claims:
                    if claim.key in known or run.is_reproduction:
                        with run.failures.guard(claim, "compute"):
                            computed = self._compute_key(claim, known.get(claim.key), fetcher)
                            if isinstance(computed, inputs.SkippedKey):
                                skipped[claim] = computed
                            else:
                                results.append(computed)
                self._fetches += FetchCounts(misses=-fetcher.reused)
            run.advance("compute", results)
            self._skip(skipped)
        count_fetches(run.database, run.dataset.dataset, self._fetches)
        run.outcomes.emit_fetches(self._fetches)
        run.outcomes.emit_left_out(self._left_out)

    def _compute_key(
        self, claim: Claim, known: inputs.KnownInputs | None, fetcher: inputs.Fetcher
    ) -> StageResult | inputs.SkippedKey:
        run = self._run
        with metered_span(run.services, "extract"):
            prepared = self._prepare_inputs(claim, known, fetcher)
        self._fetches += prepared.fetches
        if isinstance(prepared, inputs.SkippedKey):
            return prepared
        config = run.configs.for_key(claim.key)
        with metered_span(run.services, "transform"):
            computed = self._process(config, prepared, claim.key)
        if nothing := inputs.skip_if_outside(computed, known):
            return nothing
        if config.dataset.key.split_by is not None and (
            same := skip_same_rows(run.services, config, claim, known, prepared, computed.table)
        ):
            return same
        run.store.write_table(run.layout.computed_table(claim.key, claim.epoch), computed.table, write_parquet)
        locate = partial(run.layout.computed_file, claim.key, claim.epoch)
        write_attachments(run.store, locate, computed.attachments)
        detail = {**prepared.as_detail(), **config.as_detail(claim.key)}
        if computed.left_out:
            detail["left_out"] = dict(computed.left_out)
        return StageResult(Transition(claim, Step.COMPUTE, detail))

    def _process(self, config: KeyConfig, prepared: inputs.PreparedInputs, key: str) -> Computed:
        """Returns all rows of the objects, or those of the key's member; what is left out of them is counted once."""
        if config.dataset.key.split_by is None:
            computed = process_key(config.dataset, prepared.objects, config.load_area, key)
            self._left_out.update(computed.left_out)
            return computed
        computed = self._splitter.process(config.dataset, prepared.objects, config.load_area, key)
        if self._splitter.has_read:
            self._left_out.update(computed.left_out)
        return computed

    def _claim_keys(self, keys: Sequence[str]) -> list[Claim]:
        """Takes the keys and cleans up after predecessors. Returns the claims on those that still have work to do."""
        valid = []
        for key in keys:
            try:
                CanonicalKey.parse(key)
                valid.append(key)
            except KfmError as error:
                self._run.notes[key] = str(error)
        try:
            with self._run.database.transaction() as connection:
                kill_switch.refuse_if_killed(connection, self._run.dataset.dataset)
        except DatasetKilled as error:
            self._run.notes |= dict.fromkeys(valid, str(error))
            return []
        begun, meter = datetime.now(UTC), Meter()
        claims, refused = self._run.claims.take_all(valid)
        self._run.notes |= {key: str(error) for key, error in refused.items()}
        again = [claim.key for claim in claims if claim.epoch > 1]
        with self._run.database.transaction() as connection:
            last = wal.last_entries(connection, again)
        left_open = {key for key, entry in last.items() if entry.outcome is None}
        if left_open:
            record_lost_costs(self._run.services, self._run.dataset.dataset, sorted(left_open))
        fresh = [claim for claim in claims if claim.key not in left_open]
        self._run.telemetry.emit_claims(fresh, begun, meter.read())
        return [claim for claim in claims if claim.key not in left_open or self._recover(claim)]

    def _recover(self, claim: Claim) -> bool:
        """Ends what a predecessor left open, and returns whether there is still work to do."""
        key = claim.key
        with self._run.failures.guard(claim, "compute", "wal_replay"):
            intent = transactions.close_abandoned(self._run.database, claim)
            if intent is not None and release.finish(
                self._run.services, self._run.dataset, claim, intent, lambda: self._run.configs.for_key(key).governance
            ):
                self._run.notes[key] = "an interrupted publication was completed"
                self._run.outcomes.emit_applied(claim, intent.detail, txn=intent.txn)
                return False
            clear_work(self._run.store, self._run.layout, key)
            return True
        return False

    def _begin(self, claims: Sequence[Claim]) -> dict[str, inputs.KnownInputs]:
        """Begins the transactions of the keys and archives their events, before work starts."""
        known: dict[str, inputs.KnownInputs] = {}

        def begin(group: Sequence[Claim]) -> None:
            known.update(inputs.begin(self._run.services, group))

        self._run.write_together("compute", claims, begin)
        with self._run.telemetry.shared(claims, "compute"):
            failures = archive_events(self._run.services, list(known))
        self._run.fail("compute", claims, failures)
        return {key: one for key, one in known.items() if key not in failures}

    def _fetcher(self, known: Mapping[str, inputs.KnownInputs]) -> inputs.Fetcher:
        dataset, load_area = self._run.dataset, KeyConfig(self._run.services, self._run.dataset).load_area
        derives = dataset.scene is not None and dataset.scene.derive is not None
        return inputs.Fetcher(
            partial(fetch_announced, dataset=dataset, load_area=load_area, store=self._run.store),
            self._expected_events(known),
            assumed_bytes=dataset.input.max_bytes if derives else 0,
            keep_bytes=KEPT_BYTES if dataset.key.split_by else 0,
        )

    def _expected_events(self, known: Mapping[str, inputs.KnownInputs]) -> Iterator[IngestEvent]:
        """Yields the events whose objects will probably have to be fetched."""
        for key, one in known.items():
            try:
                config = self._run.configs.for_key(key).governance.config_digest(key)
            except KfmError:  # reported when the key is computed
                return
            if one.may_need_fetching(config):
                yield from one.events

    def _prepare_inputs(
        self, claim: Claim, known: inputs.KnownInputs | None, fetcher: inputs.Fetcher
    ) -> inputs.PreparedInputs | inputs.SkippedKey:
        if known is None:
            return reproduce.prepare_reproduction(self._run.services, claim, self._run.configs, fetcher)
        config = self._run.configs.for_key(claim.key)
        if known.facts.source is not None:
            refuse_laxer_policy(self._run.services, config.dataset, known.facts.source)
        digest = config.governance.config_digest(claim.key)
        return inputs.prepare(self._run.services, config.dataset, claim, known, digest, fetcher)

    def _skip(self, skipped: Mapping[Claim, inputs.SkippedKey]) -> None:
        def skip(claims: Sequence[Claim]) -> None:
            transactions.skip(self._run.database, {claim: skipped[claim].detail for claim in claims})

        written = self._run.write_together("compute", list(skipped), skip)
        for claim, one in skipped.items():
            if claim.key in written:
                self._run.notes[claim.key] = one.note
                self._run.outcomes.emit_unpublished(claim, SKIPPED)
