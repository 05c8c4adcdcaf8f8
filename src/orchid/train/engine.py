"""The training loop, for one process or many, on accelerate."""

import math
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor, nn

from orchid.files import write_json
from orchid.ops.checks import check_seed
from orchid.train.config import Experiment
from orchid.train.curves import draw_curves
from orchid.train.data_folder import check_data
from orchid.train.environment import commit, hardware
from orchid.train.graph import GraphedStep, Pieces
from orchid.train.optim import build_optimizer, learning_rate, set_learning_rate
from orchid.train.progress import Progress
from orchid.train.run_folder import RunFolder
from orchid.train.sharding import local, shard, spread_like, synchronise, whole
from orchid.train.stopping import Stopper
from orchid.train.task import Identified, Pictured, Sharing, Task
from orchid.train.tensorboard import TensorBoard
from orchid.train.tensors import load_optimizer_tensors, load_tensors, optimizer_tensors, save_tensors


@dataclass
class Outcome:
    """How a call of ``train`` ended.

    ``stopped`` says why it was asked to stop ("time limit", "interrupt", "termination", "another process"), or is None.
    ``result`` is None when that was before the last step; the run can then be resumed.
    """

    folder: Path
    step: int
    result: dict[str, Any] | None
    stopped: str | None = None


class Diverged(RuntimeError):
    """The loss is no longer finite."""


class Engine:
    """One run: builds the model, restores it, trains it, keeps its folder.

    Args:
        experiment: what to run.
        out: the run's folder.
        resume: continue the run that the folder holds; a folder without one starts afresh.
        claim: write in the folder, which is locked while ``train`` runs. Without, the engine only reads what a run has
            left there, be it one that another process is training at the moment: it deletes nothing, writes nothing
            but pictures, and cannot train.
        time_limit: minutes after which to stop with a checkpoint, or None.
        cpu: stay on the CPU even where there is a GPU.
        tensorboard: write event files for TensorBoard too.
    """

    def __init__(
        self,
        experiment: Experiment,
        out: Path,
        *,
        resume: bool = False,
        claim: bool = True,
        time_limit: float | None = None,
        cpu: bool = False,
        tensorboard: bool = False,
    ) -> None:
        self.experiment, self.config = experiment, experiment.train
        self.config.check()  # again: they may have been changed since
        check_seed(experiment.seed)
        self.folder = RunFolder(out)
        reads = claim and not self.folder.result.is_file()  # a finished run reads no data
        if reads:
            check_data(experiment)
        self.stopper = Stopper(time_limit)
        AcceleratorState._reset_state()  # accelerate keeps one for the process; a run's settings are its own
        # accelerate takes several processes for several single ones where there is nothing but a CPU and nobody says so
        several = int(os.environ.get("WORLD_SIZE", "1")) > 1
        cpu = cpu or (several and not torch.accelerator.is_available())
        self.accelerator = Accelerator(cpu=cpu, mixed_precision=self.config.precision)
        if self.config.precision == "fp16" and self.accelerator.device.type == "cpu":
            raise ValueError("train.precision='fp16' needs a GPU; use 'bf16' or 'no' on a CPU")
        torch.manual_seed(experiment.seed)
        self.task: Task = experiment.build()
        if reads and isinstance(self.task, Identified):
            self.task.identify()
        model = self.task.build_model()
        self.claim = claim
        if claim and self.accelerator.is_main_process:  # only now: settings that build nothing claim no folder
            self.folder.open(experiment.to_dict(), resume=resume)
        self.accelerator.wait_for_everyone()
        self.parameters = sum(p.numel() for p in model.parameters())
        self.sharded = self.config.parallel == "fsdp" and self.accelerator.num_processes > 1
        self._prepare(model)
        self.tensorboard = tensorboard
        self.board: TensorBoard | None = None
        self.step, self.seconds = 0, 0.0
        self.finished = False
        self.metrics: dict[str, float] = {}

    def _prepare(self, model: nn.Module) -> None:
        """Place the model, spread it over the processes, and build what updates it."""
        accelerator, device = self.accelerator, self.accelerator.device
        model.to(device)
        if self.config.compile and device.type == "cuda":
            torch.compiler.reset()  # another run's model must not count against this one's recompilations
            model.compile()
        self.model: nn.Module = model
        if self.sharded:
            shard(model, device)
            self.optimizer = accelerator.prepare(build_optimizer(model, self.config))
        else:
            self.model, self.optimizer = accelerator.prepare(model, build_optimizer(model, self.config))
        graph = self.config.graph and device.type == "cuda" and accelerator.num_processes == 1
        self.update: Callable[[Pieces], Tensor] = self._update
        if graph and accelerator.scaler is None:
            self.update = GraphedStep(self._update)

    def train(self) -> Outcome:
        """Train to the last step, or until the time limit; an interrupted run keeps what it has."""
        if not self.claim:
            raise ValueError(f"the engine only reads {self.folder.path}: build it with claim=True to train")
        try:
            if self.accelerator.is_main_process:
                self.folder.lock.acquire()
            return self._train()
        finally:
            self.folder.lock.release()

    def _train(self) -> Outcome:
        finished = self.folder.read_result()
        if finished is not None and self.folder.has_model():  # one that is lost or damaged is trained again
            return Outcome(self.folder.path, finished["steps"], finished)
        self._restore()
        began = time.monotonic() - self.seconds
        main = self.accelerator.is_main_process
        if self.tensorboard and main:
            self.board = TensorBoard(self.folder.tensorboard, self.step)
        result = None
        with Progress(self.experiment, self.step, main) as progress, self.stopper:
            while self.step < self.config.steps and not self._stop_requested():
                try:
                    pieces = self.pieces()
                except RuntimeError:
                    # A signal to a group of processes ends a task's readers too: the last whole step is kept.
                    if self.accelerator.num_processes > 1 or not self.stopper.requested():
                        raise
                    break
                loss = self.take_step(pieces)
                self.seconds = time.monotonic() - began
                self._after_step(loss, progress)
            if self.board is not None:
                self.board.close()
            if self.step < self.config.steps:
                self._checkpoint()
            else:
                result = self._finish()
        return Outcome(self.folder.path, self.step, result, self.stopper.reason)

    def close(self) -> None:
        """Part from the other processes, if any: left to the end of the interpreter, their threads may abort it."""
        self.folder.lock.release()
        if self.accelerator.num_processes > 1:
            self.accelerator.wait_for_everyone()
            torch.distributed.destroy_process_group()

    def _stop_requested(self) -> bool:
        """Return whether any process wants to stop, so that all of them stop after the same step."""
        if self.accelerator.num_processes == 1:
            return self.stopper.requested()
        flag = torch.tensor(float(self.stopper.requested()), device=self.accelerator.device)
        stop = bool(self.accelerator.reduce(flag, reduction="sum") > 0)
        if stop and self.stopper.reason is None:
            self.stopper.reason = "another process"
        return stop

    def take_step(self, pieces: Pieces) -> Tensor:
        """Take one optimizer step on what ``pieces`` returned, and return its mean loss."""
        set_learning_rate(self.optimizer, learning_rate(self.config, self.step))
        self.model.train()
        loss = self.update(pieces)
        self.step += 1
        return loss

    def _update(self, pieces: Pieces) -> Tensor:
        """Update the model by a step's batch and return the mean loss; on a GPU nothing here waits for it."""
        accelerator = self.accelerator
        self.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros(2, device=accelerator.device)
        for index, piece in enumerate(pieces):
            last = index == len(pieces) - 1
            with self._exchanging(last):
                with accelerator.autocast():
                    loss, count = self.task.loss(self.model, piece)
                accelerator.backward(loss)
            total += torch.stack((loss.detach().float(), count.float()))
        total = accelerator.reduce(total, reduction="sum")
        # Gradients of sums, averaged over processes: one division makes them the mean's, however terms are spread.
        scale = accelerator.num_processes / total[1].clamp_min(1.0)
        torch._foreach_mul_([local(p.grad) for p in self.model.parameters() if p.grad is not None], scale)
        if self.config.clip:
            accelerator.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.optimizer.step()
        return total[0] / total[1].clamp_min(1.0)

    def _exchanging(self, on: bool) -> AbstractContextManager[object]:
        """Return a context whose backward pass exchanges gradients between processes, or keeps them."""
        if self.sharded:
            synchronise(self.model, on)
            return nullcontext()
        return nullcontext() if on else self.accelerator.no_sync(self.model)

    def pieces(self) -> Pieces:
        """Return this process's share of the step's batch, in accumulation pieces."""
        accelerator = self.accelerator
        given = (self.step, self.config.batch_size, accelerator.device)
        rank, ranks = accelerator.process_index, accelerator.num_processes
        if isinstance(self.task, Sharing):
            share = self.task.train_share(*given, rank, ranks)
        else:
            share = tuple(t[rank::ranks] for t in self.task.train_batch(*given))
        return list(zip(*(t.chunk(self.config.accumulate) for t in share), strict=True))

    def _after_step(self, loss: Tensor, progress: Progress) -> None:
        config, step = self.config, self.step
        last = step == config.steps
        logs, evaluates = step % config.log_every == 0 or last, step % config.evaluate_every == 0 or last
        if logs or evaluates or step % config.checkpoint_every == 0:
            value = float(loss)
            if not math.isfinite(value):
                raise self._diverged(f"the loss is {value}")
            entry = {"step": step, "seconds": round(self.seconds, 3), "train/loss": value}
            entry["train/learning_rate"] = learning_rate(config, step - 1)
            if evaluates:
                self.metrics = self.evaluate()
                entry |= self.metrics
            if self.accelerator.is_main_process and (logs or evaluates):
                self.folder.log(entry)
                if self.board is not None:
                    self.board.log(entry)
            progress.update(step, value, self.metrics)
            if step % config.checkpoint_every == 0 and not last:
                self._checkpoint()
        else:
            progress.advance(step)

    def _diverged(self, what: str) -> Diverged:
        return Diverged(
            f"{what} at step {self.step}; checkpoints from before are kept in {self.folder.checkpoints}. "
            "A lower train.learning_rate or a longer train.warmup may help"
        )

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Return the task's test metrics for the model as it is."""
        with self._evaluating():
            return self.task.evaluate(self.model, self.accelerator.device)

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        self.model.eval()
        # Test batches have shapes of their own; compiling for them would cost more than it saves.
        with self.accelerator.autocast(), torch.compiler.set_stance("force_eager"):
            yield

    def load(self) -> None:
        """Load the weights of a finished run, or of its newest checkpoint; ``finished`` and ``step`` tell which."""
        self.finished = self.folder.model.is_file()
        if self.finished:
            again = "`orchid train RECIPE --resume`, with the run's settings and --out, writes it again"
            tensors, state = load_tensors(self.folder.model, again)
        else:
            checkpoint = self.folder.load_checkpoint()
            if checkpoint is None:
                raise ValueError(f"{self.folder.path} holds neither a trained model nor a checkpoint")
            tensors, state = _under("model.", checkpoint[0]), checkpoint[1]
        self._load_weights(tensors)
        self.step = state.get("step", self.config.steps)

    def _load_weights(self, tensors: dict[str, Tensor]) -> None:
        model = self.accelerator.unwrap_model(self.model)
        mine = model.state_dict()
        tensors = {name: spread_like(t, mine[name]) if name in mine else t for name, t in tensors.items()}
        try:
            model.load_state_dict(tensors)
        except RuntimeError as error:
            raise ValueError(f"the weights in {self.folder.path} do not fit its configuration: {error}") from None

    def _weights(self) -> dict[str, Tensor]:
        """Return the model's tensors; what is not finite is never written."""
        weights = {n: whole(t) for n, t in self.accelerator.unwrap_model(self.model).state_dict().items()}
        for name, tensor in weights.items():
            if not torch.isfinite(tensor).all():
                raise self._diverged(f"{name} is not finite")
        return weights

    def _checkpoint(self) -> None:
        tensors = {f"model.{name}": tensor for name, tensor in self._weights().items()}
        tensors |= optimizer_tensors(self.optimizer)
        tensors["random.cpu"] = torch.get_rng_state()
        if self.accelerator.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state()
        if self.accelerator.is_main_process:
            state = {"step": self.step, "seconds": self.seconds, "metrics": self.metrics}
            if self.accelerator.scaler is not None:
                state["scaler"] = self.accelerator.scaler.state_dict()
            self.folder.save_checkpoint(self.step, tensors, state)

    def _restore(self) -> None:
        checkpoint = self.folder.load_checkpoint()
        if checkpoint is None:
            self._rewind()
            return
        tensors, state = checkpoint
        self._load_weights(_under("model.", tensors))
        load_optimizer_tensors(self.optimizer, tensors)
        torch.set_rng_state(tensors["random.cpu"])
        if "random.cuda" in tensors and self.accelerator.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random.cuda"])
        if self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        self.step, self.seconds, self.metrics = state["step"], state["seconds"], state["metrics"]
        self._rewind()

    def _rewind(self) -> None:
        """Drop the metrics that the steps to come will write again."""
        if self.accelerator.is_main_process:
            self.folder.rewind(self.step)

    def _finish(self) -> dict[str, Any]:
        """Write the trained model and the result."""
        config = self.experiment.to_dict()
        result = {
            "recipe": self.experiment.recipe,
            "config": config,
            "seed": self.experiment.seed,
            "metrics": self.metrics,
            "history": [entry for entry in self.folder.history() if entry.keys() & self.metrics.keys()],
            "paper": config.pop("paper"),
            "steps": self.step,
            "seconds": round(self.seconds, 2),
            "parameters": self.parameters,
            "hardware": hardware(self.accelerator.device),
            "torch": torch.__version__,
            "commit": commit(),
        }
        weights = self._weights()
        if self.accelerator.is_main_process:
            save_tensors(self.folder.model, weights, {"step": self.step})
            draw_curves(self.folder)
            write_json(self.folder.result, result)
            self.draw()
        return result

    def draw(self) -> None:
        """Draw the task's pictures into the folder; what goes wrong there takes nothing from a finished run."""
        if not isinstance(self.task, Pictured) or self.accelerator.num_processes > 1:
            return
        try:
            with self._evaluating():
                self.task.draw(self.model, self.accelerator.device, self.folder.path)
        except (OSError, RuntimeError, ValueError) as error:
            warnings.warn(f"the run is finished; its pictures could not be drawn: {error}", stacklevel=2)


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
