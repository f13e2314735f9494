"""`corag fit` and `corag test`: Lightning's command line for the configuration agent."""

from __future__ import annotations

import glob
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")

import torch
import yaml
from jsonargparse import ArgumentError
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_only
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from corag_agent.checkpoint import load_checkpoint
from corag_agent.commands.parser import OneLineParser
from corag_agent.datamodule import LabelDataModule
from corag_agent.folds import check_division
from corag_agent.module import FIT_METRICS, OF_DATA, ConfigurationAgentModule
from corag_agent.optimizer_options import check_optimizer, check_optimizer_options
from corag_agent.settled import check_settled
from corag_search.errors import InputError
from corag_search.files import replacing_file
from corag_search.shipped import shipped
from data_prep.privacy import recordable, without_folders

_EXAMPLE = "Example: corag {} --data.labels labels.parquet --output runs/agent"
SUBCOMMANDS = {
    "fit": f"Trains a configuration agent on a label table. {_EXAMPLE.format('fit')}",
    "test": f"Measures a checkpoint on the test split. {_EXAMPLE.format('test')} --ckpt_path best",
}

# Keeps paths and names of the machine out of what W&B records; a variable that is set already stays.
_WANDB_PRIVACY = {
    "WANDB_X_DISABLE_META": "true",
    "WANDB_X_DISABLE_MACHINE_INFO": "true",
    "WANDB_DISABLE_GIT": "true",
    "WANDB_DISABLE_CODE": "true",
    "WANDB_CONSOLE": "off",
}

# Names for the checkpoints of `output`.
_OWN_CHECKPOINTS = ("best", "last")


class ResolvedConfig(SaveConfigCallback):
    """Writes `config.SUBCOMMAND.yaml` beside the results, in place of an earlier one; W&B gets it without folders."""

    def save_config(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Writes the file; called once, on the first process only."""
        text = self.parser.dump(self.config, skip_none=False)
        with replacing_file(Path(trainer.default_root_dir) / f"config.{TrainerFn(stage).value}.yaml") as partial:
            partial.write_text(text, encoding="utf-8")
        for each in trainer.loggers:
            if isinstance(each, WandbLogger):
                each.log_hyperparams({"resolved": without_folders(yaml.safe_load(text))})


class LastCheckpoint(ModelCheckpoint):
    """`last.ckpt` after every epoch; `save_last` of Lightning 2.6 renews it only together with the best one."""

    def __init__(self, dirpath: str) -> None:
        """Takes the directory."""
        # Said, since Lightning would wait for a validation where there is none after every epoch.
        super().__init__(dirpath, filename="last", enable_version_counter=False, save_on_train_epoch_end=True)


class ConfiguredEarlyStopping(EarlyStopping):
    """Early stopping with the configuration's patience on resume too, where Lightning's own takes the checkpoint's."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over everything else."""
        super().load_state_dict({**state_dict, "patience": self.patience})


class TrainingParser(OneLineParser, LightningArgumentParser):
    """Lightning's parser, which refuses in one line."""


class AgentCLI(LightningCLI):
    """Lightning's command line with one `output` directory, and the model built to fit the data.

    Everything is checked before the run begins: the trainer makes directories before it looks at the data.
    """

    _checkpoint: dict[str, Any] | None = None

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Adds `output`, `compile` and `checkpoint`, and links what belongs together."""
        parser.add_argument("--output", type=str, default="runs/agent", help="Directory that everything is written to.")
        parser.add_argument(
            "--compile", type=str | None, default=None, help="Backend of torch.compile for the encoder, as inductor."
        )
        parser.add_lightning_class_args(ModelCheckpoint, "checkpoint")
        parser.add_lightning_class_args(LastCheckpoint, "last_checkpoint")
        parser.add_lightning_class_args(ConfiguredEarlyStopping, "early_stopping")
        parser.link_arguments("output", "trainer.default_root_dir")
        parser.link_arguments("output", "trainer.logger.init_args.save_dir", compute_fn=_logs_in)
        for callback in ("checkpoint", "last_checkpoint"):
            parser.link_arguments("output", f"{callback}.dirpath", compute_fn=_checkpoints_in)
        for name in OF_DATA:
            parser.link_arguments(f"data.{name}", f"model.{name}", apply_on="instantiate")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parses, and reads the checkpoint where one is given; `best` and `last` are those of `output`."""
        super().parse_arguments(parser, args)
        options = self.config[self.config.subcommand]
        path = options.ckpt_path
        if path is None:
            if self.config.subcommand == "test":
                raise InputError(
                    "--ckpt_path is not set: test measures a trained agent; give a .ckpt file that `corag fit` wrote, "
                    "or best for the one under --output"
                )
            return
        if path in _OWN_CHECKPOINTS:
            options.ckpt_path = path = str(Path(_checkpoints_in(options.output)) / f"{path}.ckpt")
        _, self._checkpoint = load_checkpoint(path)
        defaults = self._subcommand_parsers[self.config.subcommand].get_defaults().model
        named = {word.split("=")[0].removeprefix("--model.") for word in args}
        check_settled(path, self._checkpoint, dict(options.model.items()), dict(defaults.items()), named)

    def before_instantiate_classes(self) -> None:
        """Refuses what this machine lacks, before anything is built, and sends every logger to `output`."""
        options = self.config[self.config.subcommand]
        check_optimizer_options(options.model.optimizer)
        if options.compile is not None and options.compile not in torch.compiler.list_backends(exclude_tags=()):
            raise InputError(
                f"compile must be a backend of torch.compile ({', '.join(torch.compiler.list_backends())}), "
                f"got {options.compile!r}"
            )
        if isinstance(options.trainer.logger, list):  # the link above reaches a single logger only
            for each in options.trainer.logger:
                if "save_dir" in each.init_args:
                    each.init_args.save_dir = _logs_in(options.output)
        accelerator = options.trainer.accelerator
        if accelerator in ("gpu", "cuda") and not torch.cuda.is_available():
            raise InputError(
                f"trainer.accelerator is {accelerator!r}, but torch {torch.__version__} finds no CUDA device; "
                "train with configs/train.yaml, or install a torch for your driver"
            )

    def before_fit(self) -> None:
        """Refuses what could not be trained on, monitored or resumed."""
        self._prepare("fit")
        check_optimizer(self.model, self._checkpoint)
        for name, unset in (("checkpoint", (None,)), ("early_stopping", ())):
            monitor = self.config.fit[name].monitor
            if monitor not in (*unset, *FIT_METRICS):
                raise InputError(f"{name}.monitor must be one of {', '.join(FIT_METRICS)}, got {monitor!r}")
        patience = self.config.fit.early_stopping.patience
        if patience < 1:
            raise InputError(f"early_stopping.patience must be at least 1 epoch, got {patience}")
        if self._checkpoint and "optimizer_states" not in self._checkpoint:
            raise InputError(
                f"checkpoint {self.config.fit.ckpt_path} holds weights only, so training cannot go on from it; "
                "name one with the optimizer's state, such as last.ckpt"
            )
        epochs, limit = self._checkpoint["epoch"] + 1 if self._checkpoint else 0, self.trainer.max_epochs
        if limit is not None and 0 <= limit < epochs:
            raise InputError(
                f"trainer.max_epochs must be at least {epochs}, the epochs that checkpoint "
                f"{self.config.fit.ckpt_path} has had, got {limit}"
            )

    def before_test(self) -> None:
        """Refuses what could not be measured."""
        self._prepare("test")

    def _prepare(self, stage: str) -> None:
        self.datamodule.check(stage)
        for weights in (self._checkpoint or {}, self.model.started_from):
            labels = weights.get("hyper_parameters", {}).get("label_fingerprint")
            if labels == self.datamodule.label_fingerprint and "datamodule_hyper_parameters" in weights:
                check_division(weights["datamodule_hyper_parameters"], self.datamodule.hparams)
        if self._checkpoint:
            self.model.on_load_checkpoint(self._checkpoint)
        backend = self.config[stage].compile
        if backend is not None:
            self.model.encoder.compile(backend=backend)  # in place: the names of its weights stay

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """The subcommands offered, with the arguments that they leave out."""
        return {name: skipped for name, skipped in LightningCLI.subcommands().items() if name in SUBCOMMANDS}


def training_cli(args: Sequence[str], callbacks: Sequence[Callback] = ()) -> AgentCLI:
    """Runs a subcommand.

    Args:
        args: As on the command line, such as `["fit", "--data.labels", "a.parquet"]`. The defaults are those of
            `configs/train.yaml`; `--config` overrides them, a later one an earlier one, and further arguments both.
        callbacks: Callbacks of the trainer beside those of the configuration.

    Returns:
        The command line after its run; its `trainer.callback_metrics` hold the last metrics.

    Raises:
        InputError: When an argument, the configuration, the label table or the checkpoint is unusable.
        KeyboardInterrupt: When interrupted.
        SystemExit: After printing, when `args` ask for help.
    """
    for name, value in _WANDB_PRIVACY.items():
        os.environ.setdefault(name, value)
    try:
        with quiet(), _finishing_wandb():
            return AgentCLI(
                ConfigurationAgentModule,
                LabelDataModule,
                save_config_callback=ResolvedConfig,
                save_config_kwargs={"save_to_log_dir": False},
                trainer_defaults={"callbacks": list(callbacks)},
                seed_everything_default=0,
                auto_configure_optimizers=False,  # the model's `optimizer` and `scheduler` are configured instead
                parser_class=TrainingParser,
                parser_kwargs=_parser_kwargs(),
                args=list(args),
            )
    except (InputError, UnicodeDecodeError):
        raise
    except SystemExit as end:
        if end.code:  # Lightning's answer to Ctrl-C
            raise KeyboardInterrupt from end
        raise
    except (ArgumentError, ValueError, FileNotFoundError, MisconfigurationException) as error:
        cause = _input_error_behind(error)
        raise InputError(str(cause) if cause else " ".join(str(error).split())) from error


def _parser_kwargs() -> dict[str, Any]:
    common = {"exit_on_error": False, "allow_abbrev": False}
    defaults = [glob.escape(str(shipped("configs") / "train.yaml"))]
    own = {
        name: {"description": text, "default_config_files": defaults, **common} for name, text in SUBCOMMANDS.items()
    }
    return {"prog": "corag", "description": "Training of the configuration agent.", **common, **own}


def _checkpoints_in(output: str) -> str:
    return str(Path(output) / "checkpoints")


def _logs_in(output: str) -> str:
    """`output`, relative where it can be: loggers write down where they write."""
    return str(recordable(Path(output)) or output)


def _input_error_behind(error: BaseException | None) -> InputError | None:
    while error is not None and not isinstance(error, InputError):
        error = error.__cause__ or error.__context__
    return error


@contextmanager
def _finishing_wandb() -> Iterator[None]:
    """Ends the W&B run that was begun within; without it the next run of this process would go on in the same one."""

    def current() -> Any:
        return getattr(sys.modules.get("wandb"), "run", None)

    before, failed = current(), True
    try:
        yield
        failed = False
    finally:
        if (run := current()) is not None and run is not before:
            run.finish(exit_code=int(failed))


@contextmanager
def quiet() -> Iterator[None]:
    """Without tips, device listings and warnings about choices that are meant, and with ours from one process only."""
    ours = ["corag_agent"] if getattr(rank_zero_only, "rank", 0) else []
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric", *ours)]
    levels: list[Any] = [each.level for each in loggers]
    with warnings.catch_warnings():
        for noise in (
            ".*treespec, LeafSpec.*",  # Lightning's own, on torch 2.13
            ".*does not have many workers.*",  # the batches are cut from memory
            ".*LightningCLI's args parameter.*",
            ".*The dirpath has changed from .*",  # a checkpoint may be measured, or resumed from, anywhere
            ".*Checkpoint directory .* exists and is not empty.*",
            ".*The number of training batches .* is smaller than the logging interval.*",
            ".*Experiment logs directory .* exists and is not empty.*",
            ".*It is recommended to use .self.log.*sync_dist=True.*",  # metrics are those of all devices already
            ".*Be aware that when using .ckpt_path., callbacks used to create the checkpoint.*",
        ):
            warnings.filterwarnings("ignore", message=noise)
        for each in loggers:
            each.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for each, level in zip(loggers, levels, strict=True):
                each.setLevel(level)
