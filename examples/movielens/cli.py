"""The command line: Lightning's, with one directory for a run and a comparison after training."""

import logging
import os
import sys
import warnings
from pathlib import Path

from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.cli import ArgsType, LightningArgumentParser, LightningCLI
from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.utilities import rank_zero_only

from examples.movielens.data import InteractionData
from examples.movielens.log import InputError
from examples.movielens.models import Popularity, Recommender, TrainedRecommender, groups_of, slices_of
from examples.movielens.report import Result, read_curves, write_report, write_users


def checkpoint_dir(run_dir: str) -> str:
    return f"{run_dir}/checkpoints"


class MovieLensCLI(LightningCLI):
    """What a model takes from the data is linked to it, and so is the run directory to all that write there."""

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_argument("--run_dir", type=str, default="runs/movielens/run", help="where everything is written")
        parser.add_argument("--print_table", type=bool, default=True, help="print the comparison at the end of fit")
        parser.link_arguments("run_dir", "trainer.default_root_dir")
        parser.link_arguments("run_dir", "trainer.logger.init_args.save_dir")
        parser.link_arguments("run_dir", "trainer.callbacks.init_args.dirpath", checkpoint_dir)
        for name in ("num_users", "num_items", "genres", "genre_profiles"):
            parser.link_arguments(f"data.{name}", f"model.init_args.{name}", apply_on="instantiate")

    def before_fit(self) -> None:
        # Asked for now, since spawned processes would each choose a version of their own.
        self.csv_dirs = [one.log_dir for one in self.trainer.loggers if isinstance(one, CSVLogger)]

    def after_fit(self) -> None:
        """Validate the best checkpoint and the popularity baseline on the same users, with the same metrics."""
        checkpoint = self.trainer.checkpoint_callback
        if not self.csv_dirs or not isinstance(checkpoint, ModelCheckpoint):
            return  # fast_dev_run and the like leave nothing to report

        self.trainer.loggers = []  # a comparison is not a point of the curves
        best_path = checkpoint.best_model_path
        popularity_model = Popularity(self.datamodule.item_counts)
        best = self.trainer.validate(self.model, self.datamodule, ckpt_path=best_path, verbose=False)
        popularity = self.trainer.validate(popularity_model, self.datamodule, verbose=False)
        if self.trainer.is_global_zero:
            result = Result(
                model=type(self.model).__name__,
                values=dict(best[0]),
                popularity=dict(popularity[0]),
                intervals=ends_of(self.model),
                popularity_intervals=ends_of(popularity_model),
                checkpoint=os.path.relpath(best_path),
                curves=read_curves(Path(self.csv_dirs[0], "metrics.csv")),
            )
            run_dir = Path(self.config.fit.run_dir)
            text = write_report(run_dir, [result])
            users = {}
            for model in (self.model, popularity_model):
                values = model.cpu().user_values
                if values is not None:
                    lists = model.lists(self.datamodule)
                    values = values.with_lists([lists[number] for number in values.sample_ids.tolist()])
                users[type(model).__name__] = values
            write_users(run_dir, users, slices_of(self.datamodule), groups_of(self.datamodule))
            if self.config.fit.print_table:
                print(text)


def ends_of(model: Recommender) -> dict[str, tuple[float, float]]:
    """The 95 % intervals of the last validation."""
    return {name: (float(low), float(high)) for name, (low, high) in model.intervals.items()}


def main(args: ArgsType = None) -> None:
    # Every process would say that its seed is set, also above the one line that a user's mistake deserves.
    logging.getLogger("lightning_fabric.utilities.seed").setLevel(logging.WARNING)
    # Batches are slices of tensors in memory: workers would only slow them down.
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    # Rows that the sampler repeats count once, by their sample ids.
    warnings.filterwarnings("ignore", message=".*DistributedSampler.*")
    try:
        MovieLensCLI(
            TrainedRecommender,
            InteractionData,
            subclass_mode_model=True,
            auto_configure_optimizers=False,
            save_config_kwargs={"overwrite": True},
            args=args,
        )
    except InputError as error:
        if rank_zero_only.rank == 0:
            print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
