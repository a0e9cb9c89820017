"""Makes a small random model with the configuration of a large one: few layers, narrow, every kind of layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig

VOCABULARY = 64
HEADS = 4
WINDOW = 40
# Settings with these endings name layers by their numbers.
LISTS_OF_LAYERS = ("_layers", "_layer_indices", "_idxs")
MOST_PARAMETERS = 10_000_000
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": HEADS,
    "head_dim": 8,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 12,
    "sliding_window": WINDOW,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": VOCABULARY,
    "laurel_rank": 8,
    "num_dense_layers": 1,
    "shared_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 16,
    "moe_latent_size": 16,
    "linear_num_key_heads": HEADS // 2,
    "linear_num_value_heads": HEADS,
    "linear_num_heads": HEADS,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_head_dim": 16,
    # Mamba-2's heads are together as wide as its inner layer, which is `mamba_expand` times as wide as the model.
    "mamba_expand": 2,
    "expand": 2,
    "mamba_d_ssm": 64,
    "mamba_n_heads": 8,
    "mamba_num_heads": 8,
    "n_mamba_heads": 8,
    "mamba_d_head": 8,
    "mamba_head_dim": 8,
    "mamba_n_groups": 2,
    "mamba_ngroups": 2,
    "n_groups": 2,
    "mamba_d_state": 16,
    "ssm_state_size": 16,
}
# The sizes of single layers that are wider than the others.
WIDE = {"head_dim": 16, "num_key_value_heads": HEADS // 2}
# A model of Mamba-2 alone.
MAMBA = {"num_heads": 8, "state_size": 16}
# The head size of latent attention is that of its rotary part.
LATENT = {"head_dim": SIZES["qk_rope_head_dim"], "num_key_value_heads": HEADS}


def small_config(config: PretrainedConfig) -> PretrainedConfig:
    """Returns a configuration like `config`, with small sizes. What scales, caps, windows and routes stays."""
    given = config.to_dict()
    heads, key_heads = (getattr(config, name, None) for name in ("num_attention_heads", "num_key_value_heads"))
    sizes: dict[str, Any] = SIZES | {"num_key_value_heads": _key_heads(heads, key_heads)}
    if given.get("kv_lora_rank"):
        sizes |= LATENT
    if given.get("state_size"):
        sizes |= MAMBA
    layers = config.num_hidden_layers
    kept = _layers_kept(config)
    for name, value in list(given.items()):
        if name.endswith("_token_id"):
            given[name] = None if value is None else 0
        elif isinstance(value, list) and len(value) == layers:
            given[name] = value[:kept]
        elif name.endswith(LISTS_OF_LAYERS) and isinstance(value, list):
            given[name] = [each for each in value if each < kept]
    if shared := given.get("num_kv_shared_layers"):
        given["num_kv_shared_layers"] = min(shared, kept // 2)
    if own := given.get("per_layer_config"):
        given["per_layer_config"] = {
            int(layer): {name: WIDE.get(name, value) for name, value in changes.items()}
            for layer, changes in own.items()
            if int(layer) < kept
        }
    for name, size in sizes.items():
        name = config.attribute_map.get(name, name)
        own = given.get(name)
        # A dense model of a family that also has mixtures has no experts.
        if own is not None and not (own == 0 and name.endswith("experts")):
            given[name] = [size] * kept if isinstance(own, list) else size
    given[config.attribute_map.get("num_hidden_layers", "num_hidden_layers")] = kept
    given["dtype"] = "float32"
    for name in ("model_type", "architectures", "auto_map", "quantization_config"):
        given.pop(name, None)
    return AutoConfig.for_model(config.model_type, **given)


def _key_heads(heads: int | None, key_heads: int | None) -> int:
    if key_heads == 1:
        return 1
    return HEADS if key_heads in (None, heads) else HEADS // 2


def _layers_kept(config: PretrainedConfig) -> int:
    """Returns how many first layers have every kind that the model has: two at least, and as many before those that
    take keys and values of an earlier layer.
    """
    kept = 2
    for name in ("layer_types", "mlp_layer_types"):
        kinds = list(getattr(config, name, None) or [])
        kept = max([kept, *(kinds.index(kind) + 1 for kind in set(kinds))])
    return min(2 * kept if getattr(config, "num_kv_shared_layers", None) else kept, config.num_hidden_layers)


@torch.no_grad()
def write_small(config: PretrainedConfig, folder: Path) -> None:
    """Writes a random model of the configuration, always the same one.

    Raises `ValueError` when it is not small, because its sizes have names that `small_config` does not know.
    """
    with torch.device("meta"):
        sizes = [each.numel() for each in AutoModelForCausalLM.from_config(config).parameters()]
    if sum(sizes) > MOST_PARAMETERS:
        raise ValueError(f"it would have {sum(sizes):,} parameters")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, trust_remote_code=False)
        for name, parameter in model.named_parameters():
            torch.nn.init.normal_(parameter, std=0.3)
            # Norms near 1, as in real models: with smaller ones logits are so small that a cap hardly changes them.
            if parameter.dim() == 1 and name.endswith("weight"):
                parameter += 1.0
            # States that last, as in real models: of those that decay at once little but rounding is seen.
            elif name.endswith("A_log"):
                parameter -= 3.0
    for name, buffer in model.named_buffers():
        if "bias" in name:
            buffer.copy_(torch.linspace(-0.4, 0.6, buffer.numel()).view(buffer.shape))
    model.save_pretrained(folder)
