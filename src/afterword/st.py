"""A sentence-transformers module for any method, so that sentence-transformers can encode, train and save with it.

`preprocess` tokenizes texts into padded rows of token ids, with the positions of their segments and copies. `forward`
removes the padding again and concatenates the texts, so no token ever attends to padding.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .backbone.backbone import Backbone, remove_recorders
from .backbone.facts import inside
from .backbone.loading import base_of, load_backbone
from .backbone.saving import write_model
from .encode.tokens import features_of, vectors_of
from .errors import InputError, MethodError, MissingExtra, ModelError
from .files.read_encoder import CONFIG, read_flow, read_ours
from .files.write_encoder import module_steps, write_config, write_flow
from .methods import AnyMethod, one_method
from .methods.serialize import to_json
from .post import Dense, FittedFlow, Glow, Normalise
from .text.inputs import check_conditions, check_texts
from .text.tokenizer import Tokenizer

try:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import InputModule, Module
    from sentence_transformers.sentence_transformer import modules as theirs
except ImportError as e:
    raise MissingExtra("sentence-transformers>=5.4", "st") from e

if TYPE_CHECKING:
    from .encoder import Encoder


class Afterword(InputModule):
    """A model and a method as the first module of a SentenceTransformer.

    Args:
        backbone: the model and its tokenizer.
        method: how a text becomes a vector.
        max_seq_length: maximum number of tokens; None = the model's own limit.

    >>> from sentence_transformers import SentenceTransformer
    >>> from afterword import Encoder, reba
    >>> encoder = Encoder.load("afterword-mini", reba())
    >>> model = SentenceTransformer(modules=[Afterword(encoder.backbone, encoder.method)], device="cpu")
    >>> bool(abs(model.encode("a text") - encoder.encode("a text")).max() < 1e-6)
    True
    """

    config_file_name = CONFIG
    save_in_root = True
    model: nn.Module

    def __init__(self, backbone: Backbone, method: AnyMethod, max_seq_length: int | None = None) -> None:
        super().__init__()
        for member in method.members:
            backbone.require(member.weigh.reads_attention, member.sight)
            member.weigh.require_fitted()
            member.states.width(backbone)  # what is read inside layers is found once, before threads run replicas
        self.model = backbone.model
        self.method = method
        self.max_seq_length = max_seq_length or backbone.facts.max_length
        self._backbone = backbone

    def __getstate__(self) -> dict[str, Any]:
        """The state to pickle."""
        remove_recorders(self.model)
        return vars(self).copy()

    def __setattr__(self, name: str, value: Any) -> None:
        """Accept ``auto_model`` as another name of ``model``: sentence-transformers adds adapters under that name."""
        super().__setattr__("model" if name == "auto_model" else name, value)

    @property
    def auto_model(self) -> nn.Module:
        """The transformer, under sentence-transformers' name."""
        return self.model

    @property
    def config(self) -> Any:
        """The transformer's configuration."""
        return self.model.config

    @property
    def tokenizer(self) -> Any:
        """The Hugging Face tokenizer."""
        return self._backbone.tokenizer.hf

    @tokenizer.setter
    def tokenizer(self, value: Any) -> None:
        old = self._backbone
        self._backbone = Backbone(old.model, Tokenizer(value), old.facts, old.modules, old.insides)

    @property
    def processor(self) -> Any:
        """The same, under the name that the trainer uses."""
        return self.tokenizer

    @property
    def backbone(self) -> Backbone:
        """The model that is run: with an adapter's layers in it; in a DataParallel replica, the replica's own modules.

        Raises:
            MethodError: an adapter puts learned tokens in front of the text instead of changing layers.
        """
        if getattr(getattr(self.model, "active_peft_config", None), "is_prompt_learning", False):
            raise MethodError("an adapter of learned prompt tokens is not supported: use one in the layers, as LoRA")
        base, ours = base_of(self.model), self._backbone
        if base is ours.model:
            return ours
        names = {id(m): name for name, m in ours.model.named_modules()}
        modules = [base.get_submodule(names[id(m)]) for m in ours.modules]
        return Backbone(base, ours.tokenizer, ours.facts, modules, ours.insides)

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, *, max_length: int | None = None, **kwargs: Any
    ) -> dict[str, Tensor]:
        """Tokenize texts by the method's layout.

        Args:
            inputs: T strings, or lists of token ids; pairs (text, condition) for a template with {condition}.
            prompt: an instruction, put in front of every text.
            max_length: maximum number of tokens, for this call.
            kwargs: ignored, such as ``task``.

        Returns:
            ``input_ids`` and ``attention_mask`` (T, n), and ``segments`` (T, S, 5 + 2 copies). If some texts have
            no token to pool, ``blank`` (T,) says which: another text is run in their place, and their vectors are 0.
            The further forwards of an ensemble have features of their own, as ``input_ids.1``.

        Raises:
            InputError: a text cannot be used, or the tokenizer knows no token of any text.
        """
        inputs, conditions = _conditions(inputs)
        texts, length = check_texts(inputs), max_length or self.max_seq_length
        given = check_conditions(conditions, texts)
        return features_of(self._backbone, self.method, texts, given, prompt, length)

    def forward(self, features: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """Run a batch, with gradients if torch has them enabled.

        Args:
            features: the result of `preprocess`, on any device.
            kwargs: ignored.

        Returns:
            The features with ``sentence_embedding`` (T, D) and, for a single method that does not split texts into
            chunks, ``token_embeddings`` (T, n, D), zero for padding.

        Raises:
            InputError: the features are not from `preprocess`.
            MethodError: the method is an ensemble and is trained, or is trained under gradient checkpointing and
                cannot be.
        """
        if "segments" not in features:
            raise InputError(f"features {', '.join(features)} hold no 'segments': make them with preprocess()")
        backbone = self.backbone
        self.check_recomputed(backbone.model)
        return features | vectors_of(backbone, self.method, features, keep_mode=self.training)

    def check_recomputed(self, model: Any) -> None:
        """Refuse ensembles; and under gradient checkpointing what reads attention or inside layers, or needs hooks.

        It runs the layers a second time in the backward pass, after the hooks that these methods need were removed.
        """
        names = ("is_activation_checkpointing", "is_gradient_checkpointing")  # transformers renamed it
        checkpointing = next((getattr(model, name) for name in names if hasattr(model, name)), False)
        if not self.training or not torch.is_grad_enabled():
            return
        method = one_method(self.method, "training")
        reads = method.weigh.reads_attention or any(map(inside, method.states.layers))
        if checkpointing and (reads or method.sight.hooks):
            raise MethodError(
                f"{method.name} cannot be trained under gradient checkpointing, which runs layers again after "
                "their attention was read: switch it off, or use a method that only reads states"
            )

    def get_embedding_dimension(self) -> int:
        """D, the number of components of a vector."""
        return self.method.width(self._backbone)

    def get_sentence_embedding_dimension(self) -> int:
        """The same, under its older name."""
        return self.get_embedding_dimension()

    def get_config_dict(self) -> dict[str, Any]:
        """What `repr` shows."""
        return {"method": to_json(self.method), "max_length": self.max_seq_length}

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Save the model, its tokenizer and the method; the weights always as safetensors."""
        write_model(self.model, self.tokenizer, Path(output_path))
        write_config(Path(output_path), self.method, self.max_seq_length)

    @classmethod
    def load(
        cls,
        model_name_or_path: str,
        subfolder: str = "",
        token: bool | str | None = None,
        cache_folder: str | None = None,
        revision: str | None = None,
        local_files_only: bool = False,
        trust_remote_code: bool = False,
        model_kwargs: dict[str, Any] | None = None,
        processor_kwargs: dict[str, Any] | None = None,
        config_kwargs: dict[str, Any] | None = None,
        backend: str = "torch",
        **kwargs: Any,
    ) -> Afterword:
        """Load a saved module, as `Encoder.load` does.

        Args:
            model_name_or_path, subfolder, token, cache_folder, revision, local_files_only: the module's folder.
            trust_remote_code: run the Python code that comes with the model.
            model_kwargs: only ``dtype`` is accepted: other arguments would be lost when the model is saved.
            processor_kwargs: only ``padding_side`` is accepted, which has no effect here.
            config_kwargs: refused.
            backend: "torch".
            kwargs: ignored; sentence-transformers passes them to modules of other kinds.

        Raises:
            ModelError: the folder is broken, or an argument is not supported.
        """
        options = {k: v for k, v in (model_kwargs or {}).items() if k != "torch_dtype"}
        dtype = options.pop("dtype", (model_kwargs or {}).get("torch_dtype"))
        left = {k for k in processor_kwargs or {} if k != "padding_side"}
        if strange := sorted({*options, *left, *(config_kwargs or {})}) or ([] if backend == "torch" else [backend]):
            raise ModelError(f"{strange[0]} cannot be set when an encoder is loaded: set it on the model that is saved")
        where = {"token": token, "cache_folder": cache_folder, "revision": revision}
        folder = cls.load_dir_path(model_name_or_path, subfolder, local_files_only=local_files_only, **where)
        if folder is None:
            raise ModelError(f"{model_name_or_path} does not exist, or is not in the cache")
        method, max_length = read_ours(Path(folder))
        return cls(load_backbone(folder, dtype=dtype, trust_remote_code=trust_remote_code), method, max_length)


class Flow(Module):
    """A fitted normalising flow as a module; its weights can be trained further.

    Args:
        net: the network from vectors to latents.
    """

    def __init__(self, net: Glow) -> None:
        super().__init__()
        self.net = net.requires_grad_(True)

    def forward(self, features: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """Replace ``sentence_embedding`` (T, D) by its latent."""
        features["sentence_embedding"] = FittedFlow(self.net)(features["sentence_embedding"])
        return features

    def get_embedding_dimension(self) -> int:
        """D, the number of components of a vector."""
        return int(self.net.shape["width"])

    def get_config_dict(self) -> dict[str, Any]:
        """What `repr` shows."""
        return dict(self.net.shape)

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Save the shape and the weights; the weights always as safetensors."""
        write_flow(FittedFlow(self.net), Path(output_path))

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> Flow:
        """Load a saved flow.

        Args:
            model_name_or_path, subfolder: the module's folder.
            kwargs: ``token``, ``cache_folder``, ``revision`` and ``local_files_only``, for a download.

        Raises:
            ModelError: the folder is broken, or does not exist.
        """
        where = {k: kwargs[k] for k in ("token", "cache_folder", "revision", "local_files_only") if k in kwargs}
        folder = cls.load_dir_path(model_name_or_path, subfolder, **where)
        if folder is None:
            raise ModelError(f"{model_name_or_path}/{subfolder} does not exist, or is not in the cache")
        return cls(read_flow(Path(folder)).net)


def _conditions(inputs: Sequence[Any]) -> tuple[Sequence[Any], list[str] | None]:
    """The texts; and the conditions, if each input is a pair (text, condition)."""
    if inputs and all(isinstance(i, list | tuple) and len(i) == 2 and isinstance(i[0], str) for i in inputs):
        return [text for text, _ in inputs], [condition for _, condition in inputs]
    return inputs, None


def sentence_transformer(encoder: Encoder, **options: Any) -> SentenceTransformer:
    """An encoder as a SentenceTransformer with the same weights in memory, to train it or to pass it to other tools.

    Args:
        encoder: the encoder; its post-processing steps become modules.
        options: passed to SentenceTransformer; ``device`` defaults to the encoder's device.

    Raises:
        ModelError: a step has no module in sentence-transformers.

    >>> from afterword import Encoder
    >>> model = sentence_transformer(Encoder.load("afterword-mini"))
    >>> model.encode(["a text"]).shape[0]
    1
    """
    modules: list[nn.Module] = [Afterword(encoder.backbone, encoder.method, encoder.max_length)]
    steps, cut = module_steps(encoder)
    for step in steps:
        if isinstance(step, Normalise):
            modules.append(theirs.Normalize())
        elif isinstance(step, Dense):
            modules.append(_dense(step))
        elif isinstance(step, FittedFlow):
            modules.append(Flow(copy.deepcopy(step.net)))
        else:
            raise ModelError(f"{type(step).__name__} is no module of sentence-transformers yet")
    options = {"device": str(encoder.device), "truncate_dim": cut, "prompts": encoder.prompts,
               "default_prompt_name": encoder.default_prompt_name,
               "similarity_fn_name": encoder.similarity_fn_name} | options  # fmt: skip
    return SentenceTransformer(modules=modules, **options)


def _dense(step: Dense) -> nn.Module:
    out, width = step.weight.shape
    activation = getattr(nn, step.activation)()
    return theirs.Dense(  # type: ignore[no-any-return]
        width, out, step.bias is not None, activation,
        init_weight=step.weight.clone(), init_bias=None if step.bias is None else step.bias.clone(),
    )  # fmt: skip
