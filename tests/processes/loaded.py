"""What takes each process a second, done before they are forked: Numba is imported, and has read its first loop."""

from __future__ import annotations

import torch

from torch_recmetrics import NDCG

torch.set_num_threads(1)
NDCG(1)(torch.rand(1, 2), torch.ones(1, 2))
