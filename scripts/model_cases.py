"""Cases of make_model_goldens.py whose tensors are listed by transformers instead of make_model.py.

A case is (model type, changes of the SHAPEs, stored dtype, style of config.json). Of the changes, `seed` is the seed of the
weights, and `old` holds further keys of the other spelling, as transformers 4 wrote them; None removes a key there.
"""

CLASSES = {
    "phi3": "Phi3ForCausalLM", "granite": "GraniteForCausalLM", "granitemoehybrid": "GraniteMoeHybridForCausalLM", "olmo3": "Olmo3ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM", "exaone4": "Exaone4ForCausalLM", "glm": "GlmForCausalLM", "glm4": "Glm4ForCausalLM",
    "cohere": "CohereForCausalLM", "cohere2": "Cohere2ForCausalLM",
    "gpt2": "GPT2LMHeadModel", "gpt_neox": "GPTNeoXForCausalLM", "apertus": "ApertusForCausalLM", "gpt_oss": "GptOssForCausalLM", "gemma4_text": "Gemma4ForCausalLM",
}

SHAPE = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 24}
SHORT, LONG = [1.0, 1.1, 1.25, 1.5], [1.3, 2.0, 3.5, 6.0]
DEFAULT = {"rope_type": "default"}
SLIDING, FULL = "sliding_attention", "full_attention"

CASES = {
    # 20 tokens are more than 16, so logits have the long factors; the generated tokens have the short ones.
    "phi3": ("phi3", {
        "seed": 1201, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": None, "rms_norm_eps": 1e-3, "sliding_window": 11,
        "original_max_position_embeddings": 16, "rope_parameters": {"rope_type": "longrope", "rope_theta": 300.0, "short_factor": SHORT, "long_factor": LONG},
    }, "bf16", 4),
    "phi3-partial": ("phi3", {
        "seed": 1202, "hidden_size": 48, "intermediate_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": None, "hidden_act": "gelu", "tie_word_embeddings": True,
        "original_max_position_embeddings": 32, "old": {"rope_scaling": {"type": "su", "short_factor": SHORT, "long_factor": LONG, "attention_factor": 1.7, "original_max_position_embeddings": 9}}, "rope_parameters": {
            "rope_type": "longrope", "rope_theta": 1000.0, "partial_rotary_factor": 0.7, "short_factor": SHORT, "long_factor": LONG, "attention_factor": 1.7,
        },
    }, "f16", 5),
    "phi3-plain": ("phi3", {
        "seed": 1203, "num_key_value_heads": 3, "head_dim": 14, "hidden_size": 36, "rope_parameters": {**DEFAULT, "rope_theta": 500.0, "partial_rotary_factor": 0.5},
    }, "f16", 5),
    "granite": ("granite", {
        "seed": 1204, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": None, "attention_bias": True, "mlp_bias": True,
        "embedding_multiplier": 3.5, "residual_multiplier": 0.22, "attention_multiplier": 0.4, "logits_scaling": 0.7, "rope_parameters": {**DEFAULT, "rope_theta": 700.0},
    }, "bf16", 4),
    "granite-tied": ("granite", {
        "seed": 1205, "head_dim": 14, "hidden_size": 36, "num_hidden_layers": 3, "embedding_multiplier": 12, "residual_multiplier": 1.3, "attention_multiplier": 0.1, "logits_scaling": 8.0,
        "tie_word_embeddings": True, "hidden_act": "gelu_pytorch_tanh", "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e3},
    }, "f16", 5),
    "granite-hybrid": ("granitemoehybrid", {
        "seed": 1206, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": None, "num_local_experts": 0, "shared_intermediate_size": 28, "layer_types": [FULL, FULL],
        "position_embedding_type": "rope", "time_step_limit": [0.0, 100.0], "attention_bias": True, "embedding_multiplier": 2.5, "residual_multiplier": 0.6, "attention_multiplier": 0.3, "logits_scaling": 0.8,
        "mamba_n_heads": 4, "old": {"layer_types": ["attention", "attention"]}, "rope_parameters": {**DEFAULT, "rope_theta": 2e3},
    }, "bf16", 4),
    "granite-hybrid-nope": ("granitemoehybrid", {
        "seed": 1207, "num_local_experts": 0, "shared_intermediate_size": 20, "layer_types": [FULL] * 3, "num_hidden_layers": 3, "position_embedding_type": None, "attention_multiplier": 0.7,
        "head_dim": 10, "hidden_size": 36, "logits_scaling": 1.5, "tie_word_embeddings": True, "mamba_n_heads": 4, "old": {"layers_block_type": ["attention"] * 3, "position_embedding_type": "nope"},
        "rope_parameters": {**DEFAULT, "rope_theta": 1e4},
    }, "f16", 5),
    "olmo3": ("olmo3", {
        "seed": 1208, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": None, "num_hidden_layers": 4, "intermediate_size": 12, "sliding_window": 5, "old": {"layer_types": None, "sliding_window_pattern": None, "rope_local_base_freq": None},
        "rope_parameters": {
            FULL: {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "attention_factor": 1.2, "beta_fast": 3.0, "beta_slow": 0.5, "rope_theta": 100.0},
            SLIDING: {**DEFAULT, "rope_theta": 500000.0},
        },
    }, "bf16", 4),
    "olmo3-tied": ("olmo3", {
        "seed": 1209, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 10, "hidden_size": 36, "num_hidden_layers": 3, "attention_bias": True, "tie_word_embeddings": True, "rms_norm_eps": 1e-3,
        "sliding_window": 3, "layer_types": [FULL, SLIDING, SLIDING], "old": {"layer_types": [FULL, SLIDING, SLIDING], "sliding_window_pattern": None, "rope_local_base_freq": None},
        "rope_parameters": {FULL: {"rope_type": "linear", "factor": 3.0, "rope_theta": 2e3}, SLIDING: {**DEFAULT, "rope_theta": 500000.0}},
    }, "f16", 5),
    "smollm3": ("smollm3", {
        "seed": 1210, "vocab_size": 56, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": None, "num_hidden_layers": 4, "intermediate_size": 12, "attention_bias": True, "mlp_bias": True,
        "no_rope_layer_interval": 3, "use_sliding_window": True, "sliding_window": 6, "rope_parameters": {**DEFAULT, "rope_theta": 900.0}, "old": {"no_rope_layers": None},
    }, "bf16", 4),
    "smollm3-tied": ("smollm3", {
        "seed": 1211, "head_dim": 10, "hidden_size": 36, "num_hidden_layers": 3, "no_rope_layers": [0, 1, 1], "sliding_window": 4, "layer_types": [FULL, SLIDING, FULL], "tie_word_embeddings": True,
        "old": {"layer_types": [FULL, SLIDING, FULL]}, "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "rope_theta": 100.0, "truncate": False},
    }, "f16", 5),
    "exaone4": ("exaone4", {
        "seed": 1212, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": None, "num_hidden_layers": 4, "intermediate_size": 12, "sliding_window": 6, "sliding_window_pattern": 3,
        "rope_parameters": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 500.0},
    }, "bf16", 4),
    "exaone4-full": ("exaone4", {
        "seed": 1213, "head_dim": 10, "hidden_size": 36, "sliding_window": None, "sliding_window_pattern": None, "layer_types": [FULL, FULL], "tie_word_embeddings": True, "rms_norm_eps": 1e-3,
        "old": {"layer_types": [FULL, FULL]}, "rope_parameters": {**DEFAULT, "rope_theta": 800.0},
    }, "f16", 5),
    "glm": ("glm", {
        "seed": 1214, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "attention_bias": False, "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "rope_theta": 100.0, "partial_rotary_factor": 0.7},
    }, "bf16", 4),
    "glm-defaults": ("glm", {
        "seed": 1215, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8, "old": {"partial_rotary_factor": None}, "rope_parameters": {**DEFAULT, "rope_theta": 1e4, "partial_rotary_factor": 0.5},
    }, "f16", 5),
    "glm4": ("glm4", {
        "seed": 1216, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "rms_norm_eps": 1e-3, "rope_parameters": {**DEFAULT, "rope_theta": 300.0, "partial_rotary_factor": 0.25},
    }, "bf16", 4),
    "glm4-tied": ("glm4", {
        "seed": 1217, "num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 10, "attention_bias": False, "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "dynamic", "factor": 3.0, "rope_theta": 100.0, "partial_rotary_factor": 0.6}, "max_position_embeddings": 16,
    }, "f16", 5),
    "cohere": ("cohere", {
        "seed": 1218, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": None, "use_qk_norm": True, "attention_bias": True, "logit_scale": 0.8, "layer_norm_eps": 1e-3,
        "rope_parameters": {**DEFAULT, "rope_theta": 600.0},
    }, "bf16", 4),
    "cohere-tied": ("cohere", {
        "seed": 1219, "head_dim": 10, "hidden_size": 36, "logit_scale": 1.7, "tie_word_embeddings": True, "hidden_act": "gelu", "rope_parameters": {"rope_type": "linear", "factor": 2.5, "rope_theta": 1e3},
    }, "f16", 5),
    "cohere2": ("cohere2", {
        "seed": 1220, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": None, "num_hidden_layers": 4, "intermediate_size": 12, "sliding_window": 5, "logit_scale": 0.9,
        "layer_types": [SLIDING, SLIDING, FULL, SLIDING], "old": {"sliding_window_pattern": 3}, "rope_parameters": {**DEFAULT, "rope_theta": 600.0},
    }, "bf16", 4),
    "cohere2-tied": ("cohere2", {
        "seed": 1221, "head_dim": 10, "hidden_size": 36, "num_hidden_layers": 3, "sliding_window": 4, "layer_types": [FULL, SLIDING, FULL], "attention_bias": True, "logit_scale": 1.4, "tie_word_embeddings": True,
        "layer_norm_eps": 1e-3, "old": {"layer_types": [FULL, SLIDING, FULL]}, "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "rope_theta": 100.0},
    }, "f16", 5),
    "gpt2": ("gpt2", {
        "seed": 1222, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "num_attention_heads": 4, "head_dim": None, "n_inner": 40, "layer_norm_epsilon": 1e-3, "activation_function": "relu", "scale_attn_by_inverse_layer_idx": True, "tie_word_embeddings": False,
        "old": {"n_ctx": 64},
    }, "bf16", 4),
    "gpt2-tied": ("gpt2", {
        "seed": 1228, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "num_attention_heads": 2, "scale_attn_weights": False, "tie_word_embeddings": True, "hidden_size": 16, "reorder_and_upcast_attn": True, "old": {"n_ctx": 64, "tie_word_embeddings": None},
    }, "f32", 5),
    "gpt-neox": ("gpt_neox", {
        "seed": 1224, "num_attention_heads": 4, "head_dim": None, "layer_norm_eps": 1e-3, "hidden_act": "gelu_fast", "use_parallel_residual": False, "attention_bias": False,
        "old": {"partial_rotary_factor": None, "rotary_pct": 0.7, "rope_theta": None, "rotary_emb_base": 300.0}, "rope_parameters": {**DEFAULT, "rope_theta": 300.0, "partial_rotary_factor": 0.7},
    }, "bf16", 4),
    "gpt-neox-tied": ("gpt_neox", {
        "seed": 1225, "num_attention_heads": 2, "head_dim": None, "hidden_size": 24, "num_hidden_layers": 3, "tie_word_embeddings": True,
        "old": {"partial_rotary_factor": None, "rope_theta": None}, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4, "partial_rotary_factor": 0.25},
    }, "f16", 5),
    "apertus": ("apertus", {
        "seed": 1226, "intermediate_size": 18, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": None, "rms_norm_eps": 1e-3, "attention_bias": True, "tie_word_embeddings": True, "rope_parameters": {"rope_type": "linear", "factor": 2.5, "rope_theta": 500.0},
    }, "f32", 4),
    "apertus-gelu": ("apertus", {
        "seed": 1227, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 10, "num_hidden_layers": 3, "hidden_act": "gelu",
        "rope_parameters": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 500.0},
    }, "f16", 5),
    "gpt-oss": ("gpt_oss", {
        "seed": 1229, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 12, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5,
        "rms_norm_eps": 1e-3, "swiglu_limit": 0.8, "swiglu_alpha": 1.3, "layer_types": [FULL, SLIDING], "old": {"layer_types": [FULL, SLIDING]},
        "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "beta_fast": 3.0, "beta_slow": 0.5, "truncate": False, "rope_theta": 100.0},
    }, "bf16", 4),
    "gpt-oss-tied": ("gpt_oss", {
        "seed": 1230, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 6, "hidden_size": 24, "intermediate_size": 8, "num_local_experts": 3, "num_experts_per_tok": 3, "sliding_window": 4,
        "num_hidden_layers": 3, "attention_bias": False, "tie_word_embeddings": True, "rope_parameters": {**DEFAULT, "rope_theta": 900.0}, "old": {"rope_scaling": {"rope_type": "default"}},
    }, "f16", 5),
    "gemma4": ("gemma4_text", {
        "seed": 1231, "hidden_size": 24, "intermediate_size": 12, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "global_head_dim": 10, "num_global_key_value_heads": 1,
        "old": {"per_layer_config": None, "global_head_dim": 10, "num_global_key_value_heads": 1}, "attention_k_eq_v": True, "hidden_size_per_layer_input": 0, "attention_bias": True, "sliding_window": 5, "layer_types": [SLIDING, FULL, FULL], "final_logit_softcapping": 4.0, "hidden_activation": "gelu",
        "rms_norm_eps": 1e-3, "rope_parameters": {FULL: {"rope_type": "proportional", "rope_theta": 500.0, "partial_rotary_factor": 0.5}, SLIDING: {**DEFAULT, "rope_theta": 50.0}},
    }, "bf16", 5),
    "gemma4-shared": ("gemma4_text", {
        "seed": 1233, "vocab_size": 48, "hidden_size": 16, "intermediate_size": 8, "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "global_head_dim": 16,
        "rms_norm_eps": 1e-3, "old": {"per_layer_config": None, "global_head_dim": 16}, "num_kv_shared_layers": 2, "use_double_wide_mlp": True, "hidden_size_per_layer_input": 4, "vocab_size_per_layer_input": 48, "sliding_window": 4, "tie_word_embeddings": True,
        "layer_types": [SLIDING, FULL, SLIDING, FULL], "rope_parameters": {FULL: {"rope_type": "proportional", "rope_theta": 1e3, "partial_rotary_factor": 0.25, "factor": 2.0}, SLIDING: {**DEFAULT, "rope_theta": 100.0}},
    }, "f16", 5),
}
