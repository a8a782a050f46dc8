"""The command line: Lightning's, with one directory for a run and a report after training."""

import logging
import sys
import warnings
from pathlib import Path

import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.cli import ArgsType, LightningArgumentParser, LightningCLI
from pytorch_lightning.utilities import rank_zero_only

from examples.ctr.data import ClickData
from examples.ctr.log import InputError
from examples.ctr.model import FactorizationMachine
from examples.ctr.report import write_report


def checkpoint_dir(run_dir: str) -> str:
    return f"{run_dir}/checkpoints"


class ClickCLI(LightningCLI):
    """What the model takes from the data is linked to it, and so is the run directory to all that write there."""

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_argument("--run_dir", type=str, default="runs/ctr/run", help="where everything is written")
        parser.link_arguments("run_dir", "trainer.default_root_dir")
        parser.link_arguments("run_dir", "trainer.logger.init_args.save_dir")
        parser.link_arguments("run_dir", "trainer.callbacks.init_args.dirpath", checkpoint_dir)
        for name in ("num_codes", "click_rate"):
            parser.link_arguments(f"data.{name}", f"model.{name}", apply_on="instantiate")

    def after_fit(self) -> None:
        """Validate the best checkpoint, and write the report."""
        checkpoint = self.trainer.checkpoint_callback
        if not isinstance(checkpoint, ModelCheckpoint) or not checkpoint.best_model_path:
            return  # fast_dev_run and the like leave nothing to report
        self.trainer.loggers = []  # a report is not a point of the curves
        best = self.trainer.validate(self.model, self.datamodule, ckpt_path=checkpoint.best_model_path, verbose=False)
        if self.trainer.is_global_zero:
            with torch.no_grad():
                codes = self.datamodule.val_data.everything().codes
                preds = torch.sigmoid(self.model.cpu().eval()(codes).double())
            run_dir = Path(self.config.fit.run_dir)
            print(write_report(run_dir, type(self.model).__name__, dict(best[0]), self.datamodule, preds))


def main(args: ArgsType = None) -> None:
    # Every process would say that its seed is set, also above the one line that a user's mistake deserves.
    logging.getLogger("lightning_fabric.utilities.seed").setLevel(logging.WARNING)
    # Batches are slices of tensors in memory: workers would only slow them down.
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    # Rows that the sampler repeats count once, by their sample ids; in torchmetrics' own metrics they count twice.
    warnings.filterwarnings("ignore", message=".*DistributedSampler.*")
    try:
        ClickCLI(FactorizationMachine, ClickData, save_config_kwargs={"overwrite": True}, args=args)
    except InputError as error:
        if rank_zero_only.rank == 0:
            print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
