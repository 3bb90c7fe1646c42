"""The dispatch engine: the holders of every embedding row, the costs of a dispatch, and its plans.

The engine mirrors the state of every row and of every worker's cache. One iteration is

    engine.prepare(ids)                     # look the batch up
    costs = engine.costs(link_costs)        # or affinity(): what a mechanism needs to decide
    plans = engine.commit(assignment)       # advance the state, get every worker's plan columns

Everything is deterministic: the same calls give the same answers, bit for bit. A permutation of the samples
permutes `costs`, `positions` and `inverse` and changes nothing else. Calls release the GIL; an engine
may be shared by threads, whose calls then run one after another.

The module `wide_engine` has the same classes for up to 128 workers, where a set of workers takes two words
(`esd.native.engines`).
"""

from collections.abc import Iterator, Sequence
from typing import TypedDict, overload

import numpy as np
from numpy.typing import NDArray

class CacheTooSmall(ValueError):
    """One iteration's rows of some worker do not fit its cache. Nothing has changed."""

class TransferColumns(TypedDict):
    """Columns of `esd.services.domain.plans.Transfers`: r rows of one worker.

    A row is early if it was not in the batch of the previous iteration, and, of pulls, neither was the row whose slot
    it takes. Early entries come first. Early and late ones ascend by id each, but evictions and drops are in the order
    in which the cache policy chose them. `early` is the number of early ones.
    """

    ids: NDArray[np.uint64]
    slots: NDArray[np.uint32]
    versions: NDArray[np.int64]
    early: int

class GradientColumns(TransferColumns):
    """Columns of `esd.services.domain.plans.GradientTransfers`.

    `contributors` is the set of workers that trained the row together, also after some of them
    have pushed already: the parameter server applies the sum when it has heard all of them. It is the bits of one word,
    uint64 [r], or of two words with the lower one first, uint64 [r, 2].
    """

    contributors: NDArray[np.uint64]
    steps: NDArray[np.int64]

class DirectColumns(TypedDict):
    """Columns of `esd.services.domain.plans.DirectRows`."""

    places: NDArray[np.uint32]
    peers: NDArray[np.uint32]

class PlanColumns(TypedDict):
    """Columns of `esd.services.domain.plans.IterationPlan` that the engine decides; shapes and meaning are there.

    `unique_ids` ascends. `positions` ascends. `forgotten` is the same for every worker. It is in the order in which the
    rows were trained last, ties by id; so are early and late `discards`.
    """

    iteration: int
    forgotten: NDArray[np.uint64]
    forgotten_below: int
    discards: TransferColumns
    update_rows: TransferColumns
    update_gradients: GradientColumns
    evict_rows: TransferColumns
    evict_gradients: GradientColumns
    drops: TransferColumns
    pulls: TransferColumns
    positions: NDArray[np.uint32]
    unique_ids: NDArray[np.uint64]
    unique_slots: NDArray[np.uint32]
    unique_versions: NDArray[np.int64]
    unique_contributors: NDArray[np.uint64]
    reduced: NDArray[np.uint32]
    direct_pushes: DirectColumns
    direct_pulls: DirectColumns
    inverse: NDArray[np.uint32]
    initial_ids: NDArray[np.uint64]

class IterationColumns:
    """The plan columns of one iteration, of every worker in slot order.

    The arrays of a worker's dict are views, made when the dict is asked for. Their memory goes back to the engine when
    the last of them is gone.

    Attributes:
        forgotten: the number of rows that leave the table.
        expired: the number of these rows whose time to live is over.
        counts: int64 [8, n], by worker the rows of its pulls, of its update pushes of rows and of gradients, of its
            evict pushes of rows and of gradients, of its drops, the rows that its samples use, and the
            used rows of which it has the latest value.
        figures: int64, the counts of the way to synchronise: see its class; empty for a way that counts nothing.
        direct: int64 [T, n], by table the rows that each worker sends straight to another.
        table_counts: int64 [T, 9, n], by table the first five, the rows that samples use, the used rows of which the
            worker has the latest value, the pulls that come without optimizer state (of rows that several workers
            train, or that were never trained), and the pulls of rows that were never trained.
    """

    forgotten: int
    expired: int
    counts: NDArray[np.int64]
    figures: NDArray[np.int64]
    direct: NDArray[np.int64]
    table_counts: NDArray[np.int64]

    def __len__(self) -> int:
        """The number of workers."""

    def messages(
        self,
        epoch: int,
        dense: NDArray[np.float32],
        labels: NDArray[np.float32],
        lengths: NDArray[np.uint32] | None = None,
        weights: NDArray[np.float32] | None = None,
        groups: NDArray[np.uint64] | None = None,
        references: NDArray[np.uint64] | None = None,
        chunks: NDArray[np.uint32] | None = None,
        roles: NDArray[np.uint32] | None = None,
    ) -> list[bytes]:
        """Encodes every worker's plan, in slot order, as an `AttendResponse` of protos/dispatcher.proto.

        Args:
            epoch: the membership that the plans are for.
            dense: float32 [k, d], C-contiguous, the dense features of the batch.
            labels: float32 [k, L], C-contiguous, its labels.
            lengths: uint32 [k, F], C-contiguous, the lengths of all its ids, admitted or not.
            weights: float32 [k], the weights of its samples.
            groups: uint64 [k], the groups of its samples.
            references: uint64 [k], to labels and dense features that stay at their sites; d and L are 0 then.
            chunks: uint32 [c], the chunks of its last c samples, which are lists of negatives; None: no sample is.
            roles: uint32 [n], the `DenseRole` of each worker; None: all train the dense parameters.

        Raises:
            ValueError: the batch has another number of samples, or of fields, or fewer than c samples; or there are not
                n roles.
        """

    def __getitem__(self, worker: int) -> PlanColumns:
        """One worker's columns. Raises IndexError unless 0 <= worker < n."""

    def __iter__(self) -> Iterator[PlanColumns]:
        """Yields the columns of every worker, in slot order."""

class FlushColumns(TypedDict):
    """Columns of `esd.services.domain.plans.FlushPlan`."""

    iteration: int
    rows: TransferColumns
    gradients: GradientColumns

class CacheColumns(TypedDict):
    """The content of one worker's cache: r rows, in every table ascending by slot.

    Attributes:
        ids: uint64 [r].
        slots: uint32 [r].
        versions: int64 [r], the latest version of each row.
        latest: bool [r], whether the copy is at that version; otherwise it is outdated and must be pulled to be used.
    """

    ids: NDArray[np.uint64]
    slots: NDArray[np.uint32]
    versions: NDArray[np.int64]
    latest: NDArray[np.bool_]

class Stats(TypedDict):
    """The sizes of an engine's state.

    Attributes:
        ids: distinct ids seen so far, but for forgotten ones.
        index_bytes: memory of the state index.
        cache_bytes: memory of the cache mirrors.
        cached_rows: rows in each worker's cache, int64 [n].
    """

    ids: int
    index_bytes: int
    cache_bytes: int
    cached_rows: NDArray[np.int64]

class BatchIds:
    """The ids of a batch that several engines prepare, of which the first finds out which ids are the same.

    It is for concurrent use. The arrays must not be changed.
    """

    def __init__(self, ids: NDArray[np.uint64], lengths: NDArray[np.uint32] | None = None) -> None:
        """Takes the ids, and looks at them when an engine does.

        Args:
            ids: uint64 [k, F], or [N] with lengths, C-contiguous; any value, repeats within a sample count once. k
                and F may be 0; N < 2^32.
            lengths: uint32 [k, F], C-contiguous: how many ids each field of each sample has; they lie in `ids` sample
                by sample, field by field. None: each has one.

        Raises:
            ValueError: lengths do not sum to N.
        """

class AdmittedIds:
    """The ids of a batch, divided into admitted ids, which are trained, and ids whose initial rows the samples read.

    Attributes:
        ids: uint64 [N], the admitted ids of all samples, sample by sample; read-only.
        lengths: uint32 [k, F], how many of them each field of each sample has; read-only.
        initial_ids: uint64 [v], the other ids, distinct and ascending; read-only.
        newly: the number of ids that this iteration admits; 0 of a later batch.
    """

    ids: NDArray[np.uint64]
    lengths: NDArray[np.uint32]
    initial_ids: NDArray[np.uint64]
    newly: int

class Admission:
    """Admits an id in the iteration that is the N-th to have it, with N of its table.

    Iterations are counted in a count-min sketch (Cormode and Muthukrishnan, J. Algorithms 2005) of 64 MiB with
    conservative update (Estan and Varghese, SIGCOMM 2002): four rows of cells of 2, 4 or 8 bits, for N up to 3, 15 or
    255. An id never counts too few iterations, so it is admitted in its N-th one at the latest. It counts too many
    where other ids share all of its cells.

    Attributes:
        error: the share of new ids that count N - 1 iterations already, for the lowest N above 1.
        words: uint64 [2^23], the cells, as a view.
        full: uint64 [4], in each row the number of cells that count N - 1 or more, for the lowest N above 1; a view.
    """

    error: float
    words: NDArray[np.uint64]
    full: NDArray[np.uint64]

    def __init__(self, afters: Sequence[int], seed: int) -> None:
        """Starts without any count.

        Args:
            afters: N of each table, 1..255, not all 1. With several tables, the top 8 bits of an id are its table.
            seed: uint64, of the cells.

        Raises:
            ValueError: an N is out of range, or all are 1.
        """

    def count(self, ids: NDArray[np.uint64], lengths: NDArray[np.uint32] | None = None) -> AdmittedIds:
        """Counts an iteration, and divides its ids. The arguments have the form that `BatchIds` takes.

        Raises:
            ValueError: an id names a table that does not exist, or lengths do not sum to N; nothing is counted.
        """

    def expect(self, ids: NDArray[np.uint64], lengths: NDArray[np.uint32] | None = None) -> AdmittedIds:
        """Divides the ids of a later iteration as if it came next, and counts nothing; with the errors of `count`."""

    def copied_words(self) -> NDArray[np.uint64]:
        """Returns a copy of the cells. If no earlier copy is in use any more, the new one takes the memory of that."""

class Way:
    """A way to synchronise, with its options, for an engine; each subclass is one way (native/engine/sync)."""

class OnDemand(Way):
    """A row is pushed when another worker needs it, or when it leaves a cache.

    Args:
        direct: plans list the rows that one worker owns and one other alone trains: they go straight to it, and no
            parameter server hears of them. Nothing else changes.
    """

    def __init__(self, *, direct: bool = False) -> None: ...

class PushAll(Way):
    """Every row that an iteration trains is an update push of the next one, at each worker that trained it.

    In a flush it is pushed before that; all rows are clean in between.
    """

    def __init__(self) -> None: ...

class Uncached(Way):
    """As `PushAll`, and no copy is used again: every row of an iteration is pulled. A cache is the iteration's room."""

    def __init__(self) -> None: ...

class Proactive(Way):
    """As `OnDemand`, and rows may be pushed before they are needed, as `Engine.commit` and `look_ahead` describe.

    Figures: int64 [n], how many update pushes of each worker nothing needs yet.
    """

    def __init__(self) -> None: ...

class Replicated(Way):
    """As `OnDemand`, but for the rows that are read most, which all workers train.

    Reads are counted as batches are trained. Every 32 iterations a quarter of them is forgotten, and the rows that are
    read most, and more often than there are workers that replicate, are chosen anew; one that was chosen before counts
    for a quarter more; ties go to the lower id. A chosen row becomes replicated in the iteration that trains it next:
    all workers pull it, and train it from then on, with none of their samples, too. It stays in their caches, and is
    not pushed, until it is not chosen any more: then one worker pushes it, which its id decides, in the next iteration.
    For decisions it is a clean row that all workers have.

    Figures: int64 [T], by table how many replicated rows the iteration trains.

    Args:
        room: in every cache, in units of row size, for these rows; at least 1, and below the smallest cache.
        workers: that replicate, as slots; none: all. Others must not be assigned any samples.
        seed: decides in which iterations rows are chosen.
        first_iteration: of the stream, from which these are counted.
    """

    def __init__(self, *, room: int, workers: Sequence[int] = (), seed: int = 0, first_iteration: int = 0) -> None: ...

class Bounded(Way):
    """Each worker trains its own copies, also of rows that other workers train, within bounds (HET; docs/semantics.md).

    `unique_contributors` are then the worker alone, `unique_versions` those that copies were pulled at or that their
    last push made, and all pushes are gradients. There is a snapshot after a flush only.

    Figures: int64 [11], reads of rows by how many updates they lack (9 buckets), the updates that they lack together,
    and the most that one read lacks.

    Args:
        pull: updates that the parameter server has, and a copy that is trained on may lack, at most 10000.
        push: updates of a row that a worker may keep to itself, at most 10000.
        additive: of each table, whether steps with several gradients come to one step with their sum; if there are
            none, no table is. Else a copy is pulled again after a push that the server took as one step and the worker
            as several.
    """

    def __init__(self, *, pull: int, push: int, additive: Sequence[bool] = ()) -> None: ...

class Savepoint:
    """All that a commit of one engine changes, in memory."""

class Engine:
    """State of all rows and caches of one job.

    Args:
        cache_sizes: room of each worker's cache in units of row size, so rows where all have size 1; its length is n,
            1..64 (`wide_engine`: 1..128).
        policy: the order in which copies leave a full cache: `emark` (ESD paper, section 8.1), `emark-size` (8.2),
            `reuse`, `lru`, `lfu` or `static` (6.1, FAE). A use is an iteration that trains the copy; frequency is the
            number of uses since the copy was cached (counted to 1023). Rows of the current iteration never leave. Ties
            go to the copy that came first to where it stands in the order, then to the lower id.

            - `lru`: oldest use first.
            - `lfu`: lowest frequency, then oldest use.
            - `emark`: copies that are outdated, or will be when this iteration ends, before all others; then lowest
              mark, lowest frequency, oldest use (outdated ones: those that lost the latest value first, however often
              the row was trained elsewhere since). A copy with a partial gradient to push is not outdated. A used copy
              gets the mark `target`, which starts at 1 and rises by one, before this iteration's rows are marked, when
              a victim is needed and every copy that may leave is current and marked `target`.
            - `emark-size`: as `emark`, but frequency / row size takes the place of frequency, and of equals the bigger
              row leaves first.
            - `reuse`: outdated copies first, those that lost the latest value first; then by the trainings of the row
              until the copy's last use, that one included and 16 at most, by the iterations since then plus 10: lowest
              quotient first, then fewest trainings, then oldest use.
            - `static`: rows that are not hot, oldest use first; then hot ones, oldest use first. The first 100
              iterations are the profile: then the rows that most of them trained (ties to the lower id) become the
              hot set for good, as many as fit the smallest cache. A copy counts as hot from its next use on.
        table_sizes: size of the rows of each table, 1..256 tables, 1..65535 (ESD paper, section 8.2); the top 8 bits of
            an id are the number of its table. If there are none, there is one table, with rows of size 1, and an id is
            any number. Each table has slots of its own, numbered from 0 upwards; the room of a cache is shared.
        max_rows: how many trained rows there may be; 0 stands for any number. Before an iteration that brings more,
            rows that it does not train are forgotten, as few as will do: those trained longest ago, ties to the lowest
            id. Their copies leave all caches without a push. A forgotten id that comes back is new, and its versions
            (services/domain/versions.py) are of a later life.
        row_ttls: the iterations that a row lives without a training, of each table; 0 stands for any number, and so
            does an empty list. An iteration forgets a row in the same way if it is the last of so many iterations in a
            row that do not train it.
        window: a plan is made when all pushes of the plans before the last `window` ones are durable. So many
            iterations after its last copy has gone, a row leaves the engine, and the parameter server keeps it. An id
            that comes back then continues with the row of the parameter server, in a later life
            (services/domain/versions.py). How often it was trained is remembered of 8 rows per cached one. With 0,
            which max_rows and row_ttls need, rows never leave.
        spare_rows: how many rows the engine knows although no worker caches them.
        gradient_shares: how large a partial gradient is by its row, above 0 and at most 16, of each table; if there are
            none, 1.
        value_shares: the same for a row without its optimizer state, at most 1.
        sync: the way to synchronise; on demand by default.

    Raises:
        ValueError: no or more than 64 workers (`wide_engine`: 128), a cache without room, an unknown policy, a size
            or share out of range.
    """

    def __init__(
        self,
        cache_sizes: Sequence[int],
        policy: str,
        *,
        table_sizes: Sequence[int] = (),
        max_rows: int = 0,
        row_ttls: Sequence[int] = (),
        window: int = 0,
        spare_rows: int = 0,
        gradient_shares: Sequence[float] = (),
        value_shares: Sequence[float] = (),
        sync: Way | None = None,
    ) -> None: ...
    @overload
    def prepare(self, ids: BatchIds) -> None: ...
    @overload
    def prepare(self, ids: NDArray[np.uint64], lengths: NDArray[np.uint32] | None = None) -> None:
        """Looks a batch up; unseen ids are born clean, at version 0, cached nowhere.

        Replaces a batch that was prepared and not committed.

        Args:
            ids: of the batch, as `BatchIds` takes them, or those that several engines prepare. k and F may differ from
                call to call.
            lengths: likewise.

        Raises:
            ValueError: an id names a table that is not there, or lengths do not sum to N.
        """

    def costs(self, link_costs: NDArray[np.int32]) -> NDArray[np.int32]:
        """Expected transmission cost of training each sample on each worker (ESD paper, Alg. 1).

        c[i, j] = sum over the distinct ids x of sample i, if worker j lacks the latest x: T_j, plus T_h if x is
        owned by h; each times the size of the row.

        Args:
            link_costs: int32 [n], T_j of a row of size 1 in any unit, not negative; 2 * max(T) * the largest sum of
                the row sizes of one sample (F where all are 1) < 2^31.

        Returns:
            int32 [k, n].

        Raises:
            ValueError: wrong length, a negative or too large link cost.
            RuntimeError: no batch is prepared.
        """

    def room_needed(self) -> NDArray[np.int32]:
        """int32 [k, n]: the size of the distinct rows of each sample that each worker does not cache, latest or not.

        Training the sample there takes that much room of its cache, and where it is full, other rows must leave.

        Raises:
            RuntimeError: no batch is prepared.
        """

    def training_shares(self) -> NDArray[np.int32]:
        """int32 [k, n]: which share of the trainings of its distinct ids each worker has had, added up over a sample.

        A share is in whole 4096ths, rounded down; the first call begins to count, so it returns zeros. Forgotten ids
        begin anew. Counts are part of a snapshot; an engine of another number of workers takes none over.

        Raises:
            RuntimeError: no batch is prepared.
        """

    def affinity(self, fields: NDArray[np.uint32] | None = None, *, latest: bool = False) -> NDArray[np.int32]:
        """Herald's score: int32 [k, n], how many distinct ids of each sample each worker has at hand.

        A copy counts when it is the latest (Herald paper, Alg. 1). Unless `latest` is true, a copy also counts when
        its worker took part in the row's last training and still caches it, as in Herald's released scheduler.

        Args:
            fields: uint32 [f], count only ids of these fields (an id that a sample repeats is of its first
                field); all of them by default.
            latest: whether the latest copies alone count.

        Raises:
            ValueError: a field is not below F.
            RuntimeError: no batch is prepared.
        """

    def joint(
        self,
        link_costs: NDArray[np.int32],
        capacities: NDArray[np.int32],
        seed: int,
        seconds: float = ...,
        wide_rounds: int = 5,
        narrow_rounds: int = 30,
        limits: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]] | None = None,
        lookahead: Sequence[int] = (),
        most_rounds: tuple[int | None, int | None] = (None, None),
        sites: tuple[NDArray[np.int32], NDArray[np.int32]] | None = None,
    ) -> tuple[NDArray[np.int32], float, float, tuple[int, int]]:
        """Places all samples of the prepared batch together, so that the iteration's operations cost least.

        The objective counts a row once per worker that trains it, for any number of samples there. For a row
        trained by the set M, owned by h or by no worker, and used again with probability p, whose partial gradient is g
        times as large as the row, and its values without optimizer state v times:

        - M = {j}: T_j if j lacks the latest, plus T_h if h exists and is not j;
        - |M| >= 2: T_h if h exists, plus for each j in M: v T_j if j lacks the latest, plus p g T_j (the push of
          its partial gradient).

        A row that was never trained costs v T_j in the first case, too. Each is times the size of the row. p is learned
        from the stream: the share of the rows trained as often as this one that were trained again. Evictions are not
        foreseen. v T_j and p g T_j are rounded to 1/64 (less finely where link costs are large).

        With a lookahead, its batches and the one to place are placed first, as one large batch, with capacities in
        proportion. If that makes the set N train a row next, then p = 1 for this row, and M = {j} also counts the
        part of that training that depends on j: T_j unless N = {j}, less the pull that j then saves, T_j if N = {j}, v
        T_j if j is one of several. So the objective may be negative.

        The search is a large-neighbourhood search: the first round assigns all samples exactly on costs that ignore
        each other; every later round takes some samples away, prices the addition of each at each worker against the
        samples that stay, and assigns them exactly. Wide rounds free half of the samples, narrow rounds the samples
        that would cost little elsewhere.

        Args:
            link_costs: int32 [n], as for `costs`.
            capacities: int32 [n], samples of each worker, not negative; they sum to the samples to place, the
                first ones of the prepared batch, k without a lookahead.
            seed: uint64, decides which samples the rounds take away.
            seconds: no round but the first starts later; infinite by default. Without this limit, the result is a
                function of the state, the batch and the arguments.
            wide_rounds: how many wide rounds there are.
            narrow_rounds: how many narrow rounds there are.
            limits: least and most samples of each worker, [n], around its capacity; in units of the link costs the
                computation of each per sample, [n], and its time that depends on no sample, [n]. If given, workers
                expected to take longer than the mean (operations but for evictions, computation, and that time) pass
                samples on in up to ten more rounds; a round counts if the slowest worker becomes faster. None:
                capacities are met.
            lookahead: samples of each batch that follows, in order; together they are the last ones of the
                prepared batch.
            most_rounds: how many rounds there are after the first, at most: when all batches are placed together, and
                when the first one is. What a search with a time limit returns makes one without a limit do the same.
            sites: the site of each sample, int32 [k], and of each worker, int32 [n], numbered from 0: a sample is
                placed at a worker of its site. Capacities then sum to the samples of each site. Not with limits or a
                lookahead. None: any worker.

        Returns:
            The assignment, int32 [k]; its objective; the objective after the first round; the number of rounds after
            the first, both times. Without limits the second is never above the third.

        Raises:
            ValueError: wrong lengths, a negative or too large link cost, capacities that do not sum to k or are not
                within the limits, a sample or fixed cost that is negative or not finite.
            RuntimeError: no batch is prepared.
        """

    def preview(self, assignment: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Counts the rows that an assignment would train and move, in units of row size: int64 [n] and float64 [n].

        The first is the distinct rows that each worker would train, and so the room that it needs in its cache. The
        second is the size of its pulls and pushes, where a partial gradient is smaller than its row; evictions, which
        are not known before, are left out.

        Args:
            assignment: int32 [k], worker of each sample of the prepared batch.

        Raises:
            ValueError: wrong length, or a worker outside 0..n-1.
            RuntimeError: no batch is prepared.
        """

    def look_ahead(self, ids: NDArray[np.uint64], iteration: int) -> None:
        """Tells which rows a later iteration reads, so that those that are read first are pushed ahead first.

        A prepared batch is forgotten.

        Args:
            ids: uint64 [u], C-contiguous.
            iteration: one of the 31 behind the next; each once.

        Raises:
            ValueError: another iteration.
            RuntimeError: the engine does not flush ahead.
        """

    def commit(
        self,
        assignment: NDArray[np.int32],
        push_limits: Sequence[int] | None = None,
        admitted: AdmittedIds | None = None,
    ) -> IterationColumns:
        """Dispatches the prepared batch and advances the state by one iteration.

        In this order: rows are forgotten, update pushes of everything the batch needs, evictions, pulls, training.

        Args:
            assignment: int32 [k], worker of each sample.
            push_limits: with `Proactive`, how many rows each worker pushes at most of those that neither this
                iteration nor the last one trains, [n]; they are early update pushes. By default none.
            admitted: where the prepared batch is the admitted ids of another one: the other ids become the plans'
                `initial_ids`, and `inverse` has an entry for each of their occurrences, as u + their places.

        Returns:
            The plan columns of every worker, in slot order.

        Raises:
            CacheTooSmall: some worker's distinct rows need more room than its cache has. The batch stays prepared.
            ValueError: wrong length, a worker outside 0..n-1, more distinct ids than `max_rows`, or admitted ids that
                are not the prepared ones. The batch stays prepared.
            RuntimeError: no batch is prepared.
        """

    def flush(self) -> list[FlushColumns]:
        """Makes every worker push all updates that the parameter server lacks; all rows become clean.

        Owned rows stay in their caches as latest copies, partial gradients leave outdated copies behind.
        """

    @property
    def workers(self) -> int:
        """The number of workers, n."""

    @property
    def iteration(self) -> int:
        """The number of iterations committed so far, which is the number of the next one."""

    @property
    def distinct(self) -> int:
        """Distinct ids of the prepared batch; 0 without one."""

    @property
    def lookups(self) -> int:
        """Distinct rows that the workers needed in the last committed iteration, summed over workers."""

    @property
    def hits(self) -> int:
        """The number of `lookups` that found the latest value in the worker's cache."""

    @property
    def memory_bytes(self) -> int:
        """The memory held in bytes: state index, cache mirrors and scratch space."""

    def stats(self) -> Stats:
        """Returns the sizes of the engine's present state."""

    def contents(self) -> list[CacheColumns]:
        """Returns the content of each worker's cache, in slot order. No batch may be prepared."""

    def snapshot(self) -> bytes:
        """Returns the whole state, for `restore`. A prepared batch is no part of it."""

    def savepoint(self) -> Savepoint:
        """Returns the whole state, for `roll_back`, at any time: pushes that the way keeps back are part of it."""

    def roll_back(self, before: Savepoint) -> None:
        """Returns to a savepoint of this engine; a prepared batch is forgotten."""

    def restore(self, snapshot: bytes, warm: bool = True) -> None:
        """Returns to the state of a snapshot; a prepared batch is forgotten.

        Unless `warm`, the caches begin empty, and the snapshot may be of any number of workers, with any caches and
        policy; it must have been taken after a flush.

        Raises:
            ValueError: not a snapshot, damaged, or of an engine with other caches or another policy; cold: not taken
                after a flush. Nothing has changed.
        """

class HotSamples:
    """Tells which samples of a stream use replicated rows alone, before an engine gets them (SCARS paper, section III).

    It takes in the batches that the engine trains, and makes the same choices. Rows that were not read of late are
    forgotten, so memory is bounded by the rows of the last few periods of 32 batches. Calls run one after another.

    Args:
        table_sizes: as of the engine.
        room: the room of its way `Replicated`, at least 1.
        workers: how many replicate, 1..64 (`wide_engine`: 1..128).
        seed: of the engine.

    Raises:
        ValueError: room or workers are out of range.
    """

    def __init__(self, table_sizes: Sequence[int], room: int, workers: int, seed: int) -> None: ...
    def judge(self, ids: NDArray[np.uint64], lengths: NDArray[np.uint32] | None = None) -> NDArray[np.bool_]:
        """Returns whether the engine will have replicated all rows of each sample in the next iteration, bool [k].

        Args:
            ids: uint64 [k, F], or [N] with lengths, as `Engine.prepare` takes them.
            lengths: uint32 [k, F].

        Raises:
            ValueError: lengths do not sum to N.
        """

    def train(self, ids: NDArray[np.uint64], lengths: NDArray[np.uint32] | None = None) -> bool:
        """Takes in the next batch that is trained, of ids as `judge` has them.

        Returns:
            Whether rows are replicated no longer, so that samples which were hot may not be any more.

        Raises:
            ValueError: an id names a table that is not there, or lengths do not sum to N.
        """

    @property
    def memory_bytes(self) -> int:
        """Memory of the counts."""
