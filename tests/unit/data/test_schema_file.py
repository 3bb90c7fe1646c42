"""Schemas as files and as texts: all that they say, and the mistakes that are named."""

from __future__ import annotations

from pathlib import Path

import pytest

import esd
from esd.data.schema import Schema, admit_afters, job_tables, row_ttls
from esd.data.schema_file import read_schema
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.tables import OptimizerSpec, TableSpec
from tests.support.event_tables import LISTS, SCHEMA


def test_a_schema_s_text_has_what_is_said_and_nothing_else() -> None:
    """Or a key that schemas get later would make other streams of those that jobs have begun."""
    assert Schema("y", ("user", esd.Id("item"))).to_json() == (
        '{"ids": [{"column": "user"}, {"column": "item"}], "label": "y"}'
    )
    texts = {
        schema.to_json()
        for schema in (
            Schema("y", ("user",)),
            Schema("y", ("user",), positive_from=0.0),
            Schema("y", ("user",), missing={"user": ""}),
            Schema("y", (esd.Id("user", table="u"),)),
        )
    }
    assert len(texts) == 4


def test_a_schema_file_says_all_of_a_schema(tmp_path: Path) -> None:
    file = tmp_path / "schema.toml"
    file.write_text(
        'label = "clicked"\nids = ["user", "item", "day"]\ncrosses = [["user", "item"]]\ndense = ["price", "age"]\n'
        'log = ["price"]\n[missing]\nitem = ""\nage = 30\n'
    )
    assert read_schema(file) == SCHEMA


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("ids = ['a']", "the key 'label' is missing"),
        ("label = 'y'\nids = []", "at least one column of ids"),
        ("label = 'y'\nids = ['a', 'a']", "names column 'a' twice"),
        ("label = 'y'\nids = ['y']", "names column 'y' twice"),
        ("label = 'y'\nids = ['a']\nindices = ['b']", "there is no key 'indices'"),
        ("label = 'y'\nids = ['a']\ndenes = ['b']", "did you mean 'dense'?"),
        ("label = 'y'\nids = 'a'", "ids is 'a'"),
        ("label = 'y'\nids = ['a']\ncrosses = [['a', 'b']]", "the cross ['a', 'b']"),
        ("label = 'y'\nids = ['a']\nlog = ['a']", "log names 'a'"),
        ("label = 'y'\nids = ['a']\nmissing = {b = 1}", "missing names 'b'"),
        ("label = 'y'\nids = ['a']\ndense = ['p']\nmissing = {p = 'x'}", "missing.p is 'x'"),
        ("label = 'y'\nids = ['a']\npositive-from = 'x'", "positive-from is 'x'"),
        ("label = ", "cannot be read"),
        ("label = 'y'\nids = [{ max = 3 }]", "ids.0: the key 'column' is missing"),
        ("label = 'y'\nids = [{ column = 'a', max = '3' }]", "ids.a.max is '3', it must be a whole number"),
        ("label = 'y'\nids = [{ column = 'a', max = 0 }]", "ids.a.max is 0, it must be at least 1"),
        ("label = 'y'\nids = [{ column = 'a', max = 2, pol = 'sum' }]", "did you mean 'pool'?"),
        (
            "label = 'y'\nids = [{ column = 'a', max = 2, pool = 'max' }]",
            "ids.a.pool is 'max', choose 'sum', 'mean' or 'list'",
        ),
        (
            "label = 'y'\nids = [{ column = 'a', max = 2, longer = 'keep' }]",
            "ids.a.longer is 'keep', choose 'refuse' or 'cut'",
        ),
        ("label = 'y'\nids = ['a']\n[tables.b]\ndim = 4", "tables has 'b', which no column of ids is of"),
        ("label = 'y'\nids = [{ column = 'a', table = 'b' }]\n[tables.b]\ndims = 4", "did you mean 'dim'?"),
        (
            "label = 'y'\nids = [{ column = 'a', table = 'b' }]\n[tables.b]\noptimizer = 'x'",
            "tables.b.optimizer is 'x', choose 'sgd', 'adagrad' or 'adam'",
        ),
        ("label = 'y'\nids = ['b', { column = 'a', max = 2 }]\ncrosses = [['a', 'b']]", "the cross ['a', 'b']"),
        ("label = 'y'\nids = ['a']\nlabel-range = [1]", "label-range is [1]"),
        ("label = 'y'\nids = ['a']\npositive-from = 1\nlabel-range = [0, 1]", "positive_from and label_range say"),
        ("label = 'y'\nids = ['a']\npositive-from = 1\npositive = ['yes']", "give one of them"),
        ("label = 'y'\nids = ['a']\npositive = 'yes'", "positive is 'yes', it must be a list: ['yes']"),
        ("label = 'y'\nids = ['a']\npositive-from = nan", "positive_from is nan"),
        ("label = 'y'\nids = ['a']\nlabel-range = [5, 1]", "label_range is 5 to 1, the least label must be below"),
        ("label = 'y'\nids = ['a']\ndecimal = 5", "decimal is 5, choose '.' or ','"),
        ("label = 'y'\nids = ['a']\ndecimal = ';'", "decimal is ';', choose '.' or ','"),
        ("label = 'y'\nids = ['a']\ndense = ['p']\nmissing = {p = inf}", "missing.p is inf"),
        ("label = 'y'\nids = ['a']\nweight = 'a'", "names column 'a' twice"),
        ("label = 3\nids = ['a']", "label is 3, it must be the name of a column, or a list of names"),
        ("label = ['y', 3]\nids = ['a']", "label has 3, it must be a text"),
        ("label = 'y'\nids = ['a', 3]", "ids has 3, it must be the name of a column, an esd.Id or an esd.IdList"),
        ("label = 'y'\nids = ['a', { column = 'b', pool = 'sum' }]", "ids.b: the key 'max' is missing"),
        ("label = 'y'\nids = ['a']\nmissing = {a = []}", "missing.a is [], it must be a text or a number"),
        ("label = 'y'\nids = ['a']\ntables = {a = 3}", "tables.a is 3, it must be keys with values"),
        (
            "label = 'y'\nids = ['a']\npositive_from = 3",
            "there is no key 'positive_from'; did you mean 'positive-from'?",
        ),
        ("label = 'y'\nids = 3\ndense = 4", "ids is 3, it must be a list; dense is 4, it must be a list"),
    ],
)
def test_a_mistake_in_a_schema_is_named(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "schema.toml"
    file.write_text(text)
    with pytest.raises(InvalidArgument) as refused:
        read_schema(file)
    assert str(file) in str(refused.value)
    assert named in str(refused.value)


def test_a_file_that_is_no_utf8_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "schema.toml"
    file.write_bytes('label = "y"\nids = ["caf\u00e9"]\n'.encode("latin-1"))
    with pytest.raises(InvalidArgument, match=r"schema\.toml cannot be read: line 2 is not UTF-8"):
        read_schema(file)


def test_a_file_s_numbers_stay_as_they_are_written(tmp_path: Path) -> None:
    """Or the streams of jobs that have begun would get another fingerprint."""
    file = tmp_path / "schema.toml"
    file.write_text('label = "y"\nids = ["u"]\ndense = ["p"]\nlabel-range = [0, 5]\n[missing]\np = 3\n')
    assert read_schema(file).to_json() == (
        '{"dense": ["p"], "ids": [{"column": "u"}], "label": "y", "label_range": [0.0, 5.0], "missing": {"p": 3}}'
    )


def test_a_file_says_lists_tables_labels_weight_and_group(tmp_path: Path) -> None:
    file = tmp_path / "schema.toml"
    file.write_text(
        'label = ["clicked", "rating"]\nlabel-range = [0, 5]\nweight = "weight"\ngroup = "user"\n'
        'ids = ["user", { column = "tags", max = 3, pool = "sum" }, { column = "item", table = "items" },\n'
        '    { column = "seen", table = "items", max = 4 }]\ncrosses = [["user", "item"]]\n'
        '[tables.items]\ndim = 4\noptimizer = "adam"\n[missing]\ntags = "none"\n'
    )
    assert read_schema(file) == LISTS


def test_a_table_has_a_time_to_live_of_its_own(tmp_path: Path) -> None:
    """It changes no sample, so a stream keeps its name."""
    head = "label = 'y'\nids = ['u', { column = 'a', table = 'b' }, { column = 'c', table = 'd' }]\n"
    texts = [head + "[tables.b]\ndim = 4\n", head + "[tables.b]\ndim = 4\nrow-ttl = 0\n[tables.d]\nrow-ttl = 9\n"]
    schemas = []
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.toml").write_text(text)
        schemas.append(read_schema(tmp_path / f"{number}.toml"))
    features = schemas[0].features
    assert [row_ttls(schemas[0], features, ttl) for ttl in (0, 7)] == [(), (7, 7, 7)]
    assert [row_ttls(schemas[1], features, ttl) for ttl in (0, 7)] == [(0, 0, 9), (7, 0, 9)]
    assert row_ttls(None, features, 7) == (7, 7, 7)
    assert '"row_ttl"' not in schemas[1].to_json()


def test_a_table_has_a_limit_of_norms_of_its_own(tmp_path: Path) -> None:
    """It changes no sample, so a stream keeps its name."""
    file = tmp_path / "schema.toml"
    head = "label = 'y'\nids = ['u', { column = 'a', table = 'b' }, { column = 'c', table = 'd' }]\n"
    file.write_text(head + "[tables.b]\nmax-norm = 0\n[tables.d]\nmax-norm = 2.5\n")
    schema = read_schema(file)
    first = TableSpec("t", 4, OptimizerSpec(max_norm=1.0), seed=0, init_scale=0.5)
    tables = job_tables(schema, schema.features, first, {})
    assert [table.optimizer.max_norm for table in tables] == [1.0, 0.0, 2.5]
    assert "max_norm" not in schema.to_json()
    file.write_text(head + "[tables.b]\nmax-norm = -1\n")
    with pytest.raises(InvalidArgument, match="max_norm is -1"):
        job_tables(read_schema(file), schema.features, first, {})


def test_a_table_admits_ids_in_an_iteration_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "schema.toml"
    head = "label = 'y'\nids = ['u', { column = 'a', table = 'b' }, { column = 'c', table = 'd' }]\n"
    file.write_text(head + "[tables.b]\nadmit-after = 1\n[tables.d]\nadmit-after = 5\n")
    schema = read_schema(file)
    assert [admit_afters(schema, schema.features, after) for after in (1, 2)] == [(1, 1, 5), (2, 1, 5)]
    assert [admit_afters(None, schema.features, after) for after in (1, 2)] == [(), (2, 2, 2)]
    assert '"admit_after"' not in schema.to_json()
    file.write_text(head + "[tables.b]\nadmit-after = 0\n")
    with pytest.raises(InvalidArgument, match="admit-after"):
        read_schema(file)
