"""The cases of make_peft_goldens.py: one LoraConfig, LoHaConfig or LoKrConfig each, over the bases named there."""
from dataclasses import dataclass, field


@dataclass
class Case:
    base: str  # llama and qwen2 (biases, tied) of testdata/lm, or smaller models of the same kinds, which keep whole matrices and many cases small
    about: str
    config: dict
    train: bool = False
    fill: bool = True  # random values in every trainable tensor; False: the initial values
    save: dict = field(default_factory=dict)  # further arguments of save_pretrained
    convert: bool = False  # also save the trained adapter for the unmodified base
    dtype: str = "float32"  # of the adapter's tensors in the file
    seed: int | None = None  # None: the index of the name among the first cases
    former: bool = False  # an adapter of experts with the names of transformers 4; converted/ is PEFT's conversion
    merged: bool = False  # also the merged parameters of the last layer
    kind: str = "Lora"  # Lora, LoHa or LoKr
    float64: bool = False  # first gradients in f64: PyTorch's f32 is off by more than the limit of the tests


QV = ["q_proj", "v_proj"]
MIXED = ["q_proj", "v_proj", "down_proj"]
TEXT = r".*language_model.*\.(q_proj|o_proj|up_proj)"

CASES = {
    # Other architectures.
    "gemma3": Case("gemma3", "two rotary bases, four norms a layer", {"r": 4, "lora_alpha": 6, "target_modules": "all-linear", "lora_dropout": 0.0}, train=True, seed=300),
    "gemma2": Case("gemma2", "soft caps of scores and logits, with an adapter on the tied head too", {"r": 3, "lora_alpha": 5, "target_modules": ["q_proj", "k_proj", "down_proj", "lm_head"]}, train=True, seed=350),
    "olmo2": Case("olmo2", "norms over all heads of q and k", {"r": 4, "lora_alpha": 6, "target_modules": "all-linear", "lora_dropout": 0.0}, train=True, seed=351),
    "gemma": Case("gemma", "PEFT's table, on a model with scaled embeddings", {"r": 3, "lora_alpha": 5}, train=True, seed=410),
    "ministral3": Case("ministral3", "queries that grow with their position", {"r": 3, "lora_alpha": 5, "target_modules": ["q_proj", "k_proj", "down_proj", "lm_head"]}, train=True, seed=401),
    # Text models within multimodal ones.
    "gemma3-whole": Case("gemma3-whole", "module names of the whole model", {"r": 2, "lora_alpha": 5, "target_modules": TEXT}, train=True, seed=402),
    "mistral3": Case("mistral3", "module names of the whole model, with DoRA", {"r": 2, "lora_alpha": 5, "target_modules": TEXT, "use_dora": True}, train=True, seed=403),
    "llava": Case("llava", "biases, the head and rows of the embedding", {"r": 2, "lora_alpha": 5, "target_modules": r".*language_model.*\.(q|v)_proj|lm_head", "bias": "lora_only", "trainable_token_indices": {"language_model.embed_tokens": [5, 7]}}, train=True, seed=404),
    "llava-next": Case("llava-next", "module names of the whole model, and an adapted head", {"r": 2, "lora_alpha": 5, "target_modules": r".*language_model.*\.(q|v)_proj|lm_head", "lora_dropout": 0.0}, train=True, seed=411),
    "aya-vision": Case("aya-vision", "module names of the whole model", {"r": 2, "lora_alpha": 5, "target_modules": TEXT, "lora_dropout": 0.0}, train=True, seed=412),
    "qwen2-vl": Case("qwen2-vl", "module names of the whole model", {"r": 2, "lora_alpha": 5, "target_modules": TEXT}, train=True, seed=405),
    "qwen3-vl": Case("qwen3-vl", "a whole module beside the adapter", {"r": 2, "lora_alpha": 5, "target_modules": TEXT, "modules_to_save": ["language_model.norm"]}, train=True, seed=406),
    "phi3": Case("phi3", "q, k and v are one layer, gate and up another", {"r": 2, "lora_alpha": 3, "target_modules": "all-linear", "lora_dropout": 0.0}, train=True, seed=360),
    "granite": Case("granite", "factors after layers, and a divisor of the logits of an adapted head with a bias", {"r": 2, "lora_alpha": 3, "target_modules": ["q_proj", "o_proj", "down_proj", "lm_head"], "lora_bias": True}, train=True, seed=361),
    "granite-tied": Case("granite-tied", "a divisor of the logits of a frozen head, and DoRA", {"r": 2, "lora_alpha": 3, "target_modules": ["k_proj", "up_proj", "down_proj"], "use_dora": True, "lora_dropout": 0.0}, train=True, seed=362),
    "granite-hybrid": Case("granite-hybrid", "the shared MLP", {"r": 2, "lora_alpha": 3, "target_modules": "all-linear", "lora_dropout": 0.0}, train=True, seed=363),
    "olmo3": Case("olmo3", "two rotary bases", {"r": 2, "lora_alpha": 3, "target_modules": "all-linear", "lora_dropout": 0.0}, train=True, seed=364, float64=True),
    "smollm3": Case("smollm3", "layers without positions", {"r": 2, "lora_alpha": 3, "target_modules": "all-linear", "lora_dropout": 0.0}, train=True, seed=365),
    "exaone4": Case("exaone4", "layers without positions, norms after layers", {"r": 2, "lora_alpha": 3, "target_modules": "all-linear", "lora_dropout": 0.0}, train=True, seed=366),
    "glm": Case("glm", "a part of each head is rotated, in pairs of neighbours", {"r": 2, "lora_alpha": 3, "target_modules": "all-linear", "lora_dropout": 0.0}, train=True, seed=367),
    "glm4": Case("glm4", "norms before and after layers", {"r": 2, "lora_alpha": 3, "target_modules": "all-linear", "lora_dropout": 0.0}, train=True, seed=368),
    "cohere": Case("cohere", "norms saved whole, with weights for each head", {"r": 2, "lora_alpha": 3, "target_modules": ["k_proj", "o_proj", "up_proj"], "modules_to_save": ["norm", "q_norm", "input_layernorm"]}, train=True, seed=369),
    "cohere2": Case("cohere2", "attention and MLP side by side", {"r": 2, "lora_alpha": 3, "target_modules": "all-linear", "lora_dropout": 0.0}, train=True, seed=370),
    "gpt2": Case("gpt2", "weights of layers are stored transposed: fan_in_fan_out", {"r": 2, "lora_alpha": 3, "target_modules": ["c_attn", "c_proj", "c_fc"], "fan_in_fan_out": True, "lora_dropout": 0.0}, train=True, seed=371),
    "gpt2-tied": Case("gpt2-tied", "PEFT's table on a tied model, with DoRA", {"r": 2, "lora_alpha": 3, "use_dora": True, "lora_dropout": 0.0}, train=True, seed=372),
    "gpt2-pissa": Case("gpt2-tied", "the residual of a transposed weight", {"r": 2, "lora_alpha": 3, "target_modules": ["c_attn", "mlp.c_proj"], "fan_in_fan_out": True, "init_lora_weights": "pissa", "modules_to_save": ["ln_f", "h.1.mlp.c_fc"]}, train=True, fill=False, seed=373),
    "gpt-neox": Case("gpt-neox", "q, k and v are one layer, head by head", {"r": 2, "lora_alpha": 3, "target_modules": "all-linear", "lora_dropout": 0.0}, train=True, seed=374),
    "gpt-neox-tied": Case("gpt-neox-tied", "PEFT's table, and rows of the embedding", {"r": 2, "lora_alpha": 3, "trainable_token_indices": {"embed_in": [5, 7, 40]}}, train=True, seed=375),
    "apertus": Case("apertus", "an activation function with weights", {"r": 2, "lora_alpha": 3, "target_modules": "all-linear", "lora_dropout": 0.0}, train=True, seed=376),
    "gpt-oss": Case("gpt-oss", "experts with biases, stored transposed, and attention with sinks", {"r": 2, "lora_alpha": 3, "target_modules": "all-linear", "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"], "lora_dropout": 0.0}, train=True, seed=377),
    "gemma4": Case("gemma4", "two sizes of heads, and keys that are values", {"r": 2, "lora_alpha": 3, "target_modules": "all-linear", "lora_dropout": 0.0}, train=True, seed=378),
    "gemma4-shared": Case("gemma4-shared", "keys that several layers use, and embeddings of layers", {"r": 2, "lora_alpha": 3, "target_modules": ["q_proj", "k_proj", "v_proj", "per_layer_input_gate", "per_layer_model_projection", "down_proj"], "lora_dropout": 0.0}, train=True, seed=379, float64=True),
    "gemma4-whole": Case("gemma4-whole", "PEFT's table, with module names of the whole model", {"r": 2, "lora_alpha": 3, "lora_dropout": 0.0}, train=True, seed=380),
    "qwen3-vl-moe": Case("qwen3-vl-moe-tied", "experts that files have transposed, with module names of the whole model", {"r": 2, "lora_alpha": 3, "target_modules": TEXT, "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"], "lora_dropout": 0.0}, train=True, seed=407, float64=True),
    "mixtral": Case("mixtral", "routed experts, whose weights are no modules: attention has adapters", {"r": 4, "lora_alpha": 6, "target_modules": ["q_proj", "v_proj", "o_proj"], "lora_dropout": 0.0}, train=True, seed=301),
    "qwen3-moe": Case("qwen3-moe", "experts in some layers, and biases", {"r": 4, "lora_alpha": 6, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"], "lora_dropout": 0.0}, train=True, seed=302),
    # Routed experts. With these seeds no routing decision is so close that rounding to bf16 would change it.
    "mixtral-experts": Case("mixtral", "experts are stacked parameters, two of one module: wrappers in one another", {"r": 3, "lora_alpha": 5, "target_modules": ["q_proj", "v_proj"], "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}, train=True, merged=True, seed=340),
    "mixtral-router": Case("mixtral", "the router and one of the stacks, with ranks of their own", {"r": 4, "lora_alpha": 2, "target_parameters": ["gate.weight", "experts.gate_up_proj"], "rank_pattern": {"gate_up_proj": 2}, "alpha_pattern": {r".*gate\.weight": 5}, "use_rslora": True, "init_lora_weights": "gaussian"}, train=True, seed=317),
    "qwen3-moe-experts": Case("qwen3-moe", "all-linear takes in experts and router, of twice the rank where two were joined", {"r": 2, "lora_alpha": 3, "target_modules": "all-linear"}, train=True, merged=True, seed=320),
    "mixtral-former": Case("mixtral", "a linear layer for each expert, and the router", {"r": 2, "lora_alpha": 3, "target_modules": ["q_proj", "gate", "w1", "w2", "w3"]}, former=True, seed=306),
    "qwen3-moe-former": Case("qwen3-moe", "a linear layer for each expert", {"r": 2, "lora_alpha": 5, "target_modules": r".*\.experts\.(gate|up|down)_proj"}, former=True, seed=307),
    "mixtral-balance": Case("mixtral-balance", "the loss of balance reaches adapters", {"r": 2, "lora_alpha": 3, "target_modules": ["q_proj"], "target_parameters": ["gate.weight", "experts.gate_up_proj", "experts.down_proj"]}, train=True, seed=345),
    "qwen3-moe-balance": Case("qwen3-moe-balance", "layers without experts have no part in the balance", {"r": 2, "lora_alpha": 3, "target_modules": ["k_proj", "v_proj"]}, train=True, seed=348),

    # Initial values.
    "init-gaussian": Case("llama", "A normal with std 1/r, B zero", {"r": 4, "lora_alpha": 8, "target_modules": MIXED, "init_lora_weights": "gaussian"}, train=True),
    "init-false": Case("small-llama", "A and B both as nn.Linear starts: B is not zero", {"r": 4, "lora_alpha": 6, "target_modules": MIXED, "init_lora_weights": False}, train=True, fill=False),
    "init-pissa": Case("llama", "the base becomes W - sBA; the adapter right after init changes nothing", {"r": 4, "lora_alpha": 8, "target_modules": MIXED, "init_lora_weights": "pissa"}, train=True, fill=False, convert=True),
    "init-pissa-niter": Case("small-llama", "PiSSA by randomised SVD: only its own A and B tell the residual", {"r": 4, "lora_alpha": 8, "target_modules": QV, "init_lora_weights": "pissa_niter_4"}, train=True, fill=False, convert=True),
    "init-pissa-rslora": Case("small-llama", "scale a/sqrt(r); the converted alpha is a*sqrt(2)", {"r": 4, "lora_alpha": 3, "target_modules": QV, "init_lora_weights": "pissa", "use_rslora": True}, train=True, fill=False, convert=True),
    "init-pissa-patterns": Case("small-llama", "the conversion doubles rank_pattern and alpha_pattern too", {"r": 4, "lora_alpha": 8, "target_modules": MIXED, "init_lora_weights": "pissa", "rank_pattern": {"v_proj": 3}, "alpha_pattern": {"down_proj": 5}}, train=True, fill=False, convert=True),
    "init-pissa-dora": Case("small-llama", "the magnitude is the norm of the original rows", {"r": 4, "lora_alpha": 8, "target_modules": QV, "init_lora_weights": "pissa", "use_dora": True}, train=True, fill=False),
    "init-pissa-wide": Case("small-llama", "r above the matrix rank: A and B get min(in, out) rows, the scale stays a/r", {"r": 40, "lora_alpha": 60, "target_modules": ["v_proj"], "layers_to_transform": [1], "init_lora_weights": "pissa"}, fill=False),
    "init-olora": Case("small-llama", "QR instead of SVD", {"r": 4, "lora_alpha": 8, "target_modules": MIXED, "init_lora_weights": "olora"}, train=True, fill=False, convert=True),

    # Biases.
    "bias-lora-only": Case("qwen2", "the biases of targeted layers are trained", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj"], "bias": "lora_only"}, train=True),
    "bias-all": Case("qwen2", "every bias of the model is trained", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj"], "bias": "all"}, train=True),
    "lora-bias": Case("qwen2", "lora_B has a bias, scaled like B; o_proj has none in the base", {"r": 4, "lora_alpha": 12, "target_modules": ["q_proj", "o_proj"], "lora_bias": True}, train=True),
    "bias-all-lora-bias": Case("small-qwen2", "both kinds of bias", {"r": 2, "lora_alpha": 5, "target_modules": ["v_proj"], "lora_bias": True, "bias": "all"}, train=True),
    "dora-biases": Case("qwen2", "DoRA leaves the base bias unscaled", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "k_proj", "up_proj"], "use_dora": True, "lora_dropout": 0.0}, train=True),
    "dora-rslora": Case("small-llama", "DoRA with the scale a/sqrt(r)", {"r": 4, "lora_alpha": 3, "target_modules": MIXED, "use_dora": True, "use_rslora": True}, train=True),

    # Target modules and ranks.
    "targets-null": Case("llama", "PEFT's table: q_proj and v_proj", {"r": 4, "lora_alpha": 8}),
    "targets-regex": Case("llama", "full match with look-ahead and look-behind", {"r": 4, "lora_alpha": 8, "target_modules": r"model\.layers\.\d+\.(?!self_attn\.k)\w+\.(?:k|v|up)_proj(?<!gate_proj)"}),
    "targets-exclude": Case("small-llama", "exclude_modules as a list wins over targets", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "k_proj", "gate_proj"], "exclude_modules": ["layers.0.self_attn.q_proj", "gate_proj"]}),
    "targets-exclude-regex": Case("small-llama", "exclude_modules as a regex by full match", {"r": 4, "lora_alpha": 8, "target_modules": "all-linear", "exclude_modules": r".*\.(self_attn|1\.mlp)\..*"}),
    "layers-list": Case("small-llama", "layers_to_transform", {"r": 4, "lora_alpha": 8, "target_modules": MIXED, "layers_to_transform": [1]}),
    "layers-pattern": Case("small-llama", "layers_to_transform as one number, with layers_pattern", {"r": 4, "lora_alpha": 8, "target_modules": MIXED, "layers_to_transform": 0, "layers_pattern": "layers"}),
    "layers-full-name": Case("small-llama", "a module named in full escapes layers_to_transform", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "model.layers.1.self_attn.v_proj"], "layers_to_transform": [0]}),
    "patterns-rslora": Case("llama", "rank_pattern and alpha_pattern by suffix and regex, with rslora", {"r": 4, "lora_alpha": 6, "target_modules": "all-linear", "use_rslora": True, "rank_pattern": {"q_proj": 2, r"layers\.\d\.mlp\.(up|gate)_proj": 3}, "alpha_pattern": {"model.layers.0.self_attn.v_proj": 2.5, r".*down_proj": 9}}, train=True),
    "fan-in-fan-out": Case("small-llama", "means nothing for linear layers: PEFT warns and saves false", {"r": 4, "lora_alpha": 8, "target_modules": MIXED, "fan_in_fan_out": True}),
    "head": Case("small-llama", "lm_head targeted; its base matrix is saved too", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "lm_head"]}, train=True),
    "head-tied": Case("small-qwen2", "lm_head targeted on a tied model: the embeddings stay as they are", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "lm_head"]}, train=True),

    # Embeddings.
    "embedding": Case("small-llama", "embedding LoRA; the base matrix is saved too", {"r": 4, "lora_alpha": 6, "target_modules": ["embed_tokens", "q_proj", "down_proj"]}, train=True),
    "embedding-lean": Case("small-llama", "embedding LoRA saved without the base matrix", {"r": 3, "lora_alpha": 7, "target_modules": ["embed_tokens", "v_proj"], "use_rslora": True}, save={"save_embedding_layers": False}),
    "embedding-tied": Case("small-qwen2", "embedding LoRA on a tied model: the head stays as it is", {"r": 4, "lora_alpha": 6, "target_modules": ["embed_tokens", "q_proj"]}, train=True),
    "embedding-tied-ensured": Case("small-qwen2", "ensure_weight_tying: the head gets the transposed factors", {"r": 4, "lora_alpha": 6, "target_modules": ["embed_tokens", "q_proj"], "ensure_weight_tying": True}),
    "embedding-and-head-tied": Case("small-qwen2", "two separate adapters on one tied matrix", {"r": 2, "lora_alpha": 3, "target_modules": ["embed_tokens", "lm_head"]}),
    "embedding-gaussian": Case("small-llama", "the gaussian init does not concern embeddings", {"r": 4, "lora_alpha": 6, "target_modules": ["embed_tokens", "q_proj"], "init_lora_weights": "gaussian"}, train=True),
    "embedding-dora": Case("small-llama", "DoRA on embeddings: one magnitude per column", {"r": 4, "lora_alpha": 6, "target_modules": ["embed_tokens", "q_proj"], "use_dora": True}, train=True),
    "tokens": Case("small-llama", "trainable rows of the embeddings; the pad row 1 gets no gradient", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "trainable_token_indices": [7, 1, 40, 3]}, train=True),
    "tokens-tied": Case("small-qwen2", "trainable rows on a tied model: the head uses them too", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "trainable_token_indices": [7, 1, 40, 3]}, train=True),
    "tokens-by-layer": Case("small-llama", "rows of the embeddings and others of the head", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "trainable_token_indices": {"embed_tokens": [5, 6], "lm_head": [6, 9, 2]}}, train=True),
    "tokens-tied-apart": Case("small-qwen2", "differing rows untie the head", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "trainable_token_indices": {"embed_tokens": [5, 6], "lm_head": [9]}}),

    # Whole modules.
    "saved-modules": Case("small-llama", "embeddings, head and every norm: 'norm' is matched as a plain suffix", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "norm", "lm_head"]}, train=True),
    "saved-last-norm": Case("small-llama", "one norm by its full name, with all-linear", {"r": 2, "lora_alpha": 4, "target_modules": "all-linear", "modules_to_save": ["model.norm"]}, train=True),
    "saved-linear": Case("small-llama", "a linear layer saved whole is not targeted", {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "k_proj"], "modules_to_save": ["layers.1.self_attn.k_proj"]}, train=True),
    "saved-head-tied": Case("small-qwen2", "the head of a tied model: a copy of its own", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}, train=True),
    "saved-embedding-tied": Case("small-qwen2", "the embeddings of a tied model: the head keeps the base", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]}, train=True),
    "saved-tied-ensured": Case("small-qwen2", "ensure_weight_tying: one matrix for both, saved twice", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"], "ensure_weight_tying": True}, train=True),

    # Methods of LyCORIS.
    "loha": Case("small-llama", "more columns of products than the narrow weights have", {"r": 5, "alpha": 3, "target_modules": "all-linear", "rank_pattern": {"q_proj": 2}, "alpha_pattern": {"down_proj": 4}}, train=True, merged=True, seed=420, kind="LoHa"),
    "loha-random": Case("qwen2", "no matrix is zero, beside biases", {"r": 2, "alpha": 2, "target_modules": QV, "init_weights": False}, train=True, fill=False, seed=421, kind="LoHa"),
    "lokr": Case("small-llama", "divisors next to the root; the inner factors are decomposed or whole", {"r": 3, "alpha": 5, "target_modules": "all-linear", "rank_pattern": {"down_proj": 16}}, train=True, merged=True, seed=422, kind="LoKr"),
    "lokr-both": Case("small-llama", "both factors are decomposed, of a factor that some sizes are no multiple of", {"r": 1, "alpha": 3, "target_modules": ["q_proj", "k_proj", "up_proj", "lm_head"], "decompose_both": True, "decompose_factor": 6}, train=True, seed=423, kind="LoKr"),
    "lokr-lycoris": Case("qwen2", "the initial values of LyCORIS, beside biases", {"r": 4, "alpha": 1, "target_modules": MIXED, "decompose_factor": 4, "init_weights": "lycoris"}, train=True, seed=424, kind="LoKr"),

    # Files.
    "file-bf16": Case("small-llama", "tensors stored as bf16, computed in f32", {"r": 4, "lora_alpha": 8, "target_modules": QV}, dtype="bfloat16"),
    "file-bin": Case("small-llama", "adapter_model.bin, as older versions of PEFT wrote it", {"r": 4, "lora_alpha": 8, "target_modules": QV}, save={"safe_serialization": False}),
}
