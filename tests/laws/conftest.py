"""The cases of the laws have few users: they are ranked as batches of many are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from torch_recmetrics.core.tensors import thresholds


@pytest.fixture(scope="module", autouse=True)
def few_users_are_ranked_as_many_are() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thresholds, "SHORT_ROWS", 1)
        patch.setattr(thresholds, "SORTED_WHOLE", 8)
        yield
