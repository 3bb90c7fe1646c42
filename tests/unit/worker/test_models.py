from dataclasses import replace

import numpy as np
import pytest
import torch

from esd.services.domain.errors import InvalidArgument
from esd.worker.models import build_model
from esd.worker.models.inputs import StackedEmbeddings
from tests.support.models import POOLED
from tests.support.reference import by_feature


@pytest.mark.parametrize("name", POOLED)
def test_samples_do_not_see_each_other(make_job, name):
    job = make_job(model=name)
    model = build_model(job)
    generator = torch.Generator().manual_seed(1)
    rows, dense = torch.randn(6, 4, 5, generator=generator), torch.randn(6, 3, generator=generator)
    together, alone = by_feature(job, rows), by_feature(job, rows[2:3])
    torch.testing.assert_close(model(together, dense)[2:3], model(alone, dense[2:3]))


@pytest.mark.parametrize("name", POOLED)
def test_initial_parameters_depend_on_the_seed_alone(make_job, name):
    torch.manual_seed(1)
    state = torch.get_rng_state()
    one = build_model(make_job(model=name)).state_dict()
    assert torch.equal(torch.get_rng_state(), state), "the global random state was used"
    torch.manual_seed(2)
    same = build_model(make_job(model=name)).state_dict()
    other = build_model(replace(make_job(model=name), seed=8)).state_dict()
    for key, values in one.items():
        assert torch.equal(values, same[key])
    assert any(not torch.equal(values, other[key]) for key, values in one.items())


def test_parameters_of_equal_shape_start_differently(make_job):
    crosses = build_model(make_job(model="dcn")).crosses
    assert not torch.equal(crosses[0].weight, crosses[1].weight)


def test_unknown_models_are_refused(make_job):
    with pytest.raises(
        InvalidArgument,
        match=r"'xyz' is unknown, choose one of wdl, dfm, dcn, dlrm, .*rotate, or your own as package",
    ):
        build_model(make_job(model="xyz"))


def test_rows_reach_the_gradient_of_a_plain_embedding(make_job):
    """The lookup from coalesced rows gives nn.Embedding's gradient, repeated ids summed."""
    job = make_job()
    model = build_model(job)
    ids = np.array([[3, 1, 1, 0], [3, 2, 1, 1]])
    dense = torch.randn(2, 3)
    table = torch.nn.Embedding(4, 5)
    model(by_feature(job, table(torch.from_numpy(ids))), dense).sum().backward()

    unique, inverse = np.unique(ids, return_inverse=True)
    rows = table.weight.detach()[torch.from_numpy(unique)].requires_grad_()
    gathered = torch.nn.functional.embedding(torch.from_numpy(inverse.reshape(ids.shape)), rows)
    model(StackedEmbeddings(("0", "1", "2", "3"), gathered), dense).sum().backward()
    torch.testing.assert_close(rows.grad, table.weight.grad)


@pytest.mark.parametrize("name", POOLED)
def test_views_of_one_tensor_and_a_plain_mapping_give_the_same(make_job, name):
    job = make_job(model=name)
    model = build_model(job)
    rows, dense = torch.randn(6, 4, 5), torch.randn(6, 3)
    names = tuple(feature.name for feature in model.inputs.features)
    gradients = []
    for embeddings in (StackedEmbeddings(names, rows.requires_grad_()), by_feature(job, rows)):
        rows.grad = None
        model(embeddings, dense).square().sum().backward()
        gradients.append(rows.grad)
    torch.testing.assert_close(*gradients)
    views = StackedEmbeddings(names, rows)
    assert list(views) == list(names)
    torch.testing.assert_close(dict(views), by_feature(job, rows))
