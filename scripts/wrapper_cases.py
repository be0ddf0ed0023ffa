"""Cases of make_model_goldens.py of multimodal models, and of text models whose tensors are listed by transformers.

A case is (model type, changes of SHAPE, stored dtype, style of config.json). Of the changes, `seed` is the seed of the
weights, and `whole` holds the keys of a multimodal model around text_config; `text` is the model type of that, and with
`transposed` the file has stacks of experts transposed.
"""

CLASSES = {
    "gemma": "GemmaForCausalLM", "ministral3": "Ministral3ForCausalLM", "gemma3": "Gemma3ForConditionalGeneration",
    "mistral3": "Mistral3ForConditionalGeneration", "llava": "LlavaForConditionalGeneration", "llava_next": "LlavaNextForConditionalGeneration", "aya_vision": "AyaVisionForConditionalGeneration", "qwen2_vl": "Qwen2VLForConditionalGeneration",
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration", "qwen3_vl": "Qwen3VLForConditionalGeneration", "qwen3_vl_moe": "Qwen3VLMoeForConditionalGeneration", "gemma4": "Gemma4ForConditionalGeneration",
}
TOWER = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8, "patch_size": 4}
QWEN_TOWER = {"depth": 1, "num_heads": 2, "patch_size": 4, "temporal_patch_size": 1, "spatial_merge_size": 2}
MINISTRAL = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 6, "rope_theta": 100.0, "mscale": 1.0, "mscale_all_dim": 1.0}

CASES = {
    "gemma": ("gemma", {
        "seed": 1200, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 10, "hidden_act": "gelu", "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
    }, "bf16", 4),
    "gemma-untied": ("gemma", {
        "seed": 1201, "num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 10, "hidden_size": 24, "hidden_act": "silu", "attention_bias": True,
        "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e3},
    }, "f32", 5),
    "ministral3": ("ministral3", {
        "seed": 1202, "num_attention_heads": 4, "num_key_value_heads": 2, "rope_parameters": {**MINISTRAL, "llama_4_scaling_beta": 0.7},
    }, "bf16", 5),
    "ministral3-window": ("ministral3", {
        "seed": 1203, "num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 14, "hidden_size": 24, "sliding_window": 7, "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "original_max_position_embeddings": 4, "llama_4_scaling_beta": 0.3},
    }, "f32", 5),
    "gemma3-whole": ("gemma3", {
        "seed": 1204, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10, "query_pre_attn_scalar": 24,
        "sliding_window": 5, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 2000.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
        }, "whole": {"vision_config": {"model_type": "siglip_vision_model", **TOWER}, "mm_tokens_per_image": 4, "eos_token_id": [3, 5]},
    }, "bf16", 4),
    "gemma3-whole-untied": ("gemma3", {
        "seed": 1205, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 12, "hidden_size": 24, "query_pre_attn_scalar": 9, "attention_bias": True,
        "sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"], "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 1e4}, "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        }, "whole": {"tie_word_embeddings": False, "vision_config": {"model_type": "siglip_vision_model", **TOWER}, "mm_tokens_per_image": 4},
    }, "f32", 5),
    "mistral3": ("mistral3", {
        "seed": 1206, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10, "sliding_window": None, "rope_parameters": {"rope_type": "default", "rope_theta": 1e5},
        "whole": {"text": "mistral", "tie_word_embeddings": False, "vision_config": {"model_type": "pixtral", **TOWER}},
    }, "bf16", 4),
    "mistral3-ministral3": ("mistral3", {
        "seed": 1207, "num_attention_heads": 4, "num_key_value_heads": 1, "rope_parameters": {**MINISTRAL, "llama_4_scaling_beta": 0.4},
        "whole": {"text": "ministral3", "tie_word_embeddings": True, "vision_config": {"model_type": "pixtral", **TOWER}},
    }, "bf16", 5),
    "llava": ("llava", {
        "seed": 1208, "num_attention_heads": 4, "num_key_value_heads": 2, "attention_bias": True, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
        "whole": {"text": "llama", "tie_word_embeddings": False, "vision_config": {"model_type": "clip_vision_model", **TOWER}},
    }, "f16", 4),
    "llava-pixtral": ("llava", {
        "seed": 1209, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 10, "sliding_window": 5, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        "tie_word_embeddings": True, "whole": {"text": "mistral", "tie_word_embeddings": False, "vision_config": {"model_type": "pixtral", **TOWER}},
    }, "bf16", 5),
    # The head of these is applied without the scale of the text model's logits.
    "llava-next": ("llava_next", {
        "seed": 1250, "num_attention_heads": 4, "num_key_value_heads": 2, "attention_bias": True, "rope_parameters": {"rope_type": "default", "rope_theta": 1e5},
        "embedding_multiplier": 6.0, "residual_multiplier": 0.3, "attention_multiplier": 0.2, "logits_scaling": 4.0,
        "whole": {"text": "granite", "tie_word_embeddings": True, "vision_config": {"model_type": "siglip_vision_model", **TOWER}, "vision_feature_layer": [-2, -1]},
    }, "bf16", 4),
    "llava-next-mistral": ("llava_next", {
        "seed": 1251, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 10, "hidden_size": 24, "sliding_window": 5, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        "whole": {"text": "mistral", "vision_config": {"model_type": "clip_vision_model", **TOWER}},
    }, "f32", 5),
    "aya-vision": ("aya_vision", {
        "seed": 1252, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": 5, "logit_scale": 0.25, "rope_parameters": {"rope_type": "default", "rope_theta": 1e3},
        "whole": {"text": "cohere2", "vision_config": {"model_type": "siglip_vision_model", **TOWER}, "downsample_factor": 1},
    }, "bf16", 4),
    "aya-vision-untied": ("aya_vision", {
        "seed": 1253, "num_attention_heads": 3, "num_key_value_heads": 1, "hidden_size": 24, "use_qk_norm": True, "attention_bias": True, "logit_scale": 0.7, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e3},
        "whole": {"text": "cohere", "tie_word_embeddings": False, "vision_config": {"model_type": "siglip_vision_model", **TOWER}, "downsample_factor": 1},
    }, "f32", 5),
    "qwen2-vl": ("qwen2_vl", {
        "seed": 1210, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": None, "use_sliding_window": True, "max_window_layers": 1, "sliding_window": 4,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]},
        "whole": {"tie_word_embeddings": True, "vision_config": {**QWEN_TOWER, "embed_dim": 8, "hidden_size": 32, "mlp_ratio": 1}},
    }, "bf16", 4),
    "qwen2-5-vl": ("qwen2_5_vl", {
        "seed": 1211, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": None, "hidden_size": 24, "rope_parameters": {"rope_type": "default", "rope_theta": 1e3, "mrope_section": [1, 2, 1]},
        "whole": {"tie_word_embeddings": False, "vision_config": {**QWEN_TOWER, "hidden_size": 8, "out_hidden_size": 24, "intermediate_size": 8, "window_size": 16, "fullatt_block_indexes": [0]}},
    }, "f32", 5),
    "qwen3-vl": ("qwen3_vl", {
        "seed": 1212, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 2, 2], "mrope_interleaved": True},
        "whole": {"tie_word_embeddings": True, "vision_config": {**QWEN_TOWER, "hidden_size": 8, "out_hidden_size": 32, "intermediate_size": 8, "num_position_embeddings": 4, "deepstack_visual_indexes": [0]}},
    }, "bf16", 4),
    "qwen3-vl-untied": ("qwen3_vl", {
        "seed": 1213, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "hidden_size": 24, "intermediate_size": 12, "attention_bias": True, "rms_norm_eps": 1e-3,
        "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "rope_theta": 1e4, "mrope_section": [2, 3, 3], "mrope_interleaved": True},
        "whole": {"vision_config": {**QWEN_TOWER, "hidden_size": 8, "out_hidden_size": 24, "intermediate_size": 8, "num_position_embeddings": 4, "deepstack_visual_indexes": [0]}},
    }, "bf16", 5),
    # Files have experts transposed, as the second case has; transformers reads those of the first as well.
    "qwen3-vl-moe": ("qwen3_vl_moe", {
        "seed": 1234, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 12, "mlp_only_layers": [1],
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 2, 2], "mrope_interleaved": True}, "whole": {"tie_word_embeddings": False, "vision_config": {**QWEN_TOWER, "hidden_size": 8, "out_hidden_size": 32, "intermediate_size": 8, "num_position_embeddings": 4, "deepstack_visual_indexes": [0]}},
    }, "bf16", 4),
    "qwen3-vl-moe-tied": ("qwen3_vl_moe", {
        "seed": 1241, "float64": True, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": None, "hidden_size": 24, "intermediate_size": 12, "attention_bias": True, "rms_norm_eps": 1e-3, "hidden_act": "gelu",
        "num_experts": 4, "num_experts_per_tok": 3, "moe_intermediate_size": 8, "decoder_sparse_step": 1, "mlp_only_layers": [], "rope_parameters": {"rope_type": "default", "rope_theta": 1e3, "mrope_section": [2, 2, 2], "mrope_interleaved": True},
        "whole": {"transposed": True, "tie_word_embeddings": True, "vision_config": {**QWEN_TOWER, "hidden_size": 8, "out_hidden_size": 24, "intermediate_size": 8, "num_position_embeddings": 4, "deepstack_visual_indexes": [0]}},
    }, "f16", 5),
    "gemma4-whole": ("gemma4", {
        "seed": 1233, "vocab_size": 48, "hidden_size": 16, "intermediate_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "global_head_dim": 12,
        "num_kv_shared_layers": 1, "hidden_size_per_layer_input": 4, "vocab_size_per_layer_input": 48, "sliding_window": 4, "use_bidirectional_attention": "vision", "tie_word_embeddings": True,
        "layer_types": ["sliding_attention", "full_attention", "full_attention"], "rope_parameters": {
            "full_attention": {"rope_type": "proportional", "rope_theta": 1e3, "partial_rotary_factor": 0.25}, "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        }, "whole": {"vision_config": None, "audio_config": None, "eos_token_id": [3, 5]},
    }, "bf16", 5),
}
CASES = {name: (arch, {"vocab_size": 48, "intermediate_size": 20, "hidden_size": 32, **changes}, *rest) for name, (arch, changes, *rest) in CASES.items()}
