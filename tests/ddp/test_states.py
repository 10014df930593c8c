"""States of models and optimisers: read back to the bit, hashed by tensor, and refused if JSON cannot hold them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from workbench.core.base.settings import SettingError

torch = pytest.importorskip("torch")

from workbench.ddp import states  # noqa: E402 - needs torch


def trained(kind: str = "Adam") -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimiser = getattr(torch.optim, kind)(model.parameters(), lr=0.1)
    model(torch.randn(5, 3)).square().sum().backward()
    optimiser.step()
    return model, optimiser


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "Adagrad", "RMSprop"])
def test_state_is_read_back_to_the_bit(kind: str) -> None:
    model, optimiser = trained(kind)
    state = {"model": model.state_dict(), "optimiser": optimiser.state_dict()}
    found = states.unpack(states.pack(state))
    assert states.digests(found) == states.digests(state)
    other, other_optimiser = trained(kind)
    with torch.no_grad():
        other[0].weight.zero_()
    other.load_state_dict(found["model"])
    other_optimiser.load_state_dict(found["optimiser"])
    assert states.digests(other_optimiser.state_dict()) == states.digests(optimiser.state_dict())
    assert torch.equal(other[0].weight, model[0].weight)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16", "int64", "bool"])
def test_every_type_of_number(dtype: str) -> None:
    tensor = torch.tensor([[0, 1], [1, 0]]).to(getattr(torch, dtype))
    found = states.unpack(states.pack([tensor, tensor[:0], (1, None, 0.5, "text"), {3: True}]))
    assert torch.equal(found[0], tensor)
    assert found[1].shape == (0, 2)
    assert found[2:] == [(1, None, 0.5, "text"), {3: True}]


def test_digests_name_the_changed_tensor_and_settings() -> None:
    model, optimiser = trained()
    state = {"model": model.state_dict(), "optimiser": optimiser.state_dict()}
    before, changed = states.digests(state), copy.deepcopy(state)
    changed["optimiser"]["state"][0]["exp_avg"][0, 0] += 1e-6
    changed["optimiser"]["param_groups"][0]["lr"] = 0.2
    after = states.digests(changed)
    different = {name for name in before if before[name] != after[name]}
    assert different == {"optimiser.state.0.exp_avg", "settings"}


def test_other_types_are_refused() -> None:
    with pytest.raises(SettingError, match=r"state\.extra: is of type set"):
        states.pack({"extra": {1, 2}})
    with pytest.raises(SettingError, match="has a key of type float"):
        states.pack({"extra": {0.5: 1}})


def test_floats_of_leaves_whole_numbers_out() -> None:
    model, _ = trained()
    # num_batches_tracked
    assert len(list(states.floats_of(model.state_dict()))) == len(model.state_dict()) - 1


def test_tensors_of_one_device_share_a_piece() -> None:
    """Tensors on the device "meta" have shapes but no values."""
    tensors = [torch.ones(2, 3), torch.ones(1), torch.ones(4, device="meta"), torch.ones(())]
    found = list(states.by_device(torch.arange(12.0), tensors))
    assert [[each.numel() for each in group] for _, group in found] == [[6, 1], [4], [1]]
    assert [flat.tolist() for flat, _ in found] == [list(range(7)), list(range(7, 11)), [11]]
