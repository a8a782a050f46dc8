"""What the callbacks are for type checkers: those of both packages.

In a file of its own: jsonargparse runs the imports for type checkers of every file whose annotations it reads, and
would import the other Lightning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import lightning.pytorch
    import lightning.pytorch.callbacks
    import pytorch_lightning
    import pytorch_lightning.callbacks

    class Callback(lightning.pytorch.Callback, pytorch_lightning.Callback):  # type: ignore[misc]
        """What a trainer of either package takes."""

    class EarlyStopping(  # type: ignore[misc]
        lightning.pytorch.callbacks.EarlyStopping, pytorch_lightning.callbacks.EarlyStopping
    ):
        """What stops a training in either package."""

else:
    Callback = EarlyStopping = object
