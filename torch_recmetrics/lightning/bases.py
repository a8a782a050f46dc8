"""What the callback is for type checkers: a ``Callback`` of both packages.

In a file of its own: jsonargparse runs the imports for type checkers of every file whose annotations it reads, and
would import the other Lightning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import lightning.pytorch
    import pytorch_lightning

    class Callback(lightning.pytorch.Callback, pytorch_lightning.Callback):  # type: ignore[misc]
        """What a trainer of either package takes."""

else:
    Callback = object
